//! What is sent, and under which limits: the cases of the benchmark, as data.

use serde::Serialize;

use crate::{
    selection::Runs,
    traffic::{Family, Traffic},
};

/// Packets per second that the attacked service takes in all. What a case measures is judging and dropping; without
/// it, light sources would measure how fast the stack takes packets.
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
/// 65 k sources at 1 M packets/s send 15 a second each.
const SMALL: SourceLimit = SourceLimit { packets: 10, per: Period::Minute, burst: 10 };

/// One column of the tables.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) traffic: Traffic,
    pub(crate) limit: SourceLimit,
    /// Packets to send before measuring starts, in the first round: until every burst is spent.
    pub(crate) settle_packets: u64,
    #[serde(skip)]
    pub(crate) runs: Runs,
    /// Whether it is also measured with the receiver on a core of its own.
    #[serde(skip)]
    pub(crate) on_two_cores: Runs,
}

/// Every case there is, for frames of this length.
pub(crate) fn all(frame_len: usize) -> Vec<Case> {
    let case = |name, title, family, sources, limit: SourceLimit, runs, on_two_cores| Case {
        name,
        title,
        traffic: Traffic { family, sources, frame_len },
        limit,
        settle_packets: if limit == SMALL { u64::from(sources) * 16 } else { u64::from(TABLE_ENTRIES) },
        runs,
        on_two_cores,
    };
    use Runs::{Always, Asked, Full};
    vec![
        case("1", "1 source", Family::V4, 1, GENEROUS, Always, Full),
        case("65k", "65 k", Family::V4, 1 << 16, GENEROUS, Full, Asked),
        case("1M", "1 M", Family::V4, 1 << 20, GENEROUS, Full, Asked),
        case("spoofed", "all of IPv4", Family::V4, 0, GENEROUS, Always, Always),
        case("ipv6", "IPv6 random /64", Family::V6, 0, GENEROUS, Always, Asked),
        case("heavy", "65 k heavy", Family::V4, 1 << 16, SMALL, Always, Full),
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
                assert!(case.settle_packets > u64::from(case.traffic.sources * case.limit.burst));
            }
        }
    }
}
