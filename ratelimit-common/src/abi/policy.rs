//! The policy as the kernel reads it: masks and limit parameters, resolved and bounded by user space.

use super::{
    counter::Fate,
    destination::BY_DESTINATION,
    limit::{Limit, LimitSet, Meter},
    link::LinkLimits,
    prefix::MAX_PREFIX_LEVELS,
    reason::Reason,
    service::{MAX_SERVICES, MAX_TOTALS, NO_SERVICE, OnLimit, PORT_SLOTS, PROTOCOL_SLOTS, Service, Total},
    window::{MAX_WINDOWS, WindowLimit},
};
use crate::{
    abi_struct,
    limit::{aggregation, gcra},
};

/// Cookies carry no TCP options but the MSS: this host's kernel would not find them again.
pub const NO_TCP_OPTIONS: u32 = u32::MAX;

/// Whether refused packets are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Mode {
    /// Refused packets are dropped.
    Enforce = 0,
    /// Refused packets pass, and are counted as what would have been dropped.
    Monitor = 1,
}

impl Mode {
    /// The word users type for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Monitor => "monitor",
        }
    }
}

/// The clock that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Clock {
    /// A clock to the nanosecond. To read it costs about as much as all the rest of the packet path.
    Precise = 0,
    /// A clock that is up to one timer tick behind, and nearly free to read. The tick has been taken out of the tolerances.
    Coarse = 1,
}

abi_struct! {
    /// What holds for every source.
    pub struct SourceLimits: 192 {
        /// Mask for bytes 0 to 7 of an IPv6 source, native load.
        pub v6_mask_hi: u64,
        /// Mask for bytes 8 to 15 of an IPv6 source, native load.
        pub v6_mask_lo: u64,
        /// Mask for the lower half of an IPv4 source's key.
        pub v4_mask: u64,
        /// The limits of each source.
        pub set: LimitSet,
    }
}

abi_struct! {
    /// The prefilter in front of the table of sources.
    pub struct Prefilter: 112 {
        /// Secret of the hash that puts sources into cells.
        pub secret: [u64; 2],
        /// New sources that one CPU may enter into the table.
        pub new_sources: Limit,
        /// Sockets that one CPU may look up for untracked sources that may have a connection.
        pub proofs: Limit,
        /// Senders of refused packets that one CPU may tell so.
        pub rejections: Limit,
        /// Refused packets that one CPU may tell the daemon of.
        pub reports: Limit,
    }
}

abi_struct! {
    /// Addresses that share a prefix, held to a multiple of what one source may have.
    pub struct PrefixLevel: 40 {
        /// Mask for bytes 0 to 7 of a source's key, native load.
        pub mask_hi: u64,
        /// Mask for bytes 8 to 15 of a source's key, native load.
        pub mask_lo: u64,
        /// The addresses together may have this many times what one source may have; 0: no such aggregation level.
        pub multiple: u64,
        /// The reciprocal of the multiple, see `limit::aggregation`.
        pub reciprocal: u64,
        /// What the prefix pays for any packet that is no SYN and no fragment, see [`Policy::price_packets`].
        pub packet_q8: u64,
    }
}

abi_struct! {
    /// How sources of a prefix that is nearly used up are held to fair shares of it: see `limit::fair`.
    pub struct Squeeze: 24 {
        /// Sources are squeezed while their prefix is nearer than this to what they may push it to, as time.
        pub range_q8: u64,
        /// Lower bits of a time that the way into the range does without.
        pub range_shift: u32,
        /// Pressure for each step of the way into the range, with 16 binary places.
        pub range_factor: u32,
        /// Lower bits of a time that the word of a source does without.
        pub fair_shift: u32,
        /// What a source may have at once under any pressure, as time in units of the word of a source.
        pub allowance: u32,
    }
}

impl Squeeze {
    /// The squeeze of a prefix that squeezes no source.
    pub const NONE: Self = Self { range_q8: 0, range_shift: 0, range_factor: 0, fair_shift: 0, allowance: 0 };
}

abi_struct! {
    /// Wider and wider prefixes around a source.
    pub struct Aggregation: 304 {
        /// How far the bucket of a prefix may run ahead, as for one source; 0 switches prefix aggregation off.
        pub tolerance_q8: u64,
        /// How far sources that are not proven to be real may push the bucket of a prefix, as time: less, so that who forges addresses cannot take
        /// everything from those who are.
        pub unproven_tolerance_q8: u64,
        /// Whether buckets of prefixes are charged by addition.
        pub adds: u64,
        /// What a cell may give out to prefixes that have no entry.
        pub cell_tolerance_q8: u64,
        /// What any packet of a source costs that is no SYN and no fragment, see [`Policy::price_packets`].
        pub packet_q8: u64,
        /// How sources share what is left.
        pub squeeze: Squeeze,
        /// Of IPv4 and of IPv6, narrowest first.
        pub prefix_levels: [[PrefixLevel; MAX_PREFIX_LEVELS]; 2],
    }
}

impl Aggregation {
    /// No prefix aggregation.
    pub const OFF: Self = Self {
        tolerance_q8: 0,
        unproven_tolerance_q8: 0,
        adds: 0,
        cell_tolerance_q8: 0,
        packet_q8: 0,
        squeeze: Squeeze::NONE,
        prefix_levels: [[PrefixLevel::UNUSED; MAX_PREFIX_LEVELS]; 2],
    };
}

impl PrefixLevel {
    /// Fills the slots of aggregation levels that are not in use.
    pub const UNUSED: Self = Self { mask_hi: 0, mask_lo: 0, multiple: 0, reciprocal: 0, packet_q8: 0 };
}

abi_struct! {
    /// The policy in force.
    pub struct Policy: 343320 {
        /// Counts policies since the maps were made.
        pub generation: u64,
        /// What holds for every source.
        pub source: SourceLimits,
        /// The prefilter, which says which sources get state of their own.
        pub prefilter: Prefilter,
        /// What prefixes around sources may have together.
        pub aggregation: Aggregation,
        /// The number of a [`Clock`].
        pub clock: u32,
        /// How many of `services` are in use.
        pub service_count: u32,
        /// How many reasons there are to let a refused packet pass: services that do not drop, and one if nothing is dropped at all.
        /// With none of them a refusal is a drop, and nothing more has to be asked.
        pub lenient: u32,
        /// How many users there are.
        pub user_count: u32,
        /// Which of the tables of users, and of destinations, belongs to this policy.
        pub tables: u32,
        /// The number of a [`Mode`].
        pub mode: u32,
        /// How many services answer SYNs with cookies.
        pub cookie_services: u32,
        /// The window scale that this host's kernel chooses, or [`NO_TCP_OPTIONS`].
        pub window_scale: u32,
        /// How many of `windows` are in use.
        pub window_count: u64,
        /// How many of `host_totals` are in use.
        pub host_total_count: u64,
        /// What everybody may send to this host, whatever it is for.
        pub host_totals: [Total; MAX_TOTALS],
        /// What may come of frames that have no source.
        pub link: LinkLimits,
        /// Limits that are counted in windows.
        pub windows: [WindowLimit; MAX_WINDOWS],
        /// Services, by index.
        pub services: [Service; MAX_SERVICES],
        /// The service of each port, by [`port_slot`](super::service::port_slot): [`NO_SERVICE`], or one more than
        /// its index; or the class of services that share it, with [`BY_DESTINATION`].
        pub ports: [u16; PORT_SLOTS],
        /// The service of each IP protocol that has no ports, by [`protocol_slot`](super::service::protocol_slot).
        pub protocols: [u16; PROTOCOL_SLOTS],
        /// Which service has each place: a hash of its name, or 0. No packet asks for it; the next daemon does, which knows no names.
        pub service_names: [u64; MAX_SERVICES],
    }
}

impl Policy {
    /// A policy without limits, services and users, whose budgets are empty. Every other one says what is different.
    pub const EMPTY: Self = Self {
        generation: 0,
        source: SourceLimits { v6_mask_hi: 0, v6_mask_lo: 0, v4_mask: 0, set: LimitSet::NONE },
        prefilter: Prefilter {
            secret: [0; 2],
            new_sources: Limit::UNUSED,
            proofs: Limit::UNUSED,
            rejections: Limit::UNUSED,
            reports: Limit::UNUSED,
        },
        aggregation: Aggregation::OFF,
        clock: Clock::Precise as u32,
        service_count: 0,
        lenient: 0,
        user_count: 0,
        tables: 0,
        mode: Mode::Enforce as u32,
        cookie_services: 0,
        window_scale: NO_TCP_OPTIONS,
        window_count: 0,
        host_total_count: 0,
        host_totals: Service::UNUSED.totals,
        link: LinkLimits::OFF,
        windows: [WindowLimit::UNUSED; MAX_WINDOWS],
        services: [Service::UNUSED; MAX_SERVICES],
        ports: [NO_SERVICE as u16; PORT_SLOTS],
        protocols: [NO_SERVICE as u16; PROTOCOL_SLOTS],
        service_names: [0; MAX_SERVICES],
    };

    /// The clock that decides under this policy.
    #[inline(always)]
    pub const fn clock(&self) -> Clock {
        if self.clock == Clock::Coarse as u32 { Clock::Coarse } else { Clock::Precise }
    }

    /// The service of a number from the table of ports, and its index.
    #[inline(always)]
    pub fn service(&self, number: u32) -> Option<(u32, &Service)> {
        if number == NO_SERVICE {
            return None;
        }
        // A mask and not a comparison: the verifier sees the bound wherever the compiler moves this to.
        let index = (number - 1) & (MAX_SERVICES as u32 - 1);
        Some((index, &self.services[index as usize]))
    }

    /// Whether the express lane can serve this policy: the lane repeats what the prefilter remembers, and drops.
    pub const fn serves_lane(&self) -> bool {
        self.source.set.prefilter_tolerance_q8 != 0 && self.mode != Mode::Monitor as u32
    }

    /// Makes of this policy what the express lane goes by: packets for a service that does not drop what is refused are left to the limiter, as are packets whose
    /// service depends on their destination.
    pub fn leave_lenient_to_limiter(&mut self) {
        if self.lenient == 0 {
            return;
        }
        let services = &self.services;
        for number in self.ports.iter_mut().chain(&mut self.protocols) {
            let service = (*number as usize).checked_sub(1).and_then(|index| services.get(index));
            if service.is_some_and(|service| service.on_limit != OnLimit::Drop as u32) {
                *number = BY_DESTINATION as u16;
            }
        }
    }

    /// Whether every packet of a source that is no SYN and no fragment weighs the same under all limits that are the source's alone, whatever
    /// service it is for. Where users share limits, and where windows begin anew, another limit may be the first to refuse a moment later.
    pub fn weighs_alike(&self) -> bool {
        let counts_bytes = self.source.set.limits.iter().any(|limit| limit.meter == Meter::Bytes as u32);
        let by_service = self.services.iter().any(|service| service.per_source.limit_count != 0);
        self.user_count == 0 && self.window_count == 0 && !counts_bytes && !by_service
    }

    /// Has prefixes know what any packet of a source that is no SYN and no fragment costs under the dearest of its limits; 0 if packets do not [weigh
    /// alike](Self::weighs_alike), or no prefilter says who has shown a connection.
    pub fn price_packets(&mut self) {
        let is_priced = self.weighs_alike() && self.source.set.prefilter_tolerance_q8 != 0;
        let packets = self.source.set.limits.iter().filter(|limit| limit.meter == Meter::Packets as u32);
        let dearest_q8 = packets.map(|limit| gcra::bounded_charge_q8(limit, 1)).max().filter(|_| is_priced);
        self.aggregation.packet_q8 = dearest_q8.unwrap_or(0);
        for level in self.aggregation.prefix_levels.iter_mut().flatten() {
            level.packet_q8 =
                aggregation::share_q8(self.aggregation.packet_q8, level.multiple, level.reciprocal);
        }
    }

    /// What becomes of a packet of a service that was refused for a reason. A policy on trial drops nothing at all; for its own limits
    /// the service decides.
    #[inline(always)]
    pub fn fate(&self, service: u32, reason: Reason) -> Fate {
        if self.mode == Mode::Monitor as u32 {
            return Fate::Waived;
        }
        match self.service(service) {
            Some((_, service)) if reason.is_for_service() => match service.on_limit {
                MONITOR => Fate::Waived,
                MARK => Fate::Marked,
                REJECT => Fate::Rejected,
                _ => Fate::Decided,
            },
            _ => Fate::Decided,
        }
    }
}

const MONITOR: u32 = OnLimit::Monitor as u32;
const MARK: u32 = OnLimit::Mark as u32;
const REJECT: u32 = OnLimit::Reject as u32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_that_users_type() {
        assert_eq!([Mode::Enforce, Mode::Monitor].map(Mode::name), ["enforce", "monitor"]);
    }

    /// A policy without anything, on the heap: it is larger than the stacks of some threads.
    fn empty() -> std::boxed::Box<Policy> {
        std::boxed::Box::new(Policy {
            generation: 1,
            prefilter: Prefilter { secret: [1; 2], ..Policy::EMPTY.prefilter },
            ..Policy::EMPTY
        })
    }

    #[test]
    fn packets_have_one_price_only_where_every_packet_of_a_source_weighs_alike_and_a_prefilter_is_there() {
        let mut policy = empty();
        policy.source.set.prefilter_tolerance_q8 = 1;
        policy.source.set.limits[0] = Limit { cost_fp: 500, meter: Meter::Packets as u32, ..Limit::UNUSED };
        policy.source.set.limits[1] = Limit { cost_fp: 900, meter: Meter::Syns as u32, ..Limit::UNUSED };
        let price = |change: fn(&mut Policy)| {
            let mut changed = empty();
            changed.source = policy.source;
            change(&mut changed);
            changed.price_packets();
            (changed.weighs_alike(), changed.aggregation.packet_q8)
        };
        assert_eq!(price(|_| {}), (true, 500), "SYNs are another matter");
        assert_eq!(price(|policy| policy.source.set.prefilter_tolerance_q8 = 0), (true, 0));
        for change in [
            (|policy| policy.user_count = 1) as fn(&mut Policy),
            |policy| policy.window_count = 1,
            |policy| policy.source.set.limits[2].meter = Meter::Bytes as u32,
            |policy| policy.services[3].per_source.limit_count = 1,
        ] {
            assert_eq!(price(change), (false, 0));
        }
    }
}
