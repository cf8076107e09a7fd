//! The build of the kernel program that logs every verdict, and how its lines are read.
//!
//! This build has the feature `trace`; `ratelimit-ebpf/src/trace.rs` writes the lines through aya-log.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
};

use aya::Ebpf;
use aya_log::EbpfLogger;
use log::{Log, Metadata, Record};
use ratelimit_common::abi::{
    Reason, Verdict,
    counter::{Fate, REASON_SLOTS, SERVICE_SLOTS},
};

use super::{DataplaneError, OBJECT};

/// The traced program, in builds with the feature `trace`.
#[cfg(feature = "trace")]
static TRACED: Option<&[u8]> =
    Some(aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/traced/ratelimit-ebpf")));
#[cfg(not(feature = "trace"))]
static TRACED: Option<&[u8]> = None;

/// The verdicts that are logged. The numbers are those of aya-log's levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TraceLevel {
    /// Verdicts of frames that are dropped.
    Warn = 2,
    /// Verdicts of frames that are dropped or answered.
    Info = 3,
    /// Verdicts of all frames, those that pass included.
    Debug = 4,
}

impl FromStr for TraceLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "warn" => Ok(Self::Warn),
            "info" => Ok(Self::Info),
            "debug" => Ok(Self::Debug),
            _ => {
                Err("use warn (frames that are dropped), info (also those that are answered) or debug (all)"
                    .to_owned())
            }
        }
    }
}

/// A build of the kernel program to load.
#[derive(Clone, Copy)]
pub struct Image {
    pub(super) object: &'static [u8],
    pub(super) level: Option<TraceLevel>,
}

impl Image {
    /// The build that logs nothing.
    pub const PLAIN: Self = Self { object: OBJECT, level: None };

    /// Returns the build that logs verdicts of a level, if this binary has it.
    pub fn traced(level: TraceLevel) -> Option<Self> {
        TRACED.map(|object| Self::of_object(object, level))
    }

    /// Makes an image of an object that was built with the feature `trace`.
    pub fn of_object(object: &'static [u8], level: TraceLevel) -> Self {
        Self { object, level: Some(level) }
    }

    /// Whether the image logs verdicts.
    pub fn is_traced(&self) -> bool {
        self.level.is_some()
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("level", &self.level).finish_non_exhaustive()
    }
}

/// The verdict on one frame, as the traced program reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedVerdict {
    /// The verdict that the program returned to the kernel.
    pub verdict: Verdict,
    /// The sender; `None` if the frame is not IP.
    pub source: Option<IpAddr>,
    /// One more than the index of the service; 0 for no service.
    pub service: u32,
    /// Why the frame has this verdict.
    pub reason: Reason,
    /// The fate of the frame.
    pub fate: Fate,
    /// The length of the frame in bytes.
    pub bytes: u64,
}

impl TracedVerdict {
    /// Parses a line of the program: source, index of the counter, action and length.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let source: Ipv6Addr = words.next()?.parse().ok()?;
        let slot: u32 = words.next()?.parse().ok()?;
        let verdict = match words.next()? {
            "1" => Verdict::Drop,
            "2" => Verdict::Pass,
            "3" => Verdict::Reply,
            _ => return None,
        };
        Some(Self {
            verdict,
            source: (!source.is_unspecified()).then(|| source.to_canonical()),
            service: slot / SERVICE_SLOTS,
            reason: Reason::from_code(slot % REASON_SLOTS),
            fate: Fate::ALL[(slot % SERVICE_SLOTS / REASON_SLOTS) as usize],
            bytes: words.next()?.parse().ok()?,
        })
    }
}

/// The log of a traced program. It calls an `F` with each verdict.
pub struct VerdictLog<F>(EbpfLogger<TraceLines<F>>);

impl<F: Fn(TracedVerdict) + Send + Sync> VerdictLog<F> {
    pub(super) fn new(ebpf: &mut Ebpf, told: F) -> Result<Self, DataplaneError> {
        let logger = EbpfLogger::init_with_logger(ebpf, TraceLines(told));
        logger
            .map(Self)
            .map_err(|error| DataplaneError::Load { reason: format!("the program has no log: {error}") })
    }

    /// Reads all lines that were logged. Under a flood this does not end, because there is always one more line.
    pub fn read(&mut self) {
        self.0.flush();
    }
}

// aya-log's logger has no Debug of its own.
impl<F> fmt::Debug for VerdictLog<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerdictLog").finish_non_exhaustive()
    }
}

struct TraceLines<F>(F);

impl<F: Fn(TracedVerdict) + Send + Sync> Log for TraceLines<F> {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        if let Some(verdict) = TracedVerdict::parse(&record.args().to_string()) {
            (self.0)(verdict);
        }
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use ratelimit_common::abi::counter::slot;

    use super::*;

    #[test]
    fn a_line_of_the_program_is_a_verdict_again() {
        let counted = slot(3, Reason::LimitPackets, Fate::Marked);
        assert_eq!(
            TracedVerdict::parse(&format!("::ffff:192.0.2.7 {counted} 2 60")),
            Some(TracedVerdict {
                verdict: Verdict::Pass,
                source: Some([192, 0, 2, 7].into()),
                service: 3,
                reason: Reason::LimitPackets,
                fate: Fate::Marked,
                bytes: 60,
            })
        );
        let arp = slot(0, Reason::Arp, Fate::Decided);
        assert_eq!(TracedVerdict::parse(&format!(":: {arp} 2 42")).and_then(|arp| arp.source), None);
        assert_eq!(TracedVerdict::parse("no verdict"), None);
    }
}
