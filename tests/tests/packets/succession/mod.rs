//! One policy after the other while a source sends as much as it can: a change may refuse more for a moment, and never admits more.

mod raised;
mod sources;
mod totals;
mod users;
mod windows;

use std::net::Ipv4Addr;

use ratelimit_common::{
    abi::{Bucket, TotalState, Verdict, service::MAX_TOTALS},
    limit::gcra::time_q8,
};
use ratelimit_ebpf::rows::{Row, Rows as _};
use ratelimit_tests::{frames::Ipv4, memory::Memory, policies};
use ratelimit_user::compile::{self, Before, Desired, HostFacts};

const SECOND: u64 = 1_000_000_000;

/// A host whose policy changes.
struct Host {
    memory: Memory,
    desired: Desired,
    start: u64,
    admitted: u64,
}

impl Host {
    fn new(text: &str) -> Self {
        let desired = policies::policy(text);
        let memory = Memory::new(&desired, Default::default());
        let start = memory.now_ns.get();
        Self { memory, desired, start, admitted: 0 }
    }

    fn change(&mut self, text: &str) {
        self.change_with(text, &policies::FACTS);
    }

    fn change_with(&mut self, text: &str, facts: &HostFacts) {
        let now_q8 = time_q8(self.memory.now_ns.get());
        let before = Before::known(&self.desired.policy, &self.desired, now_q8);
        let generation = self.desired.policy.generation + 1;
        let mut next = compile::desired(&policies::parsed(text), facts, generation, Some(before));
        next.carry_debts(|user| self.desired.user_set(user).copied(), |user| Some(self.bucket(user)), now_q8);
        for total in &next.changed_totals {
            let before = &self.desired.policy;
            self.change_total(*total, |state| {
                next.carried_total(before, *total, state, [0; MAX_TOTALS], now_q8)
            });
            let share = self.memory.find(Row::Share(*total)).unwrap();
            // What CPUs hold is taken away, as the daemon does.
            (0..8).for_each(|place| self.memory.write(Memory::along(share, place), 0));
        }
        let before = std::mem::replace(&mut self.desired, next);
        self.memory.enforce(&self.desired);
        for total in &self.desired.changed_totals {
            let settled =
                |state| compile::settled_total(&before.policy, &self.desired.policy, *total, state, now_q8);
            self.change_total(*total, settled);
        }
    }

    fn change_total(&self, total: u32, changed: impl FnOnce(TotalState) -> TotalState) {
        let words = self.memory.find(Row::Total(total)).unwrap();
        let word = |place| self.memory.read(Memory::along(words, place));
        let reserve = |place| word(MAX_TOTALS + place);
        let next = changed(TotalState {
            tat_q8: std::array::from_fn(word),
            reserve_tat_q8: std::array::from_fn(reserve),
            ..TotalState::FULL
        });
        for (place, word_q8) in next.tat_q8.into_iter().enumerate() {
            self.memory.write(Memory::along(words, place), word_q8);
        }
    }

    /// The words of a user.
    fn bucket(&self, user: u32) -> Bucket {
        let first = self.memory.find(Row::User(user)).unwrap();
        let word = |place| self.memory.read(Memory::along(first, place));
        Bucket { tat_q8: std::array::from_fn(word), ..Bucket::FULL }
    }

    fn wait_ms(&self, ms: u64) {
        self.memory.now_ns.set(self.memory.now_ns.get() + ms * 1_000_000);
    }

    /// Sends so many at once from one address, and says how many passed.
    fn flood(&mut self, packets: u64) -> u64 {
        let frame = Ipv4::from(Ipv4Addr::new(192, 0, 2, 7)).udp_frame(8);
        let passed = (0..packets).filter(|_| self.memory.run(&frame) == Verdict::Pass).count() as u64;
        self.admitted += passed;
        passed
    }

    /// The most that a limit admits since the start.
    fn bound(&self, burst: u64, per_sec: u64) -> u64 {
        burst + per_sec * (self.memory.now_ns.get() - self.start) / SECOND
    }
}

/// A policy with these lines in `[source]`, without prefix aggregation.
fn source(lines: &str) -> String {
    format!("[source]\nladder = false\n{lines}\n")
}
