//! Options and answers on the host, checked by other code than the code that makes them.

extern crate std;

use std::{cell::Cell, format, vec, vec::Vec};

use super::{
    options::{self, Offer},
    synack::{self, SynAckTerms},
};
use crate::{
    frame::{Canvas, Frame, Link},
    notes::{NOTES, Notes},
    packet::{Address, Family, Packet, Transport},
    reply::{draw, keep_head},
    segment::Segment,
};

struct Paper([Cell<u64>; NOTES]);

impl Paper {
    /// Notes with old values: nothing may be assumed about them.
    fn new() -> Self {
        Self([const { Cell::new(0xa5a5_a5a5_a5a5_a5a5) }; NOTES])
    }
}

impl Notes for Paper {
    fn note(&self, index: usize) -> u64 {
        self.0[index].get()
    }

    fn set_note(&self, index: usize, value: u64) {
        self.0[index].set(value);
    }
}

/// A TCP header with these options, padded to whole words.
fn header(options: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xc0, 1, 0, 80, 0, 0, 0, 7, 0, 0, 0, 0, 0, 2, 0xff, 0xff, 0, 0, 0, 0];
    bytes.extend(options);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes[12] = ((bytes.len() / 4) << 4) as u8;
    bytes
}

fn packet(source: Address, transport_len: usize) -> Packet {
    Packet {
        service: 0,
        user: 0,
        source,
        transport: Transport::TCP_SYN,
        port: 80,
        protocol: 6,
        fragment: false,
        network_at: 0,
        transport_at: 0,
        transport_len,
    }
}

fn read(bytes: &[u8]) -> Option<Offer> {
    let source = Address::v4(u32::from_ne_bytes([192, 0, 2, 1]));
    options::read(&Paper::new(), &Frame::new(Link::Ethernet, bytes), &packet(source, bytes.len()))
}

#[test]
fn options_are_read_like_the_kernel_reads_them() {
    let mss = [2, 4, 5, 180];
    let times = [8, 10, 0x11, 0x22, 0x33, 0x44, 9, 9, 9, 9];
    // Each row: a name, options, and what is found: MSS, window scale, SACK, timestamp.
    type Row<'a> = (&'a str, Vec<u8>, (u16, Option<u8>, bool, Option<u32>));
    let rows: &[Row<'_>] = &[
        ("none", vec![], (536, None, false, None)),
        ("an MSS", mss.to_vec(), (1460, None, false, None)),
        (
            "as Linux sends them",
            [&mss[..], &[4, 2], &times, &[1, 3, 3, 7]].concat(),
            (1460, Some(7), true, Some(0x1122_3344)),
        ),
        ("a scale of 0 is one", vec![3, 3, 0], (536, Some(0), false, None)),
        ("too large a scale is the largest", vec![3, 3, 200], (536, Some(14), false, None)),
        ("forty times nothing", vec![1; 40], (536, None, false, None)),
        ("nothing, then the last word", [&[1; 36][..], &mss].concat(), (1460, None, false, None)),
        ("the end hides what follows", [&[0, 0, 0, 0][..], &mss].concat(), (536, None, false, None)),
        ("no length ends it", [&mss[..], &[9, 0, 4, 2]].concat(), (1460, None, false, None)),
        ("a length of one ends it", [&mss[..], &[9, 1, 4, 2]].concat(), (1460, None, false, None)),
        ("beyond the header ends it", [&mss[..], &[4, 2, 8, 10]].concat(), (1460, None, true, None)),
        ("a kind in the very last byte", [&[1; 39][..], &[2]].concat(), (536, None, false, None)),
        (
            "unknown kinds are stepped over",
            [&[254, 6, 1, 2, 3, 4][..], &mss].concat(),
            (1460, None, false, None),
        ),
        (
            "a known kind of another length",
            [&[2, 3, 5][..], &[3, 4, 7, 1], &[4, 3, 0]].concat(),
            (536, None, false, None),
        ),
        ("the last of two counts", [&[2, 4, 0, 9][..], &mss].concat(), (1460, None, false, None)),
        ("the last of two scales counts", vec![3, 3, 14, 3, 3, 1], (536, Some(1), false, None)),
        (
            "the last of two timestamps counts",
            [&[8, 10, 0xff, 0xff, 0xff, 0xff, 9, 9, 9, 9][..], &times].concat(),
            (536, None, false, Some(0x1122_3344)),
        ),
        ("an MSS of 0 is none", vec![2, 4, 0, 0], (536, None, false, None)),
    ];
    for (name, bytes, expected) in rows {
        let offer = read(&header(bytes)).unwrap();
        let found = (offer.mss_or_default(Family::V4), offer.window_scale(), offer.sack(), offer.timestamp());
        assert_eq!(found, *expected, "{name}");
    }
    assert_eq!(read(&header(&[])).unwrap().mss_or_default(Family::V6), 1220);
}

#[test]
fn a_header_that_lies_about_its_length_is_refused() {
    let mut long = header(&[1; 8]);
    long[12] = 0xf0;
    let mut short = header(&[]);
    short[12] = 0x40;
    assert_eq!((read(&long), read(&short)), (None, None));
    // The IP packet ends before the header does; the frame continues with padding.
    let bytes = header(&[1; 8]);
    let source = Address::v4(0);
    assert_eq!(options::read(&Paper::new(), &Frame::new(Link::Ethernet, &bytes), &packet(source, 24)), None);
}

/// The checksum of RFC 1071 over any bytes.
fn folded(bytes: &[u8]) -> u32 {
    let sum = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let sum: u32 = sum.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16)
}

/// The bytes of an answer, from the IP header on.
fn answer(source: Address, destination: Address, options: &[u8], terms: &SynAckTerms) -> Vec<u8> {
    let bytes = header(options);
    let offer = read(&bytes).unwrap();
    let words = bytes[..20].chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap()));
    let syn = Segment { source, destination, header: words.collect::<Vec<_>>().try_into().unwrap() };
    let paper = Paper::new();
    let reply = synack::build(&paper, &syn, &offer, terms, 14);
    let mut frame = vec![0x77; reply.len() as usize];
    let mut canvas = Canvas::new(&mut frame);
    keep_head(&paper, &canvas).unwrap();
    draw(&paper, &mut canvas, &reply).unwrap();
    frame.split_off(14)
}

#[test]
fn checksums_hold_for_answers_of_every_kind() {
    let everything = [2, 4, 5, 180, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7];
    let mut seed = 1_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        seed ^ (seed >> 29)
    };
    for round in 0..2_000 {
        let options = &everything[..[0, 4, 16, 20][round % 4]];
        let window_scale = if round % 3 == 0 { None } else { Some((random() % 15) as u8) };
        let terms = SynAckTerms {
            cookie: random() as u32,
            mss: random() as u16,
            room: random() as u32 >> 10,
            options: round % 5 != 0,
            window_scale,
            now_ms: random(),
        };
        let v4 = answer(Address::v4(random() as u32), Address::v4(random() as u32), options, &terms);
        assert_eq!(usize::from(u16::from_be_bytes([v4[2], v4[3]])), v4.len());
        assert_eq!(folded(&v4[..20]), 0xffff);
        let pseudo = [&v4[12..20], &[0, 6, 0, (v4.len() - 20) as u8], &v4[20..]].concat();
        assert_eq!(folded(&pseudo), 0xffff);
        let (source, destination) = (Address::v6(random(), random()), Address::v6(random(), random()));
        let v6 = answer(source, destination, options, &terms);
        assert_eq!(v6[8..24], destination.key.octets(), "addresses change places");
        assert_eq!(v6[24..40], source.key.octets());
        let pseudo = [&v6[8..40], &[0, 6, 0, (v6.len() - 40) as u8], &v6[40..]].concat();
        assert_eq!(folded(&pseudo), 0xffff);
    }
}

#[test]
fn the_timestamp_carries_the_options_and_is_never_ahead_of_the_clock() {
    let options = [4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 3, 3, 9];
    for now_ms in [0x40 + 0x19, 0x40 + 0x1a, 90, 127, 1 << 32, (1 << 32) + 5, u64::from(u32::MAX)] {
        let terms = SynAckTerms {
            cookie: 0,
            mss: 1460,
            room: u32::MAX,
            options: true,
            window_scale: Some(7),
            now_ms,
        };
        let reply = answer(Address::v4(1), Address::v4(2), &options, &terms);
        let stamp = u32::from_be_bytes(reply[20 + 28..20 + 32].try_into().unwrap());
        assert_eq!(stamp & 0x3f, 0x10 | 9, "SACK and the client's scale");
        let behind = (now_ms as u32).wrapping_sub(stamp);
        assert!(behind < 64, "{}", format!("{now_ms}: {stamp} is {behind} behind"));
        assert_eq!(reply[reply.len() - 4..], [1, 3, 3, 7], "our scale");
    }
}

#[test]
fn where_the_scale_is_not_known_none_is_said_and_the_kernel_is_told_of_none() {
    let options = [4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 3, 3, 9];
    let terms = SynAckTerms {
        cookie: 0,
        mss: 1460,
        room: u32::MAX,
        options: true,
        window_scale: None,
        now_ms: 1 << 20,
    };
    let reply = answer(Address::v4(1), Address::v4(2), &options, &terms);
    let said = &reply[40..];
    assert_eq!(said[4..8], [4, 2, 8, 10], "SACK and timestamps stay");
    assert_eq!(said[11] & 0x3f, 0x10 | 0xf, "no scale, where the kernel looks for one");
    assert_eq!(said.len(), 16, "nor in the answer: {said:x?}");
}

#[test]
fn the_window_is_a_first_flight_unless_the_listener_has_less_room() {
    let window = |room| {
        let terms = SynAckTerms { cookie: 0, mss: 1460, room, options: false, window_scale: None, now_ms: 0 };
        let reply = answer(Address::v4(1), Address::v4(2), &[], &terms);
        u16::from_be_bytes([reply[34], reply[35]])
    };
    assert_eq!((window(u32::MAX), window(14_600), window(2_920), window(0)), (14_600, 14_600, 2_920, 0));
}
