//! One contestant's turn: packets in flight on one CPU, their count read on another.
//!
//! ```text
//! generator  |  call  |======== lead ========|=========== packets ==========|  signal
//! observer                                   ^ first reading   last reading ^
//! ```
//!
//! The two readings are the measurement, so what the system call does before and after its packets is not in it.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, ensure};
use nix::sys::{
    pthread::{Pthread, pthread_kill, pthread_self},
    signal::Signal,
};

use crate::{
    case::Lead, comparison::Sample, interrupt::Interrupt, lane::Ground, place, rig::Generator, rounds::Cores,
    stack::Counter,
};

/// The signal that ends the system call that sends; `Interrupt::watch` sees to it that the signal ends nothing else.
pub(crate) const LANDING: Signal = Signal::SIGUSR1;
/// A reading must not be torn: the counter belongs to a moment this close to the time that goes with it.
const READING: Duration = Duration::from_micros(500);
/// How often the observer looks.
const GLANCE: Duration = Duration::from_millis(1);
/// How long the observer waits for the first packet, and for the whole lead of a very slow contestant.
const PATIENCE: Duration = Duration::from_secs(15);

/// What a turn is to be like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// What comes before the measurement.
    pub(crate) lead: Lead,
    /// Length of the measurement.
    pub(crate) duration: Duration,
    pub(crate) cores: Cores,
}

/// What a turn was like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub(crate) arrived: u64,
    pub(crate) passed: Option<u64>,
    pub(crate) took: Duration,
}

impl Flight {
    /// Packets per second that arrived, and beside them those that passed.
    pub(crate) fn rates(&self) -> Sample {
        let per_second = |packets: u64| packets as f64 / self.took.as_secs_f64();
        Sample { value: per_second(self.arrived), beside: self.passed.map(per_second) }
    }
}

/// Sends, and measures in the meantime.
pub(crate) fn measure(
    ground: &Ground,
    generator: &Generator,
    passed: Option<&mut Counter>,
    plan: Plan,
    interrupt: &Interrupt,
) -> Result<Flight> {
    during(ground, generator, plan.cores.generator, || {
        place::inside(ground.namespace(), || {
            place::stay_on(plan.cores.observer)?;
            observe(generator, passed, plan, interrupt)
        })
    })
}

/// Sends from a CPU for as long as something else takes.
pub(crate) fn during<T>(
    ground: &Ground,
    generator: &Generator,
    cpu: usize,
    observe: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let (tell, told) = mpsc::channel::<Pthread>();
    let landed = &AtomicBool::new(false);
    thread::scope(|scope| {
        let sender = scope.spawn(move || {
            place::enter(ground.namespace())?;
            place::stay_on(cpu)?;
            // If nobody listens any more, there is nothing to send for.
            tell.send(pthread_self()).map_err(|_| anyhow!("the observer is gone"))?;
            generator.send_until(landed)
        });
        let observed = observe();
        landed.store(true, Ordering::Relaxed);
        // Again and again: the first one may come just before the system call.
        if let Ok(thread) = told.recv() {
            while !sender.is_finished() {
                pthread_kill(thread, LANDING)?;
                thread::sleep(GLANCE);
            }
        }
        sender.join().map_err(|_| anyhow!("the generator's thread panicked"))??;
        observed
    })
}

fn observe(
    generator: &Generator,
    mut passed: Option<&mut Counter>,
    plan: Plan,
    interrupt: &Interrupt,
) -> Result<Flight> {
    let start = reading(generator)?;
    let mut first = start;
    let is_led = |now: &Reading| {
        now.arrived - start.arrived >= plan.lead.packets && now.at - start.at >= plan.lead.time
    };
    while !is_led(&first) && first.at - start.at < PATIENCE {
        interrupt.check()?;
        thread::sleep(GLANCE);
        first = reading(generator)?;
    }
    ensure!(first.arrived > start.arrived, "no packet arrived in {PATIENCE:?}");
    let passed_before = passed.as_mut().map(|counter| counter.read()).transpose()?;
    let mut last = first;
    while last.at - first.at < plan.duration {
        interrupt.check()?;
        thread::sleep(GLANCE);
        last = reading(generator)?;
    }
    let passed_after = passed.as_mut().map(|counter| counter.read()).transpose()?;
    let passed = passed_after.zip(passed_before).map(|(after, before)| after - before);
    Ok(Flight { arrived: last.arrived - first.arrived, passed, took: last.at - first.at })
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    arrived: u64,
    at: Instant,
}

/// Reads until nothing comes between the counter and the clock.
fn reading(generator: &Generator) -> Result<Reading> {
    loop {
        let before = Instant::now();
        let arrived = generator.arrived()?;
        let at = Instant::now();
        if at - before < READING {
            return Ok(Reading { arrived, at });
        }
    }
}
