//! Files byte by byte: valid ones are read correctly, and invalid ones give a sentence with the place.

use std::io::Cursor;

use proptest::prelude::*;

use super::{
    write::{PacketToWrite, PcapngWriter},
    *,
};

/// An owned copy of a packet.
type Seen = (u64, LinkType, Vec<u8>, u64, bool, Option<String>);

fn read(bytes: &[u8]) -> Result<Vec<Seen>, String> {
    let mut capture = Capture::read("test.pcap", Box::new(Cursor::new(bytes.to_vec())))
        .map_err(|error| error.to_string())?;
    let mut seen = Vec::new();
    while let Some(packet) = capture.next_packet().map_err(|error| error.to_string())? {
        let Captured { unix_ns, link_type, bytes, len, is_outgoing, comment } = packet;
        seen.push((unix_ns, link_type, bytes.to_vec(), len, is_outgoing, comment.map(str::to_owned)));
    }
    Ok(seen)
}

/// A pcap file with one packet of 60 bytes, of which it has three.
fn pcap(word: fn(u32) -> [u8; 4], half: fn(u16) -> [u8; 2], magic: u32, link_type: u32) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend(word(magic));
    file.extend([half(2), half(4)].concat());
    file.extend([word(0), word(0), word(65_535), word(link_type)].concat());
    file.extend([word(1_700_000_000), word(123_456), word(3), word(60)].concat());
    file.extend([7, 8, 9]);
    file
}

#[test]
fn times_and_lengths_are_those_of_the_packet_in_either_byte_order_and_either_unit() {
    for (word, half) in [
        (u32::to_le_bytes as fn(u32) -> [u8; 4], u16::to_le_bytes as fn(u16) -> [u8; 2]),
        (u32::to_be_bytes, u16::to_be_bytes),
    ] {
        for (magic, ns) in [(0xa1b2_c3d4, 123_456_000), (0xa1b2_3c4d, 123_456)] {
            let seen = read(&pcap(word, half, magic, 1)).unwrap();
            let expected =
                (1_700_000_000_000_000_000 + ns, LinkType::Ethernet, vec![7, 8, 9], 60, false, None);
            assert_eq!(seen, [expected]);
        }
    }
}

#[test]
fn what_is_written_is_read_again_with_its_remark() {
    let mut file = Vec::new();
    let mut writer = PcapngWriter::new(&mut file).unwrap();
    let eth0 = writer.interface("eth0", LinkType::Ethernet).unwrap();
    let tun0 = writer.interface("tun0", LinkType::Ip).unwrap();
    let packet = PacketToWrite {
        interface: eth0,
        unix_ns: 1_700_000_000_123_456_789,
        bytes: &[1; 5],
        len: 60,
        comment: "dropped: limit_packets, service dns",
    };
    writer.packet(&packet).unwrap();
    writer.packet(&PacketToWrite { interface: tun0, comment: "", len: 5, ..packet }).unwrap();
    let remark = Some(packet.comment.to_owned());
    assert_eq!(
        read(&file).unwrap(),
        [
            (packet.unix_ns, LinkType::Ethernet, vec![1; 5], 60, false, remark),
            (packet.unix_ns, LinkType::Ip, vec![1; 5], 5, false, None),
        ]
    );
}

fn block(word: fn(u32) -> [u8; 4], kind: u32, body: &[u8]) -> Vec<u8> {
    let length = word(body.len() as u32 + 12);
    [&word(kind)[..], &length, body, &length].concat()
}

#[test]
fn sections_have_byte_orders_and_resolutions_of_their_own_and_unknown_blocks_are_passed_over() {
    let mut file = Vec::new();
    for (word, half) in [
        (u32::to_le_bytes as fn(u32) -> [u8; 4], u16::to_le_bytes as fn(u16) -> [u8; 2]),
        (u32::to_be_bytes, u16::to_be_bytes),
    ] {
        let section = [&word(0x1a2b_3c4d)[..], &half(1), &half(0), &[0xff; 8]].concat();
        file.extend(block(word, 0x0a0d_0d0a, &section));
        // Times in units of 2^-10 seconds, with an offset of ten seconds.
        let offset = if half(1) == [1, 0] { [word(10), word(0)] } else { [word(0), word(10)] };
        let options =
            [&half(9)[..], &half(1), &[0x8a, 0, 0, 0], &half(14), &half(8), &offset.concat(), &[0; 4]]
                .concat();
        file.extend(block(word, 1, &[&half(113)[..], &half(0), &word(0), &options].concat()));
        file.extend(block(word, 4, &[9; 8]));
        let sent = [&half(2)[..], &half(4), &word(2), &[0; 4]].concat();
        let header = [word(0), word(0), word(1536), word(2), word(9)].concat();
        file.extend(block(word, 6, &[&header[..], &[5, 6, 0, 0], &sent].concat()));
        // A packet without a time has that of the packet before.
        file.extend(block(word, 3, &[&word(3)[..], &[1, 2, 3, 0]].concat()));
    }
    let one = [
        (11_500_000_000, LinkType::Cooked, vec![5, 6], 9, true, None),
        (11_500_000_000, LinkType::Cooked, vec![1, 2, 3], 3, false, None),
    ];
    assert_eq!(read(&file).unwrap(), [one.clone(), one].concat());
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let good = pcap(u32::to_le_bytes, u16::to_le_bytes, 0xa1b2_c3d4, 1);
    let with = |at: usize, bytes: &[u8]| {
        let mut file = good.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        read(&file).unwrap_err()
    };
    for (error, expected) in [
        (
            read(&[]).unwrap_err(),
            "at byte 0: the number that says what kind of file it is should have 4 bytes",
        ),
        (
            read(&[0x1f, 0x8b, 8, 0]).unwrap_err(),
            "at byte 0: it begins with [1f, 8b, 08, 00], which is neither pcap nor pcapng; it is packed with gzip",
        ),
        (
            read(&good[..30]).unwrap_err(),
            "at byte 24: the header of a packet should have 16 bytes here, and the file ends after 6",
        ),
        (
            read(&good[..42]).unwrap_err(),
            "at byte 40: a packet should have 3 bytes here, and the file ends after 2",
        ),
        (with(4, &[3]), "at byte 4: pcap version 3 is not known"),
        (with(20, &[127]), "at byte 20: link type 127 is none that can be replayed"),
        (
            with(32, &[0xff; 4]),
            "at byte 32: packet 1 says that 4294967295 bytes of it follow; at most 262144",
        ),
        (with(36, &[2]), "at byte 32: packet 1 had 2 bytes, it says, and 3 of them follow"),
    ] {
        assert!(
            error.starts_with("cannot read the capture test.pcap: ") && error.contains(expected),
            "{error}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Files with a valid beginning and random bytes after it, and valid files in which a few bytes are changed.
    #[test]
    fn no_bytes_make_the_reader_panic_or_go_on_for_ever(
        start in 0_usize..6,
        rest in prop::collection::vec(any::<u8>(), 0..400),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let mut file = match start {
            0 => Vec::new(),
            1 => 0xa1b2_c3d4_u32.to_le_bytes().to_vec(),
            2 => pcapng::SECTION.to_vec(),
            3 => pcap(u32::to_be_bytes, u16::to_be_bytes, 0xa1b2_3c4d, 276),
            _ => {
                let mut file = Vec::new();
                let mut writer = PcapngWriter::new(&mut file).unwrap();
                writer.interface("eth0", LinkType::Cooked2).unwrap();
                let packet = PacketToWrite { interface: 0, unix_ns: 5, bytes: &[3; 30], len: 60, comment: "a remark" };
                writer.packet(&packet).unwrap();
                writer.packet(&packet).unwrap();
                file
            }
        };
        file.extend(&rest);
        for (at, byte) in changes {
            if !file.is_empty() {
                let at = at.index(file.len());
                file[at] = byte;
            }
        }
        if let Ok(mut capture) = Capture::read("random", Box::new(Cursor::new(file.clone()))) {
            let mut arrivals = ArrivalMaker::default();
            let mut packets = 0;
            while let Ok(Some(packet)) = capture.next_packet() {
                packets += 1;
                prop_assert!(packet.len >= packet.bytes.len() as u64);
                prop_assert!(packets <= file.len(), "each packet takes bytes of the file");
                if let Ok(arrival) = arrivals.of(&packet) {
                    let _ = ratelimit_ebpf::parse::parse(&arrival.frame);
                }
            }
        }
    }
}
