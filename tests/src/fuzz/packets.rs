//! Frames, as a network may deliver them, for the packet path on tables in memory.

use std::sync::LazyLock;

use ratelimit_ebpf::frame::Link;
use ratelimit_user::compile::Desired;

use crate::{memory::Memory, policies};

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

/// Every frame ends for exactly one reason, whatever is in it.
pub(super) fn run(input: &[u8]) {
    let (link, frames) = frames(input);
    let host = Memory::new(&POLICY, Default::default());
    host.link.set(link);
    for frame in &frames {
        host.run(frame);
    }
    let counted: u64 = host.counters().iter().map(|(_, counter)| counter.packets).sum();
    assert_eq!(counted, frames.len() as u64, "frames that were counted");
}
