//! The run itself: which parts, in which order, into one report.

use std::{path::PathBuf, time::Duration};

use anyhow::Result;

use crate::{
    apply::{self, Step},
    case::{self, Case},
    contestant::{self, Abilities, Contestant},
    cost::{Extent, growth, instructions, paths, same_source},
    honest::{self, Honest, Seats},
    interrupt::Interrupt,
    machine::{self, Machine},
    progress,
    report::{CaseResult, Report},
    rounds::{self, Cores, Pace},
    selection::{Runs, Section, Selection},
};

/// A round on the wire. Short, because a virtual machine's speed changes within seconds, and two who are compared should not be far apart.
const SLICE: Duration = Duration::from_millis(50);
/// Runs of the program for one number, full and quick.
const RUNS: (u32, u32) = (4_000_000, 500_000);
/// Frames of an ordinary wire, and of one with jumbo frames: several buffers each.
const FRAME_SIZES: [usize; 2] = [1_500, 9_000];
/// Cases and contestants that are measured with those.
const BY_FRAME_SIZE: ([&str; 2], [&str; 2]) = (["1", "spoofed"], [contestant::YARDSTICK, "ours"]);

/// What the command line says.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) quick: bool,
    pub(crate) only: Vec<String>,
    /// Instead of the usual number.
    pub(crate) rounds: Option<usize>,
    pub(crate) frame_len: usize,
    pub(crate) limiter: PathBuf,
    pub(crate) command: String,
}

/// Everything that a part of the run needs.
struct Setting {
    chosen: Selection,
    cases: Vec<Case>,
    /// On the wire.
    pace: Pace,
    /// Rounds of everything else.
    rounds: usize,
    abilities: Abilities,
    interrupt: Interrupt,
    notes: Vec<String>,
}

/// Measures what was asked for.
pub(crate) fn run(request: Request) -> Result<Report> {
    let cases = case::all(request.frame_len);
    let names: Vec<_> = cases.iter().map(|case| case.name).collect();
    let chosen = Selection::new(request.quick, &request.only, &names, &contestant::ALL.map(|one| one.name))?;
    let interrupt = Interrupt::watch()?;
    let abilities = Abilities::find_out(request.limiter)?;
    let machine =
        Machine::this(["nft", "iptables"].iter().filter_map(|peer| machine::version(peer)).collect());
    let (on_the_wire, rounds) = if request.quick { (11, 3) } else { (31, 5) };
    let pace = Pace { rounds: request.rounds.unwrap_or(on_the_wire), slice: SLICE };
    let rounds = request.rounds.unwrap_or(rounds);
    let notes = abilities.notes();
    let mut setting = Setting { chosen, cases, pace, rounds, abilities, interrupt, notes };
    let last = machine.cpus - 1;
    let one_core = Cores { generator: last, receiver: None, observer: 0 };
    let two_cores = Cores { receiver: Some(0), ..one_core };
    Ok(Report {
        one_core: setting.wire(Section::OneCore, one_core)?,
        two_cores: setting.wire(Section::TwoCores, two_cores)?,
        paths: setting.paths(one_core)?,
        growth: setting.growth(one_core)?,
        same_source: setting.same_source([last, 0])?,
        instructions: setting.instructions(one_core)?,
        frame_size: setting.frame_size(one_core)?,
        honest: setting.honest(Seats { generator: last, host: 0 })?,
        apply: setting.apply()?,
        machine,
        command: request.command,
        rounds: pace.rounds,
        round_seconds: pace.slice.as_secs_f64(),
        notes: setting.notes,
    })
}

impl Setting {
    fn extent(&self) -> Extent {
        let quick = self.chosen.quick();
        Extent { rounds: self.rounds, runs: if quick { RUNS.1 } else { RUNS.0 }, quick }
    }

    /// Whether a part runs, and can.
    fn wants(&mut self, section: Section, cpus: usize) -> bool {
        if !self.chosen.section(section) {
            return false;
        }
        let enough = std::thread::available_parallelism().map_or(1, usize::from) >= cpus;
        if !enough {
            self.notes.push(format!("without {}: it takes {cpus} CPUs", section.name()));
        }
        enough
    }

    fn wire(&mut self, section: Section, cores: Cores) -> Result<Vec<CaseResult>> {
        // One for the packets, one for reading the counters.
        if !self.wants(section, 2) {
            return Ok(Vec::new());
        }
        let when = |one_core: Runs, two_cores: Runs| match section {
            Section::TwoCores => two_cores,
            _ => one_core,
        };
        let contestants = self.participants(|one| when(one.runs, one.on_two_cores));
        let mut results = Vec::new();
        for case in &self.cases {
            if self.chosen.case(case.name, when(case.runs, case.on_two_cores)) {
                results.push(rounds::measure(
                    case,
                    &contestants,
                    cores,
                    self.pace,
                    &self.abilities,
                    &self.interrupt,
                )?);
            }
        }
        Ok(results)
    }

    /// The yardstick, and whoever is chosen and has no excuse.
    fn participants(&mut self, when: impl Fn(&Contestant) -> Runs) -> Vec<Contestant> {
        let mut found = Vec::new();
        for one in &contestant::ALL {
            if one.name != contestant::YARDSTICK && !self.chosen.contestant(one.name, when(one)) {
                continue;
            }
            match one.excuse(&self.abilities).map(|why| format!("without \"{}\": {why}", one.title)) {
                None => found.push(*one),
                Some(note) if self.notes.contains(&note) => {}
                Some(note) => self.notes.push(note),
            }
        }
        found
    }

    fn frame_size(&mut self, cores: Cores) -> Result<Vec<CaseResult>> {
        if !self.wants(Section::FrameSize, 2) {
            return Ok(Vec::new());
        }
        let (cases, names) = BY_FRAME_SIZE;
        let contestants: Vec<_> =
            contestant::ALL.into_iter().filter(|one| names.contains(&one.name)).collect();
        let mut results = Vec::new();
        for case in FRAME_SIZES.into_iter().flat_map(case::all).filter(|case| cases.contains(&case.name)) {
            let (pace, abilities) = (self.pace, &self.abilities);
            results.push(rounds::measure(&case, &contestants, cores, pace, abilities, &self.interrupt)?);
        }
        Ok(results)
    }

    fn honest(&mut self, seats: Seats) -> Result<Option<Honest>> {
        if !self.wants(Section::Honest, 2) {
            return Ok(None);
        }
        let round = Duration::from_millis(if self.chosen.quick() { 300 } else { 2_000 });
        let pace = honest::Pace { rounds: self.rounds, round };
        let honest = honest::measure(seats, pace, &self.abilities, &self.interrupt)?;
        if honest.syn_flood.answered == 0 {
            self.notes.push("no SYN was answered with a cookie, which takes kernel 6.0".into());
        }
        Ok(Some(honest))
    }

    fn apply(&mut self) -> Result<Vec<Step>> {
        if !self.wants(Section::Apply, 1) {
            return Ok(Vec::new());
        }
        progress::show("policies of 100 000 prefixes");
        let steps = apply::measure(self.rounds, &self.abilities, &self.interrupt);
        progress::clear();
        steps
    }

    fn paths(&mut self, cores: Cores) -> Result<Vec<paths::PathCost>> {
        if !self.wants(Section::Paths, 1) {
            return Ok(Vec::new());
        }
        progress::show("nanoseconds per packet, by path");
        let costs = paths::measure(cores, self.extent(), &self.interrupt);
        progress::clear();
        costs
    }

    fn growth(&mut self, cores: Cores) -> Result<Vec<growth::Curve>> {
        if !self.wants(Section::Growth, 1) {
            return Ok(Vec::new());
        }
        progress::show("nanoseconds per packet, by what the tables hold");
        let curves = growth::measure(cores, self.extent(), &self.abilities, &mut self.notes, &self.interrupt);
        progress::clear();
        curves
    }

    fn same_source(&mut self, cpus: [usize; 2]) -> Result<Vec<same_source::Together>> {
        if !self.wants(Section::SameSource, 2) {
            return Ok(Vec::new());
        }
        let rows = same_source::measure(cpus, self.pace.rounds, &self.interrupt);
        progress::clear();
        rows
    }

    fn instructions(&mut self, cores: Cores) -> Result<Vec<instructions::Executed>> {
        if !self.wants(Section::Instructions, 1) {
            return Ok(Vec::new());
        }
        if machine::version("bpftool").is_none() {
            self.notes.push("without instructions: bpftool shows them, and is not installed".into());
            return Ok(Vec::new());
        }
        progress::show("instructions per packet, by path");
        let rows = instructions::measure(cores, &self.interrupt);
        progress::clear();
        rows
    }
}
