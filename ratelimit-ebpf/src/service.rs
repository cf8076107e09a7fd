//! The service of a packet: by its port or protocol, and where services share that, by its destination.

use ratelimit_common::abi::{
    Policy,
    destination::{BY_DESTINATION, destination_key},
    service::{MAX_SERVICES, NO_SERVICE, PORT_SLOTS, PROTOCOL_SLOTS},
};

use crate::{
    forget::masked,
    frame::Frame,
    packet::Family,
    parse::{self, Brief},
    tables::Tables,
};

/// The number in the table of ports, or else in that of protocols: a service's, or that of a class of services that share
/// the port or protocol.
///
/// Masks and not comparisons: see `Policy::service`. Kernel 6.1 loses the bound of a port once its bytes have been swapped.
#[inline(always)]
pub fn number(policy: &Policy, port_slot: Option<u32>, protocol_slot: u32) -> u32 {
    if policy.service_count == 0 {
        return NO_SERVICE;
    }
    match port_slot {
        Some(slot) => policy.ports[masked::<{ PORT_SLOTS - 1 }>(slot as usize)] as u32,
        None => policy.protocols[masked::<{ PROTOCOL_SLOTS - 1 }>(protocol_slot as usize)] as u32,
    }
}

/// The number of a packet's service, for its counter only; `None` if the limiter has to find out the service.
#[inline(always)]
pub fn at_first_look<S>(policy: &Policy, packet: &Brief<S>) -> Option<u32> {
    let service = number(policy, packet.port_slot(), packet.protocol_slot());
    // A comparison instead of a test of the bit: so the compiler sees the bound, and that there is a counter. A caller that looks the service up would lose the mask
    // that shows the bound to kernel 6.1.
    const { assert!(BY_DESTINATION > MAX_SERVICES as u32, "classes of services are beyond all services") };
    if service <= MAX_SERVICES as u32 { Some(service) } else { None }
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
