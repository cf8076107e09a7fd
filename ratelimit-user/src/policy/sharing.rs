//! Ports and destinations that several services share, and conflicts between them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Range,
};

use ratelimit_common::abi::destination::MAX_DESTINATIONS;

use super::{
    Prefix, Service, ServiceError,
    carrier::{Carrier, CarrierPlace, END},
    shadow::{OwnedPrefix, Shadow, shadows_of},
};

/// Ports and protocols that have the same services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortGroup {
    /// The slots of the group in the table of ports.
    pub slots: Vec<Range<u32>>,
    /// Places of the services in the list of services, from 0.
    pub services: Vec<usize>,
}

impl PortGroup {
    /// Whether packets to these ports are told apart by destination.
    pub fn is_divided(&self, services: &[Service]) -> bool {
        self.services.iter().any(|at| !services[*at].destinations().is_empty())
    }
}

/// All ports with a service, grouped by their services, in the order of the first port.
///
/// Walks over the ends of port ranges: between two ends nothing changes, however many ports there are.
pub(super) fn port_groups(services: &[Service]) -> Vec<PortGroup> {
    let number = |service: &Service| match service.carrier() {
        Carrier::Number(number) => Some(number),
        Carrier::Ports(_) | Carrier::Fragments => None,
    };
    let taken: Vec<u8> = services.iter().filter_map(number).collect();
    let mut ends: BTreeMap<u32, Vec<(usize, bool)>> = BTreeMap::new();
    for (at, service) in services.iter().enumerate() {
        for slots in service.slots(&taken) {
            ends.entry(slots.start).or_default().push((at, true));
            ends.entry(slots.end).or_default().push((at, false));
        }
    }
    let mut groups: Vec<PortGroup> = Vec::new();
    let mut places: HashMap<Vec<usize>, usize> = HashMap::new();
    // A service that names a port twice is present twice.
    let mut present: Vec<usize> = Vec::new();
    let starts: Vec<u32> = ends.keys().copied().collect();
    for (number, (start, changes)) in ends.into_iter().enumerate() {
        for (at, begins) in changes {
            let place = present.partition_point(|other| *other < at);
            if begins { present.insert(place, at) } else { _ = present.remove(place) }
        }
        if present.is_empty() {
            continue;
        }
        let slots = start..starts.get(number + 1).copied().unwrap_or(END);
        let place = *places.entry(present.clone()).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.slots.push(slots),
            None => groups.push(PortGroup { slots: vec![slots], services: present.clone() }),
        }
    }
    groups
}

/// The first conflict of each service with an earlier one at the same port, and whether the map has room for all destinations.
pub(super) fn conflicts(services: &[Service], groups: &[PortGroup]) -> Vec<ServiceError> {
    let mut errors: BTreeMap<usize, ServiceError> = BTreeMap::new();
    let mut count = 0;
    for group in groups.iter().filter(|group| group.services.len() > 1 || group.is_divided(services)) {
        // `None` stands for the rest of the destinations, which only one service can take.
        let mut owner: HashMap<Option<Prefix>, usize> = HashMap::new();
        for index in &group.services {
            for (destination, prefix) in claims(&services[*index]) {
                let Some(other) = owner.insert(prefix, *index) else { continue };
                let (name, other) = (services[*index].name().to_owned(), services[other].name().to_owned());
                let (index, place) = (*index, CarrierPlace(group.slots[0].start));
                errors.entry(index).or_insert(match prefix {
                    None => ServiceError::Overlap { index, name, place, other },
                    Some(prefix) => {
                        ServiceError::SameDestination { index, destination, name, place, prefix, other }
                    }
                });
            }
        }
        count += owner.len();
    }
    let mut errors: Vec<ServiceError> = errors.into_values().collect();
    if errors.is_empty() && count > MAX_DESTINATIONS as usize {
        errors.push(ServiceError::TooManyDestinations { count });
    }
    errors
}

/// What a service claims at each of its ports: its destinations with their places, or `None` for the rest.
pub(crate) fn claims(service: &Service) -> Vec<(usize, Option<Prefix>)> {
    if service.destinations().is_empty() {
        return vec![(0, None)];
    }
    service.destinations().iter().enumerate().map(|(at, prefix)| (at, Some(*prefix))).collect()
}

/// A claim of a service that no packet ever meets, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unmet {
    /// Place of the service in the list of services.
    pub service: usize,
    /// Place of the destination among those of the service; `None` for the claim on the rest.
    pub destination: Option<usize>,
    /// Why no packet meets the claim.
    pub why: Shadow,
}

/// Every claim that changes nothing at any port of its service.
pub(super) fn unmet(services: &[Service], groups: &[PortGroup]) -> Vec<Unmet> {
    let mut unmet: BTreeMap<(usize, Option<usize>), Shadow> = BTreeMap::new();
    let mut met: BTreeSet<(usize, Option<usize>)> = BTreeSet::new();
    for group in groups.iter().filter(|group| group.is_divided(services)) {
        let shadowed = shadows_of(group_claims(services, group));
        let found = |service: usize, source: usize| {
            shadowed
                .iter()
                .find(|(owner, at, _)| (*owner, *at) == (service + 1, source))
                .map(|(.., why)| *why)
        };
        for service in &group.services {
            for (at, prefix) in claims(&services[*service]) {
                let (key, why) = match prefix {
                    Some(_) => ((*service, Some(at)), found(*service, at)),
                    // The rest is unmet if the destinations of others cover both families.
                    None => ((*service, None), rest_is_taken(&shadowed).then_some(Shadow::Inside)),
                };
                match why {
                    Some(why) => _ = unmet.entry(key).or_insert(why),
                    None => _ = met.insert(key),
                }
            }
        }
    }
    let never = unmet.into_iter().filter(|(key, _)| !met.contains(key));
    never.map(|((service, destination), why)| Unmet { service, destination, why }).collect()
}

/// The owner's number of the rest. It is smaller than all others, so that the rest sorts around everybody's `0.0.0.0/0`.
const REST: usize = 0;

fn group_claims(services: &[Service], group: &PortGroup) -> Vec<OwnedPrefix> {
    let prefixes = group.services.iter().flat_map(|at| {
        services[*at].destinations().iter().enumerate().map(|(source, prefix)| (*prefix, *at + 1, source))
    });
    let all = [Prefix::ALL_V4, Prefix::ALL_V6].into_iter().enumerate();
    prefixes.chain(all.map(|(family, prefix)| (prefix, REST, family))).collect()
}

fn rest_is_taken(shadowed: &[(usize, usize, Shadow)]) -> bool {
    shadowed.iter().filter(|(owner, ..)| *owner == REST).count() == 2
}

#[cfg(test)]
mod tests;
