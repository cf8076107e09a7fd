//! Services: limits on packets of one protocol and port, whoever sends.

use super::{Limit, LimitSet, Reason};
use crate::abi_struct;

/// Services that a policy can have.
pub const MAX_SERVICES: usize = 256;
/// The most totals of one service: one in packets, one in bytes.
pub const MAX_TOTALS: usize = 2;
/// Slots of the table of ports: destination ports of TCP, then of UDP.
pub const PORT_SLOTS: usize = 2 << 16;
/// Slots of the table of protocols: packets without ports, then fragments without the transport header.
pub const PROTOCOL_SLOTS: usize = 2 << 8;
/// The index of the host's total: behind those of all services.
pub const HOST_TOTAL: u32 = MAX_SERVICES as u32;
/// Totals of all services and of the host.
pub const TOTAL_SLOTS: usize = MAX_SERVICES + 1;
/// The parts of a total's rate that known clients may have for one part of newcomers, if a policy says nothing else: seven eighths.
pub const KNOWN_PARTS: u64 = 7;
/// The group of a service that remembers no clients.
pub const NO_CLIENTS: u64 = 1 << 32;
/// The number that stands for no service.
pub const NO_SERVICE: u32 = 0;

/// The slot of a port in the table of ports. A slot has [`NO_SERVICE`], or one more than the service's index.
#[inline(always)]
pub const fn port_slot(protocol: Protocol, port: u16) -> u32 {
    ((protocol as u32) << 16) | port as u32
}

/// The slot of a packet without ports, by the number of its IP protocol: one slot for packets with the transport header, another for later
/// fragments, which lack it.
#[inline(always)]
pub const fn protocol_slot(number: u8, later_fragment: bool) -> u32 {
    ((later_fragment as u32) << 8) | number as u32
}

/// A protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Protocol {
    /// The protocol is TCP.
    Tcp = 0,
    /// The protocol is UDP.
    Udp = 1,
}

abi_struct! {
    /// One limit of a total, of a service or of the host.
    ///
    /// CPUs do not charge it packet by packet: each takes a portion at a time, so the shared word is written rarely. What a CPU
    /// holds unspent has been charged already; the compiler has taken that much out of the tolerance.
    pub struct Total: 48 {
        /// The limit on all packets.
        pub limit: Limit,
        /// How far untracked sources may push the bucket, in 1/256 ns: less than the limit's tolerance, so that they cannot
        /// take the last tokens from tracked sources.
        pub untracked_tolerance_q8: u64,
        /// What a CPU takes at a time, in 1/256 ns; 0: packets are charged one by one.
        pub portion_q8: u64,
        /// How many parts of the rate known clients may have before others, for one part of newcomers.
        pub known_parts: u64,
    }
}

abi_struct! {
    /// One service: its limits, and what happens to refused packets.
    pub struct Service: 312 {
        /// The limit on SYNs above which SYNs are answered with cookies; a price of 0 switches cookies off.
        pub syn_cookies: Limit,
        /// How many of `totals` are in use.
        pub total_count: u64,
        /// The totals of the service.
        pub totals: [Total; MAX_TOTALS],
        /// The limits of each source at this service.
        pub per_source: LimitSet,
        /// A number by the name of the service, which known clients are remembered by: an index may be another service's after a change of policy.
        pub clients_group: u64,
        /// The number of an [`OnLimit`].
        pub on_limit: u32,
        /// The DSCP class of packets that the service marks, 0 to 63.
        pub dscp: u16,
        /// The number of a [`Challenge`].
        pub challenge: u16,
    }
}

abi_struct! {
    /// The shared buckets of one total, one for each limit.
    pub struct TotalState: 40 {
        /// Theoretical arrival times, changed by compare-and-exchange.
        pub tat_q8: [u64; MAX_TOTALS],
        /// Theoretical arrival times of the part that known clients may have before others, while the rest is spent.
        pub reserve_tat_q8: [u64; MAX_TOTALS],
        /// Until when the reserve counts as wanted by known clients, as a time word.
        pub wanted_until_q8: u64,
    }
}

abi_struct! {
    /// The SYNs of a service.
    pub struct SynState: 16 {
        /// The bucket of SYNs, for the limit `Service::syn_cookies`.
        pub tat_q8: u64,
        /// Until when SYNs are answered with cookies, as a time word.
        pub cookies_until_q8: u64,
    }
}

impl Service {
    /// Whether refused packets of the service are dropped, and nothing else ever happens to them.
    pub const fn only_drops(&self) -> bool {
        self.on_limit == OnLimit::Drop as u32 && self.challenge == Challenge::None as u16
    }

    /// Whether the service answers queries that are refused for a reason.
    #[inline(always)]
    pub const fn challenges(&self, reason: Reason) -> bool {
        self.challenge != Challenge::None as u16 && matches!(reason, Reason::ServiceTotal | Reason::HostTotal)
    }
}

impl TotalState {
    /// Totals of which nothing is spent.
    pub const FULL: Self =
        Self { tat_q8: [0; MAX_TOTALS], reserve_tat_q8: [0; MAX_TOTALS], wanted_until_q8: 0 };
}

/// How long cookies continue after the last SYN above the threshold, in 1/256 ns: long enough to bridge the gaps of a flood,
/// short enough that TCP options lost to cookies are soon back.
pub const COOKIES_HOLD_Q8: u64 = 10_000_000_000 << 8;

/// The answer of a service to queries that a spent total refuses: their senders come back with what only the owner of the address can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum Challenge {
    /// Such queries are dropped.
    None = 0,
    /// Queries of DNS are answered with an empty truncated response, upon which a resolver asks again over TCP.
    Dns = 1,
    /// Queries of game servers (A2S) are answered with a number that the next query has to repeat.
    A2s = 2,
}

impl Challenge {
    /// The challenges that a policy can name.
    pub const ALL: [Self; 2] = [Self::Dns, Self::A2s];

    /// The word for the variant, as users type it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Dns => "dns",
            Self::A2s => "a2s",
        }
    }
}

/// What happens to a packet that a limit refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum OnLimit {
    /// A refused packet is dropped.
    Drop = 0,
    /// A refused packet passes, and is counted as one that would have been dropped.
    Monitor = 1,
    /// A refused packet passes with another DSCP class, as less important.
    Mark = 2,
    /// A refused packet is dropped, and its sender is told.
    Reject = 3,
}

impl OnLimit {
    /// All variants, by discriminant.
    pub const ALL: [Self; 4] = [Self::Drop, Self::Monitor, Self::Mark, Self::Reject];

    /// The word for the variant, as users type it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Monitor => "monitor",
            Self::Mark => "mark",
            Self::Reject => "reject",
        }
    }
}

/// What is known of a source that takes a part of a shared limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Party {
    /// A source without an entry.
    Untracked = 0,
    /// A source with an entry.
    Tracked = 1,
    /// A source with an entry that has shown a TCP connection, which nobody can forge.
    Proven = 2,
}

impl Party {
    /// The party of this number. Functions of the kernel program pass parties as numbers.
    #[inline(always)]
    pub const fn from_code(code: u32) -> Self {
        match code {
            0 => Self::Untracked,
            1 => Self::Tracked,
            _ => Self::Proven,
        }
    }

    /// Whether the source has an entry: untracked sources are refused first when a total runs out.
    #[inline(always)]
    pub const fn has_state(self) -> bool {
        !matches!(self, Self::Untracked)
    }
}

/// Words of a share in each half: for each limit, one for untracked sources and one for tracked ones.
const SHARE_WORDS: usize = MAX_TOTALS * 2;

abi_struct! {
    /// What one CPU holds of one total. Only that CPU writes it.
    pub struct Share: 64 {
        /// What the CPU has taken and not spent, by limit and party, in 1/256 ns.
        pub pool_q8: [u64; SHARE_WORDS],
        /// Until when no portion is to be had, by limit and party, as time words.
        pub refused_until_q8: [u64; SHARE_WORDS],
    }
}

impl Share {
    /// A share that holds nothing.
    pub const EMPTY: Self = Self { pool_q8: [0; SHARE_WORDS], refused_until_q8: [0; SHARE_WORDS] };

    /// The index of the words of a limit for a party.
    #[inline(always)]
    pub const fn place(total: usize, party: Party) -> usize {
        total * 2 + party.has_state() as usize
    }
}

impl Service {
    /// Fills the unused indices of a policy.
    pub const UNUSED: Self = Self {
        syn_cookies: Limit::UNUSED,
        total_count: 0,
        totals: [Total {
            limit: Limit::UNUSED,
            untracked_tolerance_q8: 0,
            portion_q8: 0,
            known_parts: KNOWN_PARTS,
        }; MAX_TOTALS],
        per_source: LimitSet::NONE,
        clients_group: 0,
        on_limit: OnLimit::Drop as u32,
        dscp: 0,
        challenge: Challenge::None as u16,
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
