//! What is sent, and under which limits: the cases of the benchmark, as data.

use std::time::Duration;

use serde::Serialize;

use crate::{
    selection::Runs,
    traffic::{self, Family, Traffic},
};

/// Packets per second that the attacked service takes in all, where sources are light. What a case measures is judging
/// and dropping; without it, it would be how fast the stack takes packets. Heavy sources go without: their bursts would
/// last for many seconds behind it, and until then they are not heavy.
pub(crate) const TOTAL_PER_SECOND: u32 = 100_000;
/// Sources that each limiter has room for, the default of ours.
pub(crate) const TABLE_ENTRIES: u32 = 262_144;

/// What one source may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct SourceLimit {
    pub(crate) packets: u32,
    pub(crate) per: Period,
    pub(crate) burst: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Period {
    Second,
    Minute,
}

impl Period {
    /// As nftables and iptables spell it; ours takes it too.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
        }
    }
}

/// No source of 65 k or more comes near it; a single one floods over it.
const GENEROUS: SourceLimit = SourceLimit { packets: 1_000, per: Period::Second, burst: 1_000 };
/// More than the service takes in all, so that its total is what refuses a single source.
const UNREACHED: SourceLimit = SourceLimit { packets: 100_000_000, per: Period::Second, burst: 1_000_000 };
/// 65 k sources at 1 M packets/s send 15 a second each.
const SMALL: SourceLimit = SourceLimit { packets: 10, per: Period::Minute, burst: 10 };

/// Traffic before a measurement: at least so much, for at least so long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lead {
    pub(crate) packets: u64,
    pub(crate) time: Duration,
}

/// Ours gives an entry to at most 50 k new sources a second on one CPU; by then all 65 k have theirs.
const ENTRIES_FOR_ALL: Duration = Duration::from_millis(1_800);

/// One column of the tables.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) traffic: Traffic,
    pub(crate) limit: SourceLimit,
    /// Packets per second for the attacked service in all.
    pub(crate) total: Option<u32>,
    /// What goes ahead of the first round, until every burst is spent and tables are as full as they get.
    #[serde(skip)]
    pub(crate) settling: Lead,
    /// What goes ahead of every other round, until what has come back in the meantime is spent.
    #[serde(skip)]
    pub(crate) lead: Lead,
    #[serde(skip)]
    pub(crate) runs: Runs,
    /// Whether it is also measured with the receiver on a core of its own.
    #[serde(skip)]
    pub(crate) on_two_cores: Runs,
}

/// Every case there is, for frames of this length.
pub(crate) fn all(frame_len: usize) -> Vec<Case> {
    let light = |name, title, family, sources, runs, on_two_cores| Case {
        name,
        title,
        traffic: Traffic { family, base_v4: traffic::BASE_V4, sources, frame_len },
        limit: GENEROUS,
        total: Some(TOTAL_PER_SECOND),
        settling: Lead { packets: u64::from(TABLE_ENTRIES), time: Duration::ZERO },
        lead: Lead { packets: u64::from(TOTAL_PER_SECOND) * 5 / 4, time: Duration::ZERO },
        runs,
        on_two_cores,
    };
    let heavy = |name, title, family, sources: u32, runs, on_two_cores| Case {
        limit: SMALL,
        total: None,
        settling: Lead { packets: u64::from(sources * SMALL.burst) * 2, time: ENTRIES_FOR_ALL },
        lead: Lead { packets: u64::from(sources) * 6, time: Duration::ZERO },
        ..light(name, title, family, sources, runs, on_two_cores)
    };
    use Runs::{Always, Asked, Full};
    vec![
        light("1", "1 source", Family::V4, 1, Always, Full),
        light("1-ipv6", "1 source, IPv6", Family::V6, 1, Full, Asked),
        Case { limit: UNREACHED, ..light("1-total", "1 source, total", Family::V4, 1, Full, Asked) },
        light("65k", "65 k", Family::V4, 1 << 16, Full, Asked),
        light("1M", "1 M", Family::V4, 1 << 20, Full, Asked),
        light("spoofed", "all of IPv4", Family::V4, 0, Always, Always),
        light("ipv6", "IPv6 random /64", Family::V6, 0, Full, Asked),
        heavy("heavy", "65 k heavy", Family::V4, 1 << 16, Always, Full),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own_and_is_measured_against_fresh_bursts_that_are_spent() {
        let cases = all(64);
        for (at, case) in cases.iter().enumerate() {
            assert!(cases[..at].iter().all(|other| other.name != case.name), "{}", case.name);
            if case.traffic.sources > 1 && case.limit == SMALL {
                assert!(case.settling.packets > u64::from(case.traffic.sources * case.limit.burst));
            }
        }
    }
}
