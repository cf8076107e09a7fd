//! Time in which this machine ran. It does not pass while one of the CPUs stands still.
//!
//! A machine whose host has no CPU for it stands still for seconds, wholly or one CPU after the other, and the clock goes on. Whoever waits for another process
//! by the clock then gives up before that process had its turn. So a thread on each CPU says every few milliseconds that it had its own: when all
//! have, a round is over, and running time has passed by what the round took, or by `LONGEST_ROUND` if it took longer. On a machine that runs, running time is
//! what the clock says.

use std::{
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use crate::cpus;

/// How long the thread of a CPU sleeps between two turns.
const TURN: Duration = Duration::from_millis(5);
/// What a round counts for at most: the turns of threads on a busy machine are shorter, and those of one that stands still are seconds.
const LONGEST_ROUND: Duration = Duration::from_millis(100);

/// A moment, as a stopwatch of running time has it.
#[derive(Clone, Copy, Debug)]
pub struct RunningTime(Duration);

impl RunningTime {
    /// The running time of this process so far.
    pub fn now() -> Self {
        Self(rounds().passed)
    }

    /// The running time since that moment.
    pub fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

/// The round that is going on.
#[derive(Debug)]
struct Rounds {
    began: Instant,
    /// The CPUs that have not had their turn in this round.
    missing: Vec<usize>,
    cpus: Vec<usize>,
    /// What earlier rounds count for.
    passed: Duration,
}

impl Rounds {
    fn new(cpus: Vec<usize>, now: Instant) -> Self {
        Self { began: now, missing: cpus.clone(), cpus, passed: Duration::ZERO }
    }

    /// A CPU has its turn.
    fn turn(&mut self, cpu: usize, now: Instant) {
        self.missing.retain(|missing| *missing != cpu);
        if self.missing.is_empty() {
            self.passed += now.saturating_duration_since(self.began).min(LONGEST_ROUND);
            self.began = now;
            self.missing.clone_from(&self.cpus);
        }
    }
}

static ROUNDS: LazyLock<Mutex<Rounds>> = LazyLock::new(|| {
    let cpus = cpus::of_process();
    for cpu in cpus.clone() {
        thread::spawn(move || {
            cpus::stay_on(cpu);
            loop {
                thread::sleep(TURN);
                rounds().turn(cpu, Instant::now());
            }
        });
    }
    Mutex::new(Rounds::new(cpus, Instant::now()))
});

fn rounds() -> MutexGuard<'static, Rounds> {
    ROUNDS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn running_time_passes_as_the_clock_does_until_a_cpu_stands_still() {
        let began = Instant::now();
        let mut rounds = Rounds::new(vec![0, 3], began);
        for round in 1..=10 {
            rounds.turn(0, began + round * 5 * MS);
            rounds.turn(3, began + round * 5 * MS);
        }
        assert_eq!(rounds.passed, 50 * MS);
        // CPU 3 stands still for ten seconds, then CPU 0 does.
        (10..2_000).for_each(|turn| rounds.turn(0, began + turn * 5 * MS));
        rounds.turn(3, began + 10_050 * MS);
        assert_eq!(rounds.passed, 150 * MS);
        (2_010..4_000).for_each(|turn| rounds.turn(3, began + turn * 5 * MS));
        rounds.turn(0, began + 20_050 * MS);
        assert_eq!(rounds.passed, 250 * MS);
    }

    #[test]
    fn no_more_running_time_passes_than_the_clock_says_and_some_does() {
        let (begun, moment) = (Instant::now(), RunningTime::now());
        // The last round began before the moment.
        while moment.elapsed() < 5 * LONGEST_ROUND {
            assert!(moment.elapsed() <= begun.elapsed() + LONGEST_ROUND);
            thread::sleep(TURN);
        }
    }
}
