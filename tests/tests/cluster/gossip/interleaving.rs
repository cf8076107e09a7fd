//! Whatever is lost, repeated or late: in the end all hosts have the same blocks, and those are what the store has.

use std::collections::{BTreeMap, HashMap, HashSet};

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use ratelimit_tests::redis::{Options, Redis};
use ratelimit_user::{cluster::blocks::Layer, store::redis::Call};

use super::{Host, SOON, block_on, numbered, open};

const HOSTS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    Add(usize, u32, Option<u64>),
    Remove(usize, u32),
    /// A host calls the store and hears its answer.
    Tick(usize),
    /// A call that runs, and whose answer nobody hears.
    LostReply(usize),
    /// A call that is on its way for a while.
    Sent(usize),
    /// A call that was under way arrives; once more, if it has arrived before.
    Arrives(usize),
    /// The daemon of a host starts again.
    Restart(usize),
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    let host = || 0..HOSTS;
    prop_oneof![
        4 => (host(), 0..4_u32, prop_oneof![Just(None), Just(Some(600)), Just(Some(60))])
            .prop_map(|(host, prefix, for_s)| Step::Add(host, prefix, for_s)),
        3 => (host(), 0..4_u32).prop_map(|(host, prefix)| Step::Remove(host, prefix)),
        6 => host().prop_map(Step::Tick),
        2 => host().prop_map(Step::LostReply),
        2 => host().prop_map(Step::Sent),
        3 => (0..8_usize).prop_map(Step::Arrives),
        1 => host().prop_map(Step::Restart),
    ]
}

/// The blocks that must hold if an edit counts once, when it first arrives, computed without anything that the store is told for that.
#[derive(Default)]
struct ExpectedBlocks {
    arrived: HashSet<(String, u64, u64)>,
    newest: HashMap<String, u64>,
    blocks: BTreeMap<String, Option<String>>,
}

impl ExpectedBlocks {
    fn runs(&mut self, call: &Call<'_>) {
        let args: Vec<String> = call.args.iter().map(|arg| String::from_utf8(arg.clone()).unwrap()).collect();
        let (head, edits) = args.split_at(10);
        let (host, incarnation) = (head[0].clone(), head[1].parse::<u64>().unwrap());
        let newest = self.newest.entry(host.clone()).or_default();
        *newest = incarnation.max(*newest);
        if incarnation < *newest {
            return;
        }
        for edit in edits.chunks_exact(7) {
            if self.arrived.insert((host.clone(), incarnation, edit[0].parse().unwrap())) {
                self.blocks.insert(edit[3].clone(), (edit[1] == "add").then(|| edit[5].clone()));
            }
        }
    }

    fn list(&self) -> Vec<(String, &str, Layer)> {
        let blocks = self.blocks.iter();
        let holds = blocks.filter_map(|(prefix, reason)| Some((prefix.clone(), reason.as_deref()?)));
        holds.map(|(prefix, reason)| (prefix, reason, Layer::Cluster)).collect()
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    (proptest::collection::vec(step(), 1..40), any::<bool>(), any::<prop::sample::Index>()).prop_map(
        |(mut steps, is_emptied, at)| {
            if is_emptied {
                steps.insert(at.index(steps.len()), Step::Flush);
            }
            steps
        },
    )
}

fn run(server: &Redis, steps: &[Step]) {
    server.ask(&["FLUSHALL"]);
    block_on(async {
        let mut link = open(&server.url()).await;
        let mut hosts = ["a", "b", "c"].map(Host::new);
        let mut under_way: Vec<Call<'static>> = Vec::new();
        let mut expected = ExpectedBlocks::default();
        for (number, step) in (2..).zip(steps) {
            match *step {
                Step::Add(host, prefix, for_s) => {
                    hosts[host].try_add(numbered(prefix), for_s, &format!("step {number}")).unwrap();
                }
                Step::Remove(host, prefix) => {
                    let _not_there = hosts[host].remove(&numbered(prefix).to_string());
                }
                Step::Tick(host) => {
                    let call = hosts[host].call();
                    expected.runs(&call);
                    drop(hosts[host].say(call, &mut link).await.unwrap());
                }
                Step::LostReply(host) => {
                    let call = hosts[host].call();
                    expected.runs(&call);
                    link.run(&[call], SOON).await.remove(0).unwrap();
                }
                Step::Sent(host) => under_way.push(hosts[host].call()),
                Step::Arrives(which) => {
                    if let Some(call) = under_way.get(which) {
                        expected.runs(call);
                        link.run(std::slice::from_ref(call), SOON).await.remove(0).unwrap();
                    }
                }
                Step::Restart(host) => {
                    let name = ["a", "b", "c"][host];
                    let old = &hosts[host];
                    let (saved, list, offset_ns) = (old.gossip.saved(), old.local.list.clone(), old.now_ns());
                    hosts[host] = Host::after(name, number, &saved, list);
                    hosts[host].offset_ns = offset_ns;
                }
                Step::Flush => drop(server.ask(&["FLUSHALL"])),
            }
        }
        // Half a minute later everybody has given back what a store has lost.
        for round in 0..4 {
            for host in &mut hosts {
                loop {
                    let call = host.call();
                    expected.runs(&call);
                    if !host.say(call, &mut link).await.unwrap().again {
                        break;
                    }
                }
                host.offset_ns += if round == 1 { 31 * super::SECOND } else { 0 };
            }
        }
        let mut new = Host::new("new");
        new.talk(&mut link).await;
        if !steps.iter().any(|step| matches!(step, Step::Flush)) {
            assert_eq!(new.list(), expected.list());
        }
        for host in &hosts {
            assert_eq!(host.list(), new.list(), "as a host that only knows what the store says");
            assert_eq!(host.gossip.waiting(), 0);
            for prefix in host.prefixes() {
                let left = [host, &new].map(|host| host.seconds_left(&prefix));
                let apart =
                    left[0].zip(left[1]).map_or(u64::from(left[0] != left[1]) * 99, |(a, b)| a.abs_diff(b));
                assert!(apart <= 33, "{prefix}: {left:?}");
            }
        }
    });
}

#[test]
fn any_interleaving_with_lost_repeated_and_late_calls_ends_the_same_on_all_hosts() {
    let server = Redis::single(Options::default());
    let mut runner = TestRunner::new(Config { cases: 300, failure_persistence: None, ..Config::default() });
    runner
        .run(&steps(), |steps| {
            run(&server, &steps);
            Ok(())
        })
        .unwrap();
}
