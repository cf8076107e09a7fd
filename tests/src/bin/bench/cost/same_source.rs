//! What two CPUs do together, against one of them: what they share costs them both.
//!
//! ```text
//! round    bare: CPU a | CPU b | a and b    over its limit: a | b | a and b    ...
//! ```
//!
//! Two CPUs of a virtual machine may be one core of its host, or share it with others: how far a bare drop gets on both says what there is to be had.

use std::{
    hint,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use aya::programs::{TestRun as _, TestRunOptions, Xdp, XdpMode};
use ratelimit_tests::frames::Ipv4;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::{paths, stopwatch::Empty, subject::Subject};
use crate::{
    case,
    interrupt::Interrupt,
    lane::{Ground, Lane},
    place,
    rounds::Pace,
    spread::Spread,
};

/// One row: packets per second, all CPUs together.
#[derive(Debug, Serialize)]
pub(crate) struct Together {
    pub(crate) what: &'static str,
    /// How much more than one CPU two of them are to do.
    pub(crate) at_least: Option<f64>,
    pub(crate) one_cpu: Spread,
    pub(crate) two_cpus: Spread,
    /// Two against one, round by round.
    pub(crate) gain: Spread,
    /// The gain against the gain of a bare drop, round by round.
    pub(crate) of_bare: Spread,
}

/// What the CPUs get.
struct Scene {
    what: &'static str,
    /// `None`: a bare drop.
    policy: Option<&'static str>,
    reason: &'static str,
    /// Where the second CPU's packets come from. The first one's come from [`FIRST`].
    second: [u8; 4],
    at_least: Option<f64>,
}

/// The source of the first CPU's packets.
const FIRST: [u8; 4] = [10, 0, 0, 0];
/// A source beside `FIRST`, in some of the prefixes that `FIRST` is in, and not in the smallest.
const NEIGHBOUR: [u8; 4] = [10, 0, 1, 1];
/// A source that shares no prefix with `FIRST`.
const FAR: [u8; 4] = [20, 1, 1, 1];

/// The first is what others are held against.
const SCENES: [Scene; 8] = {
    const fn scene(
        what: &'static str,
        policy: &'static str,
        reason: &'static str,
        at_least: Option<f64>,
    ) -> Scene {
        Scene { what, policy: Some(policy), reason, second: NEIGHBOUR, at_least }
    }
    [
        Scene { what: "bare XDP_DROP", policy: None, reason: "", second: FIRST, at_least: None },
        Scene {
            second: FIRST,
            ..scene("over its limit, same source", paths::OVER, "limit_packets", Some(1.9))
        },
        scene("total spent, a source each", paths::SPENT_TOTAL, "service_total", Some(1.8)),
        scene("passes a total, a source each", paths::TOTAL, "conforming", None),
        Scene {
            second: FAR,
            ..scene("passes a total, no prefix in common", paths::TOTAL, "conforming", Some(1.8))
        },
        Scene { second: FIRST, ..scene("passes, same source", paths::GENEROUS, "conforming", None) },
        scene("passes, a source each", paths::GENEROUS, "conforming", None),
        Scene { second: FAR, ..scene("passes, no prefix in common", paths::GENEROUS, "conforming", None) },
    ]
};

/// How long one run takes, about.
const SLICE: Duration = Duration::from_millis(50);
/// Runs of the program for a first guess at how many take so long.
const GUESS: u32 = 20_000;
/// The part of the longer run in which the other CPU has to be at work too.
const OVERLAP: f64 = 0.9;
/// What will do on a busy machine, where one of the two is made to wait.
const LEAST_OVERLAP: f64 = 0.3;
const ATTEMPTS: u32 = 5;

/// Who is measured, and where its program is attached: as long as it is, the kernel does not wait for all CPUs when a run begins, and two
/// runs begin at once.
enum Program {
    Bare(Empty),
    Ours(Box<Subject>),
}

struct Actor {
    program: Program,
    frames: [Vec<u8>; 2],
    runs: u32,
    /// Packets per second, round by round.
    one: Vec<f64>,
    two: Vec<f64>,
    /// Goes last: a program leaves its interface before that goes.
    _lane: Lane,
}

/// Measures every scene on the CPUs given, in rounds.
pub(crate) fn measure(cpus: [usize; 2], rounds: usize, interrupt: &Interrupt) -> Result<Vec<Together>> {
    let ground = Ground::new()?;
    let mut actors = Vec::new();
    for (number, scene) in SCENES.iter().enumerate() {
        interrupt.check()?;
        let actor = Actor::new(&ground, number, scene, cpus);
        actors.push(actor.with_context(|| format!("cannot set up \"{}\"", scene.what))?);
    }
    let pace = Pace { rounds, round: SLICE };
    pace.in_turn("one CPU and two", actors.len(), interrupt, |_, at| actors[at].take_turn(cpus))?;
    let rates: Vec<_> = actors.into_iter().map(|actor| (actor.one, actor.two)).collect();
    rows(&rates).ok_or_else(|| anyhow!("no rounds"))
}

/// A row for each scene, of its rates on one CPU and on two.
fn rows(rates: &[(Vec<f64>, Vec<f64>)]) -> Option<Vec<Together>> {
    let gains = |(one, two): &(Vec<f64>, Vec<f64>)| -> Vec<f64> {
        two.iter().zip(one).map(|(two, one)| two / one).collect()
    };
    let bare = gains(rates.first()?);
    let row = |(scene, rates): (&Scene, &(Vec<f64>, Vec<f64>))| {
        Some(Together {
            what: scene.what,
            at_least: scene.at_least,
            one_cpu: Spread::of(&rates.0)?,
            two_cpus: Spread::of(&rates.1)?,
            gain: Spread::of(&gains(rates))?,
            of_bare: Spread::of_ratios(&gains(rates), &bare)?,
        })
    };
    SCENES.iter().zip(rates).map(row).collect()
}

impl Actor {
    fn new(ground: &Ground, number: usize, scene: &Scene, cpus: [usize; 2]) -> Result<Self> {
        let lane = Lane::new(ground, number, 64)?;
        let frames = [FIRST, scene.second].map(|source| Ipv4::from(source).udp_frame(22));
        let program = match scene.policy {
            None => Program::Bare(Empty::new()?),
            Some(policy) => Program::Ours(Box::new(Subject::new(policy, case::TABLE_ENTRIES))),
        };
        let mut actor = Self { program, frames, runs: GUESS, one: Vec::new(), two: Vec::new(), _lane: lane };
        let (namespace, inlet) = (actor._lane.namespace().to_owned(), actor._lane.inlet.clone());
        let xdp = actor.program.xdp()?;
        place::inside(&namespace, || {
            xdp.attach(&inlet, XdpMode::Driver).with_context(|| format!("cannot attach it to {inlet}"))
        })?;
        // Until what there is to spend is spent, on both. The second guess is good: in the first, the system call itself is most of it.
        for _ in 0..2 {
            let rate = actor.alone(0, cpus)?.max(actor.alone(1, cpus)?);
            actor.runs = (rate * SLICE.as_secs_f64()) as u32;
        }
        actor.together(cpus)?;
        if let Program::Ours(subject) = &mut actor.program {
            let reason = subject.reason(&actor.frames[0])?;
            ensure!(reason == scene.reason, "it ended as {reason} and not as {}", scene.reason);
        }
        Ok(actor)
    }

    fn take_turn(&mut self, cpus: [usize; 2]) -> Result<()> {
        let alone = [self.alone(0, cpus)?, self.alone(1, cpus)?];
        let together = self.together(cpus)?;
        self.one.push(alone.iter().sum::<f64>() / 2.0);
        self.two.push(together);
        Ok(())
    }

    /// Packets per second of one CPU while the other has nothing to do.
    fn alone(&mut self, at: usize, cpus: [usize; 2]) -> Result<f64> {
        let (xdp, runs, frame) = (self.program.xdp()?, self.runs, &self.frames[at]);
        place::in_thread(|| {
            place::stay_on(cpus[at])?;
            Ok(Stretch::of(xdp, frame, runs)?.rate(runs))
        })
    }

    /// Packets per second of both at once.
    fn together(&mut self, cpus: [usize; 2]) -> Result<f64> {
        let (xdp, runs, frames) = (&*self.program.xdp()?, self.runs, &self.frames);
        let mut best = (0.0, 0.0);
        for _ in 0..ATTEMPTS {
            let ready = &AtomicUsize::new(0);
            let stretch = |at: usize| {
                let pinned = place::stay_on(cpus[at]);
                // Also when that failed: the other one waits, and without sleeping, because to be woken takes milliseconds.
                ready.fetch_add(1, Ordering::Relaxed);
                while ready.load(Ordering::Relaxed) < cpus.len() {
                    hint::spin_loop();
                }
                pinned.and_then(|()| Stretch::of(xdp, &frames[at], runs))
            };
            let [a, b] = thread::scope(|scope| {
                let both = [0, 1].map(|at| scope.spawn(move || stretch(at)));
                both.map(|one| one.join().map_err(|_| anyhow!("a thread of the benchmark panicked"))?)
            });
            let (a, b) = (a?, b?);
            if a.overlap(&b) > best.0 {
                best = (a.overlap(&b), a.rate(runs) + b.rate(runs));
            }
            if best.0 >= OVERLAP {
                break;
            }
        }
        ensure!(
            best.0 >= LEAST_OVERLAP,
            "two CPUs were at work together for {:.2} of the time at best; the machine is too busy to measure",
            best.0
        );
        Ok(best.1)
    }
}

impl Program {
    fn xdp(&mut self) -> Result<&mut Xdp> {
        match self {
            Self::Bare(empty) => empty.xdp(),
            Self::Ours(subject) => Ok(subject.xdp()),
        }
    }
}

/// From when to when a CPU was at work. The kernel's own measurement is in whole nanoseconds, a tenth of what a bare drop takes.
struct Stretch {
    began: Instant,
    ended: Instant,
    /// What of it the CPU was ours.
    worked: Duration,
}

impl Stretch {
    fn of(xdp: &Xdp, frame: &[u8], runs: u32) -> Result<Self> {
        let options = TestRunOptions { data_in: Some(frame), repeat: runs, ..TestRunOptions::new() };
        let (began, at_first) = (Instant::now(), worked());
        xdp.test_run(options).context("cannot run the program: BPF_PROG_TEST_RUN")?;
        Ok(Self { began, ended: Instant::now(), worked: worked().saturating_sub(at_first) })
    }

    fn rate(&self, runs: u32) -> f64 {
        f64::from(runs) / self.worked.as_secs_f64()
    }

    /// The part of the longer one in which both were at work.
    fn overlap(&self, other: &Self) -> f64 {
        let both = self.ended.min(other.ended).saturating_duration_since(self.began.max(other.began));
        let longer = (self.ended - self.began).max(other.ended - other.began);
        both.as_secs_f64() / longer.as_secs_f64()
    }
}

/// How long the calling thread has had a CPU.
fn worked() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_overlap_by_what_both_have_of_the_longer_one() {
        let start = Instant::now();
        let stretch = |from: u64, to: u64| Stretch {
            began: start + Duration::from_millis(from),
            ended: start + Duration::from_millis(to),
            worked: Duration::from_millis(to - from),
        };
        assert_eq!(stretch(0, 50).overlap(&stretch(25, 75)), 0.5);
        assert_eq!(stretch(0, 100).overlap(&stretch(0, 25)), 0.25);
        assert_eq!(stretch(0, 10).overlap(&stretch(20, 30)), 0.0);
        assert_eq!(stretch(0, 50).rate(1_000), 20_000.0);
    }

    #[test]
    fn a_gain_is_taken_within_a_round_and_against_that_of_a_bare_drop() {
        let bare = (vec![10.0, 5.0], vec![16.0, 8.0]);
        let rows = rows(&[bare, (vec![4.0, 2.0], vec![6.4, 3.2])]).unwrap();
        assert_eq!((rows[0].gain.median, rows[1].gain.median), (1.6, 1.6));
        assert_eq!(rows[1].of_bare, Spread::exact(1.0));
        assert_eq!(rows[1].at_least, Some(1.9));
    }
}
