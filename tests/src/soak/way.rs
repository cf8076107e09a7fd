//! What the kernel says that it lost of what is sent to a host and back, before the program and behind it. Whoever looks for what the limiter refused
//! has to know it: on a busy machine a queue is full now and then, whatever the limiter does.
//!
//! ```text
//! sender -> queue of the veth (256 frames) -> program -> socket buffer -> receiver
//!           full: `refused`, exactly           judges    full: `buffers`
//! ```
//!
//! The sender of a datagram is told that the queue was full (see `sender::open`), so such a datagram was not sent. A program that runs in native
//! mode on a veth hands packets to the stack in the same turn: no backlog of a CPU is between the two.

use std::{collections::BTreeMap, fmt, fs, time::Duration};

use crate::netns::Wire;

/// The kernel counts the time that CPUs were taken in hundredths of a second.
const TICK: Duration = Duration::from_millis(10);

/// Counters of a moment, or what they went up by between two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Way {
    /// Frames that did not fit into the queue to the host (drops of the other end of the interface).
    pub(super) queue: u64,
    /// Frames of the host that did not fit into the queue back, answers of the program included.
    pub(super) queue_back: u64,
    /// Frames that the interface threw away in front of the program, for want of memory.
    pub(super) no_memory: u64,
    /// Datagrams that did not fit into the buffer of a socket, over IPv4 and IPv6.
    pub(super) buffers: [u64; 2],
    /// Connections that did not fit into the queue of a listener.
    pub(super) listeners: u64,
    /// TCP segments that either side had to send again.
    pub(super) again: u64,
    /// Packets that a CPU of this machine had no room for, of anybody.
    pub(super) backlog: u64,
    /// How long the CPUs of this machine were taken by other machines.
    pub(super) stolen: Duration,
}

impl Way {
    /// Reads everything. Interfaces that are not there count nothing.
    pub(super) fn read(wire: &Wire) -> Self {
        let edge = wire.as_edge(Namespace::read);
        let net = wire.as_net(Namespace::read);
        let softnet = fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        Self {
            queue: net.sent_drops,
            queue_back: edge.sent_drops,
            no_memory: edge.received_drops,
            buffers: [edge.counter("Udp", "RcvbufErrors"), edge.counter("Udp6", "RcvbufErrors")],
            listeners: edge.counter("TcpExt", "ListenOverflows"),
            again: net.counter("Tcp", "RetransSegs") + edge.counter("Tcp", "RetransSegs"),
            backlog: softnet.lines().filter_map(|cpu| hex(cpu.split_whitespace().nth(1)?)).sum(),
            stolen: TICK * stolen(&stat),
        }
    }

    /// What has been counted since. Counters of an interface that was made anew begin at nothing.
    pub(super) fn since(&self, before: &Self) -> Self {
        let more = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        Self {
            queue: more(self.queue, before.queue),
            queue_back: more(self.queue_back, before.queue_back),
            no_memory: more(self.no_memory, before.no_memory),
            buffers: [0, 1].map(|family| more(self.buffers[family], before.buffers[family])),
            listeners: more(self.listeners, before.listeners),
            again: more(self.again, before.again),
            backlog: more(self.backlog, before.backlog),
            stolen: self.stolen.saturating_sub(before.stolen),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queue, queue_back, no_memory, buffers: [four, six], listeners, again, backlog, stolen } =
            self;
        write!(
            f,
            "the kernel lost {queue} frames in the queue to the host and {queue_back} in that back, {no_memory} for want of memory, {four} and {six} \
             datagrams in socket buffers, {listeners} connections at listeners, {backlog} packets in backlogs; {again} TCP segments were sent again; \
             other machines had the CPUs for {stolen:.1?}"
        )
    }
}

/// The counters of the network namespace that this thread is in.
#[derive(Debug, Default)]
struct Namespace {
    received_drops: u64,
    sent_drops: u64,
    /// By protocol and name.
    counters: BTreeMap<(String, String), u64>,
}

impl Namespace {
    fn read() -> Self {
        let text =
            |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
        let mut all = Self::default();
        for (received, sent) in text("dev").lines().filter_map(drops) {
            all.received_drops += received;
            all.sent_drops += sent;
        }
        for table in ["snmp", "netstat"] {
            all.counters.extend(counters(&text(table)));
        }
        for line in text("snmp6").lines() {
            let mut words = line.split_whitespace();
            let (Some(name), Some(value)) = (words.next(), words.next()) else { continue };
            let Some(name) = name.strip_prefix("Udp6") else { continue };
            all.counters.insert(("Udp6".to_owned(), name.to_owned()), value.parse().unwrap_or(0));
        }
        all
    }

    fn counter(&self, protocol: &str, name: &str) -> u64 {
        self.counters.get(&(protocol.to_owned(), name.to_owned())).copied().unwrap_or(0)
    }
}

/// What an interface has dropped of what it received and of what it was to send, from a line of /proc/net/dev.
fn drops(line: &str) -> Option<(u64, u64)> {
    let (_, numbers) = line.split_once(':')?;
    let numbers: Vec<u64> = numbers.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    Some((*numbers.get(3)?, *numbers.get(11)?))
}

/// The pairs of lines of /proc/net/snmp and /proc/net/netstat: names, and below them the numbers.
fn counters(table: &str) -> BTreeMap<(String, String), u64> {
    let lines: Vec<&str> = table.lines().collect();
    let mut all = BTreeMap::new();
    for pair in lines.chunks_exact(2) {
        let (Some((protocol, names)), Some((_, numbers))) =
            (pair[0].split_once(':'), pair[1].split_once(':'))
        else {
            continue;
        };
        for (name, number) in names.split_whitespace().zip(numbers.split_whitespace()) {
            // Some are negative.
            all.insert((protocol.to_owned(), name.to_owned()), number.parse().unwrap_or(0));
        }
    }
    all
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// The eighth number of the line of all CPUs.
fn stolen(stat: &str) -> u32 {
    let cpus = stat.lines().next().unwrap_or_default();
    cpus.split_whitespace().nth(8).and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_protocol_and_name_and_an_interface_made_anew_begins_at_nothing() {
        let table = "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors\nUdp: 5 0 3 9 3\n\
                     Tcp: MaxConn RetransSegs\nTcp: -1 7\n";
        let counters = counters(table);
        let counter = |protocol: &str, name: &str| counters[&(protocol.to_owned(), name.to_owned())];
        assert_eq!((counter("Udp", "RcvbufErrors"), counter("Tcp", "RetransSegs")), (3, 7));
        assert_eq!(drops(" edge0: 10 2 0 4 0 0 0 0 20 3 0 6 0 0 0 0"), Some((4, 6)));
        assert_eq!(drops("Inter-|   Receive"), None);
        assert_eq!(stolen("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1\n"), 8);
        let (before, now) =
            (Way { queue: 9, again: 4, ..Way::default() }, Way { queue: 2, again: 6, ..Way::default() });
        assert_eq!(now.since(&before), Way { queue: 2, again: 2, ..Way::default() });
    }
}
