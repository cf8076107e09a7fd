//! The policy as the kernel reads it.

use ratelimit_common::abi::{self, Limit, MAX_LIMITS};

use crate::policy::Policy;

/// The kernel's view of a policy.
pub fn desired(policy: &Policy, generation: u64) -> abi::Policy {
    let source = policy.source();
    let mut limits = [Limit::UNUSED; MAX_LIMITS];
    for (slot, named) in limits.iter_mut().zip(source.limits()) {
        *slot = named.limit();
    }
    let v6_mask = u128::MAX.checked_shl(128 - u32::from(source.ipv6_prefix())).unwrap_or(0).to_be_bytes();
    let v4_mask = u32::MAX.checked_shl(32 - u32::from(source.ipv4_prefix())).unwrap_or(0).to_be_bytes();
    let v6_mask = abi::SourceKey::from_octets(v6_mask);
    abi::Policy {
        generation,
        v6_mask_hi: v6_mask.hi,
        v6_mask_lo: v6_mask.lo,
        v4_mask: u32::from_ne_bytes(v4_mask),
        limit_count: source.limits().len() as u32,
        limits,
    }
}
