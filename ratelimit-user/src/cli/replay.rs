//! `ratelimit replay`: what a policy would have done to a capture.

mod words;

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use serde::Serialize;

use super::{
    Format,
    output::{Output, print, print_json},
};
use crate::{
    capture::{Absent, ArrivalMaker, Capture},
    config,
    failure::{ExitCode, Failure},
    moment,
    policy::Prefix,
    replay::{
        Differences, PolicyComparison, Replay, ReplayReport, ReplayTimeline, SourceId,
        plot::{self, PlotLine},
    },
};

/// Say what a policy would have done to captured packets; needs no root and no daemon.
///
/// Reads pcap and pcapng, as tcpdump and Wireshark write them, of Ethernet (with VLAN tags too), raw IP and Linux cooked (`tcpdump -i any`), and runs each packet through the code of the
/// kernel program at the time that it was captured. Packets that the host sent itself are left out where the capture says so; name the host's own addresses with
/// --ours where it does not. Block and allow lists are the daemon's, and empty here.
///
/// Example: ratelimit replay flood.pcap --policy /etc/ratelimit.toml --plot flood.svg
#[derive(Debug, Args)]
pub(super) struct Replaying {
    /// Capture file; - is standard input
    capture: PathBuf,
    /// Policy file
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// Another policy file: say what differs between the two
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Write a picture of offered and passed packets per second
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Leave out packets from these addresses, which are the host's own
    #[arg(long, value_name = "CIDR")]
    ours: Vec<Prefix>,
    #[command(flatten)]
    format: Format,
}

/// The capture itself.
#[derive(Debug, Default, Serialize)]
struct CaptureRow {
    file: String,
    format: &'static str,
    link_types: Vec<String>,
    /// Packets that were replayed.
    packets: u64,
    bytes: u64,
    first: Option<String>,
    last: Option<String>,
    seconds: f64,
    /// Packets that were not: the host sent them, or there was no header of a link.
    outgoing_packets: u64,
    headless_packets: u64,
    /// Packets of which the file has only the beginning.
    cut_packets: u64,
    /// Packets with a time before that of another one before them.
    out_of_order_packets: u64,
}

/// The JSON answer of `replay`.
#[derive(Debug, Serialize)]
struct ReplayAnswer {
    capture: CaptureRow,
    policy: ReplayReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    against: Option<ReplayReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    differences: Option<Differences>,
}

impl Replaying {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let first = Replay::new(&config::load(&self.policy)?.policy);
        let second = match &self.against {
            Some(file) => Some(Replay::new(&config::load(file)?.policy)),
            None => None,
        };
        let mut run = Passage {
            first,
            second,
            comparison: PolicyComparison::default(),
            capture: CaptureRow::default(),
        };
        run.through(&self.capture, &self.ours)?;
        let answer = run.answer(&self);
        if let Some(file) = &self.plot {
            self.draw(file, &run)?;
        }
        match self.format.output {
            Output::Json => print_json(&answer),
            Output::Text => print(&words::text(&answer)),
        }
    }

    fn draw(&self, file: &Path, run: &Passage) -> Result<(), Failure> {
        let name = |path: &Path| path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let (ours, theirs) = (name(&self.policy), self.against.as_deref().map(name));
        let policy = PlotLine { name: &ours, series: run.first.series() };
        let against = run.second.as_ref().zip(theirs.as_deref());
        let against = against.map(|(replay, name)| PlotLine { name, series: replay.series() });
        let start = run.capture.first.as_deref().unwrap_or("no packets");
        fs::write(file, plot::svg(start, &policy, against.as_ref())).map_err(|error| {
            let message =
                format!("cannot write the picture {}: {error}; name a file with --plot", file.display());
            Failure::new(ExitCode::Usage, message)
        })
    }
}

/// A capture that goes through one policy or two.
struct Passage {
    first: Replay,
    second: Option<Replay>,
    comparison: PolicyComparison,
    capture: CaptureRow,
}

impl Passage {
    fn through(&mut self, file: &Path, ours: &[Prefix]) -> Result<(), Failure> {
        let mut capture = Capture::open(file)?;
        let (mut timeline, mut arrivals) = (ReplayTimeline::default(), ArrivalMaker::default());
        self.capture.format = capture.format();
        self.capture.file = file.display().to_string();
        while let Some(packet) = capture.next_packet()? {
            let link_type = packet.link_type.to_string();
            if !self.capture.link_types.contains(&link_type) {
                self.capture.link_types.push(link_type);
            }
            let arrival = match arrivals.of(&packet) {
                Ok(arrival) if is_from(ours, &arrival.frame) => Err(Absent::Outgoing),
                other => other,
            };
            match arrival {
                Ok(arrival) => {
                    let now_ns = timeline.now_ns(arrival.unix_ns).map_err(Failure::usage)?;
                    self.capture.packets += 1;
                    self.capture.bytes += arrival.frame.len();
                    self.capture.cut_packets += u64::from(arrival.is_cut);
                    let cause = self.first.arrive(&arrival, now_ns);
                    if let Some(second) = &mut self.second {
                        let causes = [cause, second.arrive(&arrival, now_ns)];
                        self.comparison.add([&self.first, second], &arrival.frame, causes);
                    }
                }
                Err(Absent::Outgoing) => self.capture.outgoing_packets += 1,
                Err(Absent::NoHeader) => self.capture.headless_packets += 1,
            }
        }
        self.capture.out_of_order_packets = timeline.behind();
        if let Some((first, last)) = timeline.span() {
            self.capture.first = Some(moment::utc_ms(first / 1_000_000));
            self.capture.last = Some(moment::utc_ms(last / 1_000_000));
            self.capture.seconds = ((last - first) / 1_000_000) as f64 / 1e3;
        }
        Ok(())
    }

    fn answer(&mut self, asked: &Replaying) -> ReplayAnswer {
        let (first, second) = (&self.first, self.second.as_ref());
        let against = second.zip(asked.against.as_ref());
        ReplayAnswer {
            capture: std::mem::take(&mut self.capture),
            policy: first.report(&asked.policy.display().to_string()),
            against: against.map(|(second, file)| second.report(&file.display().to_string())),
            differences: second.map(|second| self.comparison.differences([first, second])),
        }
    }
}

/// Whether a frame is from one of these addresses.
pub(super) fn is_from(prefixes: &[Prefix], frame: &ratelimit_ebpf::frame::Frame<'_>) -> bool {
    if prefixes.is_empty() {
        return false;
    }
    let Some(source) = ratelimit_ebpf::parse::source(frame) else { return false };
    let address = SourceId::of(source).address();
    let alone = Prefix::masked(address, if address.is_ipv4() { 32 } else { 128 });
    prefixes.iter().any(|prefix| prefix.covers(&alone))
}
