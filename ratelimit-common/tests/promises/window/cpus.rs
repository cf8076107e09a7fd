//! Several CPUs on one source: every load and every exchange is a point at which another CPU may go on.
//!
//! The code under test is a plain function, so a CPU is stopped by replay: it runs again from the start with the answers
//! it was given so far, does one more step for real, and what it makes of the steps after that is thrown away.
//!
//! Loads may be stale: a CPU may see any value that a word had since that CPU last saw it. Exchanges always meet the
//! newest, as on hardware.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use ratelimit_common::abi::Meter;
use ratelimit_common::limit::manner::Manner;
use ratelimit_common::limit::rate::{Period, Rate};
use ratelimit_common::limit::window::Window;
use ratelimit_common::limit::window::sliding::{self, Refusal, Words};

use super::model::{Admitted, Kind, assert_bound, kind};

/// The next number of a cheap random sequence that never reaches 0.
pub(crate) fn shuffle(mut x: u64) -> u64 {
    x ^= x << 13;
    x ^= x >> 7;
    x ^ (x << 17)
}

/// Memory that all CPUs share: each word with all the values it ever had.
type History = Vec<Vec<u64>>;

/// One CPU with the packet it is working on.
#[derive(Default)]
struct Cpu {
    packet: Option<(u64, u64)>,
    replies: Vec<Result<u64, u64>>,
    /// The oldest value of each word that it may still see.
    oldest: Vec<usize>,
}

/// One more step of one CPU.
struct Replay<'a> {
    history: &'a RefCell<History>,
    cpu: &'a RefCell<Cpu>,
    random: u64,
    at: Cell<usize>,
    stepped: Cell<bool>,
    beyond: Cell<bool>,
}

impl Replay<'_> {
    fn reply(&self, step: impl FnOnce(&mut Cpu, &mut History) -> Result<u64, u64>) -> Result<u64, u64> {
        let at = self.at.replace(self.at.get() + 1);
        let mut cpu = self.cpu.borrow_mut();
        if let Some(reply) = cpu.replies.get(at) {
            return *reply;
        }
        if self.stepped.replace(true) {
            self.beyond.set(true);
            return Ok(0);
        }
        let reply = step(&mut cpu, &mut self.history.borrow_mut());
        cpu.replies.push(reply);
        reply
    }
}

impl Words for Replay<'_> {
    fn load(&self, slot: usize) -> u64 {
        let load = |cpu: &mut Cpu, history: &mut History| {
            let newest = history[slot].len() - 1;
            let stale = newest - cpu.oldest[slot];
            let back =
                if self.random.is_multiple_of(4) { (self.random >> 8) as usize % (stale + 1) } else { 0 };
            cpu.oldest[slot] = newest - back;
            Ok(history[slot][newest - back])
        };
        self.reply(load).unwrap_or_default()
    }

    fn compare_exchange(&self, slot: usize, seen: u64, new: u64) -> Result<(), u64> {
        let exchange = |cpu: &mut Cpu, history: &mut History| {
            let found = history[slot][history[slot].len() - 1];
            if found == seen {
                history[slot].push(new);
            }
            cpu.oldest[slot] = history[slot].len() - 1;
            if found == seen { Ok(seen) } else { Err(found) }
        };
        self.reply(exchange).map(|_| ())
    }
}

/// A policy of who goes next and how far the clock moves.
struct Plan {
    kind: Kind,
    rate: Rate,
    cpus: usize,
    steps: usize,
    seed: u64,
    /// One in so many steps moves the clock to the next edge, give or take.
    edge_every: u64,
    /// The most that one packet costs.
    max_amount: u64,
}

/// What was let through, and how many packets were not.
struct Run {
    admitted: Vec<Admitted>,
    refused: usize,
}

fn run(plan: &Plan) -> Run {
    let window = plan.kind.window(&plan.rate);
    let slots = plan.kind.words() as usize;
    let history = RefCell::new(vec![vec![0]; slots]);
    let cpu = || RefCell::new(Cpu { oldest: vec![0; slots], ..Cpu::default() });
    let cpus: Vec<_> = (0..plan.cpus).map(|_| cpu()).collect();
    let mut clock_ns = window.length_ns * 1_000_003 - 500;
    let start_ns = clock_ns;
    let mut random = plan.seed | 1;
    let mut run = Run { admitted: Vec::new(), refused: 0 };
    for _ in 0..plan.steps {
        random = shuffle(random);
        // No CPU may sit on a clock reading for more than a minute.
        if random.is_multiple_of(plan.edge_every) && clock_ns - start_ns < 50_000_000_000 {
            let edge_ns = window.length_ns - clock_ns % window.length_ns;
            clock_ns += edge_ns.saturating_sub((random >> 20) % 2000).max(1);
        } else {
            clock_ns += (random >> 40) % 60;
        }
        // The first CPUs get the most steps, the last are slow.
        let pick = (random >> 8) as usize % (plan.cpus * plan.cpus);
        let number = plan.cpus - 1 - pick.isqrt();
        let cpu = &cpus[number];
        let Some((now_ns, amount)) = cpu.borrow().packet else {
            // Each CPU's clock is behind by its own few hundred nanoseconds.
            let skew_ns = number as u64 * 150;
            cpu.borrow_mut().packet = Some((clock_ns - skew_ns, 1 + (random >> 30) % plan.max_amount));
            continue;
        };
        let random = random.rotate_left(17);
        let (at, stepped, beyond) = (Cell::new(0), Cell::new(false), Cell::new(false));
        let replay = Replay { history: &history, cpu, random, at, stepped, beyond };
        let admitted = plan.kind.ask(&replay, &window, now_ns, amount);
        if replay.beyond.get() {
            continue;
        }
        cpu.borrow_mut().packet = None;
        cpu.borrow_mut().replies.clear();
        if admitted {
            run.admitted.push(Admitted { now_ns, amount });
        } else {
            run.refused += 1;
        }
    }
    run
}

proptest! {
    #![proptest_config(super::config(3000))]

    #[test]
    fn no_interleaving_of_cpus_admits_more_than_stated(
        kind in kind(),
        limit in 1_u64..25,
        cpus in 1_usize..=6,
        seed in any::<u64>(),
        edge_every in 5_u64..200,
        max_amount in 1_u64..4,
    ) {
        let rate = Rate { meter: Meter::Packets, amount: limit, period: Period::Second, burst: 1, manner: Manner::PLAIN, units: Rate::UNTYPED };
        let steps = if kind == Kind::Sliding60 { 1500 } else { 800 };
        let run = run(&Plan { kind, rate, cpus, steps, seed, edge_every, max_amount });
        assert_bound(kind, &rate, &run.admitted)?;
    }
}

/// The race that closing is for, on its own: two or three CPUs, one edge, a limit of a few.
#[test]
fn a_laggard_at_an_edge_never_gets_the_last_packet_twice() {
    let (mut admitted, mut refused) = (0, 0);
    for seed in 1..40_000_u64 {
        let seed = shuffle(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let rate = Rate {
            meter: Meter::Packets,
            amount: 1 + seed % 3,
            period: Period::Second,
            burst: 1,
            manner: Manner::PLAIN,
            units: Rate::UNTYPED,
        };
        let kind = if seed & 16 == 0 { Kind::Sliding2 } else { Kind::Sliding8 };
        let cpus = 2 + (seed >> 8) as usize % 2;
        let run = run(&Plan { kind, rate, cpus, steps: 60, seed, edge_every: 1000, max_amount: 1 });
        assert_bound(kind, &rate, &run.admitted).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        admitted += run.admitted.len();
        refused += run.refused;
    }
    assert!(
        admitted > 20_000 && refused > 20_000,
        "{admitted} admitted, {refused} refused: the test has no teeth"
    );
}

/// Threads and real atomics, with a clock that they push on themselves.
#[test]
fn threads_that_race_for_a_sliding_window_admit_the_limit_and_no_more() {
    const THREADS: u64 = 4;
    let rate = Rate {
        meter: Meter::Packets,
        amount: 500,
        period: Period::Second,
        burst: 1,
        manner: Manner::PLAIN,
        units: Rate::UNTYPED,
    };
    let window = Window::sliding::<8>(&rate).unwrap();
    let words: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];
    let clock_ns = AtomicU64::new(1 << 50);
    let ask = || {
        let mut admitted = Vec::new();
        for _ in 0..50_000 {
            let now_ns = clock_ns.fetch_add(100_000, Ordering::Relaxed);
            if sliding::take::<8>(&words, &window, now_ns, 1).is_ok() {
                admitted.push(Admitted { now_ns, amount: 1 });
            }
        }
        admitted
    };
    let admitted: Vec<Admitted> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_bound(Kind::Sliding8, &rate, &admitted).unwrap();
    // 20 s of virtual time: 17 spans of 8/7 s.
    assert!(admitted.len() >= 15 * 500, "only {} admitted", admitted.len());
}

/// A word that is somebody else's every time it is exchanged.
struct Contested<'a>(&'a Window, Cell<u64>);

impl Words for Contested<'_> {
    fn load(&self, _slot: usize) -> u64 {
        0
    }

    fn compare_exchange(&self, _slot: usize, _seen: u64, _new: u64) -> Result<(), u64> {
        self.1.set(self.1.get() + 1);
        Err(0)
    }
}

#[test]
fn a_cpu_that_loses_every_exchange_refuses_its_packet_after_four() {
    let rate = Rate {
        meter: Meter::Packets,
        amount: 100,
        period: Period::Second,
        burst: 1,
        manner: Manner::PLAIN,
        units: Rate::UNTYPED,
    };
    let window = Window::sliding::<8>(&rate).unwrap();
    for now_ns in [0, 1 << 50] {
        let words = Contested(&window, Cell::new(0));
        assert_eq!(sliding::take::<8>(&words, words.0, now_ns, 1), Err(Refusal::Contended));
        assert_eq!(words.1.get(), sliding::ATTEMPTS as u64);
    }
}
