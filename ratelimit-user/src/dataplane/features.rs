//! What a driver does with packets before the program sees them, asked over ethtool's netlink.

use std::io;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};

/// The controller of generic netlink, and how it is asked for the number of a family (linux/genetlink.h).
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// How ethtool is asked for features (linux/ethtool_netlink.h).
const FEATURES_GET: u8 = 11;
/// With the bit that says that it has attributes inside, without which the kernel refuses it.
const HEADER: u16 = 0x8000 | 1;
const DEVICE_INDEX: u16 = 1;
const ACTIVE: u16 = 4;
const BITS: u16 = 3;
const BIT_NAME: u16 = 2;

/// The feature that takes VLAN tags out of received packets and keeps them beside the packets.
const RX_VLAN: &[u8] = b"rx-vlan-hw-parse\0";

const REQUEST: u16 = 1;
const ERROR: u16 = 2;
/// A netlink header and that of generic netlink behind it.
const HEADERS: usize = 16 + 4;
/// The upper bits of an attribute's type say how it is encoded.
const TYPE_MASK: u16 = 0x3fff;

/// Whether VLAN tags of received packets are kept apart, where the program does not see them. So it is taken to be where the kernel does
/// not say: then nobody is answered, which harms less than answers to the wrong network.
pub fn keeps_tags_apart(index: u32) -> bool {
    active(index, RX_VLAN).unwrap_or(true)
}

fn active(index: u32, feature: &[u8]) -> io::Result<bool> {
    let mut socket = Socket::new(NETLINK_GENERIC)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let families = ask(&socket, CONTROLLER, GET_FAMILY, &attribute(FAMILY_NAME, b"ethtool\0"))?;
    let family = find(&families, FAMILY_ID).and_then(|id| id.try_into().ok()).map(u16::from_ne_bytes);
    let family = family.ok_or_else(|| io::Error::other("the kernel has no ethtool netlink"))?;
    let device = attribute(HEADER, &attribute(DEVICE_INDEX, &index.to_ne_bytes()));
    let features = ask(&socket, family, FEATURES_GET, &device)?;
    let bits = find(&features, ACTIVE).and_then(|set| find(set, BITS)).unwrap_or_default();
    // Of a set without a mask, only the bits that are on are listed.
    Ok(attributes(bits).any(|(_, bit)| find(bit, BIT_NAME) == Some(feature)))
}

/// The attributes of the answer to a question.
fn ask(socket: &Socket, family: u16, command: u8, attributes: &[u8]) -> io::Result<Vec<u8>> {
    let len = (HEADERS + attributes.len()) as u32;
    let mut message = len.to_ne_bytes().to_vec();
    message.extend(family.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    // Sequence number and sender, which nobody looks at.
    message.extend([0; 8]);
    message.extend([command, 1, 0, 0]);
    message.extend(attributes);
    socket.send(&message, 0)?;
    let (mut answer, _) = socket.recv_from_full()?;
    if answer.len() < HEADERS || answer[4..6] == ERROR.to_ne_bytes() {
        return Err(io::Error::other("the kernel refused to say"));
    }
    Ok(answer.split_off(HEADERS))
}

/// One attribute, padded to four bytes.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = (4 + value.len()) as u16;
    let mut bytes = len.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The value of the first attribute of a kind.
fn find(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find_map(|(kind, value)| (kind == wanted).then_some(value))
}

/// Kinds and values. Ends where something does not fit.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let head = bytes.first_chunk::<4>()?;
        let len = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let kind = u16::from_ne_bytes([head[2], head[3]]) & TYPE_MASK;
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_as_they_are_written_and_rubbish_ends_them() {
        let mut bytes = [attribute(7, b"abc"), attribute(9, b""), attribute(0x8000 | 3, b"nest")].concat();
        let read: Vec<_> = attributes(&bytes).collect();
        assert_eq!(read, [(7, &b"abc"[..]), (9, b""), (3, b"nest")]);
        for len in 0..bytes.len() {
            attributes(&bytes[..len]).for_each(drop);
        }
        bytes[0] = 2;
        assert_eq!(attributes(&bytes).count(), 0, "shorter than its own header");
    }
}
