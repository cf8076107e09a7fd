//! Services: what is limited as a whole, whoever sends.

use super::{Limit, LimitSet};
use crate::abi_struct;

/// Services that a policy can have.
pub const MAX_SERVICES: usize = 256;
/// Limits on the total of one service: one in packets, one in bytes.
pub const MAX_TOTALS: usize = 2;
/// Destination ports of TCP, then of UDP.
pub const PORT_SLOTS: usize = 2 << 16;
/// IP protocols of packets without ports, then of fragments without the transport header.
pub const PROTOCOL_SLOTS: usize = 2 << 8;
/// Where the total of the host is among those of services: behind them.
pub const HOST_TOTAL: u32 = MAX_SERVICES as u32;
/// Totals of services, and that of the host.
pub const TOTAL_SLOTS: usize = MAX_SERVICES + 1;
/// The index that stands for no service.
pub const NO_SERVICE: u32 = 0;

/// Where the service of a port is looked up. Holds [`NO_SERVICE`], or one more than the service's index.
#[inline(always)]
pub const fn port_slot(protocol: Protocol, port: u16) -> u32 {
    ((protocol as u32) << 16) | port as u32
}

/// Where the service of a packet without ports is looked up, by the number of its IP protocol: one that has its transport header, or a later
/// piece of one that does not.
#[inline(always)]
pub const fn protocol_slot(number: u8, later_fragment: bool) -> u32 {
    ((later_fragment as u32) << 8) | number as u32
}

/// Protocols that have ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Protocol {
    /// The protocol is TCP.
    Tcp = 0,
    /// The protocol is UDP.
    Udp = 1,
}

abi_struct! {
    /// One limit on the total of a service.
    ///
    /// CPUs do not charge it packet by packet: each takes a portion at a time, so the shared word is written rarely. What a CPU
    /// has taken and not spent has been charged already; the compiler has taken that out of the tolerance.
    pub struct Total: 40 {
        /// The limit on everything.
        pub limit: Limit,
        /// How far sources without state may push the bucket: below the limit's own tolerance, so that they cannot
        /// take the last tokens from those who are known.
        pub untracked_tolerance_q8: u64,
        /// What a CPU takes at a time; 0: packet by packet.
        pub portion_q8: u64,
    }
}

abi_struct! {
    /// What holds for one service.
    pub struct Service: 288 {
        /// SYNs above this are answered with cookies; a price of 0 switches that off.
        pub syn_cookies: Limit,
        /// How many of `totals` are in use.
        pub total_count: u64,
        /// The totals of the service.
        pub totals: [Total; MAX_TOTALS],
        /// What one source may send to this service.
        pub per_source: LimitSet,
        /// The number of an [`OnLimit`].
        pub on_limit: u32,
        /// The class that `mark` gives a packet, 0 to 63.
        pub dscp: u32,
    }
}

abi_struct! {
    /// The shared buckets of one service, one per limit.
    pub struct TotalState: 16 {
        /// Theoretical arrival times, moved by compare-and-exchange.
        pub tat_q8: [u64; MAX_TOTALS],
    }
}

abi_struct! {
    /// How a service fares with its SYNs.
    pub struct SynState: 16 {
        /// Bucket of SYNs, held to `Service::syn_cookies`.
        pub tat_q8: u64,
        /// SYNs are answered with cookies until then.
        pub cookies_until_q8: u64,
    }
}

/// How long cookies go on after the last SYN above the threshold, in 1/256 ns: long enough that a flood with gaps does not flap,
/// short enough that options lost to cookies are soon back.
pub const COOKIES_HOLD_Q8: u64 = 10_000_000_000 << 8;

/// What becomes of a packet that a limit refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum OnLimit {
    /// A refused packet is dropped.
    Drop = 0,
    /// A refused packet passes, and is counted as what would have been dropped.
    Monitor = 1,
    /// A refused packet passes as less important: with another class of service.
    Mark = 2,
    /// The sender of a refused packet is told so.
    Reject = 3,
}

impl OnLimit {
    /// All of them, by discriminant.
    pub const ALL: [Self; 4] = [Self::Drop, Self::Monitor, Self::Mark, Self::Reject];

    /// The word users type for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Monitor => "monitor",
            Self::Mark => "mark",
            Self::Reject => "reject",
        }
    }
}

/// What is known of a source that asks for a part of a shared limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Party {
    /// A source without state.
    Untracked = 0,
    /// A source with state.
    Tracked = 1,
    /// A source with state that has shown a connection, which nobody can forge.
    Proven = 2,
}

impl Party {
    /// The party of this number. Functions of the kernel program tell each other parties as numbers.
    #[inline(always)]
    pub const fn from_code(code: u32) -> Self {
        match code {
            0 => Self::Untracked,
            1 => Self::Tracked,
            _ => Self::Proven,
        }
    }

    /// Whether the source has state: untracked sources are the first to go when a service is full.
    #[inline(always)]
    pub const fn has_state(self) -> bool {
        !matches!(self, Self::Untracked)
    }
}

/// Words of a share per limit: a pool and a refusal for each party.
const SHARE_WORDS: usize = MAX_TOTALS * 2;

abi_struct! {
    /// What one CPU has taken from the totals of one service. Only that CPU writes it.
    pub struct Share: 64 {
        /// Taken and not spent, by limit and party.
        pub pool_q8: [u64; SHARE_WORDS],
        /// No portion is left until then, by limit and party.
        pub refused_until_q8: [u64; SHARE_WORDS],
    }
}

impl Share {
    /// A share of which nothing is taken.
    pub const EMPTY: Self = Self { pool_q8: [0; SHARE_WORDS], refused_until_q8: [0; SHARE_WORDS] };

    /// The place of a limit's words for a party.
    #[inline(always)]
    pub const fn place(total: usize, party: Party) -> usize {
        total * 2 + party.has_state() as usize
    }
}

impl Service {
    /// Fills the unused slots of a policy.
    pub const UNUSED: Self = Self {
        syn_cookies: Limit::UNUSED,
        total_count: 0,
        totals: [Total { limit: Limit::UNUSED, untracked_tolerance_q8: 0, portion_q8: 0 }; MAX_TOTALS],
        per_source: LimitSet::NONE,
        on_limit: OnLimit::Drop as u32,
        dscp: 0,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parties_are_told_as_numbers_and_two_of_three_have_state() {
        let parties = [Party::Untracked, Party::Tracked, Party::Proven];
        assert_eq!([0, 1, 2].map(Party::from_code), parties);
        assert_eq!(parties.map(Party::has_state), [false, true, true]);
        let places = [0, 1].map(|total| parties.map(|party| Share::place(total, party)));
        assert_eq!(places, [[0, 1, 1], [2, 3, 3]]);
    }

    #[test]
    fn ports_and_protocols_have_places_of_their_own() {
        assert_eq!(port_slot(Protocol::Tcp, 0xabcd), 0xabcd);
        assert_eq!(port_slot(Protocol::Udp, 0xabcd), 0x1_abcd);
        assert_eq!((protocol_slot(0xff, false), protocol_slot(0xff, true)), (0xff, 0x1ff));
        assert_eq!((PORT_SLOTS, PROTOCOL_SLOTS, TOTAL_SLOTS), (131_072, 512, 257));
        assert_eq!(COOKIES_HOLD_Q8, 10 * 1_000_000_000 * 256);
        assert_eq!(OnLimit::ALL.map(OnLimit::name), ["drop", "monitor", "mark", "reject"]);
    }
}
