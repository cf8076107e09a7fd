//! Ports and protocols, and the destinations that divide some of them, in the form that the kernel program looks them up.

use ratelimit_common::abi::{
    destination::{ADDRESS_AT, BY_DESTINATION, CLASS_BITS, DestinationKey, destination_key},
    service::{PORT_SLOTS, PROTOCOL_SLOTS},
};

use super::Places;
use crate::policy::{PortGroup, Prefix, Service, Services, claims};

/// One entry of the table of destinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Length of the prefix in the key, in bits.
    pub bits: u32,
    /// The key: the class of the port group, and the address.
    pub key: DestinationKey,
    /// One more than the index of the service.
    pub service: u32,
}

/// Fills in the tables of ports and protocols, and returns the destinations of the ports that are divided. Each divided group of ports has a class of its own.
pub(super) fn compile(
    services: &Services,
    places: &Places,
    (ports, protocols): (&mut [u16; PORT_SLOTS], &mut [u16; PROTOCOL_SLOTS]),
) -> Vec<Destination> {
    let all: Vec<&Service> = services.iter().collect();
    let number = |at: usize| places.of(all[at].name()).map_or(0, |index| index as u32 + 1);
    let mut destinations = Vec::new();
    let mut classes = 0;
    for group in services.port_groups() {
        let entry = if services.is_divided(group) {
            let class = BY_DESTINATION | classes;
            classes += 1;
            for at in &group.services {
                let of = claims(all[*at]).into_iter();
                destinations.extend(of.map(|(_, prefix)| destination(class, prefix, number(*at))));
            }
            class
        } else {
            group.services.first().map_or(0, |at| number(*at))
        };
        fill(group, entry as u16, (ports, protocols));
    }
    // Sorted, so that the order in the file does not matter.
    destinations.sort_unstable_by_key(|one| (one.key, one.bits));
    destinations
}

fn fill(
    group: &PortGroup,
    entry: u16,
    (ports, protocols): (&mut [u16; PORT_SLOTS], &mut [u16; PROTOCOL_SLOTS]),
) {
    for slots in &group.slots {
        let (start, end) = (slots.start as usize, slots.end as usize);
        match start.checked_sub(PORT_SLOTS) {
            None => ports[start..end].fill(entry),
            // No range spans ports and protocols: the last port is before the first protocol, and groups never join the two.
            Some(first) => protocols[first..end - PORT_SLOTS].fill(entry),
        }
    }
}

/// The entry of a prefix, or of the rest of the destinations.
fn destination(class: u32, prefix: Option<Prefix>, service: u32) -> Destination {
    let Some(prefix) = prefix else {
        return Destination { bits: CLASS_BITS, key: destination_key(class, 0, [0; 16]), service };
    };
    let (len, octets) = prefix.mapped();
    let ip_version = if prefix.is_v4() { 4 } else { 6 };
    Destination { bits: ADDRESS_AT + len, key: destination_key(class, ip_version, octets), service }
}
