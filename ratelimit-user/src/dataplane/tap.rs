//! Listening to interfaces: copies of the packets that arrive there, after XDP programs have let them pass.

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

/// The kind of a packet that this host sends.
const OUTGOING: u8 = 4;
/// Room for packets that wait to be read.
const WAITING_BYTES: usize = 32 << 20;
/// After so long without a packet whoever listens may look at a clock.
const PATIENCE: Duration = Duration::from_millis(100);
/// The longest that a packet can be, after the kernel has put segments together.
const LONGEST: usize = 1 << 18;

/// Bytes that the kernel puts in front of a packet: whether it is joined, and of parts of which length (struct virtio_net_hdr).
const OFFLOAD_HEADER: usize = 10;

sockopt_impl!(
    /// Has the kernel say of each packet of how many it was made.
    PacketVnetHdr,
    SetOnly,
    libc::SOL_PACKET,
    libc::PACKET_VNET_HDR,
    bool
);

/// A packet that was heard.
#[derive(Clone, Copy, Debug)]
pub struct TappedPacket<'t> {
    /// The captured packet.
    pub packet: Captured<'t>,
    /// What each of its parts carries, if the kernel has joined several packets of the wire, or would take this one apart; 0 if it is one.
    pub part: u16,
}

/// A socket that gets copies of packets.
#[derive(Debug)]
pub struct Tap {
    socket: OwnedFd,
    /// Interfaces by number, and what their frames begin with.
    interfaces: Vec<(usize, LinkType)>,
    buffer: Vec<u8>,
}

impl Tap {
    /// Listens to interfaces.
    pub fn open(interfaces: &[Interface]) -> Result<Self, DataplaneError> {
        let failed = |errno: Errno| match errno {
            Errno::EPERM | Errno::EACCES => {
                DataplaneError::NotPermitted { action: "listening to an interface".to_owned() }
            }
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
        // Without the right to have more, what the system allows must do.
        let _less = setsockopt(&socket, sockopt::RcvBufForce, &WAITING_BYTES);
        let patience = TimeVal::new(0, PATIENCE.subsec_micros().into());
        setsockopt(&socket, sockopt::ReceiveTimeout, &patience).map_err(failed)?;
        setsockopt(&socket, PacketVnetHdr, &true).map_err(failed)?;
        Ok(Self { socket, interfaces: known, buffer: vec![0; LONGEST] })
    }

    /// The next packet of these interfaces; `None` if there was none for a moment, or another one's.
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
        // The kind of joining is 0 for none; the length of parts is in the order of this host's bytes.
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
