//! Tests of what a holding asks for, keeps and gives back.

use std::time::Duration;

use ratelimit_common::limit::text::parse_rate;

use super::*;
use crate::{policy::Reserve, store::exchange::Others};

const MS: u64 = 1_000_000;
const PACE: Pace = Pace { tick_ns: 50 * MS, trip_ns: 0 };

fn terms() -> Terms {
    Terms::of(&parse_rate("1000/s burst 100").unwrap(), Reserve::new(0, 1)).unwrap()
}

fn timing() -> Timing {
    Timing::new(Duration::from_secs(1), Duration::from_millis(50))
}

/// Makes a holding that has asked for units at 1 s, and returns how many.
fn asking() -> (Holding, u64) {
    let mut holding = Holding::new(Spent { used: 0, unmet: 0 }, 0, &terms());
    holding.observe(Spent { used: 0, unmet: 40 }, 1_000 * MS, &PACE, &terms());
    let entry = holding.entry(1_000 * MS, &timing(), &PACE, &terms()).unwrap();
    (holding, entry.wanted)
}

#[test]
fn a_store_that_gives_more_than_was_asked_for_or_for_longer_is_not_taken_at_its_word() {
    for (units, lifetime_us) in [(u64::MAX, u64::MAX), (1 << 60, 1_000_000), (101, u64::MAX / 1_000)] {
        let (mut holding, wanted) = asking();
        assert!(wanted > 0 && wanted <= 100, "{wanted}");
        let grant = Grant { units, lifetime_us, others: Others::Agree, hosts: 1 };
        holding.answer(&grant, 1_000 * MS, 1_001 * MS, &timing());
        let lease = holding.packet_lease();
        assert_eq!((lease.ceiling, lease.expires_ns), (wanted, 1_875 * MS), "{units} for {lifetime_us} us");
    }
}

#[test]
fn what_a_host_held_while_it_stood_still_is_not_spent_and_is_given_back() {
    let (mut holding, wanted) = asking();
    let grant = Grant { units: wanted, lifetime_us: 1_000_000, others: Others::Agree, hosts: 1 };
    holding.answer(&grant, 1_000 * MS, 1_001 * MS, &timing());
    assert_eq!(holding.held(1_002 * MS), wanted);
    holding.lapse(1_002 * MS);
    assert_eq!((holding.held(1_002 * MS), holding.packet_lease().expires_ns), (0, 0));
    assert_eq!(holding.packet_lease().ceiling, 0);
    // No packet can have read the old ceiling any more.
    holding.observe(Spent { used: 0, unmet: 40 }, 1_052 * MS, &PACE, &terms());
    let entry = holding.entry(1_052 * MS, &timing(), &PACE, &terms()).unwrap();
    assert_eq!((entry.used, entry.held), (0, 0));
}

/// Makes a holding of 80 units that may be spent until 2 s, of which 10 are spent.
fn holding() -> Holding {
    Holding {
        ceiling: 80,
        highest: 80,
        expires_ns: 2_000 * MS,
        seen: Spent { used: 10, unmet: 0 },
        seen_ns: 1_000 * MS,
        ..Holding::new(Spent { used: 0, unmet: 0 }, 0, &terms())
    }
}

#[test]
fn a_lease_is_renewed_after_a_fourth_of_its_time_or_in_time_for_an_answer_that_takes_long() {
    let renewed_ms = |trip_ms| Pace { trip_ns: trip_ms * MS, ..PACE }.renewal_us(&timing()) / 1_000;
    // A lease lasts 875 ms; two round trips and two ticks are subtracted.
    for (trip_ms, ms) in [(0, 250), (200, 250), (300, 175), (380, 15), (400, 0), (5_000, 0)] {
        assert_eq!(renewed_ms(trip_ms), ms, "answers take {trip_ms} ms");
    }
}

#[test]
fn demand_is_what_a_tick_asked_for_and_fades_by_a_fourth_with_each_that_asks_for_nothing() {
    let mut holding = Holding::new(Spent { used: 0, unmet: 0 }, 0, &terms());
    let mut at = |used, unmet, tick: u64| {
        holding.observe(Spent { used, unmet }, tick * 50 * MS, &PACE, &terms());
        (holding.demand, holding.ahead, holding.target(tick * 50 * MS))
    };
    assert_eq!(at(0, 40, 1), (40, 80, 80), "two exchanges ahead");
    assert_eq!(at(0, 40, 2), (30, 60, 60));
    assert_eq!(at(10, 70, 3), (40, 80, 80), "spent and unmet together");
    assert_eq!(at(10, 70, 23), (30, 60, 60), "one look, however long after");
    for tick in 24..50 {
        at(10, 70, tick);
    }
    assert_eq!(at(10, 70, 50), (0, 0, 3), "in use: a part of the burst at least");
    assert_eq!(at(10, 70, 203), (0, 0, 0), "ten seconds after the last packet");
    assert_eq!(at(10, 100_000, 204), (100, 200, 200), "never more than the burst");
}

#[test]
fn a_host_that_hears_of_many_others_gives_back_what_it_does_not_need() {
    let terms = Terms::of(&parse_rate("1000/s burst 6400").unwrap(), Reserve::new(0, 1)).unwrap();
    for (hosts, kept) in [(0, 200), (1, 200), (16, 200), (17, 200), (100, 32), (10_000, 2), (u64::MAX, 2)] {
        let mut holding = Holding::new(Spent { used: 0, unmet: 0 }, 0, &terms);
        let mut say = |used, unmet, ms, hosts| {
            holding.observe(Spent { used, unmet }, ms * MS, &PACE, &terms);
            holding.shed(ms * MS);
            let entry = holding.entry(ms * MS, &timing(), &PACE, &terms)?;
            let grant = Grant { units: entry.wanted, lifetime_us: 1_000_000, others: Others::Agree, hosts };
            holding.answer(&grant, ms * MS, ms * MS, &timing());
            Some(entry)
        };
        let first = say(0, 1, 50, 1).unwrap();
        assert_eq!((first.held, first.wanted), (0, 200), "a portion, as far as it knows alone");
        // The next entry renews the lease, and its answer tells how many hosts use the limit.
        let renewed = say(1, 1, 350, hosts).unwrap();
        assert_eq!((renewed.used, renewed.held, renewed.wanted), (1, 199, 0));
        for tick in 8..20 {
            let _told = say(1, 1, tick * 50, hosts);
        }
        assert!(holding.held(1_000 * MS).abs_diff(kept) <= 1, "{hosts} hosts: {}", holding.held(1_000 * MS));
    }
}

#[test]
fn the_pace_follows_what_is_spent_while_the_store_answers() {
    let mut holding = Holding::new(Spent { used: 0, unmet: 0 }, 0, &terms());
    let mut used = 0;
    let mut look = |holding: &mut Holding, tick: u64| {
        used += 10;
        holding.observe(Spent { used, unmet: 0 }, tick * 50 * MS, &PACE, &terms());
        holding.pace()
    };
    // The pace rises towards 200 units a second, by an eighth of the difference in each tick.
    assert_eq!([1, 2, 3].map(|tick| look(&mut holding, tick)), [25, 46, 65]);
    holding.alone = true;
    assert_eq!(look(&mut holding, 4), 65, "without the store what is spent is not what could be");
    holding.alone = false;
    holding.unanswered = Some(Entry { sequence: 1, used: 0, held: 0, wanted: 1 });
    assert_eq!(look(&mut holding, 5), 65, "an answer is missing");
}

#[test]
fn unmet_demand_is_counted_further_when_half_of_the_room_is_used() {
    let mut holding = Holding::new(Spent { used: 0, unmet: 7 }, 0, &terms());
    assert_eq!(holding.packet_lease().enough, 207, "two bursts");
    holding.observe(Spent { used: 0, unmet: 107 }, 50 * MS, &PACE, &terms());
    assert_eq!(holding.packet_lease().enough, 207);
    holding.observe(Spent { used: 0, unmet: 108 }, 100 * MS, &PACE, &terms());
    assert_eq!(holding.packet_lease().enough, 308);
}

#[test]
fn what_is_held_beyond_twice_the_need_is_given_back_when_no_packet_can_have_it_in_mind() {
    let now_ns = 1_000 * MS;
    let mut needed = Holding { ahead: 35, ..holding() };
    needed.shed(now_ns);
    assert_eq!(needed, Holding { ahead: 35, ..holding() }, "70 are held, 35 needed");
    let mut shed = Holding { ahead: 34, ..holding() };
    shed.shed(now_ns);
    assert_eq!(
        (shed.ceiling, shed.highest, shed.lowered_ns),
        (44, 80, now_ns),
        "what is spent and what is needed"
    );
    shed.lower(44, now_ns + MS);
    assert_eq!(shed.lowered_ns, now_ns, "nothing was lowered");
    for (ms, highest) in [(1_019, 80), (1_020, 44)] {
        shed.observe(Spent { used: 10, unmet: 0 }, ms * MS, &PACE, &terms());
        assert_eq!(shed.highest, highest, "at {ms} ms");
    }
    shed.observe(Spent { used: 50, unmet: 0 }, 1_021 * MS, &PACE, &terms());
    assert_eq!((shed.ceiling, shed.highest), (50, 50), "a packet went beyond it");
}

#[test]
fn what_runs_out_cannot_be_spent_any_more() {
    let mut holding = holding();
    assert_eq!((holding.held(1_999 * MS), holding.held(2_000 * MS)), (70, 0));
    holding.observe(Spent { used: 12, unmet: 0 }, 2_000 * MS, &PACE, &terms());
    assert_eq!((holding.ceiling, holding.expires_ns), (12, 0));
}

#[test]
fn the_store_hears_first_what_it_did_not_answer_then_of_empty_hands_then_of_leases_that_end_soon() {
    let now_ns = 1_000 * MS;
    let unanswered =
        Holding { unanswered: Some(Entry { sequence: 1, used: 0, held: 0, wanted: 1 }), ..holding() };
    let empty = Holding { demand: 1, ceiling: 10, ..holding() };
    let idle = Holding { demand: 0, ceiling: 10, expires_ns: 0, ..holding() };
    let soon = Holding { demand: 1, expires_ns: 1_100 * MS, ..holding() };
    let all = [unanswered, empty, idle, soon, holding()].map(|one| one.urgency(now_ns));
    assert!(all.is_sorted_by(|one, next| one > next), "{all:?}");
}

#[test]
fn nothing_is_said_before_the_store_has_forgotten_an_earlier_holding() {
    let mut holding = holding().silent_until(1_000 * MS);
    let due = |holding: &Holding, ms: u64| holding.is_due(ms * MS, &timing(), &PACE, &terms());
    assert!(!due(&holding, 999) && due(&holding, 1_000));
    let entry = holding.entry(1_000 * MS, &timing(), &PACE, &terms());
    assert_eq!(entry, Some(Entry { sequence: 1, used: 10, held: 70, wanted: 0 }));
    assert_eq!(holding.entry(1_500 * MS, &timing(), &PACE, &terms()), entry, "said again as it was");
}
