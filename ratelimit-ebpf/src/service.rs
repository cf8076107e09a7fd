//! Which service a packet is for: by its port or protocol, and where services share that, by its destination.

use ratelimit_common::abi::{
    Policy,
    destination::destination_key,
    service::{NO_SERVICE, PORT_SLOTS, PROTOCOL_SLOTS},
};

use crate::{forget::forget, frame::Frame, packet::Family, parse, tables::Tables};

/// The number that the policy has for the place of a port, or else for that of a protocol: of a service, or of a class of services that share
/// the place.
///
/// Masks and not comparisons: see `Policy::service`. The compiler knows that they change nothing and would leave them out; kernel 6.1 does not
/// know what a port can be once its bytes have been swapped.
#[inline(always)]
pub fn number(policy: &Policy, port_slot: Option<u32>, protocol_slot: u32) -> u32 {
    if policy.service_count == 0 {
        return NO_SERVICE;
    }
    match port_slot {
        Some(slot) => policy.ports[forget(slot as u64, policy.generation) as usize & (PORT_SLOTS - 1)] as u32,
        None => {
            let slot = forget(protocol_slot as u64, policy.generation) as usize & (PROTOCOL_SLOTS - 1);
            policy.protocols[slot] as u32
        }
    }
}

/// The service of a packet to a port of this class, by its destination: the longest prefix decides.
#[inline(always)]
pub fn at_destination<T: Tables>(tables: &T, frame: &Frame<'_>, table: u32, class: u32) -> u32 {
    let Some(address) = parse::destination(frame) else { return NO_SERVICE };
    let ip_version = match address.family {
        Family::V4 => 4,
        Family::V6 => 6,
    };
    match tables.destined(table, &destination_key(class, ip_version, address.key.octets())) {
        Some(number) => number,
        None => NO_SERVICE,
    }
}
