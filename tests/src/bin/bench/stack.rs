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
    name: &'static str,
}

impl Counter {
    /// `None` where the stack counts before the contestant drops and has no counter behind it.
    pub(crate) fn open(lane: &Lane, contestant: &Contestant, family: Family) -> Result<Option<Self>> {
        let (path, name) = match (family, contestant.drops_in_the_stack()) {
            (Family::V4, false) => ("/proc/thread-self/net/snmp", "InReceives"),
            // Counted by routing, for which there is no such address on this host.
            (Family::V4, true) => ("/proc/thread-self/net/snmp", "InAddrErrors"),
            (Family::V6, false) => ("/proc/thread-self/net/snmp6", "Ip6InReceives"),
            (Family::V6, true) => return Ok(None),
        };
        let open = || File::open(path).with_context(|| format!("cannot open {path}"));
        Ok(Some(Self { file: place::inside(lane.namespace(), open)?, name }))
    }

    /// Packets that have got through to the IP stack.
    pub(crate) fn read(&mut self) -> Result<u64> {
        let mut text = String::new();
        self.file.rewind()?;
        self.file.read_to_string(&mut text)?;
        find(&text, self.name).with_context(|| format!("the stack's counters have no {}", self.name))
    }
}

/// For IPv4 two lines, names and numbers; for IPv6 one line for each.
fn find(text: &str, name: &str) -> Option<u64> {
    let mut v4 = text.lines().filter_map(|line| line.strip_prefix("Ip: "));
    if let (Some(names), Some(numbers)) = (v4.next(), v4.next()) {
        let at = names.split(' ').position(|found| found == name)?;
        return numbers.split(' ').nth(at)?.parse().ok();
    }
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_packets_are_found_by_name() {
        let v4 = "Ip: Forwarding DefaultTTL InReceives InHdrErrors\nIp: 2 64 1234 5\nIcmp: InMsgs\nIcmp: 9\n";
        assert_eq!(find(v4, "InReceives"), Some(1_234));
        assert_eq!(
            find("Ip6InReceives                   \t77\nIp6InHdrErrors \t0\n", "Ip6InReceives"),
            Some(77)
        );
        assert_eq!(find("Icmp: InMsgs\n", "InReceives"), None);
    }
}
