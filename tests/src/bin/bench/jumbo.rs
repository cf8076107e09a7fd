//! Frames that are longer than live ones can be, which have to fit into one page: sent from a raw socket.
//!
//! Far slower than live frames, because each packet is copied twice on its way. A rate is therefore mostly that of the
//! sender; what it shows is that frames of several buffers are judged like others, and that this does not cost more.

use std::{
    io::ErrorKind,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use anyhow::{Context, Result};
use ratelimit_rig::{checksum, sources};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::{
    lane,
    traffic::{Family, Template, Traffic},
};

/// A page, without what the kernel keeps in front of a frame and behind it.
pub(crate) const LONGEST_LIVE_FRAME: usize = 3_000;
/// Says that the packet brings its own IP header.
const IPPROTO_RAW: i32 = 255;
/// "No buffer space available": the wire is full.
const ENOBUFS: i32 = 105;
const ETHERNET: usize = 14;
/// Sends between two looks at the flag.
const BATCH: usize = 16;

pub(crate) struct Jumbo {
    socket: Socket,
    destination: SockAddr,
    traffic: Traffic,
    template: Template,
    /// Goes on from one turn to the next.
    sequence: AtomicU64,
}

impl Jumbo {
    /// Call from the generator's namespace.
    pub(crate) fn new(traffic: Traffic, outlet: &str) -> Result<Self> {
        let (domain, to) = match traffic.family {
            Family::V4 => (Domain::IPV4, Ipv4Addr::from(lane::DESTINATION_V4).into()),
            Family::V6 => (Domain::IPV6, Ipv6Addr::from(lane::DESTINATION_V6).into()),
        };
        let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(IPPROTO_RAW)))
            .context("cannot open a raw socket")?;
        socket.bind_device(Some(outlet.as_bytes())).with_context(|| format!("cannot bind to {outlet}"))?;
        let destination = SocketAddr::new(to, 0).into();
        let template = traffic.template();
        Ok(Self { socket, destination, traffic, template, sequence: AtomicU64::new(0) })
    }

    pub(crate) fn send_until(&self, landed: &AtomicBool) -> Result<()> {
        let mut packet = self.template.frame[ETHERNET..].to_vec();
        while !landed.load(Ordering::Relaxed) {
            for _ in 0..BATCH {
                self.set_source(&mut packet);
                match self.socket.send_to(&packet, &self.destination) {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.raw_os_error() == Some(ENOBUFS) => {}
                    Err(error) => return Err(error).context("cannot send from a raw socket"),
                }
            }
        }
        Ok(())
    }

    /// Writes the next source, in the order of live frames. The kernel fills in the checksum of an IPv4 header.
    fn set_source(&self, packet: &mut [u8]) {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        match self.traffic.family {
            Family::V4 => {
                let source = sources::v4(sequence, self.traffic.base_v4, self.traffic.sources);
                packet[12..16].copy_from_slice(&source.to_be_bytes());
            }
            Family::V6 => {
                let network = sources::v6(sequence, self.traffic.sources);
                packet[8..16].copy_from_slice(&network.to_be_bytes());
                let checksum = checksum::finish(checksum::with_v6(self.template.sum, network));
                packet[46..48].copy_from_slice(&checksum.to_be_bytes());
            }
        }
    }
}
