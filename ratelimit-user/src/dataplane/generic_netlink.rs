//! Questions to families of generic netlink, by which the kernel tells more about devices than by route netlink.

use std::io;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};

/// The number of the controller of generic netlink. The next constants ask it for the number of a family (linux/genetlink.h).
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

const REQUEST: u16 = 1;
const ERROR: u16 = 2;
/// Bytes of a netlink header and of the generic netlink header behind it.
const HEADERS: usize = 16 + 4;
/// The bits of an attribute's type without the upper ones, which say how the attribute is encoded.
const TYPE_MASK: u16 = 0x3fff;

/// A socket for questions to one family.
pub(super) struct NetlinkFamily {
    socket: Socket,
    number: u16,
}

impl NetlinkFamily {
    /// Finds a family by its name; an error if the kernel does not have it.
    pub(super) fn find(name: &str) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        let name_and_end = [name.as_bytes(), b"\0"].concat();
        let families = ask(&socket, CONTROLLER, GET_FAMILY, &attribute(FAMILY_NAME, &name_and_end))?;
        let number = find(&families, FAMILY_ID).and_then(|id| id.try_into().ok()).map(u16::from_ne_bytes);
        let number = number.ok_or_else(|| io::Error::other(format!("the kernel has no {name} netlink")))?;
        Ok(Self { socket, number })
    }

    /// Asks a question, and returns the attributes of the answer.
    pub(super) fn ask(&self, command: u8, attributes: &[u8]) -> io::Result<Vec<u8>> {
        ask(&self.socket, self.number, command, attributes)
    }
}

fn ask(socket: &Socket, family: u16, command: u8, attributes: &[u8]) -> io::Result<Vec<u8>> {
    let len = (HEADERS + attributes.len()) as u32;
    let mut message = len.to_ne_bytes().to_vec();
    message.extend(family.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    // The sequence number and the sender, which nobody reads.
    message.extend([0; 8]);
    message.extend([command, 1, 0, 0]);
    message.extend(attributes);
    socket.send(&message, 0)?;
    let (mut answer, _) = socket.recv_from_full()?;
    if answer.len() < HEADERS || answer[4..6] == ERROR.to_ne_bytes() {
        return Err(refused(&answer));
    }
    Ok(answer.split_off(HEADERS))
}

/// Reads the error of an error message: a negative error number behind the netlink header.
fn refused(answer: &[u8]) -> io::Error {
    let number = answer.get(16..20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match number {
        Some(number) if number < 0 => io::Error::from_raw_os_error(-number),
        _ => io::Error::other("the kernel refused to say"),
    }
}

/// Makes one attribute, padded to four bytes.
pub(super) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = (4 + value.len()) as u16;
    let mut bytes = len.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Returns the value of the first attribute of a kind.
pub(super) fn find(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find_map(|(kind, value)| (kind == wanted).then_some(value))
}

/// Returns the number in the first attribute of a kind.
pub(super) fn number(bytes: &[u8], wanted: u16) -> Option<u32> {
    find(bytes, wanted)?.try_into().ok().map(u32::from_ne_bytes)
}

/// Returns the kinds and values of attributes, up to the first one that is malformed.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
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

    #[test]
    fn a_refusal_is_told_by_its_number() {
        let mut answer = vec![0; 16];
        answer.extend((-95_i32).to_ne_bytes());
        assert_eq!(refused(&answer).raw_os_error(), Some(95));
        assert_eq!(refused(&[]).raw_os_error(), None);
    }
}
