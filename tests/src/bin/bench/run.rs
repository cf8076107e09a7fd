//! The run itself: which parts, in which order, into one report.

use std::{path::PathBuf, time::Duration};

use anyhow::Result;

use crate::{
    apply,
    case::{self, Case},
    comparison::Comparison,
    contestant::{self, Contestant},
    cost::{Extent, growth, instructions, paths, same_source},
    honest::{self, Honest, Seats},
    interrupt::Interrupt,
    known::{self, Known},
    machine::{self, Machine},
    progress,
    report::{LongerFrames, Report},
    rounds::{self, Cores, Pace},
    selection::{Runs, Section, Selection},
    shell, targets,
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
    /// How many rounds, instead of the usual number.
    pub(crate) rounds: Option<usize>,
    pub(crate) frame_len: usize,
    pub(crate) limiter: PathBuf,
    pub(crate) command: String,
}

/// Everything that a part of the run needs.
struct Setting {
    chosen: Selection,
    cases: Vec<Case>,
    /// Rounds on the wire.
    pace: Pace,
    /// Rounds of everything else.
    rounds: usize,
    limiter: PathBuf,
    interrupt: Interrupt,
    notes: Vec<String>,
}

/// Measures what was asked for.
pub(crate) fn run(request: Request) -> Result<Report> {
    let cases = case::all(request.frame_len);
    let names: Vec<_> = cases.iter().map(|case| case.name).collect();
    let chosen = Selection::new(request.quick, &request.only, &names, &contestant::ALL.map(|one| one.name))?;
    let interrupt = Interrupt::watch()?;
    let peers = ["nft", "iptables"].iter().filter_map(|peer| machine::version(peer, "--version"));
    let machine = Machine::this(peers.collect());
    let (on_the_wire, rounds) = if request.quick { (11, 3) } else { (31, 5) };
    let pace = Pace { rounds: request.rounds.unwrap_or(on_the_wire), round: SLICE };
    let rounds = request.rounds.unwrap_or(rounds);
    let (limiter, notes) = (request.limiter, Vec::new());
    let mut setting = Setting { chosen, cases, pace, rounds, limiter, interrupt, notes };
    let last = machine.cpus - 1;
    let one_core = Cores { generator: last, receiver: None, observer: 0 };
    let two_cores = Cores { receiver: Some(0), ..one_core };
    let mut report = Report {
        one_core: setting.part(Section::OneCore, |part| part.wire(one_core))?,
        two_cores: setting.part(Section::TwoCores, |part| part.wire(two_cores))?,
        paths: setting
            .part(Section::Paths, |part| paths::measure(one_core, part.extent(), &part.interrupt))?,
        growth: setting
            .part(Section::Growth, |part| growth::measure(one_core, part.extent(), &part.interrupt))?,
        same_source: setting.part(Section::SameSource, |part| {
            same_source::measure([last, 0], part.pace.rounds, &part.interrupt)
        })?,
        instructions: setting.part(Section::Instructions, |part| part.instructions(one_core))?,
        frame_size: setting.part(Section::FrameSize, |part| part.frame_size(one_core))?,
        honest: setting.part(Section::Honest, |part| part.honest(Seats { generator: last, host: 0 }))?,
        known: setting
            .part(Section::Known, |part| part.known(one_core, Seats { generator: last, host: 0 }))?,
        apply: setting
            .part(Section::Apply, |part| apply::measure(part.rounds, &part.limiter, &part.interrupt))?,
        machine,
        command: request.command,
        rounds: pace.rounds,
        round_seconds: pace.round.as_secs_f64(),
        frame_len: request.frame_len,
        notes: setting.notes,
        ..Report::default()
    };
    report.targets = targets::of_packets(
        &report.one_core,
        &report.same_source,
        report.honest.as_ref(),
        report.known.as_ref(),
    );
    Ok(report)
}

impl Setting {
    /// Measures a part of the run, if it is chosen and the machine has the CPUs for it.
    fn part<T: Default>(
        &mut self,
        section: Section,
        measure: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        if !self.chosen.section(section) {
            return Ok(T::default());
        }
        let cpus = section.cpus();
        if std::thread::available_parallelism().map_or(1, usize::from) < cpus {
            self.notes.push(format!("without {}: it takes {cpus} CPUs", section.name()));
            return Ok(T::default());
        }
        progress::show(&section.name());
        let measured = measure(self);
        progress::clear();
        measured
    }

    fn extent(&self) -> Extent {
        let quick = self.chosen.quick();
        Extent { rounds: self.rounds, runs: if quick { RUNS.1 } else { RUNS.0 }, quick }
    }

    fn wire(&mut self, cores: Cores) -> Result<Vec<Comparison>> {
        let when =
            |one_core: Runs, two_cores: Runs| if cores.receiver.is_some() { two_cores } else { one_core };
        // The yardstick always takes part.
        let is_chosen = |one: &Contestant| {
            one.name == contestant::YARDSTICK
                || self.chosen.contestant(one.name, when(one.runs, one.on_two_cores))
        };
        let contestants: Vec<_> = contestant::ALL.into_iter().filter(is_chosen).collect();
        let cases = self.cases.iter();
        let cases = cases.filter(|case| self.chosen.case(case.name, when(case.runs, case.on_two_cores)));
        cases.map(|case| self.compare(case, &contestants, cores)).collect()
    }

    fn compare(&self, case: &Case, contestants: &[Contestant], cores: Cores) -> Result<Comparison> {
        rounds::measure(case, contestants, cores, self.pace, &self.limiter, &self.interrupt)
    }

    fn frame_size(&mut self, cores: Cores) -> Result<Vec<LongerFrames>> {
        let (cases, names) = BY_FRAME_SIZE;
        let contestants: Vec<_> =
            contestant::ALL.into_iter().filter(|one| names.contains(&one.name)).collect();
        let cases = FRAME_SIZES.into_iter().flat_map(case::all).filter(|case| cases.contains(&case.name));
        let measured = cases.map(|case| {
            let frame_len = case.traffic.frame_len;
            Ok(LongerFrames { frame_len, case: self.compare(&case, &contestants, cores)? })
        });
        measured.collect()
    }

    fn honest(&mut self, seats: Seats) -> Result<Option<Honest>> {
        let round = Duration::from_millis(if self.chosen.quick() { 300 } else { 2_000 });
        let pace = Pace { rounds: self.rounds, round };
        let honest = honest::measure(seats, pace, &self.limiter, &self.interrupt)?;
        if honest.syn_flood.answered == 0 {
            self.notes.push("no SYN was answered with a cookie, which takes kernel 6.0".into());
        }
        Ok(Some(honest))
    }

    fn known(&mut self, cores: Cores, seats: Seats) -> Result<Option<Known>> {
        let quick = self.chosen.quick();
        let round = Duration::from_millis(if quick { 300 } else { 1_500 });
        let pace = Pace { rounds: self.rounds, round };
        let rows = known::measure(seats, pace, quick, &self.limiter, &self.interrupt)?;
        // A few nanoseconds: twice as many rounds.
        let pace = Pace { rounds: self.pace.rounds * 2, ..self.pace };
        let costs = known::costs(cores, (pace, self.extent().runs / 4), &self.limiter, &self.interrupt)?;
        Ok(Some(Known { rows, costs }))
    }

    fn instructions(&mut self, cores: Cores) -> Result<Vec<instructions::Executed>> {
        if shell::run("bpftool", ["--version"]).is_err() {
            self.notes.push("without instructions: bpftool shows them, and is not installed".into());
            return Ok(Vec::new());
        }
        instructions::measure(cores, &self.interrupt)
    }
}
