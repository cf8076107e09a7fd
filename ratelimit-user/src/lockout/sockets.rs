//! TCP sockets, from the lines of `/proc/net/tcp` and `/proc/net/tcp6`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The state of a TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TcpState {
    Established,
    Listening,
}

/// One socket that listens or is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TcpSocket {
    pub(super) local: IpAddr,
    pub(super) local_port: u16,
    pub(super) peer: IpAddr,
    pub(super) state: TcpState,
    /// The inode of the socket, by which its process can be found.
    pub(super) inode: u64,
}

/// Parses one line into a socket; `None` for the heading and for sockets in other states.
pub(super) fn parse_line(line: &str) -> Option<TcpSocket> {
    let mut words = line.split_whitespace().skip(1);
    let (local, local_port) = endpoint(words.next()?)?;
    let (peer, _) = endpoint(words.next()?)?;
    let state = match words.next()? {
        "01" => TcpState::Established,
        "0A" => TcpState::Listening,
        _ => return None,
    };
    // Five words are skipped: queues, timer, retransmits, owner, time-outs.
    let inode = words.nth(5)?.parse().ok()?;
    Some(TcpSocket { local, local_port, peer, state, inode })
}

/// Parses an endpoint such as `0100007F:0016`: words of 32 bits as they lie in memory, then the port as a number.
fn endpoint(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    Some((hex_address(address)?, u16::from_str_radix(port, 16).ok()?))
}

fn hex_address(text: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(text.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let mut bytes = [0; 16];
            for (place, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(place * 8)?);
            }
            // A socket of both families shows IPv4 addresses as mapped ones; on the wire they are IPv4.
            Some(IpAddr::from(Ipv6Addr::from(bytes)).to_canonical())
        }
        _ => None,
    }
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    use super::*;

    #[test]
    fn connected_and_listening_sockets_are_read_and_others_are_not() {
        let established = "   1: 0100630A:0016 4200630A:D431 01 00000000:00000000 02:000A7214 00000000     0        0 4711 2 0 20 4 30 10 -1";
        let (local, peer) = ("10.99.0.1".parse().unwrap(), "10.99.0.66".parse().unwrap());
        let expected = TcpSocket { local, local_port: 22, peer, state: TcpState::Established, inode: 4711 };
        assert_eq!(parse_line(established), Some(expected));
        let listening = established.replace(" 01 ", " 0A ");
        assert_eq!(parse_line(&listening).unwrap().state, TcpState::Listening);
        assert_eq!(parse_line(&established.replace(" 01 ", " 06 ")), None, "TIME_WAIT");
        assert_eq!(parse_line("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when"), None);
        for broken in
            ["", "1:", "1: 0100630A:0016", "1: zz:0016 4200630A:D431 01", "1: 0:0 0:0 01 a b c d e f"]
        {
            assert_eq!(parse_line(broken), None, "{broken}");
        }
    }

    #[test]
    fn both_families_of_tcp6_are_told_apart() {
        let line = |peer: &str| {
            format!("0: 00000000000000000000000000000000:0016 {peer}:D431 01 0:0 0:0 0 0 0 12 1")
        };
        let peer = |hex: &str| parse_line(&line(hex)).unwrap().peer.to_string();
        assert_eq!(peer("B80D0120000000000000000001000000"), "2001:db8::1");
        assert_eq!(peer("0000000000000000FFFF00004200630A"), "10.99.0.66");
    }
}
