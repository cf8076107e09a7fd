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

#[cfg(test)]
mod tests {
    use ratelimit_common::{abi::Meter, limit::text::parse_rate};

    use super::*;
    use crate::policy::{Listen, SourcePolicy};

    fn policy(limits: &[&str], ipv4_prefix: i64, ipv6_prefix: i64) -> Policy {
        let rates: Vec<_> = limits.iter().map(|text| parse_rate(text).unwrap()).collect();
        let source = SourcePolicy::new(&rates, ipv4_prefix, ipv6_prefix, 1000).unwrap();
        Policy::new(Vec::new(), source, Listen::default())
    }

    #[test]
    fn masks_are_the_bytes_of_the_prefix_in_network_order() {
        for (ipv4, ipv6, v4_bytes, v6_bytes) in [
            (32, 64, [0xff; 4], [[0xff; 8], [0; 8]]),
            (1, 1, [0x80, 0, 0, 0], [[0x80, 0, 0, 0, 0, 0, 0, 0], [0; 8]]),
            (20, 128, [0xff, 0xff, 0xf0, 0], [[0xff; 8], [0xff; 8]]),
            (24, 65, [0xff, 0xff, 0xff, 0], [[0xff; 8], [0x80, 0, 0, 0, 0, 0, 0, 0]]),
            (8, 52, [0xff, 0, 0, 0], [[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xf0, 0], [0; 8]]),
        ] {
            let desired = desired(&policy(&["1/s"], ipv4, ipv6), 1);
            assert_eq!(desired.v4_mask.to_ne_bytes(), v4_bytes, "/{ipv4}");
            assert_eq!(
                [desired.v6_mask_hi.to_ne_bytes(), desired.v6_mask_lo.to_ne_bytes()],
                v6_bytes,
                "/{ipv6}"
            );
        }
    }

    #[test]
    fn limits_keep_the_order_of_the_file_and_the_other_slots_are_unused() {
        let policy = policy(&["100 syns/s", "5000 packets/s burst 10000", "40 Mbit/s"], 32, 64);
        let desired = desired(&policy, 7);
        assert_eq!((desired.generation, desired.limit_count), (7, 3));
        let meters = desired.limits.map(|limit| limit.meter);
        assert_eq!(meters[..3], [Meter::Syns as u32, Meter::Packets as u32, Meter::Bytes as u32]);
        assert_eq!(desired.limits[1], parse_rate("5000 packets/s burst 10000").unwrap().limit().unwrap());
        assert_eq!(desired.limits[3], Limit::UNUSED);
    }
}
