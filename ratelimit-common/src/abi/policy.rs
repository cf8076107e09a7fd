//! The policy in the form that the kernel program reads: masks and parameters of limits, resolved and bounded by user space.

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

/// Stands for a window scale when cookies carry no TCP option but the MSS, because this host's kernel could not recover the others.
pub const NO_TCP_OPTIONS: u32 = u32::MAX;

/// Whether refused packets are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Mode {
    /// Refused packets are dropped.
    Enforce = 0,
    /// Refused packets pass, and are counted as packets that would have been dropped.
    Monitor = 1,
}

impl Mode {
    /// The word for the mode, as users type it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Monitor => "monitor",
        }
    }
}

/// The clock that limits are decided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Clock {
    /// A clock of nanosecond precision. Reading it costs about as much as all the rest of the packet path.
    Precise = 0,
    /// A clock that is up to one timer tick behind, and nearly free to read. Its lag is taken out of the tolerances.
    Coarse = 1,
}

abi_struct! {
    /// What holds for every source: masks and limits.
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
        /// The secret of the hash that assigns sources to cells.
        pub secret: [u64; 2],
        /// The per-CPU budget of new sources entered into the table.
        pub new_sources: Limit,
        /// The per-CPU budget of socket lookups for untracked sources that may have a connection.
        pub proofs: Limit,
        /// The per-CPU budget of rejections, which tell senders that their packets are refused.
        pub rejections: Limit,
        /// The per-CPU budget of drop events.
        pub reports: Limit,
    }
}

abi_struct! {
    /// One aggregation level: addresses that share a prefix may send a multiple of what one source may send.
    pub struct PrefixLevel: 40 {
        /// Mask for bytes 0 to 7 of a source's key, native load.
        pub mask_hi: u64,
        /// Mask for bytes 8 to 15 of a source's key, native load.
        pub mask_lo: u64,
        /// The addresses of a prefix together may send this many times what one source may send; 0: the level is not in use.
        pub multiple: u64,
        /// The reciprocal of the multiple, see `limit::aggregation`.
        pub reciprocal: u64,
        /// The charge of a prefix for any packet that is neither SYN nor fragment, in 1/256 ns; see [`Policy::price_packets`].
        pub packet_q8: u64,
    }
}

abi_struct! {
    /// How sources of a crowded prefix are held to fair shares: see `limit::fair`.
    pub struct Squeeze: 24 {
        /// Sources are squeezed while their prefix is within this range of its end, in 1/256 ns.
        pub range_q8: u64,
        /// Lower bits of a time that are dropped when the way into the range is measured.
        pub range_shift: u32,
        /// Pressure for each step of the way into the range, with 16 binary places.
        pub range_factor: u32,
        /// Lower bits of a time that are dropped in the word of a source.
        pub fair_shift: u32,
        /// What a source may use at once under any pressure, in time units of a source's word.
        pub allowance: u32,
    }
}

impl Squeeze {
    /// The squeeze of a prefix that squeezes no source.
    pub const NONE: Self = Self { range_q8: 0, range_shift: 0, range_factor: 0, fair_shift: 0, allowance: 0 };
}

abi_struct! {
    /// Prefix aggregation: wider and wider prefixes around a source.
    pub struct Aggregation: 304 {
        /// How far the bucket of a prefix may run ahead, in 1/256 ns, as for one source; 0: prefix aggregation is off.
        pub tolerance_q8: u64,
        /// How far sources that are not proven may push the bucket of a prefix, in 1/256 ns: less than the tolerance, so that forged addresses cannot use up
        /// what proven sources need.
        pub unproven_tolerance_q8: u64,
        /// How far additions may move the bucket of a prefix beyond its tolerance, in 1/256 ns; 0: buckets of prefixes are charged by exchange.
        pub adds: u64,
        /// What a cell may give out to prefixes without an entry, in 1/256 ns.
        pub cell_tolerance_q8: u64,
        /// The charge of a source for any packet that is neither SYN nor fragment, in 1/256 ns; see [`Policy::price_packets`].
        pub packet_q8: u64,
        /// How sources of a crowded prefix share it.
        pub squeeze: Squeeze,
        /// The aggregation levels of IPv4 and of IPv6, narrowest first.
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
    /// Fills the slots of unused aggregation levels.
    pub const UNUSED: Self = Self { mask_hi: 0, mask_lo: 0, multiple: 0, reciprocal: 0, packet_q8: 0 };
}

abi_struct! {
    /// The policy in force.
    pub struct Policy: 349480 {
        /// The number of this policy; it rises with every policy since the maps were made.
        pub generation: u64,
        /// What holds for every source.
        pub source: SourceLimits,
        /// The prefilter and the per-CPU budgets.
        pub prefilter: Prefilter,
        /// Prefix aggregation.
        pub aggregation: Aggregation,
        /// The number of a [`Clock`].
        pub clock: u32,
        /// How many of `services` are in use.
        pub service_count: u32,
        /// How many services let refused packets pass, and one more if the policy drops nothing at all.
        /// If it is 0, every refusal is a drop, and nothing more has to be looked up.
        pub lenient: u32,
        /// How many users there are.
        pub user_count: u32,
        /// Which of the two tables of users' limits, and of destinations, belongs to this policy.
        pub tables: u32,
        /// The number of a [`Mode`].
        pub mode: u32,
        /// How many services answer SYNs with cookies.
        pub cookie_services: u32,
        /// The window scale that this host's kernel offers, or [`NO_TCP_OPTIONS`].
        pub window_scale: u32,
        /// How many of `windows` are in use.
        pub window_count: u64,
        /// How many of `host_totals` are in use.
        pub host_total_count: u64,
        /// The totals of the host.
        pub host_totals: [Total; MAX_TOTALS],
        /// The cap of each interface on frames without a source.
        pub link: LinkLimits,
        /// Limits that are counted in windows.
        pub windows: [WindowLimit; MAX_WINDOWS],
        /// Services, by index.
        pub services: [Service; MAX_SERVICES],
        /// The service of each port, by [`port_slot`](super::service::port_slot): [`NO_SERVICE`], or one more than
        /// the service's index; or the class of the services that share the port, with [`BY_DESTINATION`].
        pub ports: [u16; PORT_SLOTS],
        /// The service of each IP protocol that has no ports, by [`protocol_slot`](super::service::protocol_slot).
        pub protocols: [u16; PROTOCOL_SLOTS],
        /// A hash of the name of the service at each index, or 0. Packets do not need it; the next daemon recovers the names by it.
        pub service_names: [u64; MAX_SERVICES],
    }
}

impl Policy {
    /// A policy without limits, services and users, whose budgets are empty. Other policies start from it.
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

    /// The service of a number from the table of ports, with its index; `None` for no service.
    #[inline(always)]
    pub fn service(&self, number: u32) -> Option<(u32, &Service)> {
        if number == NO_SERVICE {
            return None;
        }
        // A mask and not a comparison: the verifier sees the bound wherever the compiler moves this to.
        let index = (number - 1) & (MAX_SERVICES as u32 - 1);
        Some((index, &self.services[index as usize]))
    }

    /// Whether the express lane can serve this policy: the lane repeats what the prefilter remembers, and can only drop.
    pub const fn serves_lane(&self) -> bool {
        self.source.set.prefilter_tolerance_q8 != 0 && self.mode != Mode::Monitor as u32
    }

    /// Turns this policy into the copy for the express lane: packets for a service that does not drop refused packets are left to the limiter, as are packets whose
    /// service depends on their destination.
    pub fn leave_lenient_to_limiter(&mut self) {
        if self.lenient == 0 {
            return;
        }
        let services = &self.services;
        for number in self.ports.iter_mut().chain(&mut self.protocols) {
            let service = (*number as usize).checked_sub(1).and_then(|index| services.get(index));
            if service.is_some_and(|service| !service.only_drops()) {
                *number = BY_DESTINATION as u16;
            }
        }
    }

    /// Whether every packet of a source that is neither SYN nor fragment has the same charge under all limits of the source, whatever
    /// its service. With users, whose limits are shared, and with windows, which begin anew, another limit may be the first to refuse a moment later.
    pub fn weighs_alike(&self) -> bool {
        let counts_bytes = self.source.set.limits.iter().any(|limit| limit.meter == Meter::Bytes as u32);
        let by_service = self.services.iter().any(|service| service.per_source.limit_count != 0);
        self.user_count == 0 && self.window_count == 0 && !counts_bytes && !by_service
    }

    /// Sets the charge of prefixes for any packet that is neither SYN nor fragment: that of the dearest limit of a source. 0 if packets do not [weigh
    /// alike](Self::weighs_alike), or if there is no prefilter.
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

    /// What happens to a packet for a service that was refused for a reason. A policy on trial drops nothing; for its own limits
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
                _ if service.challenges(reason) => Fate::Rejected,
                _ => Fate::Decided,
            },
            Some((_, service)) if service.challenges(reason) => Fate::Rejected,
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

    /// An empty policy on the heap: it is larger than the stacks of some threads.
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
