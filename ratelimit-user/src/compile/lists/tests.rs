//! The effective halves compared with what the operator means, and the writes from one state to another.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use ratelimit_common::abi::list::FOREVER_NS;

use super::*;

/// The answer of the lists for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Allowed,
    Blocked,
    Neither,
}

/// The kernel's answer: the longest match decides alone.
fn longest_match(lists: &Lists, address: IpAddr, now_ns: u64) -> Answer {
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let found = (0..=bits).rev().find_map(|len| lists.get(&Prefix::masked(address, len)));
    match found {
        Some(entry) if entry.allowed == ALLOWED => Answer::Allowed,
        Some(entry) if now_ns < entry.blocked_until_ns => Answer::Blocked,
        _ => Answer::Neither,
    }
}

/// The operator's meaning: every entry that covers the address is asked.
fn one_by_one(own: &Lists, address: IpAddr, now_ns: u64) -> Answer {
    let host = Prefix::masked(address, if address.is_ipv4() { 32 } else { 128 });
    let covering = || own.iter().filter(|(prefix, _)| prefix.covers(&host)).map(|(_, entry)| entry);
    if covering().any(|entry| entry.own_allowed == ALLOWED) {
        Answer::Allowed
    } else if covering().any(|entry| now_ns < entry.own_blocked_until_ns) {
        Answer::Blocked
    } else {
        Answer::Neither
    }
}

/// Addresses close together, so that prefixes overlap; the same bits in both families.
fn address() -> impl Strategy<Value = IpAddr> {
    (0_u32..64, any::<bool>()).prop_map(|(low, v4)| {
        if v4 {
            Ipv4Addr::from_bits(0x0a00_0000 | low).into()
        } else {
            Ipv6Addr::from_bits(low.into()).into()
        }
    })
}

fn lists() -> impl Strategy<Value = Lists> {
    let len = prop_oneof![1 => Just(0), 6 => 24_u8..=32];
    // Allowing wins over everything, so it has to be rare.
    let allowed = prop_oneof![5 => Just(0_u32), 1 => Just(ALLOWED)];
    let entry = (address(), len, 0_u64..4, allowed).prop_map(|(address, len, until, allowed)| {
        let entry = ListEntry { own_blocked_until_ns: until, own_allowed: allowed, ..ListEntry::EMPTY };
        let len = if address.is_ipv4() || len == 0 { len } else { len + 96 };
        (Prefix::masked(address, len), entry)
    });
    proptest::collection::vec(entry, 0..12).prop_map(|entries| entries.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_longest_match_answers_like_all_entries_together(own in lists(), address in address(), now_ns in 0_u64..5) {
        let effective = effective(own.clone());
        prop_assert_eq!(longest_match(&effective, address, now_ns), one_by_one(&own, address, now_ns));
    }

    #[test]
    fn between_two_states_an_address_goes_once_from_its_old_answer_to_its_new_one(
        before in lists(), after in lists(), address in address(), now_ns in 0_u64..5,
    ) {
        let (before, after) = (effective(before), effective(after));
        let (old, new) = (longest_match(&before, address, now_ns), longest_match(&after, address, now_ns));
        let mut state = before.clone();
        let mut answers = vec![old];
        for change in changes(&before, &after) {
            match change {
                Change::Set(prefix, entry) => state.insert(prefix, entry),
                Change::Remove(prefix) => state.remove(&prefix),
            };
            answers.push(longest_match(&state, address, now_ns));
        }
        prop_assert_eq!(state, after);
        answers.dedup();
        let expected = if old == new { vec![old] } else { vec![old, new] };
        prop_assert_eq!(answers, expected);
    }

    #[test]
    fn editing_a_few_entries_is_the_same_as_writing_all_lists_anew(before in lists(), edits in lists()) {
        let before = effective(before);
        let mut wanted = before.clone();
        wanted.extend(edits.clone());
        let wanted = effective(wanted);
        let mut edited_ones = edited(&before, &edits);
        prop_assert_eq!(&edited_ones, &changes(&before, &wanted));
        let undo = reversed(&before, &edited_ones);
        prop_assert_eq!(&undo, &changes(&wanted, &before));
        edited_ones.extend(undo);
        let mut lists = before.clone();
        carry_out(&mut lists, &edited_ones);
        prop_assert_eq!(lists, before);
    }

    #[test]
    fn an_outlook_is_what_the_lists_will_be(before in lists(), edits in lists(), address in address()) {
        let before = effective(before);
        let changes = edited(&before, &edits);
        let mut after = before.clone();
        carry_out(&mut after, &changes);
        let found = |lists: &Lists| around(lists, &Prefix::masked(address, 128)).last().map(|(_, entry)| *entry);
        prop_assert_eq!(Outlook::new(&before, &changes).longest(address), found(&after));
        prop_assert_eq!(Outlook::new(&before, &[]).longest(address), found(&before));
    }

    #[test]
    fn only_what_differs_is_written(before in lists(), after in lists()) {
        let (before, after) = (effective(before), effective(after));
        prop_assert_eq!(changes(&before, &before), []);
        for change in changes(&before, &after) {
            match change {
                Change::Set(prefix, entry) => prop_assert_ne!(before.get(&prefix), Some(&entry)),
                Change::Remove(prefix) => prop_assert!(!after.contains_key(&prefix)),
            }
        }
    }
}

fn block(until_ns: u64) -> ListEntry {
    ListEntry { own_blocked_until_ns: until_ns, ..ListEntry::EMPTY }
}

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

#[test]
fn a_short_block_does_not_hide_the_lasting_one_around_it() {
    let lists =
        effective([(prefix("10.0.0.0/8"), block(FOREVER_NS)), (prefix("10.1.2.3"), block(50))].into());
    let inner = lists[&prefix("10.1.2.3")];
    assert_eq!((inner.blocked_until_ns, inner.own_blocked_until_ns), (FOREVER_NS, 50));
    assert_eq!(longest_match(&lists, "10.1.2.3".parse().unwrap(), 1000), Answer::Blocked);
}

#[test]
fn the_own_half_and_the_reason_stay_as_the_operator_typed_them() {
    let mut named = block(50);
    named.reason[..4].copy_from_slice(b"scan");
    named.reason_len = 4;
    let allowed = ListEntry { own_allowed: ALLOWED, ..ListEntry::EMPTY };
    let own = Lists::from([(prefix("10.0.0.0/8"), allowed), (prefix("10.1.0.0/16"), named)]);
    let lists = effective(own);
    let inner = lists[&prefix("10.1.0.0/16")];
    assert_eq!((inner.allowed, inner.own_allowed, inner.own_blocked_until_ns), (ALLOWED, 0, 50));
    assert_eq!((inner.reason, inner.reason_len), (named.reason, 4));
    assert_eq!(effective(lists.clone()), lists, "what was read back from the kernel leads to the same");
}

#[test]
fn entries_that_say_nothing_themselves_are_dropped() {
    let mut lists = effective([(prefix("10.0.0.0/8"), block(50)), (prefix("10.1.0.0/16"), block(60))].into());
    lists.get_mut(&prefix("10.1.0.0/16")).unwrap().own_blocked_until_ns = 0;
    let wanted = effective(lists.clone());
    assert_eq!(changes(&lists, &wanted), [Change::Remove(prefix("10.1.0.0/16"))]);
}

#[test]
fn removing_a_wide_block_frees_what_is_inside_before_it_goes() {
    let before = effective([(prefix("10.0.0.0/8"), block(90)), (prefix("10.1.2.3"), block(50))].into());
    let after = effective([(prefix("10.1.2.3"), block(50))].into());
    let freed = ListEntry { blocked_until_ns: 50, ..block(50) };
    assert_eq!(
        changes(&before, &after),
        [Change::Set(prefix("10.1.2.3"), freed), Change::Remove(prefix("10.0.0.0/8"))]
    );
}

/// Quadratic work would take 10^10 steps here.
#[test]
fn a_hundred_thousand_entries_are_no_work() {
    let hosts = (0..100_000_u32).map(|i| (Prefix::masked(Ipv4Addr::from_bits(i * 977).into(), 32), block(1)));
    let nested = (0..=32).map(|len| (Prefix::masked(Ipv4Addr::from_bits(5 * 977).into(), len), block(2)));
    let before = effective(hosts.collect());
    let after = effective(before.clone().into_iter().chain(nested).collect());
    let all_changed = changes(&before, &after);
    assert_eq!(all_changed.len(), 100_000 + 32, "the /0 covers everything");
    assert_eq!(changes(&after, &before).len(), 100_000 + 32);
}

#[test]
fn on_the_way_a_trie_holds_what_was_there_and_what_comes() {
    let of = |texts: &[&str]| -> Lists {
        texts.iter().map(|text| (text.parse().unwrap(), ListEntry::EMPTY)).collect()
    };
    let (observed, wanted) = (of(&["10.0.0.0/8", "11.0.0.0/8", "::/0"]), of(&["11.0.0.0/8", "12.0.0.0/8"]));
    let changes = changes(&observed, &wanted);
    assert_eq!((peak(&observed, &changes, true), peak(&observed, &changes, false)), (3, 1));
}

#[test]
fn whoever_is_inside_the_prefix_of_a_user_is_that_user_unless_the_entry_names_another() {
    let p = |text: &str| text.parse::<Prefix>().unwrap();
    let owned = |own_user: u16| ListEntry { own_user, ..ListEntry::EMPTY };
    let blocked = |own_user: u16| ListEntry { own_blocked_until_ns: FOREVER_NS, ..owned(own_user) };
    let own = Lists::from([
        (p("10.0.0.0/8"), owned(3)),
        (p("10.1.0.0/16"), blocked(NO_USER)),
        (p("10.1.1.0/24"), owned(4)),
        (p("10.1.1.1"), blocked(NO_USER)),
        (p("192.0.2.0/24"), blocked(NO_USER)),
    ]);
    let users: Vec<u16> = effective(own.clone()).values().map(|entry| entry.user).collect();
    assert_eq!(users, [3, 3, 4, 4, NO_USER]);
    let mut edited_lists = Lists::new();
    carry_out(&mut edited_lists, &edited(&Lists::new(), &own));
    assert_eq!(edited_lists, effective(own), "edits come to what all entries come to");
}

#[test]
fn a_reason_is_what_the_operator_typed_whoever_wants_the_block() {
    let mut entry = ListEntry { reason_len: 4, ..ListEntry::EMPTY };
    entry.reason[..6].copy_from_slice(b"scanxx");
    assert_eq!(reason_text(&entry).as_deref(), Some("scan"));
    entry.reason_len |= OF_CLUSTER;
    assert_eq!(reason_text(&entry).as_deref(), Some("scan"));
    assert_eq!(reason_text(&ListEntry::EMPTY), None);
    assert_eq!(
        reason_text(&ListEntry { reason_len: !OF_CLUSTER, ..ListEntry::EMPTY }),
        None,
        "no such length"
    );
}
