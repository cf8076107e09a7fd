//! Rounds: everybody in turn, again and again, so that whatever the machine does in the meantime hits all alike.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::{
    case::{Case, Lead},
    contestant::{Abilities, Contestant, InPlace},
    flight::{self, Plan},
    interrupt::Interrupt,
    lane::{Ground, Lane},
    place, progress,
    report::{CaseResult, Cell},
    rig::Generator,
    stack::Counter,
    threaded,
};

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) rounds: usize,
    pub(crate) slice: Duration,
}

/// Which CPU does what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cores {
    pub(crate) generator: usize,
    /// `None`: the generator's own; the kernel takes packets on the CPU that sent them.
    pub(crate) receiver: Option<usize>,
    /// Where the counters are read.
    pub(crate) observer: usize,
}

impl Cores {
    fn title(&self) -> &'static str {
        if self.receiver.is_some() { "two cores" } else { "one core" }
    }
}

/// A contestant that is set up on its lane. Fields are dropped in order: it leaves before its lane goes.
struct Competitor {
    contestant: Contestant,
    cell: Cell,
    generator: Generator,
    passed: Option<Counter>,
    _in_place: InPlace,
    _lane: Lane,
}

/// Measures all contestants in one case.
pub(crate) fn measure(
    case: &Case,
    contestants: &[Contestant],
    cores: Cores,
    pace: Pace,
    abilities: &Abilities,
    interrupt: &Interrupt,
) -> Result<CaseResult> {
    let ground = Ground::new()?;
    let mut competitors = Vec::new();
    let participants = contestants.iter().filter(|contestant| contestant.takes_part(case));
    for (number, contestant) in participants.enumerate() {
        interrupt.check()?;
        let competitor = set_up(&ground, number, *contestant, case, cores, abilities);
        competitors.push(competitor.with_context(|| format!("cannot set up {}", contestant.title))?);
    }
    for round in 0..pace.rounds {
        progress::show(&format!("{}: {}, round {} of {}", cores.title(), case.title, round + 1, pace.rounds));
        // Not always the same one behind the same one.
        for turn in 0..competitors.len() {
            let at = (round + turn) % competitors.len();
            let lead = if round == 0 { case.settling } else { case.lead };
            competitors[at].take_turn(&ground, lead, pace.slice, cores, interrupt)?;
        }
    }
    progress::clear();
    Ok(CaseResult::new(case.clone(), competitors.into_iter().map(|competitor| competitor.cell).collect()))
}

fn set_up(
    ground: &Ground,
    number: usize,
    contestant: Contestant,
    case: &Case,
    cores: Cores,
    abilities: &Abilities,
) -> Result<Competitor> {
    let lane = Lane::new(ground, number, case.traffic.frame_len)?;
    let in_place = contestant.set_up(&lane, case, abilities)?;
    if let Some(cpu) = cores.receiver {
        place::keep_on(Some(threaded::receiver(lane.namespace(), &lane.inlet)?), cpu)?;
    }
    let generator = place::inside(ground.namespace(), || Generator::new(&case.traffic, &lane.outlet))?;
    let passed = Counter::open(&lane, &contestant, case.traffic.family)?;
    let cell = Cell::new(contestant.name, contestant.title);
    Ok(Competitor { contestant, cell, generator, passed, _in_place: in_place, _lane: lane })
}

impl Competitor {
    fn take_turn(
        &mut self,
        ground: &Ground,
        lead: Lead,
        duration: Duration,
        cores: Cores,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let plan = Plan { lead, duration, cores };
        let turn = flight::measure(ground, &self.generator, self.passed.as_mut(), plan, interrupt);
        let flight = turn.with_context(|| format!("while measuring {}", self.contestant.title))?;
        self.cell.add(flight.arrived, flight.passed, flight.took);
        Ok(())
    }
}
