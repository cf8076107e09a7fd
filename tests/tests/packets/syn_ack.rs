//! The answer to a SYN, byte by byte, from the real program in the real kernel.

use std::{
    fs,
    net::{Ipv6Addr, SocketAddr, TcpListener},
};

use ratelimit_common::abi::{Reason, Verdict, listener::Offset};
use ratelimit_tests::{
    frames::{ACK, IPV4, IPV6, Ipv4, Ipv6, QINQ, SYN, TCP, VLAN, ethernet, folded, tag},
    loaded::Loaded,
    netns::Wire,
    policies,
};
use ratelimit_user::dataplane::listener::{self, Unreadable};
use socket2::{Domain, Socket, Type};

const PORT: u16 = 80;
const SEQUENCE: u32 = 0xffff_ffff;
/// What the loopback interface carries, which test runs pretend to come from: 65536 bytes.
const MSS_V4: u16 = u16::MAX - 39;
const MSS_V6: u16 = u16::MAX - 59;

/// A SYN with options; the header is padded to whole words as every stack does it.
fn syn(options: &[u8]) -> Vec<u8> {
    let mut options = options.to_vec();
    options.resize(options.len().next_multiple_of(4), 0);
    let mut header = vec![0xc0, 0x01];
    header.extend(PORT.to_be_bytes());
    header.extend(SEQUENCE.to_be_bytes());
    header.extend([0; 4]);
    header.extend([(((20 + options.len()) / 4) << 4) as u8, SYN, 0xff, 0xff, 0, 0, 0, 0]);
    header.extend(options);
    header
}

const MSS: [u8; 4] = [2, 4, 0x05, 0xb4];
const SACK: [u8; 2] = [4, 2];
const SCALE: [u8; 3] = [3, 3, 9];
const TIMES: [u8; 10] = [8, 10, 0x11, 0x22, 0x33, 0x44, 0, 0, 0, 0];

/// What an answer says, with everything else about it checked.
fn options_of(reply: &[u8], request: &[u8], tags: usize) -> (u32, Vec<u8>) {
    let l3 = 14 + tags * 4;
    assert_eq!(reply[..6], request[6..12], "to whom it came from");
    assert_eq!(reply[6..12], request[..6]);
    assert_eq!(reply[12..l3], request[12..l3], "tags and type stay");
    let (ip, old) = (&reply[l3..], &request[l3..]);
    let (tcp, pseudo) = if ip[0] >> 4 == 4 {
        assert_eq!((ip[0], ip[8], ip[9]), (0x45, 64, 6));
        assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip.len(), "its length is the frame's");
        assert_eq!(folded(&ip[..20]), 0xffff, "IPv4 checksum");
        assert_eq!((&ip[12..16], &ip[16..20]), (&old[16..20], &old[12..16]), "addresses change places");
        (&ip[20..], [&ip[12..20], &[0, 6], &((ip.len() - 20) as u16).to_be_bytes()].concat())
    } else {
        assert_eq!((ip[0], ip[6], ip[7]), (0x60, 6, 64));
        assert_eq!(usize::from(u16::from_be_bytes([ip[4], ip[5]])), ip.len() - 40);
        assert_eq!((&ip[8..24], &ip[24..40]), (&old[24..40], &old[8..24]));
        (&ip[40..], [&ip[8..40], &[0, 6], &((ip.len() - 40) as u16).to_be_bytes()].concat())
    };
    assert_eq!(folded(&[&pseudo[..], tcp].concat()), 0xffff, "TCP checksum");
    assert_eq!(tcp[..4], [0, 80, 0xc0, 0x01], "ports change places");
    assert_eq!(u32::from_be_bytes(tcp[8..12].try_into().unwrap()), SEQUENCE.wrapping_add(1));
    assert_eq!(usize::from(tcp[12] >> 4) * 4, tcp.len());
    assert_eq!(tcp[13], SYN | ACK);
    assert!(u16::from_be_bytes([tcp[14], tcp[15]]) >= 14_600, "room for a first flight");
    (u32::from_be_bytes(tcp[4..8].try_into().unwrap()), tcp[20..].to_vec())
}

/// A program that answers SYNs to port 80, run on a host that takes cookies.
fn with_cookies(what: impl FnOnce(&mut Loaded) + Send) {
    let wire = Wire::new();
    wire.as_edge(|| {
        fs::write("/proc/sys/net/ipv4/tcp_syncookies", "2").unwrap();
        let _listener = TcpListener::bind(("::", PORT)).unwrap();
        let policy = "[source]\nlimits = [\"100000 packets/s\"]\n[[service]]\nname = \"web\"\n\
                      match = { protocol = \"tcp\", ports = [80] }\nsyn_cookies = \"1 syns/day burst 1\"\n";
        let mut loaded = Loaded::new(&policies::policy(policy));
        let first = from_v4(&syn(&MSS));
        assert_eq!(loaded.outcome(&first).moved[0].0, Reason::Conforming, "within the threshold");
        assert_eq!(loaded.outcome(&first).moved[0].0, Reason::CookieSent, "the one that crosses it");
        what(&mut loaded);
    });
}

fn from_v4(segment: &[u8]) -> Vec<u8> {
    ethernet(IPV4, &Ipv4::from([192, 0, 2, 1]).carrying(TCP, segment))
}

fn from_v6(segment: &[u8]) -> Vec<u8> {
    ethernet(IPV6, &Ipv6::from("2001:db8::1".parse().unwrap()).carrying(TCP, segment))
}

#[test]
fn every_kind_of_syn_gets_a_correct_answer() {
    let mss = |mss: u16| [&[2, 4], &mss.to_be_bytes()[..]].concat();
    let times = |low_bits: u8| (low_bits, [0x11, 0x22, 0x33, 0x44]);
    let full = [&MSS[..], &SACK, &TIMES, &[1], &SCALE].concat();
    let v4 = |options: &[u8]| Ipv4::from([192, 0, 2, 1]).carrying(TCP, &syn(options));
    let v6 = |options: &[u8]| Ipv6::from("2001:db8::1".parse().unwrap()).carrying(TCP, &syn(options));
    let with_ip_options = Ipv4 { options: 8, ..Ipv4::from([192, 0, 2, 1]) }.carrying(TCP, &syn(&full));
    // Name, frame, tags, MSS, and where options are expected: the low bits of our timestamp, then those behind it.
    type Row = (&'static str, Vec<u8>, usize, u16, Option<(u8, bool, bool)>);
    let rows: Vec<Row> = vec![
        ("nothing", ethernet(IPV4, &v4(&[])), 0, MSS_V4, None),
        ("only an MSS", ethernet(IPV4, &v4(&MSS)), 0, MSS_V4, None),
        (
            "no timestamps, so no others",
            ethernet(IPV4, &v4(&[&MSS[..], &SACK, &SCALE].concat())),
            0,
            MSS_V4,
            None,
        ),
        ("everything", ethernet(IPV4, &v4(&full)), 0, MSS_V4, Some((0x19, true, true))),
        ("timestamps alone", ethernet(IPV4, &v4(&TIMES)), 0, MSS_V4, Some((0x0f, false, false))),
        (
            "packed closely",
            ethernet(IPV4, &v4(&[&TIMES[..], &SCALE, &SACK].concat())),
            0,
            MSS_V4,
            Some((0x19, true, true)),
        ),
        ("one VLAN tag", ethernet(VLAN, &tag(IPV4, &v4(&full))), 1, MSS_V4, Some((0x19, true, true))),
        (
            "two VLAN tags",
            ethernet(QINQ, &tag(VLAN, &tag(IPV6, &v6(&full)))),
            2,
            MSS_V6,
            Some((0x19, true, true)),
        ),
        ("IPv6", ethernet(IPV6, &v6(&full)), 0, MSS_V6, Some((0x19, true, true))),
        ("IPv6, only an MSS", ethernet(IPV6, &v6(&MSS)), 0, MSS_V6, None),
        (
            "an option of no length ends the options",
            ethernet(IPV4, &v4(&[&MSS[..], &[77, 0], &TIMES].concat())),
            0,
            MSS_V4,
            None,
        ),
        ("padded frame", [ethernet(IPV4, &v4(&MSS)), vec![0; 60]].concat(), 0, MSS_V4, None),
    ];
    with_cookies(|loaded| {
        for (name, frame, tags, size, options) in rows {
            let before = loaded.count(Reason::CookieSent);
            let (verdict, reply) = loaded.rewrite(&frame);
            assert_eq!((verdict, loaded.count(Reason::CookieSent)), (Verdict::Reply, before + 1), "{name}");
            println!("{name}: {} bytes in, {} out", frame.len(), reply.len());
            assert!(reply.len() <= frame.len() + 4, "{name}: {} for {}", reply.len(), frame.len());
            let (_, said) = options_of(&reply, &frame, tags);
            assert_eq!(said[..4], mss(size), "{name}");
            let Some((low_bits, sack, scale)) = options else {
                assert_eq!(said.len(), 4, "{name}: {said:x?}");
                continue;
            };
            let (low, echo) = times(low_bits);
            assert_eq!(said[4..8], if sack { [4, 2, 8, 10] } else { [1, 1, 8, 10] }, "{name}");
            assert_eq!(said[11] & 0x3f, low, "{name}: where the kernel looks for options");
            assert_eq!(said[12..16], echo, "{name}: the client's timestamp comes back");
            assert_eq!(said[16..], if scale { vec![1, 3, 3, 7] } else { vec![] }, "{name}");
        }
        let (verdict, reply) = loaded.rewrite(&ethernet(IPV4, &with_ip_options));
        assert_eq!((verdict, reply.len()), (Verdict::Reply, 14 + 20 + 40), "options of IP are not repeated");
    });
}

/// The acknowledgement of an answer, for what comes after it.
fn acknowledge(frame: &[u8], reply: &[u8]) -> Vec<u8> {
    let l4 = if frame[12..14] == IPV4.to_be_bytes() { 34 } else { 54 };
    let mut ack = frame[..l4 + 20].to_vec();
    let total = (ack.len() - 14) as u16;
    if l4 == 34 {
        ack[16..18].copy_from_slice(&total.to_be_bytes());
    } else {
        ack[18..20].copy_from_slice(&(total - 40).to_be_bytes());
    }
    let cookie = u32::from_be_bytes(reply[l4 + 4..l4 + 8].try_into().unwrap());
    ack[l4 + 4..l4 + 8].copy_from_slice(&SEQUENCE.wrapping_add(1).to_be_bytes());
    ack[l4 + 8..l4 + 12].copy_from_slice(&cookie.wrapping_add(1).to_be_bytes());
    ack[l4 + 12] = 0x50;
    ack[l4 + 13] = ACK;
    ack
}

#[test]
fn only_the_acknowledgement_of_our_own_answer_passes() {
    with_cookies(|loaded| {
        for frame in [from_v4(&syn(&MSS)), from_v6(&syn(&MSS))] {
            let (_, reply) = loaded.rewrite(&frame);
            let ack = acknowledge(&frame, &reply);
            assert_eq!(loaded.outcome(&ack).moved[0].0, Reason::CookieValid);
            let l4 = ack.len() - 20;
            for (what, at) in [("source port", l4), ("sequence number", l4 + 5), ("cookie", l4 + 8)] {
                let mut other = ack.clone();
                other[at] ^= 0x40;
                assert_eq!(loaded.outcome(&other).moved[0].0, Reason::CookieInvalid, "another {what}");
            }
            for (what, flags) in
                [("reset", 0x04), ("reset and acknowledgement", 0x14), ("nothing", 0), ("both", SYN | ACK)]
            {
                let mut other = ack.clone();
                other[l4 + 13] = flags;
                assert_eq!(loaded.outcome(&other).moved[0].0, Reason::CookieInvalid, "{what}");
            }
        }
    });
}

#[test]
fn nobody_is_answered_who_cannot_have_asked() {
    let frame = |source: [u8; 4]| ethernet(IPV4, &Ipv4::from(source).carrying(TCP, &syn(&MSS)));
    let mut to_all = from_v4(&syn(&MSS));
    to_all[..6].fill(0xff);
    let mut with_reset = from_v4(&syn(&MSS));
    with_reset[47] |= 0x04;
    let group = ethernet(IPV6, &Ipv6::from("ff02::1".parse().unwrap()).carrying(TCP, &syn(&MSS)));
    with_cookies(|loaded| {
        for (name, frame) in [
            ("multicast", frame([224, 0, 0, 1])),
            ("broadcast", frame([255; 4])),
            ("nobody", frame([0; 4])),
            ("IPv6 multicast", group),
            ("SYN and RST", with_reset),
        ] {
            assert_eq!(loaded.outcome(&frame).moved[0].0, Reason::CookieInvalid, "{name}");
        }
        assert_eq!(
            loaded.outcome(&to_all).moved[0].0,
            Reason::Conforming,
            "to everybody: for the kernel to say"
        );
        let cut = {
            let mut segment = syn(&[]);
            segment[12] = 0xf0;
            from_v4(&segment)
        };
        assert_eq!(loaded.outcome(&cut).moved[0].0, Reason::Truncated, "options beyond the packet");
    });
}

#[test]
fn a_syn_that_cannot_be_answered_costs_what_every_syn_does() {
    let wire = Wire::new();
    wire.as_edge(|| {
        fs::write("/proc/sys/net/ipv4/tcp_syncookies", "2").unwrap();
        let _listener = TcpListener::bind(("::", PORT)).unwrap();
        let policy = "[source]\nlimits = [\"1000 packets/day\", \"3 syns/day\"]\nladder = false\n[[service]]\nname = \"web\"\n\
                      match = { protocol = \"tcp\", ports = [80] }\nsyn_cookies = \"1 syns/day burst 1\"\n";
        let mut loaded = Loaded::new(&policies::policy(policy));
        let other = ethernet(IPV4, &Ipv4::from([192, 0, 2, 9]).carrying(TCP, &syn(&MSS)));
        use Reason::{Conforming, CookieSent, LimitSyns};
        assert_eq!([(); 2].map(|()| loaded.outcome(&other).moved[0].0), [Conforming, CookieSent]);
        // To everybody on the link: nobody could answer for all of them.
        let mut to_all = from_v4(&syn(&MSS));
        to_all[..6].fill(0xff);
        let reasons = [(); 5].map(|()| loaded.outcome(&to_all).moved[0].0);
        assert_eq!(reasons, [Conforming, Conforming, Conforming, LimitSyns, LimitSyns]);
    });
}

#[test]
fn limits_of_the_source_come_first() {
    let wire = Wire::new();
    wire.as_edge(|| {
        fs::write("/proc/sys/net/ipv4/tcp_syncookies", "2").unwrap();
        let _listener = TcpListener::bind(("::", PORT)).unwrap();
        let policy = "[source]\nlimits = [\"5 syns/day\"]\n[[service]]\nname = \"web\"\n\
                      match = { protocol = \"tcp\", ports = [80] }\nsyn_cookies = \"1 syns/day burst 1\"\n";
        let mut loaded = Loaded::new(&policies::policy(policy));
        let frame = from_v4(&syn(&MSS));
        let reasons: Vec<_> = (0..7).map(|_| loaded.outcome(&frame).moved[0].0).collect();
        use Reason::{Conforming, CookieSent, LimitSyns};
        assert_eq!(
            reasons,
            [Conforming, CookieSent, CookieSent, CookieSent, CookieSent, LimitSyns, LimitSyns]
        );
        // Elsewhere nothing has changed, and there are no cookies for it.
        let mut elsewhere = Ipv4::from([192, 0, 2, 2]).tcp_frame(SYN);
        elsewhere[37] = 81;
        assert_eq!(loaded.outcome(&elsewhere).moved[0].0, Conforming);
    });
}

#[test]
fn a_kernel_that_does_not_take_cookies_gets_the_syns() {
    let wire = Wire::new();
    wire.as_edge(|| {
        fs::write("/proc/sys/net/ipv4/tcp_syncookies", "1").unwrap();
        let _listener = TcpListener::bind(("::", PORT)).unwrap();
        let policy = "[source]\nlimits = [\"100000 packets/s\"]\n[[service]]\nname = \"web\"\n\
                      match = { protocol = \"tcp\", ports = [80] }\nsyn_cookies = \"1 syns/day burst 1\"\n";
        let mut loaded = Loaded::new(&policies::policy(policy));
        for _ in 0..5 {
            assert_eq!(loaded.outcome(&from_v4(&syn(&MSS))).moved[0].0, Reason::Conforming);
        }
    });
}

#[test]
fn where_listeners_cannot_be_read_answers_have_every_option_but_the_window_scale() {
    let wire = Wire::new();
    wire.as_edge(|| {
        fs::write("/proc/sys/net/ipv4/tcp_syncookies", "2").unwrap();
        let _listener = TcpListener::bind(("::", PORT)).unwrap();
        let policy = "[source]\nlimits = [\"100000 packets/s\"]\n[[service]]\nname = \"web\"\n\
                      match = { protocol = \"tcp\", ports = [80] }\nsyn_cookies = \"1 syns/day burst 1\"\n";
        let full = from_v4(&syn(&[&MSS[..], &SACK, &TIMES, &[1], &SCALE].concat()));
        // The last byte that a socket could have is none of its fields, and the verifier knows that.
        let mut wrong = listener::offsets().unwrap();
        wrong[Offset::Buffer as usize] = 0x7fff;
        for (offsets, why) in
            [(Err(Unreadable::NoTypes), "/sys/kernel/btf/vmlinux"), (Ok(wrong), "the verifier refused it")]
        {
            let mut loaded = Loaded::knowing(&policies::policy(policy), 1_024, offsets);
            let problem = loaded.listener_problem().unwrap().to_owned();
            assert!(problem.contains(why), "{problem}");
            assert_eq!(loaded.outcome(&full).moved[0].0, Reason::Conforming, "within the threshold");
            let (verdict, reply) = loaded.rewrite(&full);
            assert_eq!(verdict, Verdict::Reply, "cookies are sent all the same");
            let (_, said) = options_of(&reply, &full, 0);
            assert_eq!((said.len(), &said[4..8]), (16, &[4, 2, 8, 10][..]), "no scale: {said:x?}");
            assert_eq!(said[11] & 0x3f, 0x1f, "and the kernel will find none");
        }
    });
}

#[test]
fn the_scale_follows_the_setting_of_the_namespace_on_kernels_whose_sockets_have_no_ratio() {
    let wire = Wire::new();
    wire.as_edge(|| {
        fs::write("/proc/sys/net/ipv4/tcp_syncookies", "2").unwrap();
        let socket = Socket::new(Domain::IPV6, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(131_072).unwrap();
        let address: SocketAddr = (Ipv6Addr::UNSPECIFIED, PORT).into();
        socket.bind(&address.into()).unwrap();
        socket.listen(1).unwrap();
        let policy = "[source]\nlimits = [\"100000 packets/s\"]\n[[service]]\nname = \"web\"\n\
                      match = { protocol = \"tcp\", ports = [80] }\nsyn_cookies = \"1 syns/day burst 1\"\n";
        let full = from_v4(&syn(&[&MSS[..], &SACK, &TIMES, &[1], &SCALE].concat()));
        let mut older = listener::offsets().unwrap();
        older[Offset::Ratio as usize] = 0;
        let mut loaded = Loaded::knowing(&policies::policy(policy), 1_024, Ok(older));
        assert_eq!(loaded.listener_problem(), None);
        assert_eq!(loaded.outcome(&full).moved[0].0, Reason::Conforming, "within the threshold");
        // The kernel doubles the buffer. Half of that is for data, or three quarters, or a quarter, or all.
        for (setting, scale) in [("1", 2), ("2", 2), ("-2", 1), ("-3", 0), ("0", 3)] {
            fs::write("/proc/sys/net/ipv4/tcp_adv_win_scale", setting).unwrap();
            let (_, reply) = loaded.rewrite(&full);
            let (_, said) = options_of(&reply, &full, 0);
            assert_eq!(said[16..], [1, 3, 3, scale], "tcp_adv_win_scale = {setting}");
        }
    });
}
