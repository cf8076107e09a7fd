//! Frames, as a network may deliver them, for the packet path on tables in memory.

use std::sync::LazyLock;

use ratelimit_common::abi::{ListEntry, list};
use ratelimit_ebpf::frame::Link;
use ratelimit_user::{
    compile::{
        Desired,
        lists::{self, Lists},
    },
    memory::Memory,
};

use crate::policies;

/// When the first frame of an input comes.
const START_NS: u64 = 1_000_000_000;
/// How much later each of the others comes: a refusal is remembered for some of them.
const APART_NS: u64 = 1_000_000;

/// The policies of inputs.
pub static POLICIES: LazyLock<[Desired; 3]> =
    LazyLock::new(|| [EVERY_KIND, SHARED, WINDOWS].map(policies::policy));

/// How many of [`POLICIES`] decide alike whatever the time is. Windows begin when the kernel's clock says so.
pub const TIMELESS: usize = 2;

/// Every kind of limit of sources and services, and none that refills while a test runs.
const EVERY_KIND: &str = r#"
[host]
link = false
[source]
limits = ["72 packets/day", "8 syns/day", "13000 bytes/day burst 13000", "8 fragments/day"]
new_sources_per_cpu = 10000000

[[service]]
name = "dns"
match = { protocol = "udp", ports = [53] }
per_source = ["20 packets/day"]
total = ["400 packets/day"]

[[service]]
name = "web"
match = { protocol = "tcp", ports = [80, 443] }
per_source = ["6 syns/day"]
"#;

/// Limits that several share: those of users, of prefixes, of services by destination, of the host.
const SHARED: &str = r#"
[host]
link = false
total = ["900 packets/day"]
[source]
limits = ["72 packets/day", "8 syns/day"]
new_sources_per_cpu = 10000000
ladder = { ipv4 = ["/27 x2", "/24 x4"], ipv6 = ["/60 x2", "/56 x4"] }

[[service]]
name = "dns"
match = { protocol = "udp", ports = [53] }
total = ["300 packets/day"]

[[service]]
name = "anycast"
match = { protocol = "udp", ports = [53], destinations = ["10.10.0.0/16", "2001:db8::/33"] }
per_source = ["20 packets/day"]

[[service]]
name = "one"
match = { protocol = "udp", ports = [53], destinations = ["10.10.0.15", "2001:db8::1"] }
total = ["200 packets/day"]

[[service]]
name = "web"
match = { protocol = "tcp", ports = [80], destinations = ["10.0.0.0/8", "2001:db8::/32"] }
per_source = ["6 syns/day"]

[[service]]
name = "pieces"
match = { protocol = "fragments" }
total = ["60 packets/day"]

[[user]]
name = "acme"
sources = ["198.51.100.0/24", "2001:db8::/48"]
network = ["100 packets/day", "9 syns/day"]

[[user]]
name = "globex"
sources = ["198.51.100.128/25"]
network = ["40 packets/day"]
"#;

/// Windows of sources, of a service and of users, of each algorithm that packets can be counted by.
const WINDOWS: &str = r#"
[host]
link = false
[source]
limits = ["30 packets/day fixed-window", "8 syns/day sliding-window", "13000 bytes/day burst 13000"]
new_sources_per_cpu = 10000000

[[service]]
name = "dns"
match = { protocol = "udp", ports = [53] }
per_source = ["12 packets/day sliding-window-weighted", "20 packets/day"]

[[user]]
name = "acme"
sources = ["198.51.100.0/24", "2001:db8::/48"]
network = ["50 packets/day", "40 packets/day sliding-window", "6 syns/day fixed-window"]
"#;

/// The link of an input, the number of its policy, and its frames: the lowest bit of the first byte says which link, the others say which policy, and
/// before each frame stands its length in two bytes.
pub fn frames(input: &[u8]) -> (Link, usize, Vec<&[u8]>) {
    let Some((first, mut rest)) = input.split_first() else { return (Link::Ethernet, 0, Vec::new()) };
    let mut frames = Vec::new();
    while let Some((len, behind)) = rest.split_first_chunk::<2>() {
        let (frame, next) = behind.split_at(behind.len().min(u16::from_be_bytes(*len) as usize));
        frames.push(frame);
        rest = next;
    }
    let link = if first & 1 == 0 { Link::Ethernet } else { Link::Ip };
    (link, usize::from(first >> 1) % POLICIES.len(), frames)
}

thread_local! {
    /// For each policy the limiter alone, and behind the express lane: made once, because making the tables costs more than an input.
    static HOSTS: [[Memory; 2]; 3] = POLICIES.each_ref().map(|policy| {
        [false, true].map(|express| {
            let host = Memory::reusable(policy, lists::effective(listed()));
            host.express.set(express);
            host
        })
    });
}

/// Some who are blocked, and one of them who is let in all the same.
fn listed() -> Lists {
    let block = ListEntry { own_blocked_until_ns: list::FOREVER_NS, ..ListEntry::EMPTY };
    let allow = ListEntry { own_allowed: list::ALLOWED, ..ListEntry::EMPTY };
    [("10.0.0.0/28", block), ("10.0.0.2/32", allow), ("2001:db8:0:1::/64", block)]
        .map(|(prefix, entry)| (prefix.parse().expect("a prefix"), entry))
        .into()
}

/// Every frame ends for exactly one reason, whatever is in it, and in the express lane as it would have ended behind it.
pub(super) fn run(input: &[u8]) {
    let (link, policy, frames) = frames(input);
    HOSTS.with(|hosts| judge(&hosts[policy], link, &frames));
}

fn judge(hosts: &[Memory; 2], link: Link, frames: &[&[u8]]) {
    for host in hosts {
        host.empty();
        host.link.set(link);
        host.now_ns.set(START_NS);
    }
    let [alone, behind] = hosts;
    for (number, frame) in frames.iter().enumerate() {
        assert_eq!(alone.run(frame), behind.run(frame), "frame {number}: {frame:02x?}");
        assert_eq!(alone.counted(), behind.counted(), "frame {number}: {frame:02x?}");
        for host in hosts {
            host.now_ns.set(host.now_ns.get() + APART_NS);
        }
    }
    for host in hosts {
        assert_eq!(host.decided(), frames.len(), "frames that were counted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each frame of an input ended in, and how the counters stand.
    fn outcome(host: &Memory, frames: &[&[u8]]) -> (Vec<u32>, u64, usize) {
        let counted = frames.iter().map(|frame| {
            host.run(frame);
            host.counted()
        });
        (counted.collect(), host.counters().iter().map(|(_, one)| one.packets).sum(), host.sources())
    }

    #[test]
    fn tables_that_were_emptied_judge_as_new_ones_do() {
        let hosts = POLICIES.each_ref().map(|policy| Memory::reusable(policy, lists::effective(listed())));
        for input in super::super::corpus::inputs(super::super::Target::Packets) {
            let (link, policy, frames) = frames(&input);
            let again = &hosts[policy];
            again.express.set(true);
            // Twice as many, so that most limits are spent.
            let frames = frames.repeat(2);
            let new = Memory::new(&POLICIES[policy], lists::effective(listed()));
            new.express.set(true);
            for host in [&new, again] {
                host.link.set(link);
            }
            again.empty();
            let (counted, sum, sources) = outcome(&new, &frames);
            assert_eq!(again.decided(), 0);
            assert_eq!(outcome(again, &frames), (counted, sum, sources));
            assert_eq!(again.decided() as u64, sum);
        }
    }
}
