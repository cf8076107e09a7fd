//! Subjects of proposals: all traffic of a source, or its traffic to one service.

use std::fmt;

use ratelimit_common::abi::{SourceKey, service::Protocol};
use ratelimit_ebpf::{
    frame::Frame,
    packet::{Address, Family, Packet, Transport},
    parse,
};

use crate::{
    policy::{Carrier, Services},
    replay::SourceId,
};

/// The first port that Linux gives to clients: answers to the host's own requests come to these ports.
const FIRST_CLIENT_PORT: u16 = 32_768;

/// Well-known ports with names for their services.
const NAMED: [(Protocol, u16, &str); 14] = [
    (Protocol::Tcp, 22, "ssh"),
    (Protocol::Tcp, 25, "smtp"),
    (Protocol::Tcp, 53, "dns-tcp"),
    (Protocol::Udp, 53, "dns"),
    (Protocol::Tcp, 80, "http"),
    (Protocol::Udp, 123, "ntp"),
    (Protocol::Tcp, 179, "bgp"),
    (Protocol::Tcp, 443, "https"),
    (Protocol::Udp, 443, "quic"),
    (Protocol::Udp, 500, "ike"),
    (Protocol::Tcp, 3306, "mysql"),
    (Protocol::Tcp, 5432, "postgresql"),
    (Protocol::Tcp, 6379, "redis"),
    (Protocol::Udp, 51820, "wireguard"),
];

/// The subject of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProposalSubject {
    /// All traffic of a source.
    Everything,
    /// Traffic to one port.
    Port(Protocol, u16),
    /// Traffic to a service of the policy, by its place in the list.
    Service(usize),
}

/// The properties of a packet that suggestions depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Traits {
    pub(super) source: SourceId,
    pub(super) subject: Option<ProposalSubject>,
    pub(super) is_syn: bool,
}

impl Traits {
    /// The properties of a frame; `None` if the frame has no source.
    pub(super) fn of(frame: &Frame<'_>, services: Option<&Services>) -> Option<Self> {
        let packet = parse::parse(frame).ok()?;
        let subject = match services {
            Some(services) => of_policy(services, &packet, frame),
            None => port(&packet),
        };
        let is_syn = packet.transport == Transport::TCP_SYN;
        Some(Self { source: source(packet.source), subject, is_syn })
    }
}

/// The source of an address by default prefix lengths: an IPv4 address, or an IPv6 /64.
fn source(Address { family, key }: Address) -> SourceId {
    match family {
        Family::V4 => SourceId::new(key, family),
        Family::V6 => SourceId::new(SourceKey { hi: key.hi, lo: 0 }, family),
    }
}

fn protocol(packet: &Packet) -> Option<Protocol> {
    match packet.transport {
        Transport::TCP | Transport::TCP_SYN => Some(Protocol::Tcp),
        Transport::UDP => Some(Protocol::Udp),
        _ => None,
    }
}

/// The destination port of a packet, if it may be a service's.
fn port(packet: &Packet) -> Option<ProposalSubject> {
    let protocol = protocol(packet)?;
    let is_service = packet.port < FIRST_CLIENT_PORT || NAMED.iter().any(|(_, port, _)| *port == packet.port);
    (is_service && packet.port != 0).then_some(ProposalSubject::Port(protocol, packet.port))
}

fn of_policy(services: &Services, packet: &Packet, frame: &Frame<'_>) -> Option<ProposalSubject> {
    let wanted = match protocol(packet) {
        Some(protocol) => {
            let destination = SourceId::of(parse::destination(frame)?).address();
            services.of(protocol, packet.port, destination)?.name()
        }
        None => services.iter().find(|one| one.carrier() == Carrier::Number(packet.protocol))?.name(),
    };
    services.iter().position(|service| service.name() == wanted).map(ProposalSubject::Service)
}

/// A name for a port.
pub(super) fn port_name(protocol: Protocol, port: u16) -> String {
    let named = NAMED.iter().find(|(known, at, _)| *known == protocol && *at == port);
    named.map_or_else(|| format!("{}-{port}", Carrier::Ports(protocol)), |(_, _, name)| (*name).to_owned())
}

impl fmt::Display for ProposalSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str("everything"),
            Self::Port(protocol, port) => f.write_str(&port_name(*protocol, *port)),
            Self::Service(at) => write!(f, "service {at}"),
        }
    }
}
