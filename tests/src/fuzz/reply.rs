//! What a reply to a frame must be, and what a marked frame must be. Computed from the frame, by other code than that which makes them.

use std::net::{Ipv4Addr, Ipv6Addr};

use ratelimit_ebpf::{cookie::MAX_GROWTH, frame::Link};

use crate::frames::{ACK, ICMP, ICMPV6, IPV4, IPV6, QINQ, SYN, TCP, VLAN, folded};

const FIN: u8 = 0x01;
const RST: u8 = 0x04;
/// The EtherType of outer tags before 802.1ad.
const OLD_QINQ: u16 = 0x9100;
/// Headers of IPv6 before the transport header: hop-by-hop, routing, fragment, authentication, destination options, mobility, HIP, Shim6.
const EXTENSIONS: [u8; 8] = [0, 43, 44, 51, 60, 135, 139, 140];
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
/// Bytes of an ICMP header, and of the transport header that an ICMP error repeats.
const ICMP_HEADER: usize = 8;
const REPEATED: usize = 8;
/// Bytes in the largest first window: ten segments of the usual size.
const FIRST_WINDOW: u16 = 14_600;

/// A frame that was answered or marked, and where its headers are.
pub(super) struct Request<'f> {
    frame: &'f [u8],
    pub(super) is_v4: bool,
    network: usize,
    transport: usize,
    pub(super) protocol: u8,
    /// Where the packet ends. Padding may follow.
    end: usize,
    fragment: bool,
}

fn two(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn four(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

impl<'f> Request<'f> {
    /// Reads a frame down to its transport header. Panics if there is none: then nobody could have read it.
    pub(super) fn read(link: Link, frame: &'f [u8]) -> Self {
        let mut network = 0;
        if link == Link::Ethernet {
            network = 14;
            while [VLAN, QINQ, OLD_QINQ].contains(&two(frame, network - 2)) {
                network += 4;
            }
            assert!([IPV4, IPV6].contains(&two(frame, network - 2)), "no IP: {frame:02x?}");
        }
        let ip = &frame[network..];
        if ip[0] >> 4 == 4 {
            let fragment = two(ip, 6) & 0x3fff != 0;
            let (transport, end) = (network + usize::from(ip[0] & 15) * 4, network + usize::from(two(ip, 2)));
            return Self { frame, is_v4: true, network, transport, protocol: ip[9], end, fragment };
        }
        assert_eq!(ip[0] >> 4, 6, "no IP: {frame:02x?}");
        let end = network + 40 + usize::from(two(ip, 4));
        let (mut transport, mut protocol, mut fragment) = (network + 40, ip[6], false);
        while EXTENSIONS.contains(&protocol) {
            let header = &frame[transport..];
            let len = match protocol {
                FRAGMENT => 8,
                AUTHENTICATION => (usize::from(header[1]) + 2) * 4,
                _ => (usize::from(header[1]) + 1) * 8,
            };
            if protocol == FRAGMENT && two(header, 2) & 0xfff9 != 0 {
                fragment = true;
                if two(header, 2) & 0xfff8 != 0 {
                    break;
                }
            }
            protocol = header[0];
            transport += len;
        }
        Self { frame, is_v4: false, network, transport, protocol, end, fragment }
    }

    /// The source and the destination of the packet.
    fn ends(&self) -> (&'f [u8], &'f [u8]) {
        let ip = &self.frame[self.network..];
        if self.is_v4 { (&ip[12..16], &ip[16..20]) } else { (&ip[8..24], &ip[24..40]) }
    }

    /// Checks all of a reply up to its transport header: it goes to the one host that asked. Returns the rest of it.
    fn answered<'r>(&self, reply: &'r [u8], protocol: u8) -> &'r [u8] {
        let (asked, at) = (self.frame, self.network);
        assert_eq!(
            (&reply[..6], &reply[6..12]),
            (&asked[6..12], &asked[..6]),
            "hardware addresses change places"
        );
        assert_eq!(reply[12..at], asked[12..at], "tags and type stay");
        assert_eq!(asked[0] & 1, 0, "an answer to what a group of neighbours was sent");
        assert_eq!(asked[6] & 1, 0, "an answer to a group of neighbours");
        let (source, destination) = self.ends();
        assert!(is_one_host(source), "an answer to {source:?}");
        let ip = &reply[at..];
        let body = if self.is_v4 {
            assert_eq!(ip[..2], [0x45, 0]);
            assert_eq!(usize::from(two(ip, 2)), ip.len(), "its length");
            assert_eq!(ip[4..10], [0, 0, 0x40, 0, 64, protocol], "not to be cut, 64 hops");
            assert_eq!(folded(&ip[..20]), 0xffff, "IPv4 checksum");
            assert_eq!((&ip[12..16], &ip[16..20]), (destination, source), "addresses change places");
            &ip[20..]
        } else {
            assert_eq!(ip[..4], [0x60, 0, 0, 0]);
            assert_eq!(usize::from(two(ip, 4)), ip.len() - 40, "its length");
            assert_eq!(ip[6..8], [protocol, 64]);
            assert_eq!((&ip[8..24], &ip[24..40]), (destination, source), "addresses change places");
            &ip[40..]
        };
        let len = u16::try_from(body.len()).expect("a short reply").to_be_bytes();
        let pseudo = [destination, source, &[0, protocol], &len, body].concat();
        let covered = if protocol == ICMP { body } else { &pseudo };
        assert_eq!(folded(covered), 0xffff, "checksum of protocol {protocol}");
        body
    }

    /// Checks a rejection: a reset for TCP, an error for what has ports or is no error itself.
    pub(super) fn is_rejected(&self, reply: &[u8]) {
        assert!(!self.fragment, "an answer to a piece of a packet");
        assert!(is_one_host(self.ends().1), "an answer from {:?}", self.ends().1);
        if self.protocol == TCP {
            self.is_reset(self.answered(reply, TCP));
            assert!(
                reply.len() <= self.frame.len(),
                "a reset of {} bytes for {}",
                reply.len(),
                self.frame.len()
            );
            return;
        }
        assert!(![ICMP, ICMPV6].contains(&self.protocol), "an error about what may be an error");
        let (protocol, kind, ip_header) = if self.is_v4 { (ICMP, [3, 13], 20) } else { (ICMPV6, [1, 1], 40) };
        assert_eq!(self.transport, self.network + ip_header, "options or extension headers");
        let error = self.answered(reply, protocol);
        assert_eq!((&error[..2], &error[4..8]), (&kind[..], &[0; 4][..]));
        let beginning = &self.frame[self.network..self.network + ip_header + REPEATED];
        assert_eq!(&error[ICMP_HEADER..], beginning, "the beginning of the packet");
        let most = self.frame.len() + ip_header + ICMP_HEADER;
        assert!(reply.len() <= most, "an error of {} bytes for {}", reply.len(), self.frame.len());
    }

    /// Checks the reset for a segment (RFC 9293, 3.10.7.1).
    fn is_reset(&self, reset: &[u8]) {
        let segment = &self.frame[self.transport..];
        let flags = segment[13];
        assert_eq!(flags & RST, 0, "a reset for a reset");
        assert_eq!((&reset[..2], &reset[2..4]), (&segment[2..4], &segment[..2]), "ports change places");
        assert_eq!((reset.len(), reset[12]), (20, 0x50));
        assert_eq!(reset[14..16], [0; 2]);
        assert_eq!(reset[18..20], [0; 2]);
        if flags & ACK != 0 {
            assert_eq!((four(reset, 4), four(reset, 8), reset[13]), (four(segment, 8), 0, RST));
            return;
        }
        assert_eq!((four(reset, 4), reset[13]), (0, RST | ACK));
        let (len, header) = (self.end - self.transport, usize::from(segment[12] >> 4) * 4);
        // A header that lies about its length has no data that anybody could count.
        if (20..=len).contains(&header) {
            let occupied = (len - header) as u32 + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
            assert_eq!(four(reset, 8), four(segment, 4).wrapping_add(occupied), "what is acknowledged");
        }
    }

    /// Checks the answer to a SYN: its options are those that the kernel finds again in the acknowledgement.
    pub(super) fn is_given_cookie(&self, reply: &[u8], cookie: u32, listener: bool, mtu: u32) {
        assert_eq!(self.protocol, TCP);
        let syn = &self.frame[self.transport..self.end];
        assert_eq!(syn[13] & (SYN | ACK | RST | FIN), SYN, "an answer to no SYN");
        let longest = self.frame.len() + MAX_GROWTH as usize;
        assert!(reply.len() <= longest, "an answer of {} bytes for {}", reply.len(), self.frame.len());
        let answer = self.answered(reply, TCP);
        assert!(is_one_host(self.ends().1), "an answer from {:?}", self.ends().1);
        assert_eq!((&answer[..2], &answer[2..4]), (&syn[2..4], &syn[..2]), "ports change places");
        assert_eq!((four(answer, 4), four(answer, 8)), (cookie, four(syn, 4).wrapping_add(1)));
        assert_eq!((usize::from(answer[12]), answer[13]), (answer.len() / 4 * 16, SYN | ACK));
        assert!(two(answer, 14) <= FIRST_WINDOW, "a window of {}", two(answer, 14));
        assert_eq!(answer[18..20], [0; 2]);
        let offer = Offer::read(&syn[20..usize::from(syn[12] >> 4) * 4]);
        let options = &answer[20..];
        assert_eq!(options[..2], [2, 4]);
        let headers = if self.is_v4 { 40 } else { 60 };
        let largest = mtu.saturating_sub(headers).min(65_535);
        let mss = u32::from(two(options, 2));
        assert!(if listener { mss <= largest } else { mss == largest }, "an MSS of {mss}");
        let Some(stamp) = offer.stamp else {
            assert_eq!(options.len(), 4, "options without a timestamp: {options:02x?}");
            return;
        };
        assert_eq!(options[4..8], if offer.sack { [4, 2, 8, 10] } else { [1, 1, 8, 10] });
        assert_eq!(four(options, 12), stamp, "the client's timestamp");
        let scale = offer.scale.filter(|_| listener);
        let bits = u32::from(scale.unwrap_or(15)) | if offer.sack { 16 } else { 0 };
        assert_eq!(four(options, 8) & 63, bits, "the options in the timestamp");
        match scale {
            Some(_) => {
                assert_eq!((options.len(), &options[16..19]), (20, &[1, 3, 3][..]));
                assert!(options[19] <= 14, "a scale of {}", options[19]);
            }
            None => assert_eq!(options.len(), 16, "a scale that nobody offered: {options:02x?}"),
        }
    }

    /// Checks a marked frame: another class, the same congestion bits, a checksum that is as right as it was, and nothing else.
    pub(super) fn is_marked(&self, marked: &[u8], dscp: u32) {
        let at = self.network;
        assert_eq!(marked.len(), self.frame.len());
        let [before, after] = [self.frame, marked].map(|frame| two(frame, at));
        let shift = if self.is_v4 { 2 } else { 6 };
        assert_eq!(u32::from(after >> shift & 63), dscp, "the class");
        assert_eq!(after & !(63 << shift), before & !(63 << shift), "version and congestion bits");
        assert_eq!(marked[..at], self.frame[..at]);
        if self.is_v4 {
            assert_eq!(marked[at + 2..at + 10], self.frame[at + 2..at + 10]);
            assert_eq!(marked[at + 12..], self.frame[at + 12..]);
            // Both are the same number modulo 0xffff, and a header that was right is right.
            let [before, after] =
                [self.frame, marked].map(|frame| folded(&frame[at..self.transport_of_header()]));
            assert_eq!(before % 0xffff, after % 0xffff, "IPv4 checksum");
        } else {
            assert_eq!(marked[at + 2..], self.frame[at + 2..]);
        }
    }

    /// Where the IPv4 header ends.
    fn transport_of_header(&self) -> usize {
        self.network + usize::from(self.frame[self.network] & 15) * 4
    }
}

/// Whether an address may be one host's.
fn is_one_host(address: &[u8]) -> bool {
    match <[u8; 4]>::try_from(address) {
        Ok(octets) => {
            let address = Ipv4Addr::from(octets);
            octets[0] != 0 && octets[0] < 240 && !address.is_multicast() && !address.is_broadcast()
        }
        Err(_) => {
            let address = Ipv6Addr::from(<[u8; 16]>::try_from(address).expect("an address"));
            !address.is_unspecified() && !address.is_multicast()
        }
    }
}

/// What the options of a SYN offer, as Linux reads them (`tcp_parse_options`).
#[derive(Default)]
struct Offer {
    scale: Option<u8>,
    sack: bool,
    stamp: Option<u32>,
}

impl Offer {
    fn read(mut options: &[u8]) -> Self {
        let mut offer = Self::default();
        loop {
            match options {
                [1, rest @ ..] => options = rest,
                [kind, size, ..] if *kind != 0 && *size >= 2 && usize::from(*size) <= options.len() => {
                    match (kind, size) {
                        (3, 3) => offer.scale = Some(options[2].min(14)),
                        (4, 2) => offer.sack = true,
                        (8, 10) => offer.stamp = Some(four(options, 2)),
                        _ => {}
                    }
                    options = &options[usize::from(*size)..];
                }
                _ => return offer,
            }
        }
    }
}
