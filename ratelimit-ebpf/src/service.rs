//! Which service a packet is for: by its port or protocol, and where services share that, by its destination.

use ratelimit_common::abi::{
    Policy,
    destination::destination_key,
    service::{NO_SERVICE, PORT_SLOTS, PROTOCOL_SLOTS},
};

use crate::{
    frame::{Frame, forget},
    packet::{Family, Packet},
    parse,
    tables::Tables,
};

/// The number that the policy's ports, or else its protocols, have for a packet: of a service, or of a class of services that share the place.
#[inline(always)]
pub fn number(policy: &Policy, packet: &Packet) -> u32 {
    if policy.service_count == 0 {
        return NO_SERVICE;
    }
    match packet.port_slot() {
        Some(slot) => {
            // A mask and not a comparison: see `Policy::service`. The compiler knows that it changes nothing and would leave it out; kernel
            // 6.1 does not know what a port can be once its bytes have been swapped.
            let slot = forget(slot as u64, policy.generation) as usize & (PORT_SLOTS - 1);
            policy.ports[slot] as u32
        }
        None => {
            let slot =
                forget(packet.protocol_slot() as u64, policy.generation) as usize & (PROTOCOL_SLOTS - 1);
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
