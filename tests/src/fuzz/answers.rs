//! Frames for the programs that the first one tail-calls: those that answer SYNs with cookies, look at what a segment shows, reject and mark.
//!
//! The host is that of the unit tests of `ratelimit-ebpf`, which follows a packet into these programs, under policies as an operator writes them. What
//! it sends back or marks is judged by `fuzz/reply.rs`.

use std::{
    cell::RefCell,
    net::{IpAddr, Ipv6Addr},
    sync::LazyLock,
};

use ratelimit_common::abi::{LimitSet, ListEntry, OnLimit, Reason, SourceKey, Verdict, counter::Fate, list};
use ratelimit_ebpf::{
    cookie::{CookieListener, Issued, Proof},
    frame::Link,
    tables::Successor,
    testbed::{FrameEnd, TestHost},
};
use ratelimit_user::compile::{
    Desired,
    lists::{self, Lists, Prefix},
};

use super::reply::Request;
use crate::policies;

/// How many of [`POLICIES`] decide alike whatever the time is. Windows begin when the kernel's clock says so.
pub const TIMELESS: usize = 3;

/// Policies with limits so small that a few frames reach them. None refills while an input runs.
pub static POLICIES: LazyLock<[Desired; 4]> =
    LazyLock::new(|| [REJECTING, MARKING, WITH_COOKIES, SHARED].map(policies::policy));

/// Whatever is over a limit is rejected.
const REJECTING: &str = r#"
[host]
link = false
[source]
limits = ["3 packets/day", "2 syns/day", "2 fragments/day"]
new_sources_per_cpu = 10000000
ladder = false
[[service]]
name = "dns"
match = { protocol = "udp", ports = [53] }
total = ["12 packets/day"]
on_limit = "reject"
[[service]]
name = "web"
match = { protocol = "tcp", ports = [80, 443] }
per_source = ["2 packets/day"]
on_limit = "reject"
[[service]]
name = "tunnel"
match = { protocol = "gre" }
on_limit = "reject"
[[service]]
name = "ping"
match = { protocol = "icmp" }
on_limit = "reject"
[[service]]
name = "ping6"
match = { protocol = "icmpv6" }
on_limit = "reject"
[[service]]
name = "nothing"
match = { protocol = 59 }
on_limit = "reject"
[[service]]
name = "pieces"
match = { protocol = "fragments" }
on_limit = "reject"
"#;

/// Whatever is over a limit is marked, with classes that set, clear and turn bits.
const MARKING: &str = r#"
[host]
link = false
[source]
limits = ["3 packets/day", "2 syns/day", "2 fragments/day"]
new_sources_per_cpu = 10000000
ladder = false
[[service]]
name = "dns"
match = { protocol = "udp", ports = [53] }
on_limit = "mark"
dscp = 46
[[service]]
name = "web"
match = { protocol = "tcp", ports = [80, 443] }
on_limit = "mark"
dscp = 0
[[service]]
name = "ping"
match = { protocol = "icmp" }
on_limit = "mark"
dscp = 63
[[service]]
name = "ping6"
match = { protocol = "icmpv6" }
on_limit = "mark"
[[service]]
name = "pieces"
match = { protocol = "fragments" }
on_limit = "mark"
dscp = 21
"#;

/// All SYNs but the first are answered with cookies.
const WITH_COOKIES: &str = r#"
[host]
link = false
[source]
limits = ["8 packets/day", "4 syns/day"]
new_sources_per_cpu = 10000000
ladder = false
[[service]]
name = "web"
match = { protocol = "tcp", ports = [80] }
syn_cookies = "1 syns/day"
on_limit = "reject"
[[service]]
name = "secure"
match = { protocol = "tcp", ports = [443] }
syn_cookies = "1 syns/day"
on_limit = "mark"
[[service]]
name = "mail"
match = { protocol = "tcp", ports = [25] }
syn_cookies = "1 syns/day"
total = ["6 packets/day"]
[[user]]
name = "acme"
sources = ["10.0.1.1", "2001:db8:0:1::1"]
network = ["5 packets/day"]
"#;

/// Users, windows, prefixes, destinations that decide about the service, totals, and each fate that a packet over its limit may have.
const SHARED: &str = r#"
[host]
total = ["120 packets/day"]
[source]
limits = ["72 packets/day", "8 syns/day", "13000 bytes/day burst 13000"]
new_sources_per_cpu = 10000000
ladder = { ipv4 = ["/27 x3", "/24 x7"], ipv6 = ["/60 x3", "/56 x7"] }
[[service]]
name = "dns"
match = { protocol = "udp", ports = [53], destinations = ["10.0.0.2", "2001:db8::2"] }
per_source = ["4 packets/day fixed-window"]
on_limit = "reject"
[[service]]
name = "one"
match = { protocol = "udp", ports = [53], destinations = ["10.0.0.1", "::1"] }
per_source = ["4 packets/day sliding-window", "3 packets/day"]
on_limit = "mark"
[[service]]
name = "web"
match = { protocol = "tcp", ports = [80] }
per_source = ["3 packets/day soft 50%"]
syn_cookies = "1 syns/day"
on_limit = "reject"
[[service]]
name = "trial"
match = { protocol = "tcp", ports = [443] }
per_source = ["2 packets/day"]
on_limit = "monitor"
[[service]]
name = "ping"
match = { protocol = "icmp" }
total = ["9 packets/day"]
[[user]]
name = "acme"
sources = ["10.0.1.1", "10.0.1.2", "2001:db8:0:1::1"]
network = ["9 packets/day", "6 packets/day sliding-window-weighted"]
[[user]]
name = "globex"
sources = ["10.0.1.3"]
network = ["2 packets/day"]
"#;

/// When the first frame of an input comes.
const START_NS: u64 = 100_000_000_000;
/// How much later each of the others comes.
const APART_NS: u64 = 1_000_000;
/// Frames of one input, repetitions included: enough for each limit, few enough for many inputs.
const MOST_FRAMES: usize = 160;
/// What the kernel may say that an interface carries.
const MTUS: [u32; 4] = [1_500, 68, 9_000, 65_536];
/// Bytes of an input before its frames.
const SETTINGS: usize = 8;

/// One input: what the host is like, and the frames that come.
#[derive(Clone, Debug)]
pub struct Input<'i> {
    /// The kind of link that they come in by.
    pub link: Link,
    /// The number of their policy among [`POLICIES`].
    pub policy: usize,
    /// Whether no replies may be sent on the interface.
    silent: bool,
    /// Whether the driver has room for replies, and the frame can be written to.
    sends: bool,
    mtu: u32,
    /// `None` if no socket of the host is for the frames.
    proof: Option<Proof>,
    issued: Option<Issued>,
    /// The frames, and how often each of them comes.
    frames: Vec<(&'i [u8], usize)>,
}

impl<'i> Input<'i> {
    /// Reads an input: two bytes of choices, an MSS, a cookie, then frames. Before each frame stands a number of 16 bits: the lower 13 are its length, and it
    /// comes as often as two to the power of the others. `None` if there is nothing behind the choices.
    pub fn read(bytes: &'i [u8]) -> Option<Self> {
        let (settings, mut rest) = bytes.split_first_chunk::<SETTINGS>()?;
        let [host, sockets, m, s, a, b, c, d] = *settings;
        let (mss, number) = (u16::from_be_bytes([m, s]), u32::from_be_bytes([a, b, c, d]));
        let listener = CookieListener::new(number, sockets & 0x40 != 0, number >> 7, mss / 2);
        let issued = Issued { cookie: number, mss, listener: (sockets & 0x08 != 0).then_some(listener) };
        let mut frames = Vec::new();
        while let Some((head, behind)) = rest.split_first_chunk::<2>() {
            let head = u16::from_be_bytes(*head);
            let (frame, next) = behind.split_at(behind.len().min(usize::from(head & 0x1fff)));
            frames.push((frame, 1 << (head >> 13)));
            rest = next;
        }
        Some(Self {
            link: if host & 1 == 0 { Link::Ethernet } else { Link::Ip },
            policy: usize::from(host >> 2) % POLICIES.len(),
            silent: host & 0x10 != 0,
            sends: host & 0x20 == 0,
            mtu: MTUS[usize::from(sockets >> 4) % MTUS.len()],
            proof: Some(
                [Proof::Nothing, Proof::Handshake, Proof::Connection, Proof::Cookie]
                    [usize::from(sockets % 4)],
            ),
            issued: (sockets & 0x04 == 0).then_some(issued),
            frames,
        })
    }

    /// The input on a host without sockets, on an interface that may send replies and has room for them.
    pub fn without_sockets(&self) -> Self {
        Self { silent: false, sends: true, proof: None, issued: None, ..self.clone() }
    }

    /// The frames in order, repetitions included.
    pub fn all_frames(&self) -> impl Iterator<Item = &'i [u8]> {
        let frames = self.frames.iter().flat_map(|(frame, times)| std::iter::repeat_n(*frame, *times));
        frames.take(MOST_FRAMES)
    }
}

thread_local! {
    /// For each policy the limiter alone, and behind the express lane.
    static HOSTS: RefCell<Vec<[TestHost; 2]>> = RefCell::new(
        POLICIES.iter().map(|policy| [(0x00, false), (0xff, true)].map(|one| host(policy, one))).collect(),
    );
}

/// A host under a policy, before anything is known of its input: see [`set`]. `stale` is what memory has in it that nobody has written, and `express` whether
/// frames go through the express lane.
pub fn host(desired: &Desired, (stale, express): (u8, bool)) -> TestHost {
    let mut host = TestHost::new(desired.policy.clone());
    host.stale = stale;
    host.express.set(express && desired.policy.serves_lane());
    for (index, limits) in &desired.users {
        let there = host.users.len().max(*index as usize + 1);
        host.users.resize(there, LimitSet::NONE);
        host.users[*index as usize] = *limits;
    }
    // The host knows single addresses, so no service here takes what others leave of a port.
    for one in &desired.destinations {
        assert_eq!(one.bits as usize, one.key.len() * 8, "a destination of one address");
        host.destinations.insert(one.key.to_vec(), one.service);
    }
    let lists = lists::effective(lists::with_users(listed(), desired.user_prefixes()));
    for (prefix, entry) in lists {
        let address: IpAddr = prefix.shown().parse().expect("a prefix of one address");
        let octets = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        host.list(key(octets), entry);
    }
    host
}

fn key(address: Ipv6Addr) -> SourceKey {
    let [hi, lo] =
        [0, 8].map(|at| u64::from_ne_bytes(address.octets()[at..at + 8].try_into().expect("half")));
    SourceKey { hi, lo }
}

/// One who is blocked, and one who is let in.
pub fn listed() -> Lists {
    let block = ListEntry { own_blocked_until_ns: list::FOREVER_NS, ..ListEntry::EMPTY };
    let allow = ListEntry { own_allowed: list::ALLOWED, ..ListEntry::EMPTY };
    [("10.0.0.2", block), ("10.0.0.3", allow), ("2001:db8:0:2::1", block)]
        .map(|(address, entry)| (Prefix::masked(address.parse().expect("an address"), 128), entry))
        .into()
}

/// Every frame is counted once, and ends alike whatever is in memory around it and in the express lane as behind it. What is sent back or marked is right.
pub(super) fn run(bytes: &[u8]) {
    // The hosts are made for the first input, which the fuzzer does not count: it is empty.
    HOSTS.with_borrow_mut(|hosts| {
        if let Some(input) = Input::read(bytes) {
            judge(&mut hosts[input.policy], &input);
        }
    });
}

fn judge(hosts: &mut [TestHost; 2], input: &Input<'_>) {
    for host in &mut *hosts {
        host.forget_frames();
        host.now_ns.set(START_NS);
        set(host, input);
    }
    for (number, frame) in input.all_frames().enumerate() {
        let [alone, behind] = &*hosts;
        let (end, other) = (alone.end(frame), behind.end(frame));
        assert_eq!(end, other, "frame {number}: {frame:02x?}");
        let (sent, painted) = (alone.sent.take(), alone.painted.take());
        assert_eq!(
            (&sent, &painted),
            (&behind.sent.take(), &behind.painted.take()),
            "frame {number}: {frame:02x?}"
        );
        right(input, frame, end, &sent, &painted);
        for host in &*hosts {
            host.marked.take();
            host.now_ns.set(host.now_ns.get() + APART_NS);
        }
    }
}

/// Gives a host the link and the sockets of an input.
pub fn set(host: &mut TestHost, input: &Input<'_>) {
    host.link = input.link;
    // No program that replies is loaded for links whose frames are IP packets.
    host.answers = input.link == Link::Ethernet;
    host.programs = match input.link {
        Link::Ethernet => vec![Successor::Answer, Successor::Prove, Successor::Mark, Successor::Reject],
        Link::Ip => vec![Successor::Prove, Successor::Mark],
    };
    host.silent = input.silent;
    host.sends = input.sends;
    host.mtu = input.mtu;
    host.issued = input.issued;
    host.forwards = input.proof.is_none();
    host.proof.set(input.proof.unwrap_or(Proof::Nothing));
}

/// What became of a frame is what its reason and fate say, and what was sent or marked is right.
fn right(input: &Input<'_>, frame: &[u8], end: FrameEnd, sent: &[Vec<u8>], painted: &[Vec<u8>]) {
    let FrameEnd { verdict, service, reason, fate } = end;
    let due = match fate {
        Fate::Decided => reason.verdict(),
        Fate::Waived | Fate::Marked => Verdict::Pass,
        Fate::Rejected => Verdict::Reply,
    };
    assert_eq!(verdict, due, "{end:?}");
    assert_eq!(sent.len(), usize::from(verdict == Verdict::Reply), "{end:?}");
    assert_eq!(painted.len(), usize::from(fate == Fate::Marked), "{end:?}");
    let policy = &POLICIES[input.policy].policy;
    let service = policy.service(service).map(|(_, service)| service);
    let asked = match fate {
        Fate::Decided => None,
        Fate::Waived => Some(OnLimit::Monitor),
        Fate::Marked => Some(OnLimit::Mark),
        Fate::Rejected => Some(OnLimit::Reject),
    };
    if let Some(asked) = asked {
        assert_eq!(service.expect("a service").on_limit, asked as u32, "{end:?}");
        assert!(!reason.admits(), "{end:?}");
    }
    if let [reply] = sent {
        assert!(input.link == Link::Ethernet && !input.silent && input.sends, "{end:?}");
        let request = Request::read(input.link, frame);
        if reason == Reason::CookieSent && fate == Fate::Decided {
            let issued = input.issued.expect("a cookie");
            request.is_given_cookie(reply, issued.cookie, issued.listener.is_some(), input.mtu);
        } else {
            request.is_rejected(reply);
        }
    }
    if let [painted] = painted {
        assert!(input.sends, "{end:?}");
        Request::read(input.link, frame).is_marked(painted, service.expect("a service").dscp.into());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{
        super::{Target, corpus},
        *,
    };
    use crate::frames::{ICMP, ICMPV6, TCP};

    #[test]
    fn the_corpus_reaches_every_program_that_is_tail_called_with_packets_of_both_families() {
        // Fate and reason of the frames that were written to, and family and protocol of what they became.
        let (mut handed_over, mut written) = (Vec::new(), BTreeSet::new());
        for bytes in corpus::inputs(Target::Answers) {
            let Some(input) = Input::read(&bytes) else { continue };
            let mut host = host(&POLICIES[input.policy], (0, false));
            set(&mut host, &input);
            for frame in input.all_frames() {
                let end = host.end(frame);
                handed_over.append(&mut host.handed_over.take());
                for frame in host.sent.take().iter().chain(&host.painted.take()) {
                    let Request { is_v4, protocol, .. } = Request::read(input.link, frame);
                    written.insert((end.fate as u32, end.reason == Reason::CookieSent, is_v4, protocol));
                }
            }
        }
        for to in [Successor::Answer, Successor::Prove, Successor::Mark, Successor::Reject] {
            assert!(handed_over.contains(&to), "{to:?}");
        }
        for (fate, is_cookie, is_v4, protocol) in [
            (Fate::Decided, true, true, TCP),
            (Fate::Decided, true, false, TCP),
            (Fate::Rejected, false, true, TCP),
            (Fate::Rejected, false, false, TCP),
            (Fate::Rejected, false, true, ICMP),
            (Fate::Rejected, false, false, ICMPV6),
            (Fate::Marked, false, true, TCP),
            (Fate::Marked, false, false, TCP),
        ] {
            let kind = (fate as u32, is_cookie, is_v4, protocol);
            assert!(written.contains(&kind), "{fate:?} {kind:?}, but {written:?}");
        }
    }
}
