//! One contestant's turn: packets in flight on one CPU, their count read on another.
//!
//! ```text
//! generator  |  call  |======== lead ========|=========== packets ===========|== spare ==|
//! observer                                   ^ first reading     last reading ^
//! ```
//!
//! The two readings are the measurement, so what the system call does before and after its packets is not in it.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, bail};

use crate::{interrupt::Interrupt, lane::Ground, place, rig::Generator, rounds::Cores, stack::Counter};

/// A reading must not be torn: the counter belongs to a moment this close to the time that goes with it.
const READING: Duration = Duration::from_micros(500);
/// How often the observer looks.
const GLANCE: Duration = Duration::from_millis(1);
/// More packets than expected are sent by this part, because a contestant may be faster than it was before.
const SPARE: f64 = 0.3;
/// Packets for a first guess of the rate.
const FIRST_GUESS: u32 = 1 << 17;
/// Turns that are tried until one has packets enough.
const ATTEMPTS: u32 = 5;
/// Nothing here takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a turn is to be like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Packets before the measurement.
    pub(crate) lead: u64,
    /// Length of the measurement.
    pub(crate) duration: Duration,
    /// What is expected.
    pub(crate) packets_per_second: f64,
}

impl Plan {
    fn packets(&self) -> u32 {
        let measured = self.packets_per_second * self.duration.as_secs_f64() * (1.0 + SPARE);
        (self.lead as f64 + measured).min(f64::from(u32::MAX)) as u32
    }
}

/// What a turn was like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub(crate) arrived: u64,
    pub(crate) passed: Option<u64>,
    pub(crate) took: Duration,
}

/// A first impression, from some packets and all that comes with sending them.
pub(crate) fn guess_rate(
    ground: &Ground,
    generator: &Generator,
    cores: Cores,
    interrupt: &Interrupt,
) -> Result<f64> {
    interrupt.check()?;
    place::inside(ground.namespace(), || {
        place::stay_on(cores.generator)?;
        // The first call also pays for everything that is done only once.
        generator.send(FIRST_GUESS / 8)?;
        let began = Instant::now();
        generator.send(FIRST_GUESS)?;
        Ok(f64::from(FIRST_GUESS) / began.elapsed().as_secs_f64())
    })
}

/// Sends, and measures for as long as planned.
pub(crate) fn measure(
    ground: &Ground,
    generator: &Generator,
    mut passed: Option<&mut Counter>,
    mut plan: Plan,
    cores: Cores,
    interrupt: &Interrupt,
) -> Result<Flight> {
    for _ in 0..ATTEMPTS {
        let flight = attempt(ground, generator, passed.as_deref_mut(), plan, cores, interrupt)?;
        if flight.took >= plan.duration {
            return Ok(flight);
        }
        // The packets ran out early. What was seen tells how many it takes, unless it was next to nothing.
        plan.packets_per_second = if flight.took > 10 * GLANCE {
            flight.arrived as f64 / flight.took.as_secs_f64()
        } else {
            plan.packets_per_second * 4.0
        };
    }
    bail!("the packets ran out early, {ATTEMPTS} times; the machine is too busy to measure: {plan:?}")
}

fn attempt(
    ground: &Ground,
    generator: &Generator,
    passed: Option<&mut Counter>,
    plan: Plan,
    cores: Cores,
    interrupt: &Interrupt,
) -> Result<Flight> {
    interrupt.check()?;
    let landed = AtomicBool::new(false);
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let sent = place::inside(ground.namespace(), || {
                place::stay_on(cores.generator)?;
                generator.send(plan.packets())
            });
            landed.store(true, Ordering::Relaxed);
            sent
        });
        let observed = place::inside(ground.namespace(), || {
            place::stay_on(cores.observer)?;
            observe(generator, passed, plan, &landed)
        });
        sender.join().map_err(|_| anyhow!("the generator's thread panicked"))??;
        interrupt.check()?;
        observed
    })
}

/// The longest stretch behind the lead that is not longer than planned.
fn observe(
    generator: &Generator,
    mut passed: Option<&mut Counter>,
    plan: Plan,
    landed: &AtomicBool,
) -> Result<Flight> {
    let began = Instant::now();
    let start = generator.arrived()?;
    let mut first = reading(generator)?;
    while first.arrived - start < plan.lead {
        if landed.load(Ordering::Relaxed) || began.elapsed() > PATIENCE {
            bail!("only {} of {} packets arrived ahead of the measurement", first.arrived - start, plan.lead);
        }
        thread::sleep(GLANCE);
        first = reading(generator)?;
    }
    let passed_before = passed.as_mut().map(|counter| counter.read()).transpose()?;
    let mut last = first;
    while last.at - first.at < plan.duration {
        thread::sleep(GLANCE.min(plan.duration));
        let now = reading(generator)?;
        // A reading after the landing may include time without packets.
        if landed.load(Ordering::Relaxed) {
            break;
        }
        last = now;
    }
    let passed_after = passed.as_mut().map(|counter| counter.read()).transpose()?;
    let took = last.at - first.at;
    let passed = passed_after.zip(passed_before).map(|(after, before)| after - before);
    Ok(Flight { arrived: last.arrived - first.arrived, passed, took })
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
