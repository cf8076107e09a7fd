//! Listens to interfaces: gets copies of their packets, after XDP programs have let them pass.

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd},
    time::Duration,
};

use nix::{
    errno::Errno,
    setsockopt_impl, sockopt_impl,
    sys::{
        socket::{
            AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, recvfrom, setsockopt, socket, sockopt,
        },
        time::TimeVal,
    },
};

use super::{DataplaneError, framing::Framing, interface::Interface};
use crate::{
    capture::{Captured, LinkType},
    clock,
};

/// The packet type of packets that this host sends.
const OUTGOING: u8 = 4;
/// Bytes of room for packets that wait to be read.
const WAITING_BYTES: usize = 32 << 20;
/// How long a read waits for a packet, so that the caller can look at a clock.
const PATIENCE: Duration = Duration::from_millis(100);
/// The largest size of a packet in bytes, after the kernel has joined segments.
const LONGEST: usize = 1 << 18;

/// Bytes of the header that the kernel puts in front of a packet. It says whether segments were joined, and their length (struct virtio_net_hdr).
const OFFLOAD_HEADER: usize = 10;

sockopt_impl!(
    /// The socket option that puts a header in front of each packet, which says whether segments were joined.
    PacketVnetHdr,
    SetOnly,
    libc::SOL_PACKET,
    libc::PACKET_VNET_HDR,
    bool
);

/// A packet that a tap has received.
#[derive(Clone, Copy, Debug)]
pub struct TappedPacket<'t> {
    /// The captured packet.
    pub packet: Captured<'t>,
    /// Payload bytes of each segment, if the kernel joined several packets of the wire or will split this one; 0 for a single packet.
    pub part: u16,
}

/// A socket that gets copies of packets.
#[derive(Debug)]
pub struct Tap {
    socket: OwnedFd,
    /// The interfaces by index, and the framing of each.
    interfaces: Vec<(usize, LinkType)>,
    buffer: Vec<u8>,
}

impl Tap {
    /// Listens to interfaces.
    pub fn open(interfaces: &[Interface]) -> Result<Self, DataplaneError> {
        let failed = |errno: Errno| match errno {
            Errno::EPERM | Errno::EACCES => DataplaneError::NotPermitted {
                action: "listening to an interface".to_owned(),
                needed: "CAP_NET_RAW",
            },
            errno => DataplaneError::Io {
                action: "listening to an interface".to_owned(),
                source: io::Error::from(errno),
            },
        };
        let mut known = Vec::new();
        for interface in interfaces {
            let link_type = match interface.require_framing()? {
                Framing::Ethernet => LinkType::Ethernet,
                Framing::Ip => LinkType::Ip,
            };
            known.push((interface.index as usize, link_type));
        }
        let socket =
            socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll)
                .map_err(failed)?;
        // Without the right to force this size, the system's default is kept.
        let _less = setsockopt(&socket, sockopt::RcvBufForce, &WAITING_BYTES);
        let patience = TimeVal::new(0, PATIENCE.subsec_micros().into());
        setsockopt(&socket, sockopt::ReceiveTimeout, &patience).map_err(failed)?;
        setsockopt(&socket, PacketVnetHdr, &true).map_err(failed)?;
        Ok(Self { socket, interfaces: known, buffer: vec![0; LONGEST] })
    }

    /// Returns the next packet of the interfaces; `None` if none came for a moment, or if the packet was of another interface.
    pub fn next_packet(&mut self) -> Result<Option<TappedPacket<'_>>, DataplaneError> {
        let (len, from) = match recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut self.buffer) {
            Ok(got) => got,
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ENETDOWN) => return Ok(None),
            Err(errno) => {
                return Err(DataplaneError::Io {
                    action: "reading packets of an interface".to_owned(),
                    source: io::Error::from(errno),
                });
            }
        };
        let of = |from: LinkAddr| {
            let known = self.interfaces.iter().find(|(index, _)| *index == from.ifindex());
            known.map(|(_, link_type)| (*link_type, from.pkttype() == OUTGOING))
        };
        let Some((link_type, is_outgoing)) = from.and_then(of) else { return Ok(None) };
        let now = clock::since_1970();
        let Some((offload, bytes)) = self.buffer[..len].split_at_checked(OFFLOAD_HEADER) else {
            return Ok(None);
        };
        // The type of segmentation is 0 for none; the length of segments is in host byte order.
        let part = if offload[1] == 0 { 0 } else { u16::from_ne_bytes([offload[4], offload[5]]) };
        let packet = Captured {
            unix_ns: now.as_nanos() as u64,
            link_type,
            bytes,
            len: bytes.len() as u64,
            is_outgoing,
            comment: None,
        };
        Ok(Some(TappedPacket { packet, part }))
    }
}
