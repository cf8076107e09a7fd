//! All services of a policy together.

use std::net::IpAddr;

use ratelimit_common::abi::service::{MAX_SERVICES, Protocol};

use super::{
    Prefix, Service, ServiceError,
    sharing::{self, PortGroup, Unmet},
};

/// All services of a policy. No two claim the same packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Services {
    services: Vec<Service>,
    groups: Vec<PortGroup>,
}

impl Services {
    /// Checks all services together. The error lists every problem.
    pub fn new(services: Vec<Service>) -> Result<Self, Vec<ServiceError>> {
        let mut errors: Vec<ServiceError> =
            services.iter().enumerate().filter_map(|(index, service)| service.problem(index)).collect();
        if services.len() > MAX_SERVICES {
            errors.push(ServiceError::TooMany { count: services.len() });
        }
        let is_twice =
            |index: usize| services[..index].iter().any(|other| other.name() == services[index].name());
        let twice: Vec<usize> = (0..services.len()).filter(|index| is_twice(*index)).collect();
        let name = |index: &usize| services[*index].name().to_owned();
        errors.extend(twice.iter().map(|index| ServiceError::Twice { index: *index, name: name(index) }));
        let groups = sharing::port_groups(&services);
        // Conflicts of a service whose name is there twice are not reported: the name already is.
        let known = |error: &ServiceError| error.index().is_some_and(|index| twice.contains(&index));
        errors.extend(sharing::conflicts(&services, &groups).into_iter().filter(|error| !known(error)));
        if errors.is_empty() { Ok(Self { services, groups }) } else { Err(errors) }
    }

    /// All ports with a service, grouped by their services.
    pub fn port_groups(&self) -> &[PortGroup] {
        &self.groups
    }

    /// Whether the ports of a group tell packets apart by destination.
    pub fn is_divided(&self, group: &PortGroup) -> bool {
        group.is_divided(&self.services)
    }

    /// Every claim of a service that no packet ever meets.
    pub fn unmet(&self) -> Vec<Unmet> {
        sharing::unmet(&self.services, &self.groups)
    }

    /// The service of a packet: the one with the longest destination around the packet's, or the one that takes the rest.
    pub fn of(&self, protocol: Protocol, port: u16, destination: IpAddr) -> Option<&Service> {
        let address = Prefix::masked(destination.to_canonical(), u8::MAX);
        let longest = |service: &Service| {
            let around = service.destinations().iter().filter(|prefix| prefix.covers(&address));
            let around = around.map(|prefix| i16::from(prefix.len())).max();
            if service.destinations().is_empty() { Some(-1) } else { around }
        };
        let there = self.services.iter().filter(|service| service.has_port(protocol, port));
        there.filter(|service| longest(service).is_some()).max_by_key(|service| longest(service))
    }

    /// All services, in the order of the file.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Service> + Clone {
        self.services.iter()
    }

    /// The service of this name.
    pub fn get(&self, name: &str) -> Option<&Service> {
        self.services.iter().find(|service| service.name() == name)
    }

    /// A copy with one service changed by `change`.
    pub fn changed(&self, name: &str, change: impl Fn(Service) -> Service) -> Result<Self, ServiceError> {
        let changed = |service: &Service| {
            if service.name() == name { change(service.clone()) } else { service.clone() }
        };
        // One service was changed, so the first error is about that change.
        let first = |errors: Vec<ServiceError>| {
            errors.into_iter().next().unwrap_or(ServiceError::TooMany { count: self.services.len() })
        };
        Self::new(self.services.iter().map(changed).collect()).map_err(first)
    }
}
