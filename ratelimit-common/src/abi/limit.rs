//! One limit in the form that the kernel program reads, and sets of limits that apply together.

use crate::abi_struct;

/// The most limits in a set.
pub const MAX_LIMITS: usize = 4;

/// The bit of `frac_bits` in a set that marks a limit in bytes, so that the packet path needs no branch.
pub const COUNTS_BYTES: u32 = 1 << 31;

/// The bit of `frac_bits` in a set that marks a limit with a margin: what is above the limit passes and is counted apart.
pub const SOFT: u32 = 1 << 30;

/// The bit of `frac_bits` that marks, beside [`SOFT`], a margin that is closed for now: the host has no headroom.
pub const HELD: u32 = 1 << 29;

/// Stands for a [`Meter`] in a slot without a limit.
pub const NO_METER: u32 = u32::MAX;

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Meter {
    /// The limit counts frames.
    Packets = 0,
    /// Bytes of frames, from the Ethernet header on.
    Bytes = 1,
    /// TCP segments that open a connection: SYN set, ACK clear.
    Syns = 2,
    /// Pieces of fragmented IP packets, the first one included.
    Fragments = 3,
}

impl Meter {
    /// All meters, by discriminant.
    pub const ALL: [Self; 4] = [Self::Packets, Self::Bytes, Self::Syns, Self::Fragments];

    /// The word for the meter, as users type it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Bytes => "bytes",
            Self::Syns => "syns",
            Self::Fragments => "fragments",
        }
    }
}

abi_struct! {
    /// One GCRA limit. `limit::gcra` has the maths, and `limit::rate` makes these numbers of a rate.
    pub struct Limit: 24 {
        /// Price of one unit in 1/256 ns, with `frac_bits` further binary places.
        pub cost_fp: u64,
        /// How far the bucket may run ahead of now, in 1/256 ns: the burst as a time.
        pub tolerance_q8: u64,
        /// Binary places of `cost_fp` below 1/256 ns; in a [`LimitSet`] also [`COUNTS_BYTES`], [`SOFT`] and [`HELD`].
        pub frac_bits: u32,
        /// The number of a [`Meter`].
        pub meter: u32,
    }
}

impl Limit {
    /// Whether the limit has a margin, in a bucket of its own, in which packets pass and are counted apart.
    #[inline(always)]
    pub const fn is_soft(&self) -> bool {
        self.frac_bits & SOFT != 0
    }

    /// Whether the limit has a margin that is closed for now.
    #[inline(always)]
    pub const fn is_held(&self) -> bool {
        self.frac_bits & HELD != 0
    }

    /// Fills the unused slots of a policy.
    pub const UNUSED: Self = Self { cost_fp: 0, tolerance_q8: 0, frac_bits: 0, meter: NO_METER };
}

abi_struct! {
    /// Limits that apply to a packet together, each with a word of its own in a [`super::Bucket`].
    pub struct LimitSet: 168 {
        /// How many of `limits` are in use.
        pub limit_count: u64,
        /// The largest tolerance of the limits, in 1/256 ns.
        pub longest_tolerance_q8: u64,
        /// What a prefilter cell may give out, in 1/256 ns; 0: there is no prefilter, and every source has an entry from its first packet on.
        pub prefilter_tolerance_q8: u64,
        /// When a change of policy last lost sight of what sources had spent, as a time word. See [`LimitSet::owed_q8`].
        pub owed_since_q8: u64,
        /// How much every source counts as having spent at [`owed_since_q8`](Self::owed_since_q8), in 1/256 ns; at most the tolerance of each limit. 0: nothing.
        pub owed_q8: u64,
        /// Every cell of the prefilter counts as tracked until this time word, because entries made before the prefilter was on are not known to the cells. 0: cells
        /// have their own marks only.
        pub tracked_until_q8: u64,
        /// Margins of soft limits begin at this time word, when their buckets have been charged for as long as they take to fill. 0: margins have begun.
        pub margins_from_q8: u64,
        /// Windows of this set: one more than the index of each in the policy, then zeros.
        pub windows: [u8; 8],
        /// Bit n: the n-th bucket is charged by addition; see `limit::gcra`, "Many CPUs". Higher bits are [`HAS_SOFT`], [`COUNTS_PACKETS`],
        /// [`leased`] and [`cpus`].
        pub adds: u64,
        /// The limits. A packet must conform to all limits that apply to it.
        pub limits: [Limit; MAX_LIMITS],
    }
}

/// The bit of [`LimitSet::adds`] that marks a set with a soft limit.
pub const HAS_SOFT: u64 = 1 << 32;

/// The bit of [`LimitSet::adds`] that marks a set with a limit in packets or bytes, which counts every packet.
pub const COUNTS_PACKETS: u64 = 1 << 33;

/// The bit of [`LimitSet::adds`] that marks the limit at a place as leased: it holds on all hosts together, a lease is spent first, and the bucket is
/// what this host may spend without a lease.
#[inline(always)]
pub const fn leased(place: usize) -> u64 {
    1 << (8 + place)
}

/// The [`leased`] bits of all places.
const ANY_LEASED: u64 = 0xf << 8;
const _: () = assert!(MAX_LIMITS == 4);

/// The bits of [`LimitSet::adds`] that say how many CPUs may add to a bucket at once: the highest sixteen.
#[inline(always)]
pub const fn cpus(count: u64) -> u64 {
    (if count < 0xffff { count } else { 0xffff }) << CPUS_SHIFT
}

const CPUS_SHIFT: u32 = 48;

impl LimitSet {
    /// How many CPUs may add to a bucket at once.
    #[inline(always)]
    pub const fn cpus(&self) -> u64 {
        self.adds >> CPUS_SHIFT
    }

    /// Whether some limit of the set is leased.
    #[inline(always)]
    pub const fn has_leased(&self) -> bool {
        self.adds & ANY_LEASED != 0
    }

    /// Whether the limit at a place is leased.
    #[inline(always)]
    pub const fn is_leased(&self, place: usize) -> bool {
        self.adds & leased(place) != 0
    }

    /// Whether some limit of the set counts every packet, in packets or bytes.
    #[inline(always)]
    pub const fn counts_packets(&self) -> bool {
        self.adds & COUNTS_PACKETS != 0
    }

    /// Whether some limit of the set is soft.
    #[inline(always)]
    pub const fn has_soft(&self) -> bool {
        self.adds & HAS_SOFT != 0
    }

    /// A set without limits.
    pub const NONE: Self = Self {
        limit_count: 0,
        longest_tolerance_q8: 0,
        prefilter_tolerance_q8: 0,
        owed_since_q8: 0,
        owed_q8: 0,
        tracked_until_q8: 0,
        margins_from_q8: 0,
        windows: [0; 8],
        adds: 0,
        limits: [Limit::UNUSED; MAX_LIMITS],
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(frac_bits: u32) -> Limit {
        Limit { frac_bits, ..Limit::UNUSED }
    }

    #[test]
    fn bits_beside_the_binary_places_say_what_a_limit_is() {
        assert!(limit(SOFT | 7).is_soft() && !limit(HELD | COUNTS_BYTES | 7).is_soft());
        assert!(limit(SOFT | HELD).is_held() && !limit(SOFT | COUNTS_BYTES | 7).is_held());
        assert_eq!((COUNTS_BYTES, SOFT, HELD), (0x8000_0000, 0x4000_0000, 0x2000_0000));
    }

    #[test]
    fn bits_beside_those_of_addition_say_what_a_set_has() {
        let set = |adds| LimitSet { adds, ..LimitSet::NONE };
        assert!(set(HAS_SOFT).has_soft() && !set(!HAS_SOFT).has_soft());
        assert!(set(COUNTS_PACKETS).counts_packets() && !set(!COUNTS_PACKETS).counts_packets());
        for place in 0..MAX_LIMITS {
            assert_eq!(leased(place), 0x100 << place);
            assert!(set(leased(place)).has_leased());
            for other in 0..MAX_LIMITS {
                assert_eq!(set(leased(place)).is_leased(other), place == other);
            }
        }
        assert!(!set(0xf | HAS_SOFT | COUNTS_PACKETS | cpus(u64::MAX)).has_leased());
        assert_eq!([5, u64::MAX].map(|count| set(!cpus(u64::MAX) | cpus(count)).cpus()), [5, 0xffff]);
    }

    #[test]
    fn meters_have_the_words_that_users_type() {
        assert_eq!(Meter::ALL.map(Meter::name), ["packets", "bytes", "syns", "fragments"]);
    }
}
