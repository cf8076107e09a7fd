//! The policy as the kernel reads it: masks and limit parameters, resolved and bounded by user space.

use crate::abi_struct;

/// Limits that one source can have at once.
pub const MAX_LIMITS: usize = 4;

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Meter {
    /// Frames.
    Packets = 0,
    /// Bytes of frames, from the Ethernet header on.
    Bytes = 1,
    /// TCP segments that open a connection: SYN set, ACK clear.
    Syns = 2,
}

impl Meter {
    /// All meters, by discriminant.
    pub const ALL: [Self; 3] = [Self::Packets, Self::Bytes, Self::Syns];

    /// The word users type for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Bytes => "bytes",
            Self::Syns => "syns",
        }
    }
}

abi_struct! {
    /// One GCRA limit. The maths is in `limit::gcra`, the way from text to these numbers in `limit::rate`.
    pub struct Limit: 24 {
        /// Price of one unit in 1/256 ns, with `frac_bits` further binary places.
        pub cost_fp: u64,
        /// How far the bucket may run ahead of now, in 1/256 ns: the burst, as time.
        pub tolerance_q8: u64,
        /// Binary places of `cost_fp` below 1/256 ns.
        pub frac_bits: u32,
        /// A [`Meter`].
        pub meter: u32,
    }
}

impl Limit {
    /// Fills the unused slots of a policy.
    pub const UNUSED: Self = Self { cost_fp: 0, tolerance_q8: 0, frac_bits: 0, meter: 0 };
}

abi_struct! {
    /// The policy in force.
    pub struct Policy: 128 {
        /// Counts policies since the maps were made.
        pub generation: u64,
        /// Mask for bytes 0 to 7 of an IPv6 source, native load.
        pub v6_mask_hi: u64,
        /// Mask for bytes 8 to 15 of an IPv6 source, native load.
        pub v6_mask_lo: u64,
        /// Mask of an IPv4 source, native load.
        pub v4_mask: u32,
        /// How many of `limits` are in use.
        pub limit_count: u32,
        /// Limits of every source. A packet must conform to all that apply to it.
        pub limits: [Limit; MAX_LIMITS],
    }
}
