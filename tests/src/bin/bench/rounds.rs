//! Rounds: everybody in turn, again and again, so that whatever the machine does in the meantime hits all alike.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result};

use crate::{
    case::{Case, Lead},
    comparison::{Cell, Comparison, Unit},
    contestant::{Contestant, InPlace},
    flight::{self, Plan},
    interrupt::Interrupt,
    lane::{Ground, Lane},
    place, progress,
    rig::Generator,
    stack::Counter,
    threaded,
};

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) rounds: usize,
    /// Of one contestant in one round.
    pub(crate) round: Duration,
}

impl Pace {
    /// Gives everybody a turn in each round, the first one another each time. `turn` gets the number of the round and of the contestant.
    pub(crate) fn in_turn(
        self,
        what: &str,
        contestants: usize,
        interrupt: &Interrupt,
        mut turn: impl FnMut(usize, usize) -> Result<()>,
    ) -> Result<()> {
        for round in 0..self.rounds {
            progress::show(&format!("{what}, round {} of {}", round + 1, self.rounds));
            for place in 0..contestants {
                let done = turn(round, (round + place) % contestants);
                // Ctrl-C reaches the programs that are measured too, and they fail of it.
                interrupt.check()?;
                done?;
            }
        }
        progress::clear();
        Ok(())
    }
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
    limiter: &Path,
    interrupt: &Interrupt,
) -> Result<Comparison> {
    let ground = Ground::new()?;
    let mut competitors = Vec::new();
    let participants = contestants.iter().filter(|contestant| contestant.takes_part(case));
    for (number, contestant) in participants.enumerate() {
        interrupt.check()?;
        let competitor = set_up(&ground, number, *contestant, case, cores, limiter);
        competitors.push(competitor.with_context(|| format!("cannot set up {}", contestant.title))?);
    }
    pace.in_turn(case.title, competitors.len(), interrupt, |round, at| {
        let lead = if round == 0 { case.settling } else { case.lead };
        competitors[at].take_turn(&ground, lead, pace.round, cores, interrupt)
    })?;
    let mut comparison = Comparison::new(case.name, case.title, Unit::PacketsPerSecond);
    comparison.cells = competitors.into_iter().map(|competitor| competitor.cell).collect();
    Ok(comparison)
}

fn set_up(
    ground: &Ground,
    number: usize,
    contestant: Contestant,
    case: &Case,
    cores: Cores,
    limiter: &Path,
) -> Result<Competitor> {
    let lane = Lane::new(ground, number, case.traffic.frame_len)?;
    let in_place = contestant.set_up(&lane, case, limiter)?;
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
        self.cell.add(turn.with_context(|| format!("while measuring {}", self.contestant.title))?.rates());
        Ok(())
    }
}
