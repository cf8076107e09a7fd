//! A soak: floods and honest traffic while the daemon is killed, policies and builds change, and interfaces, file systems, the store, the
//! disk and the clock fail, in an order that a seed fixes.
//!
//! ```text
//! seed -> deck of events -> event -> floods go on -> all pause -> every packet judged? every bound kept? honest loss? growth?
//! ```
//!
//! Every packet counts: interfaces say what they received, programs what they judged, receivers what arrived. `cargo xtask soak` runs it.

mod balance;
mod bound;
mod checkpoint;
mod deeds;
mod ending;
mod event;
mod forger;
mod growth;
mod load;
mod policy;
mod sender;
mod site;
mod ticks;
mod watch;
mod way;
mod wires;
mod world;

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    thread,
    time::Duration,
};

use self::world::World;
pub use self::{
    event::{Deck, Event},
    load::{Load, LoadReport, load},
    site::Build,
};

/// What a soak is.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Fixes the order of events and how long each lasts.
    pub seed: u64,
    /// When it has had enough.
    pub until: Until,
    /// Between an event and the look at what it did: this long at most, in milliseconds.
    pub calm_ms: u64,
    /// The build that is soaked, and those that take over from it for a while.
    pub builds: Vec<Build>,
    /// Only these events; all of them if none is named.
    pub only: Vec<Event>,
    /// Where logs of daemons go.
    pub logs: PathBuf,
}

impl Plan {
    /// The events that there are builds for: of `only`, or of all.
    pub fn events(&self) -> Vec<Event> {
        let has = |same_layout| self.builds.iter().skip(1).any(|build| build.same_layout == same_layout);
        let chosen = if self.only.is_empty() { Event::ALL } else { &self.only };
        let possible = chosen.iter().copied().filter(|event| match event {
            Event::OtherBuild => has(false),
            Event::SameLayout => has(true),
            _ => true,
        });
        possible.collect()
    }

    /// How long a soak waits at most between an event and its look, if nobody is in a hurry.
    pub const CALM_MS: u64 = 1_800;
    /// The same for a soak that has minutes: every kind of event is to happen in it.
    pub const SHORT_CALM_MS: u64 = 300;
}

/// How long things happen.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// Until this much time has passed, and every kind of event has happened.
    Passed(Duration),
    /// Until so many events have happened.
    Events(u64),
}

/// How a soak ended.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What was wrong, with its time.
    pub faults: Vec<String>,
    /// The numbers of the run, one to a line.
    pub summary: String,
}

/// Runs a soak to its end.
pub fn soak(plan: Plan) -> Outcome {
    let mut world = World::new(plan);
    world.checkpoint(None);
    while world.goes_on() {
        let event = world.deck.draw();
        world.say(&format!("{event}"));
        // What an event waits for in vain ends the event, not the soak.
        match catch_unwind(AssertUnwindSafe(|| world.happen(event))) {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => world.fault(&format!("{event}: {fault}")),
            Err(panic) => world.fault(&format!("{event}: {}", words(&*panic))),
        }
        world.recover(event);
        let calm = world.plan.calm_ms / 6 + world.deck.below(world.plan.calm_ms * 5 / 6);
        thread::sleep(Duration::from_millis(calm));
        world.checkpoint(Some(event));
        world.happened.push(event);
    }
    world.finish()
}

/// What a panic says.
fn words(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or(panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic")
}
