//! The maps as hash maps and the clock as a number: the packet path without a kernel.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
};

use ratelimit_common::abi::{Bucket, Counter, ListEntry, MAX_LIMITS, Policy, Reason, SourceKey, Verdict};
use ratelimit_ebpf::{
    frame::Frame,
    packet::Address,
    pipeline,
    tables::{InsertError, Tables},
};
use ratelimit_user::compile::lists::{Lists, Prefix};

type Words = [Cell<u64>; MAX_LIMITS];

/// Tables in memory.
#[derive(Debug)]
pub struct Memory {
    /// The clock.
    pub now_ns: Cell<u64>,
    policy: Policy,
    lists: Lists,
    buckets: RefCell<HashMap<[u8; 16], Rc<Words>>>,
    counters: RefCell<Vec<Counter>>,
}

impl Memory {
    /// Empty tables under a policy.
    pub fn new(policy: Policy, lists: Lists) -> Self {
        Self {
            now_ns: Cell::new(1_000_000_000),
            policy,
            lists,
            buckets: RefCell::default(),
            counters: RefCell::new(vec![Counter { packets: 0, bytes: 0 }; Reason::ALL.len()]),
        }
    }

    /// Runs one frame through the packet path.
    pub fn run(&self, frame: &[u8]) -> Verdict {
        pipeline::process(&Frame::new(frame), &View { memory: self, handles: RefCell::default() })
    }

    /// All counters.
    pub fn counters(&self) -> Vec<(Reason, Counter)> {
        Reason::ALL.iter().copied().zip(self.counters.borrow().iter().copied()).collect()
    }
}

/// One run: bucket handles are indices into what this run has looked up.
struct View<'m> {
    memory: &'m Memory,
    handles: RefCell<Vec<Rc<Words>>>,
}

impl Tables for View<'_> {
    type Bucket = usize;

    fn now_ns(&self) -> u64 {
        self.memory.now_ns.get()
    }

    fn policy(&self) -> Option<&Policy> {
        Some(&self.memory.policy)
    }

    fn listed(&self, address: Address) -> Option<&ListEntry> {
        let prefix = |len: u8| match address {
            Address::V4(a) => Prefix::masked(std::net::Ipv4Addr::from(a.to_ne_bytes()).into(), len),
            Address::V6(hi, lo) => {
                Prefix::masked(std::net::Ipv6Addr::from(SourceKey { hi, lo }.octets()).into(), len)
            }
        };
        let longest = if matches!(address, Address::V4(_)) { 32 } else { 128 };
        (0..=longest).rev().find_map(|len| self.memory.lists.get(&prefix(len)))
    }

    fn bucket(&self, key: &SourceKey) -> Option<usize> {
        let words = self.memory.buckets.borrow().get(&key.octets()).cloned()?;
        let mut handles = self.handles.borrow_mut();
        handles.push(words);
        Some(handles.len() - 1)
    }

    fn insert(&self, key: &SourceKey, bucket: &Bucket) -> Result<(), InsertError> {
        let mut buckets = self.memory.buckets.borrow_mut();
        if buckets.contains_key(&key.octets()) {
            return Err(InsertError::Exists);
        }
        buckets.insert(key.octets(), Rc::new(bucket.tat_q8.map(Cell::new)));
        Ok(())
    }

    fn load(&self, bucket: usize, index: usize) -> u64 {
        self.handles.borrow()[bucket][index].get()
    }

    fn compare_exchange(&self, bucket: usize, index: usize, seen: u64, new: u64) -> bool {
        let handles = self.handles.borrow();
        let word = &handles[bucket][index];
        let same = word.get() == seen;
        if same {
            word.set(new);
        }
        same
    }

    fn count(&self, reason: Reason, len: u64) {
        let counter = &mut self.memory.counters.borrow_mut()[reason as usize];
        counter.packets += 1;
        counter.bytes += len;
    }
}
