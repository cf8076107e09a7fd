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

/// Every kind of limit, and none that refills while a test runs.
pub static POLICY: LazyLock<Desired> = LazyLock::new(|| {
    policies::policy(
        r#"
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
"#,
    )
});

/// The link of an input, and its frames: the first byte says which link, and before each frame stands its length in two bytes.
pub fn frames(input: &[u8]) -> (Link, Vec<&[u8]>) {
    let Some((first, mut rest)) = input.split_first() else { return (Link::Ethernet, Vec::new()) };
    let mut frames = Vec::new();
    while let Some((len, behind)) = rest.split_first_chunk::<2>() {
        let (frame, next) = behind.split_at(behind.len().min(u16::from_be_bytes(*len) as usize));
        frames.push(frame);
        rest = next;
    }
    (if first & 1 == 0 { Link::Ethernet } else { Link::Ip }, frames)
}

thread_local! {
    /// The limiter alone, and behind the express lane: made once, because making the tables costs more than an input.
    static HOSTS: [Memory; 2] = [false, true].map(|express| {
        let host = Memory::reusable(&POLICY, lists::effective(listed()));
        host.express.set(express);
        host
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
    HOSTS.with(|hosts| judge(hosts, input));
}

fn judge(hosts: &[Memory; 2], input: &[u8]) {
    let (link, frames) = frames(input);
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
        let again = Memory::reusable(&POLICY, lists::effective(listed()));
        again.express.set(true);
        for input in super::super::corpus::inputs(super::super::Target::Packets) {
            let (link, frames) = frames(&input);
            // Twice as many, so that most limits are spent.
            let frames = frames.repeat(2);
            let new = Memory::new(&POLICY, lists::effective(listed()));
            new.express.set(true);
            for host in [&new, &again] {
                host.link.set(link);
            }
            again.empty();
            let (counted, sum, sources) = outcome(&new, &frames);
            assert_eq!(again.decided(), 0);
            assert_eq!(outcome(&again, &frames), (counted, sum, sources));
            assert_eq!(again.decided() as u64, sum);
        }
    }
}
