//! TCP and UDP from sources that are not ours, as in a spoofed flood: whole packets through a raw socket.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result};
use network_types::{
    ip::{IpProto, Ipv4Hdr},
    udp::UdpHdr,
};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::pace::{self, Sent};

/// Says that the packet brings its own IP header.
const IPPROTO_RAW: i32 = 255;
/// "No buffer space available": the queue of the interface is full.
const ENOBUFS: i32 = 105;

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Opens a connection
    Syn,
    /// Acknowledges what nobody sent
    Ack,
    /// A datagram
    Udp,
}

/// Where forged IPv4 sources come from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Within {
    base: u32,
    bits: u32,
}

impl Within {
    /// 198.18.0.0/15, which is for tests.
    const BENCHMARKS: Self = Self { base: 0xc612_0000, bits: 17 };

    /// A prefix such as 10.99.7.0/24.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not an IPv4 prefix; write it like 10.99.7.0/24");
        let (address, length) = text.split_once('/').ok_or_else(wrong)?;
        let address: Ipv4Addr = address.parse().map_err(|_error| wrong())?;
        let length: u32 = length.parse().map_err(|_error| wrong())?;
        let bits = 32_u32.checked_sub(length).filter(|bits| (1..32).contains(bits)).ok_or_else(wrong)?;
        Ok(Self { base: u32::from(address) >> bits << bits, bits })
    }

    /// One of its addresses, but none that is spared.
    fn pick(self, spared: &[Ipv4Addr], random: &mut fastrand::Rng) -> Ipv4Addr {
        loop {
            let source = Ipv4Addr::from(self.base | random.u32(..1 << self.bits));
            if !spared.contains(&source) {
                return source;
            }
        }
    }
}

pub(crate) fn run(
    to: SocketAddr,
    lasts: Duration,
    kind: (Kind, &[u16]),
    pps: Option<u64>,
    (within, spared): (Option<Within>, &[Ipv4Addr]),
) -> Result<()> {
    let within = within.unwrap_or(Within::BENCHMARKS);
    let socket = Socket::new(Domain::for_address(to), Type::RAW, Some(Protocol::from(IPPROTO_RAW)))
        .context("cannot open a raw socket")?;
    // A raw IPv6 socket takes no port.
    let destination = SockAddr::from(SocketAddr::new(to.ip(), 0));
    let mut random = fastrand::Rng::with_seed(7);
    let tally = pace::send_for(lasts, pps, || {
        match socket.send_to(&packet(to, kind, (within, spared), &mut random), &destination) {
            Ok(_) => Ok(Sent::Yes),
            Err(error) if error.raw_os_error() == Some(ENOBUFS) => Ok(Sent::Refused),
            Err(error) => Err(error),
        }
    })
    .with_context(|| format!("cannot send to {to}"))?;
    tally.print();
    Ok(())
}

fn packet(
    to: SocketAddr,
    (kind, from_ports): (Kind, &[u16]),
    (within, spared): (Within, &[Ipv4Addr]),
    random: &mut fastrand::Rng,
) -> Vec<u8> {
    let protocol = if matches!(kind, Kind::Udp) { IpProto::Udp } else { IpProto::Tcp } as u8;
    let from_port =
        if from_ports.is_empty() { random.u16(1024..) } else { from_ports[random.usize(..from_ports.len())] };
    let tcp = segment((from_port, to.port()), kind, random);
    let mut packet = match to.ip() {
        IpAddr::V4(to) => {
            let source = within.pick(spared, random);
            let total = ((Ipv4Hdr::LEN + tcp.len()) as u16).to_be_bytes();
            // The kernel fills in the identification and the checksum.
            let mut header = vec![0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, protocol, 0, 0];
            header.extend(source.octets());
            header.extend(to.octets());
            header
        }
        IpAddr::V6(to) => {
            let source = Ipv6Addr::from((0x2001_0db8_u128 << 96) | u128::from(random.u64(..)) << 32 | 1);
            let mut header = vec![0x60, 0, 0, 0, 0, tcp.len() as u8, protocol, 64];
            header.extend(source.octets());
            header.extend(to.octets());
            header
        }
    };
    packet.extend(tcp);
    packet
}

/// No checksum: whoever checks it drops the segment, and has by then done the work that a flood is meant to cause.
fn segment((from_port, port): (u16, u16), kind: Kind, random: &mut fastrand::Rng) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend(from_port.to_be_bytes());
    segment.extend(port.to_be_bytes());
    if matches!(kind, Kind::Udp) {
        let payload = random.u64(..).to_be_bytes();
        segment.extend(((UdpHdr::LEN + payload.len()) as u16).to_be_bytes());
        // A checksum of 0 is none.
        segment.extend([0, 0]);
        segment.extend(payload);
        return segment;
    }
    segment.extend(random.u32(..).to_be_bytes());
    match kind {
        Kind::Syn => {
            segment.extend([0, 0, 0, 0, 0x60, 0x02, 0xff, 0xff, 0, 0, 0, 0, 2, 4, 0x05, 0xb4]);
        }
        Kind::Ack => {
            segment.extend(random.u32(..).to_be_bytes());
            segment.extend([0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
        }
        Kind::Udp => {}
    }
    segment
}
