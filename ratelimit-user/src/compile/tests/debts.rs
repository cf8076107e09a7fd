//! What users and totals owe after a change, in plain numbers: a price of 10 and a tolerance of 1000 are a burst of 100 packets.

use ratelimit_common::{
    abi::{
        Bucket, Meter, TotalState,
        limit::{COUNTS_BYTES, HELD, SOFT},
        service::MAX_TOTALS,
    },
    limit::gcra::MAX_TOLERANCE_Q8,
};

use super::*;

const NOW: u64 = 1 << 50;
/// The word of a bucket that no packet has ever charged.
const NEVER: u64 = 0;
const EMPTY: Bucket = Bucket { tat_q8: [NEVER; 4], proven_until_q8: 0 };

fn packets(cost_fp: u64, tolerance_q8: u64) -> Limit {
    Limit { cost_fp, tolerance_q8, frac_bits: 0, meter: Meter::Packets as u32 }
}

fn bytes(cost_fp: u64, tolerance_q8: u64) -> Limit {
    Limit { meter: Meter::Bytes as u32, frac_bits: COUNTS_BYTES, ..packets(cost_fp, tolerance_q8) }
}

fn set_of(limits: &[Limit]) -> LimitSet {
    let mut set = LimitSet { limit_count: limits.len() as u64, ..policy_of_users().users[0].1 };
    set.limits = [Limit::UNUSED; 4];
    set.limits[..limits.len()].copy_from_slice(limits);
    (set.owed_since_q8, set.owed_q8) = (0, 0);
    set
}

/// The set with a debt since a moment relative to now.
fn owing(mut set: LimitSet, since: i64, owed_q8: u64) -> LimitSet {
    (set.owed_since_q8, set.owed_q8) = (NOW.wrapping_add_signed(since), owed_q8);
    set
}

fn policy_of_users() -> Desired {
    let user = |name: &str, net: u8| {
        format!(
            "[[user]]\nname = \"{name}\"\nsources = [\"192.0.{net}.0/24\"]\nnetwork = [\"10 packets/s\"]\n"
        )
    };
    let text = format!("[source]\nlimits = [\"1000 packets/s\"]\n{}{}", user("a", 1), user("b", 2));
    let mut desired = desired(&policy(&text), &FACTS, 1, None);
    desired.new_users.clear();
    desired
}

/// The debt of the first user after a change, and since when relative to now. `ahead` says how far the word of each limit is ahead of now.
fn owes(old: &LimitSet, new: &LimitSet, ahead: &[i64]) -> Option<(i64, u64)> {
    let words: Vec<u64> = ahead.iter().map(|ahead| NOW.wrapping_add_signed(*ahead)).collect();
    owes_by_words(old, new, &words)
}

fn owes_by_words(old: &LimitSet, new: &LimitSet, words: &[u64]) -> Option<(i64, u64)> {
    let mut next = policy_of_users();
    next.users.truncate(1);
    next.users[0].1 = *new;
    let mut bucket = EMPTY;
    bucket.tat_q8[..words.len()].copy_from_slice(words);
    next.carry_debts(|_| Some(*old), |_| Some(bucket), NOW);
    let set = next.users[0].1;
    (set != *new).then(|| (set.owed_since_q8.wrapping_sub(NOW) as i64, set.owed_q8))
}

fn owes_of_one(was: Limit, is: Limit, ahead: i64) -> Option<(i64, u64)> {
    owes(&set_of(&[was]), &set_of(&[is]), &[ahead])
}

#[test]
fn under_a_slower_limit_as_many_packets_are_owed_at_the_new_price_and_never_less() {
    assert_eq!(owes_of_one(packets(10, 1_000), packets(30, 3_000), 500), Some((0, 1_500)));
    assert_eq!(owes_of_one(packets(7, 700), packets(10, 1_000), 500), Some((0, 715)), "714.3, rounded up");
    assert_eq!(owes_of_one(packets(10, 1_000), packets(20, 1_200), 900), Some((0, 1_200)), "an empty bucket");
    assert_eq!(owes_of_one(packets(10, 1_000), packets(20, 2_000), 0), None, "full, so nothing is owed");
    assert_eq!(owes_of_one(packets(10, 1_000), packets(20, 2_000), -40), None, "full for 40 at either price");
}

#[test]
fn a_bigger_burst_counts_as_spent_but_for_what_would_have_filled_since_the_bucket_was_full() {
    let bigger = |ahead| owes_of_one(packets(10, 1_000), packets(10, 4_000), ahead);
    assert_eq!(bigger(200), Some((0, 3_200)));
    assert_eq!(bigger(0), Some((0, 3_000)));
    assert_eq!(bigger(-700), Some((0, 2_300)));
    // Nothing is owed any more, and the bucket has been full for a time of 500.
    assert_eq!(bigger(-3_500), Some((-501, 1)));
    assert_eq!(bigger(-3_000), Some((-1, 1)), "full as of now");
    // At twice the price the old burst is 2000, so the bursts differ by 3000.
    assert_eq!(owes_of_one(packets(10, 1_000), packets(20, 5_000), 250), Some((0, 3_500)));
    // A burst of fewer packets that takes more time is not a bigger one.
    assert_eq!(owes_of_one(packets(10, 1_000), packets(20, 1_500), 250), Some((0, 500)));
}

#[test]
fn a_quicker_limit_or_a_smaller_burst_leaves_everything_as_it_is_and_no_word_is_read() {
    for is in [packets(5, 1_000), packets(10, 1_000), packets(10, 900), packets(5, 9_000)] {
        assert_eq!(owes_of_one(packets(10, 1_000), is, 500), None, "{is:?}");
        let mut next = policy_of_users();
        next.users[0].1 = set_of(&[is]);
        let before = set_of(&[packets(10, 1_000)]);
        next.carry_debts(
            |index| (index == 0).then_some(before),
            |index| panic!("the word of user {index} says nothing here"),
            NOW,
        );
    }
}

#[test]
fn who_changes_from_packets_to_bytes_owes_the_same_part_of_the_burst() {
    assert_eq!(owes_of_one(packets(10, 1_000), bytes(1, 6_000), 250), Some((0, 1_500)));
    assert_eq!(owes_of_one(bytes(1, 7), packets(10, 10), 1), Some((0, 2)), "1.4, rounded up");
    // A word further ahead than the burst was charged under an earlier limit: the bucket counts as empty.
    assert_eq!(owes_of_one(packets(10, 1_000), bytes(1, 5_000), 3_000), Some((0, 5_000)));
    assert_eq!(owes_of_one(packets(10, 1_000), bytes(1, 5_000), -300), Some((-1, 1)), "full as of now");
    assert_eq!(owes_of_one(packets(10, 0), bytes(1, 5_000), -300), Some((-1, 1)), "a limit without a burst");
    assert_eq!(owes_of_one(packets(10, 1_000), bytes(1, 1_000), 600), None, "as far ahead as it was");
}

#[test]
fn a_place_without_a_limit_and_a_bucket_that_was_never_charged_owe_nothing() {
    let [was, is] = [packets(10, 1_000), packets(20, 2_000)];
    for ahead in [500, -300] {
        assert_eq!(owes_of_one(Limit::UNUSED, is, ahead), None);
        assert_eq!(owes_of_one(was, Limit::UNUSED, ahead), None);
    }
    assert_eq!(owes_by_words(&set_of(&[was]), &set_of(&[is]), &[NEVER]), None);
    // A bucket that has been full for longer than any burst lasts is full under every limit.
    let bigger = packets(10, MAX_TOLERANCE_Q8 / 2);
    let mut next = policy_of_users();
    next.users[0].1 = set_of(&[bigger]);
    let bucket = Bucket { tat_q8: [1, 0, 0, 0], ..EMPTY };
    next.carry_debts(|_| Some(set_of(&[was])), |_| Some(bucket), 1 << 63);
    assert_eq!(next.users[0].1.owed_q8, 0);
}

#[test]
fn prices_are_compared_with_the_binary_places_of_both_and_without_the_bits_beside_them() {
    let fine = |cost_fp, tolerance_q8| Limit { frac_bits: 4, ..packets(cost_fp, tolerance_q8) };
    assert_eq!(owes_of_one(fine(160, 1_000), packets(10, 1_000), 500), None, "the same price");
    assert_eq!(owes_of_one(fine(160, 1_000), packets(20, 2_000), 500), Some((0, 1_000)));
    assert_eq!(owes_of_one(packets(10, 1_000), fine(320, 2_000), 500), Some((0, 1_000)));
    assert_eq!(owes_of_one(packets(10, 1_000), fine(80, 500), 400), None, "quicker");
    for bits in [SOFT, SOFT | HELD, COUNTS_BYTES] {
        let marked = |limit: Limit| Limit { frac_bits: limit.frac_bits | bits, ..limit };
        assert_eq!(owes_of_one(marked(fine(160, 1_000)), packets(20, 2_000), 500), Some((0, 1_000)));
        assert_eq!(owes_of_one(packets(10, 1_000), marked(fine(320, 2_000)), 500), Some((0, 1_000)));
    }
    let free = packets(0, 1_000);
    assert_eq!(owes_of_one(free, packets(2, 2_000), 500), Some((0, 1_000)), "the lowest price there is is 1");
}

#[test]
fn what_was_owed_before_counts_as_the_word_does_and_the_further_one_decides() {
    let old = |since: i64, owed| owing(set_of(&[packets(10, 1_000)]), since, owed);
    let slower = set_of(&[packets(20, 2_000)]);
    assert_eq!(owes_by_words(&old(-100, 900), &slower, &[NEVER]), Some((0, 1_600)));
    assert_eq!(owes(&old(-100, 900), &slower, &[300]), Some((0, 1_600)));
    assert_eq!(owes(&old(-100, 900), &slower, &[900]), Some((0, 1_800)));
    assert_eq!(owes_by_words(&old(0, 5_000), &slower, &[NEVER]), Some((0, 2_000)), "at most the burst");
    // The debt has been paid for a time of 1100, in which a burst that is 3000 bigger could fill.
    let bigger = set_of(&[packets(10, 4_000)]);
    assert_eq!(owes_by_words(&old(-2_000, 900), &bigger, &[NEVER]), Some((0, 1_900)));
    // The next set may already have a larger debt.
    let saying = |owed| owing(slower, 0, owed);
    assert_eq!(owes(&old(-100, 900), &saying(1_599), &[300]), Some((0, 1_600)));
    assert_eq!(owes(&old(-100, 900), &saying(1_600), &[300]), None);
    assert_eq!(owes(&old(-100, 900), &saying(9_000), &[300]), None);
    // The word may already be further ahead, because an even slower limit left it.
    assert_eq!(owes(&set_of(&[packets(10, 1_000)]), &slower, &[5_000]), None);
}

#[test]
fn of_several_limits_the_one_that_owes_most_decides() {
    let old = set_of(&[packets(10, 1_000), bytes(1, 5_000), packets(5, 100)]);
    let new = set_of(&[packets(20, 2_000), bytes(2, 10_000), packets(5, 100)]);
    assert_eq!(owes(&old, &new, &[400, 700, 90]), Some((0, 1_400)));
    assert_eq!(owes(&old, &new, &[800, 700, 90]), Some((0, 1_600)));
    let bigger = set_of(&[packets(10, 1_040), bytes(1, 5_005), packets(5, 100)]);
    assert_eq!(
        owes(&old, &bigger, &[-50, -20, 90]),
        Some((-11, 1)),
        "one has been full for 10, the other for 15"
    );
}

#[test]
fn a_user_that_is_new_or_unknown_or_without_a_bucket_owes_nothing_and_others_do() {
    let (old, new) = (set_of(&[packets(10, 1_000)]), set_of(&[packets(20, 2_000)]));
    let bucket = Bucket { tat_q8: [NOW + 500; 4], ..EMPTY };
    let carried = |new_users: &[u32], known: &dyn Fn(u32) -> bool, charged: &dyn Fn(u32) -> bool| {
        let mut next = policy_of_users();
        next.users.iter_mut().for_each(|(_, set)| *set = new);
        next.new_users = new_users.to_vec();
        next.carry_debts(|index| known(index).then_some(old), |index| charged(index).then_some(bucket), NOW);
        next.users.iter().map(|(_, set)| set.owed_q8).collect::<Vec<_>>()
    };
    assert_eq!(carried(&[], &|_| true, &|_| true), [1_000, 1_000]);
    assert_eq!(carried(&[0], &|_| true, &|_| true), [0, 1_000]);
    assert_eq!(carried(&[], &|index| index == 0, &|_| true), [1_000, 0]);
    assert_eq!(carried(&[], &|_| true, &|index| index == 1), [0, 1_000]);
}

#[test]
fn who_is_forgiven_owes_nothing_under_a_policy_that_is_put_in_force_anew() {
    let mut desired = policy_of_users();
    for (_, set) in &mut desired.users {
        (set.owed_since_q8, set.owed_q8) = (NOW, 700);
    }
    let next = desired.forgiving(1).unwrap();
    let owed: Vec<_> = next.users.iter().map(|(_, set)| (set.owed_since_q8, set.owed_q8)).collect();
    assert_eq!(owed, [(NOW, 700), (0, 0)]);
    assert!(!next.keeps_tables && next.policy.generation != desired.policy.generation);
    assert_ne!(next.policy.tables, desired.policy.tables, "the packet path reads the other tables");
    assert_eq!(next.forgiving(1), None, "once");
    assert_eq!(next.forgiving(7), None, "nobody");
}

/// The word of the first limit of a total after a change, relative to now.
fn moved(was: Limit, is: Limit, ahead: i64, held_q8: u64) -> i64 {
    moved_at(was, is, ahead, held_q8, false)
}

fn moved_at(was: Limit, is: Limit, ahead: i64, held_q8: u64, is_new: bool) -> i64 {
    let with = |limit: Limit| {
        let mut desired = policy_of_users();
        desired.policy.services[3].totals[0].limit = limit;
        desired.new_services = if is_new { vec![3] } else { vec![] };
        desired
    };
    let mut state = TotalState::FULL;
    state.tat_q8[0] = NOW.wrapping_add_signed(ahead);
    let mut held = [0; MAX_TOTALS];
    held[0] = held_q8;
    let next = with(is).carried_total(&with(was).policy, 3, state, held, NOW);
    assert_eq!(next.tat_q8[1..], state.tat_q8[1..], "other limits of the total stay");
    next.tat_q8[0].wrapping_sub(NOW) as i64
}

#[test]
fn the_word_of_a_total_moves_ahead_by_what_was_spent_without_what_cpus_only_held() {
    let (was, slower) = (packets(10, 1_000), packets(20, 2_000));
    assert_eq!(moved(was, slower, 800, 0), 1_600);
    assert_eq!(moved(was, slower, 800, 300), 1_000);
    assert_eq!(moved(was, slower, 800, 500), 800, "never back");
    assert_eq!(moved(was, packets(10, 4_000), -700, 0), 2_300);
    assert_eq!(moved(was, packets(10, 4_000), -700, 100), 2_200);
    assert_eq!(moved(was, packets(5, 1_000), 800, 0), 800, "quicker");
    assert_eq!(moved(was, packets(10, 4_000), -3_500, 0), -500, "full since then and not since before");
    assert_eq!(
        moved_at(was, slower, 800, 0, true),
        800,
        "what another service has spent is not carried over"
    );
}

#[test]
fn the_total_of_the_host_is_carried_as_that_of_a_service_is() {
    let with = |limit: Limit| {
        let mut desired = policy_of_users();
        desired.policy.host_totals[1].limit = limit;
        desired
    };
    let state = TotalState { tat_q8: [NOW + 500; MAX_TOTALS], ..TotalState::FULL };
    let (old, new) = (with(packets(10, 1_000)), with(packets(30, 3_000)));
    let next = new.carried_total(&old.policy, HOST_TOTAL, state, [0; MAX_TOTALS], NOW);
    assert_eq!(next.tat_q8[..2], [NOW + 500, NOW + 1_500]);
}
