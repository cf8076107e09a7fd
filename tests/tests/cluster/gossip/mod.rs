//! Blocks for all hosts through a real server: hosts without a daemon, each with a list, a clock of its own and people who must reach it.

mod interleaving;
mod losses;
mod numbers;
mod propagation;

use std::{
    collections::BTreeMap,
    future::Future,
    time::{Duration, Instant},
};

use ratelimit_tests::redis::Redis;
use ratelimit_user::{
    cluster::{
        blocks::{BlockRecord, HostBlock, Layer, ListEdit, ThisHost},
        gossip::{Gossip, GossipUpdate, Saved},
        members::Facts,
    },
    compile::lists::Prefix,
    store::{
        lease_batch::Keys,
        redis::{Call, RedisLink, StoreError},
    },
};

/// Enough for anything that goes well on a busy machine.
const SOON: Duration = Duration::from_secs(5);
const SECOND: u64 = 1_000_000_000;
const DAY_MS: u64 = 24 * 3600 * 1_000;

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

async fn open(url: &str) -> RedisLink {
    RedisLink::open(&url.parse().unwrap(), SOON).await.unwrap()
}

fn keys() -> Keys {
    Keys::new("rl")
}

fn p(text: &str) -> Prefix {
    text.parse().unwrap()
}

/// The address with this number, of many.
fn numbered(n: u32) -> Prefix {
    Prefix::masked(std::net::Ipv4Addr::from_bits((10 << 24) + n).into(), 32)
}

/// What a host has beside its part in the conversation.
struct LocalState {
    list: BTreeMap<Prefix, (HostBlock, Layer)>,
    must_reach: Vec<Prefix>,
}

impl ThisHost for LocalState {
    fn would_cut_off(&self, prefix: &Prefix) -> Option<String> {
        self.must_reach
            .iter()
            .find(|friend| prefix.covers(friend))
            .map(|friend| format!("{friend} is a friend"))
    }

    fn listed(&self, prefix: &Prefix) -> Option<HostBlock> {
        self.list.get(prefix).map(|(held, _)| held.clone())
    }
}

struct Host {
    gossip: Gossip,
    local: LocalState,
    begun: Instant,
    offset_ns: u64,
    log: Vec<String>,
}

impl Host {
    fn new(name: &str) -> Self {
        Self::after(name, 1, &Saved::default(), BTreeMap::new())
    }

    /// A daemon that finds what another has left.
    fn after(
        name: &str,
        incarnation: u64,
        saved: &Saved,
        list: BTreeMap<Prefix, (HostBlock, Layer)>,
    ) -> Self {
        let inherited: Vec<_> = list
            .iter()
            .filter(|(_, (_, layer))| *layer == Layer::Cluster)
            .map(|(prefix, (held, _))| {
                (*prefix, BlockRecord { host_block: held.clone(), origin: name.to_owned() })
            })
            .collect();
        // No two hosts have the same clock.
        let offset_ns = SECOND * (1 + u64::from(name.as_bytes()[0]));
        let gossip = Gossip::new(name, incarnation, saved, inherited, offset_ns).unwrap();
        let local = LocalState { list, must_reach: Vec::new() };
        Self { gossip, local, begun: Instant::now(), offset_ns, log: Vec::new() }
    }

    fn now_ns(&self) -> u64 {
        self.offset_ns + u64::try_from(self.begun.elapsed().as_nanos()).unwrap()
    }

    fn carry_out(&mut self, edits: impl IntoIterator<Item = ListEdit>) {
        for ListEdit { prefix, block } in edits {
            match block {
                Some(block) => self.local.list.insert(prefix, block),
                None => self.local.list.remove(&prefix),
            };
        }
    }

    fn try_add(&mut self, prefix: Prefix, for_s: Option<u64>, reason: &str) -> Result<(), String> {
        let now_ns = self.now_ns();
        let held = HostBlock { until_ns: for_s.map(|s| now_ns + s * SECOND), reason: reason.into() };
        let edit = self.gossip.add(prefix, held, false, &self.local, now_ns)?;
        self.carry_out(edit);
        Ok(())
    }

    fn add(&mut self, prefix: &str, for_s: Option<u64>, reason: &str) {
        self.try_add(p(prefix), for_s, reason).unwrap();
    }

    fn remove(&mut self, prefix: &str) -> Result<(), String> {
        let edit = self.gossip.remove(p(prefix), &self.local, self.now_ns())?;
        self.carry_out(edit);
        Ok(())
    }

    fn call(&mut self) -> Call<'static> {
        let facts = Facts { program: "0.1.0".into(), leases: 3, ..Facts::default() };
        self.gossip.call(&keys(), &facts, true, self.now_ns())
    }

    /// Calls the store once and takes in the answer.
    async fn tick(&mut self, link: &mut RedisLink) -> Result<GossipUpdate, StoreError> {
        let call = self.call();
        self.say(call, link).await
    }

    async fn say(&mut self, call: Call<'_>, link: &mut RedisLink) -> Result<GossipUpdate, StoreError> {
        let answer = link.run(&[call], SOON).await.remove(0)?;
        let heard = self.gossip.hear(&answer, &self.local, self.now_ns()).unwrap();
        self.carry_out(heard.edits.clone());
        self.log.extend(heard.log.clone());
        Ok(heard)
    }

    /// Calls until there is nothing more. How many it took.
    async fn talk(&mut self, link: &mut RedisLink) -> u32 {
        for calls in 1.. {
            if !self.tick(link).await.unwrap().again {
                return calls;
            }
        }
        unreachable!("it ends")
    }

    /// The list: prefix, reason, whose it is.
    fn list(&self) -> Vec<(String, &str, Layer)> {
        let list = self.local.list.iter();
        list.map(|(prefix, (held, layer))| (prefix.to_string(), held.reason.as_str(), *layer)).collect()
    }

    fn prefixes(&self) -> Vec<String> {
        self.local.list.keys().map(ToString::to_string).collect()
    }

    fn seconds_left(&self, prefix: &str) -> Option<u64> {
        let until_ns = self.local.list[&p(prefix)].0.until_ns?;
        Some(until_ns.saturating_sub(self.now_ns()).div_ceil(SECOND))
    }
}

fn key(part: &str) -> String {
    format!("rl:gossip:{{gossip}}:{part}")
}

fn size(server: &Redis, command: &str, part: &str) -> i64 {
    match server.ask(&[command, &key(part)]) {
        redis::Value::Int(size) => size,
        other => panic!("{command}: {other:?}"),
    }
}

/// As if so much time had passed since everything that the store knows of blocks.
fn age(server: &Redis, ms: u64) {
    let script = "for _, p in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
          local record = cmsgpack.unpack(redis.call('HGET', KEYS[1], p))
          record[2] = record[2] - ARGV[1]
          redis.call('HSET', KEYS[1], p, cmsgpack.pack(record))
          redis.call('ZINCRBY', KEYS[2], -ARGV[1], p)
        end";
    server.ask(&["EVAL", script, "2", &key("blocks"), &key("ends"), &ms.to_string()]);
}
