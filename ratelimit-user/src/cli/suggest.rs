//! `ratelimit suggest`: limits for traffic that was observed.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clap::Args;
use ratelimit_common::abi::Mode;

use super::{
    DaemonArgs, Format,
    output::{Output, complain, print, print_json},
    replay::is_from,
    span::parse_span,
};
use crate::{
    capture::{Arrival, ArrivalMaker, Capture, Captured, take_apart},
    config,
    control::{
        client::{ask, unexpected},
        protocol::{Order, Reply},
    },
    dataplane::{
        interface,
        tap::{Tap, TappedPacket},
    },
    failure::{ExitCode, Failure},
    moment,
    policy::{Policy, Prefix, Services},
    replay::{Replay, ReplayTimeline},
    suggest::{Habits, PolicyDraft, Spool, Suggestion},
};

/// How long an interface is listened to unless --for says otherwise.
const DEFAULT_SPAN: Duration = Duration::from_secs(60);
/// How often listening says how far it is.
const TELLING: Duration = Duration::from_secs(5);

/// Suggest limits for traffic that was observed, as a policy that drops nothing yet.
///
/// From a capture, or by listening to the interfaces that the daemon guards (or to --iface) for a while; that needs CAP_NET_RAW, and does not see what a
/// daemon drops, so let it run with `mode = "monitor"` meanwhile. The policy has the rates of sources, the reason for each limit, and whom it would have hit, as
/// comments. Observe ordinary traffic: what is usual during a flood is no measure.
///
/// Example: ratelimit suggest --for 10m > suggested.toml
#[derive(Debug, Args)]
pub(super) struct Suggest {
    /// Capture file; - is standard input. Without one, interfaces are listened to
    #[arg(conflicts_with_all = ["span", "iface"])]
    capture: Option<PathBuf>,
    /// Listen for this time: 60s, 10m
    #[arg(long = "for", value_name = "TIME")]
    span: Option<String>,
    /// Listen to this interface, whether or not a daemon runs; may be given several times
    #[arg(long, value_name = "NAME")]
    iface: Vec<String>,
    /// Take the services of this policy, rather than ports that packets came to
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Leave out packets from these addresses, which are the host's own
    #[arg(long, value_name = "CIDR")]
    ours: Vec<Prefix>,
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(flatten)]
    format: Format,
}

/// What was observed.
#[derive(Default)]
struct Observed {
    habits: Habits,
    timeline: ReplayTimeline,
    /// Packets that come once; those of a file are read again.
    spool: Spool,
    file: Option<PathBuf>,
}

impl Suggest {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let known = match &self.policy {
            Some(file) => Some(config::load(file)?.policy),
            None => None,
        };
        let services = known.as_ref().map(Policy::services);
        let observed = match &self.capture {
            Some(file) if file == Path::new("-") => self.read_once(file, services)?,
            Some(file) => self.read(file, services)?,
            None => self.listen(services)?,
        };
        let suggestion = self.suggest(&observed, services)?;
        match self.format.output {
            Output::Json => print_json(&suggestion),
            Output::Text => print(&suggestion.policy),
        }
    }

    /// The policy that fits, and what it would have done.
    fn suggest(&self, observed: &Observed, services: Option<&Services>) -> Result<Suggestion, Failure> {
        let seconds = observed.timeline.span().map_or(0.0, |(first, last)| (last - first) as f64 / 1e9);
        let from = observed
            .timeline
            .span()
            .map_or(String::new(), |(first, _)| format!(" from {}", moment::utc(first / 1_000_000_000)));
        let what = self.capture.as_ref().map_or("listening".to_owned(), |file| file.display().to_string());
        let rates = observed.habits.rates();
        let words = format!("{what}: {} packets in {seconds:.1} s{from}", observed.habits.packets());
        let Some(draft) = PolicyDraft::of(&rates, services, &words) else {
            return Err(Failure::new(
                ExitCode::Found,
                format!("{what} has no packet with a source; nothing to suggest from"),
            ));
        };
        // As if it were in force: on trial the same packets are refused, and pass.
        let policy = config::parse(&draft.policy(), "suggestion")?.policy.with_mode(Mode::Enforce);
        let mut replay = Replay::new(&policy);
        let mut timeline = ReplayTimeline::default();
        let mut again = |arrival: &Arrival<'_>| {
            let now_ns = timeline.now_ns(arrival.unix_ns).map_err(Failure::usage)?;
            replay.arrive(arrival, now_ns);
            Ok(())
        };
        match &observed.file {
            Some(file) => self.each(file, &mut again)?,
            None => observed.spool.arrivals().try_for_each(|arrival| again(&arrival))?,
        }
        Ok(draft.suggestion(&replay))
    }

    /// Hands over each arrival of a file.
    fn each(
        &self,
        file: &Path,
        see: &mut dyn FnMut(&Arrival<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (mut capture, mut arrivals) = (Capture::open(file)?, ArrivalMaker::default());
        while let Some(packet) = capture.next_packet()? {
            match arrivals.of(&packet) {
                Ok(arrival) if !is_from(&self.ours, &arrival.frame) => see(&arrival)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn read(&self, file: &Path, services: Option<&Services>) -> Result<Observed, Failure> {
        let mut observed = Observed { file: Some(file.to_owned()), ..Observed::default() };
        self.each(file, &mut |arrival| observed.see(arrival, services))?;
        Ok(observed)
    }

    fn read_once(&self, file: &Path, services: Option<&Services>) -> Result<Observed, Failure> {
        let mut observed = Observed::default();
        self.each(file, &mut |arrival| match observed.spool.keep(arrival) {
            Ok(()) => observed.see(arrival, services),
            Err(_) => Err(Failure::usage(format!(
                "standard input has more than the {} packets that are kept; save it as a file and name that",
                observed.spool.len()
            ))),
        })?;
        Ok(observed)
    }

    /// Listens to interfaces for a while.
    fn listen(&self, services: Option<&Services>) -> Result<Observed, Failure> {
        let span = parse_span(self.span.as_deref())?.unwrap_or(DEFAULT_SPAN);
        let names = if self.iface.is_empty() { self.guarded()? } else { self.iface.clone() };
        let all = interface::list()?;
        let interfaces = names.iter().map(|name| interface::among(&all, name).cloned());
        let mut tap = Tap::open(&interfaces.collect::<Result<Vec<_>, _>>()?)?;
        complain(&format!("listening to {} for {} s", names.join(", "), span.as_secs()));
        let (mut observed, mut arrivals) = (Observed::default(), ArrivalMaker::default());
        let begun = Instant::now();
        let mut told = begun;
        while begun.elapsed() < span {
            if told.elapsed() >= TELLING {
                told = Instant::now();
                complain(&format!(
                    "{} of {} s, {} packets",
                    begun.elapsed().as_secs(),
                    span.as_secs(),
                    observed.spool.len()
                ));
            }
            let Some(TappedPacket { packet, part }) = tap.next_packet()? else { continue };
            let joined = take_apart(packet.link_type, packet.bytes, part);
            let (packet, count) = match &joined {
                Some(joined) => (Captured { bytes: &joined.bytes, len: joined.len, ..packet }, joined.count),
                None => (packet, 1),
            };
            let Ok(arrival) = arrivals.of(&packet) else { continue };
            if is_from(&self.ours, &arrival.frame) {
                continue;
            }
            let mut keep = || {
                observed.spool.keep(&arrival).ok()?;
                Some(observed.see(&arrival, services))
            };
            let kept: Option<Result<(), Failure>> = (0..count).map(|_| keep()).collect();
            let Some(seen) = kept else {
                complain(&format!(
                    "after {} s there are {} packets, and no room for more: the suggestion is from these",
                    begun.elapsed().as_secs(),
                    observed.spool.len()
                ));
                break;
            };
            seen?;
        }
        Ok(observed)
    }

    /// The interfaces that the daemon guards.
    fn guarded(&self) -> Result<Vec<String>, Failure> {
        let status = match ask(&self.daemon.state, Order::Status) {
            Ok(Reply::Status(status)) => status,
            Ok(other) => return Err(unexpected(&other)),
            Err(failure) => {
                let message = format!("{failure}\nname an interface with --iface, or a capture");
                return Err(Failure::new(failure.code, message));
            }
        };
        if status.mode != "monitor" {
            complain(
                "the daemon enforces its policy: packets that it drops are not seen; mode = \"monitor\" lets them pass meanwhile",
            );
        }
        let names: Vec<String> = status.interfaces.iter().map(|interface| interface.name.clone()).collect();
        if names.is_empty() {
            return Err(Failure::usage(
                "the daemon guards no interface; name one with --iface, or a capture",
            ));
        }
        Ok(names)
    }
}

impl Observed {
    fn see(&mut self, arrival: &Arrival<'_>, services: Option<&Services>) -> Result<(), Failure> {
        self.timeline.now_ns(arrival.unix_ns).map_err(Failure::usage)?;
        self.habits.add(arrival, services);
        Ok(())
    }
}
