//! Port groups and unmet claims, compared with a plain look at every port and address.

use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;
use ratelimit_common::abi::service::{Protocol, port_slot};

use super::*;
use crate::policy::Services;

fn service(name: &str, ports: &[(u16, u16)], destinations: Vec<Prefix>) -> Service {
    let ports = ports.iter().map(|(first, last)| *first..=*last).collect();
    Service::new(name.to_owned(), Protocol::Udp, ports, Vec::new()).with_destinations(destinations)
}

fn slots(group: &PortGroup) -> Vec<u32> {
    group.slots.iter().cloned().flatten().collect()
}

#[test]
fn ports_with_the_same_services_are_one_group_wherever_they_are() {
    let all = || vec![Prefix::ALL_V4];
    let services = [
        service("a", &[(10, 20), (65_535, 65_535)], all()),
        service("b", &[(15, 15), (17, 17)], Vec::new()),
        service("c", &[(30, 31)], Vec::new()),
    ];
    let groups = port_groups(&services);
    let udp = |ports: &[u16]| ports.iter().map(|port| port_slot(Protocol::Udp, *port)).collect::<Vec<_>>();
    let found: Vec<_> = groups.iter().map(|group| (slots(group), group.services.clone())).collect();
    assert_eq!(
        found,
        [
            (udp(&[10, 11, 12, 13, 14, 16, 18, 19, 20, 65_535]), vec![0]),
            (udp(&[15, 17]), vec![0, 1]),
            (udp(&[30, 31]), vec![2]),
        ]
    );
}

#[test]
fn more_destinations_than_the_map_holds_are_counted_over_all_groups() {
    let prefixes = |n: u32| (0..n).map(|n| Prefix::masked(Ipv4Addr::from_bits(n).into(), 32)).collect();
    let half = MAX_DESTINATIONS / 2;
    // Ports 1 and 3 are one group, port 2 another: each destination is there twice.
    let services = |n: u32, rest: u16| {
        vec![
            service("a", &[(1, 3)], prefixes(n)),
            service("b", &[(2, 2)], Vec::new()),
            service("c", &[(rest, rest)], Vec::new()),
        ]
    };
    assert!(Services::new(services(half - 1, 4)).is_ok());
    assert_eq!(
        Services::new(services(half, 4)).unwrap_err(),
        [ServiceError::TooManyDestinations { count: MAX_DESTINATIONS as usize + 1 }],
        "and one for what is left at port 2"
    );
}

proptest! {
    /// With 12 ports and 8 addresses: the service with the longest destination prefix gets the packet, and two equal prefixes at
    /// one port are refused.
    #[test]
    fn the_longest_destination_has_the_packet_and_what_is_unmet_changes_nothing(
        drawn in prop::collection::vec((1_u16..12, 0_u16..4, prop::collection::vec((29_u8..=32, 0_u32..8), 0..4)), 1..5),
    ) {
        let make = |skip: Option<(usize, usize)>| -> Vec<Service> {
            drawn.iter().enumerate().map(|(n, (first, more, prefixes))| {
                let kept = prefixes.iter().enumerate().filter(|(at, _)| skip != Some((n, *at)));
                let prefix = |(_, (len, host)): (usize, &(u8, u32))| Prefix::masked(Ipv4Addr::from_bits(*host).into(), *len);
                service(&format!("s{n}"), &[(*first, *first + *more)], kept.map(prefix).collect())
            }).collect()
        };
        let services = make(None);
        let same = |a: &Service, b: &Service, port: u16| {
            a.has_port(Protocol::Udp, port) && b.has_port(Protocol::Udp, port)
                && claims(a).iter().any(|(_, prefix)| claims(b).iter().any(|(_, other)| prefix == other))
        };
        let twice = |one: &Service| {
            let claims = claims(one);
            (0..claims.len()).any(|at| claims[..at].iter().any(|(_, other)| *other == claims[at].1))
        };
        let conflict = (0..services.len()).any(|a| twice(&services[a])
            || (0..a).any(|b| (1..16).any(|port| same(&services[a], &services[b], port))));
        let checked = Services::new(services.clone());
        prop_assert_eq!(checked.is_err(), conflict, "{:?}", checked);
        let Ok(checked) = checked else { return Ok(()) };
        let answers = |services: &Services| -> Vec<Option<String>> {
            (1..16).flat_map(|port| (0..8).map(move |host| (port, IpAddr::from(Ipv4Addr::from_bits(host)))))
                .map(|(port, to)| services.of(Protocol::Udp, port, to).map(|one| one.name().to_owned()))
                .collect()
        };
        for unmet in checked.unmet() {
            // The last destination of a service is never removed: without destinations the service would take the rest instead.
            let Some(at) = unmet.destination.filter(|_| services[unmet.service].destinations().len() > 1) else { continue };
            let without = Services::new(make(Some((unmet.service, at)))).unwrap();
            prop_assert_eq!(answers(&without), answers(&checked), "{:?}", unmet);
        }
    }
}
