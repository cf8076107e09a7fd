//! How many packets got through: the IP stack's own counters in a contestant's namespace.

use std::{
    fs::File,
    io::{Read as _, Seek as _},
};

use anyhow::{Context, Result};

use crate::{contestant::Contestant, lane::Lane, place, traffic::Family};

/// A counter file stays that of the namespace it was opened in, so it can be read from anywhere.
pub(crate) struct Counter {
    file: File,
    family: Family,
}

impl Counter {
    /// `None` where the stack counts before the contestant drops and has no counter behind it.
    pub(crate) fn open(lane: &Lane, contestant: &Contestant, family: Family) -> Result<Option<Self>> {
        if contestant.drops_in_the_stack() {
            return Ok(None);
        }
        let path = match family {
            Family::V4 => "/proc/thread-self/net/snmp",
            Family::V6 => "/proc/thread-self/net/snmp6",
        };
        let open = || File::open(path).with_context(|| format!("cannot open {path}"));
        Ok(Some(Self { file: place::inside(lane.namespace(), open)?, family }))
    }

    /// Packets that have reached the IP stack.
    pub(crate) fn read(&mut self) -> Result<u64> {
        let mut text = String::new();
        self.file.rewind()?;
        self.file.read_to_string(&mut text)?;
        let count = match self.family {
            Family::V4 => received_v4(&text),
            Family::V6 => received_v6(&text),
        };
        count.context("the stack's counters have no InReceives")
    }
}

/// Two lines a protocol: names, then numbers.
fn received_v4(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let at = lines.next()?.split(' ').position(|name| name == "InReceives")?;
    lines.next()?.split(' ').nth(at)?.parse().ok()
}

fn received_v6(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Ip6InReceives"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_packets_are_found_by_name() {
        let v4 = "Ip: Forwarding DefaultTTL InReceives InHdrErrors\nIp: 2 64 1234 5\nIcmp: InMsgs\nIcmp: 9\n";
        assert_eq!(received_v4(v4), Some(1_234));
        assert_eq!(received_v6("Ip6InReceives                   \t77\nIp6InHdrErrors \t0\n"), Some(77));
        assert_eq!(received_v4("Icmp: InMsgs\n"), None);
    }
}
