//! What `explain` says of an address, held against what the packet path then does, with time as a number and memory for maps.

mod forecast;
mod lists;
mod shared;
mod sources;

use std::{
    convert::Infallible,
    net::{IpAddr, Ipv4Addr},
};

use ratelimit_common::abi::{ListEntry, Reason, Verdict};
use ratelimit_tests::{
    frames::{IPV4, Ipv4, ethernet},
    memory::Memory,
    policies,
    remembered::MemoryTables,
};
use ratelimit_user::{
    compile::{
        self, HostFacts,
        lists::{Lists, with_users},
    },
    config,
    explain::{ExplainContext, Explanation, LimitState, Remembered, explain},
    policy::{Policy, Reserve},
};

/// A host without a kernel.
struct Site {
    memory: Memory,
    policy: Policy,
    desired: compile::Desired,
    lists: Lists,
    reserve: Option<Reserve>,
}

impl Site {
    fn new(text: &str, lists: Lists) -> Self {
        Self::sharing(text, lists, None)
    }

    /// A host that shares the limits of its users with others, and has so much of them without a lease.
    fn sharing(text: &str, lists: Lists, reserve: Option<Reserve>) -> Self {
        let facts = HostFacts { reserve, ..policies::FACTS };
        let desired = compile::desired(&policies::parsed(text), &facts, 1, None);
        let lists = with_users(lists, desired.user_prefixes());
        Self {
            memory: Memory::new(&desired, lists.clone()),
            policy: config::parse(text, "test.toml").unwrap().policy,
            desired,
            lists,
            reserve,
        }
    }

    fn explain(&self, address: impl Into<IpAddr>) -> Explanation {
        self.explain_from(&MemoryTables(&self.memory), address)
    }

    fn explain_from<R: Remembered<Error = Infallible>>(
        &self,
        tables: &R,
        address: impl Into<IpAddr>,
    ) -> Explanation {
        let setting = ExplainContext {
            policy: &self.policy,
            kernel: &self.desired.policy,
            names: &self.desired.names,
            lists: &self.lists,
            reserve: self.reserve,
            now_ns: self.memory.now_ns.get(),
            unix_seconds: 1_700_000_000,
        };
        let Ok(explanation) = explain(tables, &setting, address.into(), None);
        explanation
    }

    fn wait_ms(&self, ms: u64) {
        self.memory.now_ns.set(self.memory.now_ns.get() + ms * 1_000_000);
    }

    /// Why a frame was dropped, if it was.
    fn drop_reason(&self, frame: &[u8]) -> Option<Reason> {
        let before = self.memory.counters();
        if self.memory.run(frame) == Verdict::Pass {
            return None;
        }
        let moved = |(old, new): (&(Reason, _), &(Reason, _))| (old != new).then_some(new.0);
        before.iter().zip(&self.memory.counters()).find_map(moved)
    }
}

/// Waits, and holds a wait that was told against the packet path: a frame is refused one millisecond before the wait is over, and passes when it is.
fn hold_to(site: &Site, wait_ms: u64, frame: &[u8], refused: Reason) {
    site.wait_ms(wait_ms - 1);
    assert_eq!(site.drop_reason(frame), Some(refused), "one millisecond before {wait_ms} ms are over");
    site.wait_ms(1);
    assert_eq!(site.drop_reason(frame), None, "after {wait_ms} ms");
}

fn block(until_ns: u64, reason: &str) -> ListEntry {
    let mut entry = ListEntry { own_blocked_until_ns: until_ns, ..ListEntry::EMPTY };
    entry.reason_len = reason.len() as u32;
    entry.reason[..reason.len()].copy_from_slice(reason.as_bytes());
    entry
}

fn listed(entries: &[(&str, ListEntry)]) -> Lists {
    entries.iter().map(|(prefix, entry)| (prefix.parse().unwrap(), *entry)).collect()
}

fn left(limits: &[LimitState]) -> Vec<(u64, u64)> {
    limits.iter().map(|limit| (limit.left, limit.capacity)).collect()
}

/// 34 bytes: nothing that has a source is smaller.
fn smallest(source: Ipv4Addr) -> Vec<u8> {
    ethernet(IPV4, &Ipv4::from(source).carrying(253, &[]))
}

fn udp_to(source: Ipv4Addr, port: u16) -> Vec<u8> {
    let mut frame = Ipv4::from(source).udp_frame(0);
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame
}
