//! What is sent, and under which limits: the cases of the benchmark, as data.

use std::{net::Ipv4Addr, time::Duration};

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
/// Sources that each limiter has room for where a million sources need an entry each.
const ENTRIES_FOR_A_MILLION: u32 = 1 << 21;
/// Entries of a long list.
pub(crate) const MANY_LISTED: u32 = 100_000;

/// What one source may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourceLimit {
    pub(crate) packets: u32,
    pub(crate) per: Period,
    pub(crate) burst: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Period {
    Second,
    Minute,
    Hour,
}

impl Period {
    /// As nftables and iptables spell it; ours takes it too.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
        }
    }

    pub(crate) fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
        }
    }
}

/// No source of 65 k or more comes near this limit; a single source floods over it.
const GENEROUS: SourceLimit = SourceLimit { packets: 1_000, per: Period::Second, burst: 1_000 };
/// More than the service takes in all, so that its total is what refuses a single source.
const UNREACHED: SourceLimit = SourceLimit { packets: 100_000_000, per: Period::Second, burst: 1_000_000 };
/// A little more than the service takes in all.
const NEAR_THE_TOTAL: SourceLimit =
    SourceLimit { packets: TOTAL_PER_SECOND * 6 / 5, burst: TOTAL_PER_SECOND, ..GENEROUS };
/// 65 k sources at 1 M packets/s send 15 a second each.
const SMALL: SourceLimit = SourceLimit { packets: 10, per: Period::Minute, burst: 10 };

/// A million sources at 1 M packets/s send one a second each; what comes back between two rounds is next to nothing.
const TINY: SourceLimit = SourceLimit { packets: 10, per: Period::Hour, burst: 10 };

/// Traffic before a measurement: at least so much, for at least so long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lead {
    pub(crate) packets: u64,
    pub(crate) time: Duration,
}

/// Ours gives an entry to at most 50 k new sources a second on one CPU; by then all 65 k have theirs.
const ENTRIES_FOR_ALL: Duration = Duration::from_millis(1_800);

/// One column of the tables.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) traffic: Traffic,
    pub(crate) limit: SourceLimit,
    /// Packets per second for the attacked service in all.
    pub(crate) total: Option<u32>,
    /// Sources that each limiter has room for.
    pub(crate) table_entries: u32,
    /// Single addresses that are blocked, every second one from the first source on; 0 is no list.
    pub(crate) listed: u32,
    /// What goes ahead of the first round, until every burst is spent and tables are as full as they get.
    pub(crate) settling: Lead,
    /// What goes ahead of every other round, until what has come back in the meantime is spent.
    pub(crate) lead: Lead,
    pub(crate) runs: Runs,
    /// Whether it is also measured with the receiver on a core of its own.
    pub(crate) on_two_cores: Runs,
}

impl Case {
    /// Packets per second that the policy lets in, where they are so many that handing them to the stack is part of the cost.
    pub(crate) fn admitted(&self) -> Option<u32> {
        let alone = (self.limit.per == Period::Second).then_some(self.limit.packets);
        let of_sources = alone.filter(|_| self.traffic.sources == 1);
        let admitted = self.total.into_iter().chain(of_sources).min();
        admitted.filter(|_| self.listed == 0 && self.total.is_some())
    }

    /// The addresses of its list.
    pub(crate) fn blocked(&self) -> impl Iterator<Item = Ipv4Addr> + use<> {
        every_second_address(self.listed)
    }
}

/// So many addresses from the first source on. Every second one, or a list of neighbours would be a list of few prefixes.
pub(crate) fn every_second_address(count: u32) -> impl Iterator<Item = Ipv4Addr> {
    (0..count).map(|number| Ipv4Addr::from_bits(traffic::BASE_V4 + number * 2))
}

/// Every case there is, for frames of this length.
pub(crate) fn all(frame_len: usize) -> Vec<Case> {
    let light = |name, title, family, sources, runs, on_two_cores| Case {
        name,
        title,
        traffic: Traffic { family, base_v4: traffic::BASE_V4, sources, frame_len },
        limit: GENEROUS,
        total: Some(TOTAL_PER_SECOND),
        table_entries: TABLE_ENTRIES,
        listed: 0,
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
        Case {
            limit: NEAR_THE_TOTAL,
            ..light("1-near-total", "1 source near the total", Family::V4, 1, Full, Asked)
        },
        Case { listed: MANY_LISTED, ..light("blocked", "1 of 100 000 blocked", Family::V4, 1, Full, Asked) },
        light("65k", "65 k", Family::V4, 1 << 16, Full, Asked),
        light("1M", "1 M", Family::V4, 1 << 20, Full, Asked),
        light("spoofed", "all of IPv4", Family::V4, 0, Always, Always),
        light("ipv6", "IPv6 random /64", Family::V6, 0, Full, Asked),
        heavy("heavy", "65 k heavy", Family::V4, 1 << 16, Always, Full),
        Case {
            limit: TINY,
            table_entries: ENTRIES_FOR_A_MILLION,
            // Longer ones would be most of the run, and hardly anything has come back that they could spend.
            lead: Lead { packets: 1 << 19, time: Duration::ZERO },
            settling: Lead { packets: (1 << 20) * 13, time: ENTRIES_FOR_ALL },
            ..heavy("1M-heavy", "1 M heavy", Family::V4, 1 << 20, Full, Asked)
        },
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
            if case.traffic.sources > 1 && [SMALL, TINY].contains(&case.limit) {
                assert!(case.settling.packets > u64::from(case.traffic.sources * case.limit.burst));
            }
        }
    }

    #[test]
    fn a_bare_program_lets_in_what_the_policy_does_where_that_is_part_of_the_cost() {
        let told: Vec<_> = all(64).iter().map(|case| (case.name, case.admitted())).collect();
        let (one, total) = (Some(1_000), Some(TOTAL_PER_SECOND));
        let expected = [
            ("1", one),
            ("1-ipv6", one),
            ("1-total", total),
            ("1-near-total", total),
            ("blocked", None),
            ("65k", total),
            ("1M", total),
            ("spoofed", total),
            ("ipv6", total),
            ("heavy", None),
            ("1M-heavy", None),
        ];
        assert_eq!(told, expected);
    }
}
