//! Several CPUs on one word: reads, compare-and-exchange and additions interleaved at arbitrary points.

use proptest::prelude::*;
use ratelimit_common::limit::gcra::{self, GcraOutcome, ahead_q8};
use ratelimit_common::limit::manner::Manner;
use ratelimit_common::limit::rate::Rate;

use super::model::{Admitted, Bucket, amount, any_rate, assert_bound, magnitude};

/// Attempts to store before a packet counts as not conforming.
const ATTEMPTS: u32 = 4;

/// What one CPU is doing.
#[derive(Clone, Copy)]
enum Cpu {
    /// Waits for a packet.
    Idle,
    /// Has read the clock.
    HasTime { now_ns: u64, amount: u64 },
    /// Has read the word and made up its mind.
    HasWord { now_ns: u64, amount: u64, seen_q8: u64, attempt: u32 },
}

/// What was let through, and how often a packet was refused because its retries ran out.
struct Run {
    admitted: Vec<Admitted>,
    contended: u32,
}

/// How a bucket in use is charged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Charging {
    Exchange,
    /// With room for what CPUs may add between look and addition.
    Add,
}

/// Each move lets some time pass and one CPU take one step.
fn run(rate: Rate, cpus: usize, charging: Charging, moves: &[(usize, u64, u64)]) -> Run {
    let mut clock_ns = 1 << 50;
    let start = Bucket::new(rate, clock_ns);
    let mut limit = start.limit;
    if charging == Charging::Add {
        limit.tolerance_q8 -= room_q8(&rate, cpus);
    }
    let mut word_q8 = start.tat_q8;
    let mut cpu_states = vec![Cpu::Idle; cpus];
    let mut run = Run { admitted: Vec::new(), contended: 0 };
    for (cpu, later_ns, raw) in moves {
        clock_ns += later_ns;
        let cpu = &mut cpu_states[cpu % cpus];
        *cpu = match *cpu {
            Cpu::Idle => Cpu::HasTime { now_ns: clock_ns, amount: amount(&rate, *raw) },
            Cpu::HasTime { now_ns, amount } => Cpu::HasWord { now_ns, amount, seen_q8: word_q8, attempt: 1 },
            Cpu::HasWord { now_ns, amount, seen_q8, attempt } => {
                let charge = gcra::charge_q8(&limit, amount);
                let ahead = ahead_q8(seen_q8, gcra::time_q8(now_ns));
                if charging == Charging::Add && ahead != 0 && ahead + charge <= limit.tolerance_q8 {
                    word_q8 = word_q8.wrapping_add(charge);
                    run.admitted.push(Admitted { now_ns, amount });
                    *cpu = Cpu::Idle;
                    continue;
                }
                match gcra::take(seen_q8, &limit, gcra::time_q8(now_ns), charge) {
                    GcraOutcome::Refused => {
                        // As the packet path does: by the clock of now, if nobody has changed the word since.
                        if word_q8 == seen_q8 {
                            let room_q8 = if charging == Charging::Add { room_q8(&rate, cpus) } else { 0 };
                            let most_q8 = limit.tolerance_q8 + room_q8;
                            let now_q8 = gcra::time_q8(clock_ns);
                            word_q8 = gcra::settled_q8(seen_q8, most_q8, limit.tolerance_q8, now_q8);
                        }
                        Cpu::Idle
                    }
                    GcraOutcome::Conforms { tat_q8 } if word_q8 == seen_q8 => {
                        word_q8 = tat_q8;
                        run.admitted.push(Admitted { now_ns, amount });
                        Cpu::Idle
                    }
                    _ if attempt == ATTEMPTS => {
                        run.contended += 1;
                        Cpu::Idle
                    }
                    // A failed exchange returns the word as it is now.
                    _ => Cpu::HasWord { now_ns, amount, seen_q8: word_q8, attempt: attempt + 1 },
                }
            }
        };
    }
    run
}

/// One charge per CPU, of the largest amount that `moves` can ask for.
fn room_q8(rate: &Rate, cpus: usize) -> u64 {
    let limit = rate.limit().unwrap();
    gcra::charge_q8(&limit, amount(rate, 9000)) * cpus as u64
}

/// Moves that take less than half a second in all, so that no CPU's clock reading is older than that.
fn moves() -> impl Strategy<Value = Vec<(usize, u64, u64)>> {
    let pause = prop_oneof![3 => Just(0), 1 => magnitude(1 << 20)];
    prop::collection::vec((0_usize..64, pause, magnitude(9000)), 1..400)
}

proptest! {
    #![proptest_config(super::config(5000))]

    #[test]
    fn no_interleaving_of_cpus_admits_more_than_the_bound(
        rate in any_rate(100_000),
        cpus in 1_usize..=8,
        moves in moves(),
    ) {
        assert_bound(&rate, &run(rate, cpus, Charging::Exchange, &moves).admitted)?;
    }

    #[test]
    fn additions_after_a_look_stay_within_the_bound_if_there_is_room_for_one_of_each_cpu(
        rate in any_rate(100_000),
        cpus in 1_usize..=8,
        moves in moves(),
    ) {
        let tolerance = rate.limit().unwrap().tolerance_q8;
        if tolerance <= room_q8(&rate, cpus) * 2 {
            return Ok(());
        }
        assert_bound(&rate, &run(rate, cpus, Charging::Add, &moves).admitted)?;
    }

    #[test]
    fn one_cpu_alone_never_runs_out_of_retries(rate in any_rate(100_000), moves in moves()) {
        prop_assert_eq!(run(rate, 1, Charging::Exchange, &moves).contended, 0);
    }
}

/// All CPUs read the same word, then all store: one wins a round, so the fifth CPU runs out of attempts.
#[test]
fn a_cpu_that_loses_every_exchange_refuses_its_packet() {
    let rate = Rate {
        meter: ratelimit_common::abi::Meter::Packets,
        amount: 1,
        period: ratelimit_common::limit::rate::Period::Second,
        burst: 100,
        manner: Manner::PLAIN,
        units: Rate::UNTYPED,
    };
    let rounds: Vec<_> = (0..2 + ATTEMPTS as usize).flat_map(|_| (0..5).map(|cpu| (cpu, 0, 1))).collect();
    let run = run(rate, 5, Charging::Exchange, &rounds);
    assert_eq!((run.admitted.len(), run.contended), (4, 1));
}
