//! The limits from the view of packets, on a host whose tables, clocks and sockets a test sets.

mod clients;
mod cookies;
mod leases;
mod prefixes;
mod proofs;
mod sources;
mod totals;
mod users;
mod windows;

use ratelimit_common::abi::{
    ListEntry, Policy, Reason, Service,
    service::{Protocol, port_slot},
};

use crate::{packet::Address, testbed::TestHost};

/// The port of the service of a test.
const PORT: u16 = 80;

/// Adds a service at [`PORT`] to a policy, over UDP and TCP.
fn with_service(policy: &mut Policy, service: Service) {
    policy.service_count = 1;
    policy.services[0] = service;
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        policy.ports[port_slot(protocol, PORT) as usize] = 1;
    }
}

/// Makes 10.0.x.y an address of the first user.
fn with_user(host: &mut TestHost, [net, last]: [u8; 2]) {
    host.policy.user_count = 1;
    let address = Address::v4(u32::from_ne_bytes([10, 0, net, last]));
    host.list(address.key, ListEntry { user: 1, ..ListEntry::EMPTY });
}

/// The reasons of `N` equal frames, one after the other.
fn reasons<const N: usize>(host: &TestHost, frame: &[u8]) -> [Reason; N] {
    [(); N].map(|()| host.reason(frame))
}
