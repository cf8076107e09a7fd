//! The bounds from above, the bounds from below, and how near both are to the truth.

use proptest::prelude::*;
use ratelimit_common::abi::Meter;
use ratelimit_common::limit::manner::Manner;
use ratelimit_common::limit::rate::{Period, Rate};

use super::model::{
    Admitted, Kind, Source, Step, amount, assert_bound, kind, most_within, period, rate, schedule,
};

/// No word wraps within so many windows.
const BEFORE_ANY_WRAP: u64 = 300;

fn run(source: &Source, start_ns: u64, calls: &[(Step, u64)]) -> Vec<Admitted> {
    let mut now_ns = start_ns;
    let mut admitted = Vec::new();
    for (step, raw) in calls {
        let amount = amount(&source.rate, *raw);
        now_ns = now_ns.saturating_add(step.ns(source, now_ns));
        if source.ask(now_ns, amount) {
            admitted.push(Admitted { now_ns, amount });
        }
    }
    admitted
}

/// What is known of a source's past, in counted units.
struct Log<'a> {
    source: &'a Source,
    calls: Vec<(u64, u128)>,
}

impl Log<'_> {
    /// Units in windows `from..=to`, numbered as the words number them.
    fn units(&self, from: u64, to: u64) -> u128 {
        let length_ns = self.source.window.length_ns;
        let within = |now_ns: u64| (from..=to).contains(&(now_ns / length_ns));
        self.calls.iter().filter(|(now_ns, _)| within(*now_ns)).map(|(_, units)| units).sum()
    }

    /// Whether the documents allow to refuse `units` now.
    fn may_refuse(&self, now_ns: u64, units: u64) -> bool {
        let window = &self.source.window;
        let index = now_ns / window.length_ns;
        let (limit, units) = (u128::from(window.limit), u128::from(units));
        match self.source.kind {
            Kind::Weighted => {
                let length = u128::from(window.length_ns);
                let remaining = u128::from(window.length_ns - now_ns % window.length_ns);
                let previous = index.checked_sub(1).map_or(0, |index| self.units(index, index));
                let estimate = (self.units(index, index) + units) * length + previous * remaining;
                // 0.06 % and a unit; for small limits a unit and a bit.
                let slack = if limit <= 4095 { length * 9 / 8 } else { length + limit * length * 6 / 10_000 };
                estimate + slack > limit * length
            }
            kind => self.units(index.saturating_sub(kind.words() - 1), index) + units > limit,
        }
    }
}

proptest! {
    #![proptest_config(super::config(4000))]

    #[test]
    fn no_real_window_admits_more_than_stated(
        kind in kind(),
        rate in rate(),
        start_ns in 0_u64..1 << 62,
        calls in schedule(150, 1 << 40),
    ) {
        assert_bound(kind, &rate, &run(&Source::new(kind, rate), start_ns, &calls))?;
    }

    #[test]
    fn a_packet_is_refused_only_when_the_documents_say_so(
        kind in kind(),
        rate in rate(),
        start_ns in prop_oneof![Just(0), 0_u64..1 << 62],
        calls in schedule(100, BEFORE_ANY_WRAP),
    ) {
        let source = Source::new(kind, rate);
        let mut log = Log { source: &source, calls: Vec::new() };
        let mut now_ns = start_ns;
        for (step, raw) in &calls {
            let amount = amount(&rate, *raw);
            let units = source.window.units(amount);
            prop_assert!(units << source.window.shift >= amount && (units - 1) << source.window.shift < amount);
            now_ns += step.ns(&source, now_ns);
            if source.ask(now_ns, amount) {
                log.calls.push((now_ns, u128::from(units)));
            } else {
                prop_assert!(log.may_refuse(now_ns, units), "{:?} {}: {} at {}", kind, rate, amount, now_ns);
            }
        }
    }

    #[test]
    fn a_fresh_source_gets_its_whole_limit_and_not_one_more(
        kind in kind(),
        rate in rate(),
        now_ns in prop_oneof![Just(0), any::<u64>()],
    ) {
        let source = Source::new(kind, rate);
        prop_assert_eq!(source.drain(now_ns), source.window.limit_amount());
        prop_assert!(!source.ask(now_ns, 1));
    }

    /// The exact log would hold the limit in every window of whoever always asks; here it takes a sub-window more.
    #[test]
    fn whoever_always_asks_gets_the_limit_in_every_window_and_a_sub_window(
        kind in prop::sample::select(&[Kind::Sliding2, Kind::Sliding8, Kind::Sliding60][..]),
        amount in 1_u64..200,
        period in period(),
        start_ns in 0_u64..1 << 62,
        seed in any::<u64>(),
    ) {
        let rate = Rate { meter: Meter::Packets, amount, period, burst: 1, manner: Manner::PLAIN, units: Rate::UNTYPED };
        let source = Source::new(kind, rate);
        let length_ns = source.window.length_ns;
        let (mut now_ns, mut random, mut admitted) = (start_ns, seed | 1, Vec::new());
        while now_ns < start_ns + 4 * length_ns * kind.words() {
            for _ in 0..random % 7 {
                if source.ask(now_ns, 1) {
                    admitted.push(Admitted { now_ns, amount: 1 });
                }
            }
            if random.is_multiple_of(3) {
                admitted.push(Admitted { now_ns, amount: source.drain(now_ns) });
                let first_ns = (now_ns / length_ns + 1).saturating_sub(kind.words()) * length_ns;
                let held: u64 =
                    admitted.iter().filter(|call| call.now_ns >= first_ns).map(|call| call.amount).sum();
                prop_assert_eq!(held, amount, "{:?} {} at {}", kind, rate, now_ns);
            }
            random = super::cpus::shuffle(random);
            now_ns += 1 + random % (length_ns / 2);
        }
        assert_bound(kind, &rate, &admitted)?;
    }

    /// The bound of the weighted form is not a figure of speech.
    #[test]
    fn an_adversary_gets_within_three_percent_of_twice_the_limit_from_a_weighted_window(
        amount in 200_u64..5000,
        period in period(),
        index in 2_u64..1 << 17,
    ) {
        let rate = Rate { meter: Meter::Packets, amount, period, burst: 1, manner: Manner::PLAIN, units: Rate::UNTYPED };
        let source = Source::new(Kind::Weighted, rate);
        let edge_ns = index * period.ns();
        let mut admitted = vec![Admitted { now_ns: edge_ns - 1, amount: source.drain(edge_ns - 1) }];
        for part in 0..100 {
            let now_ns = edge_ns + period.ns() / 100 * part;
            admitted.push(Admitted { now_ns, amount: source.drain(now_ns) });
        }
        assert_bound(Kind::Weighted, &rate, &admitted)?;
        let most = most_within(&admitted, period.ns() - 1);
        prop_assert!(most * 100 >= u128::from(amount) * 2 * 97, "{} of 2 x {}", most, amount);
    }
}

#[test]
fn a_fixed_window_admits_exactly_twice_the_limit_across_an_edge() {
    let rate = Rate {
        meter: Meter::Packets,
        amount: 5000,
        period: Period::Minute,
        burst: 1,
        manner: Manner::PLAIN,
        units: Rate::UNTYPED,
    };
    let source = Source::new(Kind::Fixed, rate);
    let edge_ns = 7 * Period::Minute.ns();
    assert_eq!(source.drain(edge_ns - 1), 5000);
    assert_eq!(source.drain(edge_ns), 5000);
    assert_eq!(source.drain(edge_ns + Period::Minute.ns() - 1), 0);
}

#[test]
fn the_worked_numbers_of_the_weighted_window_hold() {
    let rate = Rate {
        meter: Meter::Packets,
        amount: 1000,
        period: Period::Minute,
        burst: 1,
        manner: Manner::PLAIN,
        units: Rate::UNTYPED,
    };
    let source = Source::new(Kind::Weighted, rate);
    let second_ns = Period::Second.ns();
    assert!(source.ask(59 * second_ns, 600));
    assert_eq!(source.drain(75 * second_ns), 549);
}

#[test]
fn the_worked_numbers_of_the_sliding_window_hold() {
    let rate = Rate {
        meter: Meter::Packets,
        amount: 700,
        period: Period::Second,
        burst: 1,
        manner: Manner::PLAIN,
        units: Rate::UNTYPED,
    };
    let source = Source::new(Kind::Sliding8, rate);
    assert_eq!(source.window.length_ns, 142_857_143);
    assert_eq!(source.drain(100_000_000), 700);
    assert_eq!(source.drain(8 * 142_857_143 - 1), 0);
    assert_eq!(source.drain(8 * 142_857_143), 700);
}

/// Odd sizes on a limit that is counted in units of four bytes: the loss is what rounding up each frame says, and no more.
#[test]
fn forty_gigabits_for_an_hour_lose_nothing_but_three_bytes_a_frame() {
    let rate = Rate {
        meter: Meter::Bytes,
        amount: 18_000_000_000_000,
        period: Period::Hour,
        burst: 1,
        manner: Manner::PLAIN,
        units: Rate::UNTYPED,
    };
    for kind in Kind::ALL {
        let source = Source::new(kind, rate);
        assert_eq!(source.window.shift, 2);
        // All but the last 1.5 GB at once, then a million frames.
        let start_ns = 1000 * Period::Hour.ns();
        let frames_bytes = 1_516 * 1_000_000;
        assert!(source.ask(start_ns, rate.amount - frames_bytes));
        let passed = (0..1_100_000).filter(|_| source.ask(start_ns, 1513)).count();
        assert_eq!(passed, 1_000_000, "{kind:?}");
    }
}
