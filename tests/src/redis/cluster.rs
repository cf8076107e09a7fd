//! A Redis Cluster of six nodes: three masters, each with a replica.

use redis::Value;

use super::{Options, Redis, free_port, wait_for};

const SLOTS: usize = 16384;
const MASTERS: usize = 3;

/// The nodes; 0 to 2 begin as masters, 3 to 5 as their replicas.
#[derive(Debug)]
pub struct RedisCluster {
    /// Some may be dead.
    pub nodes: Vec<Redis>,
    dead: Vec<usize>,
}

impl RedisCluster {
    /// Starts it and returns when every node says that all is well.
    pub fn new() -> Self {
        let nodes: Vec<Redis> = (0..2 * MASTERS).map(|_| node()).collect();
        for (number, master) in nodes[..MASTERS].iter().enumerate() {
            let (first, last) = (number * SLOTS / MASTERS, (number + 1) * SLOTS / MASTERS - 1);
            master.ask(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
            master.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
        }
        for node in &nodes[1..] {
            let (port, bus) = (nodes[0].port().to_string(), bus_port(&nodes[0]).to_string());
            node.ask(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        let cluster = Self { nodes, dead: Vec::new() };
        for number in MASTERS..2 * MASTERS {
            let id = cluster.id(number - MASTERS);
            wait_for("a node that knows its master", || {
                cluster.nodes[number].try_ask(&["CLUSTER", "REPLICATE", &id]).ok()
            });
        }
        cluster.wait_until_well();
        cluster
    }

    /// `redis+cluster://…`, with all nodes.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.nodes.iter().map(Redis::at).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// The node that says itself that it serves a slot; none if nobody does. What nodes say of each other is older.
    pub fn master_of(&self, slot: u16) -> Option<usize> {
        self.living().find(|node| self.names(*node, slot, *node))
    }

    /// A slot begins to move: keys that are not there yet are asked for at the new place.
    pub fn begin_migration(&self, slot: u16, to: usize) {
        let from = self.master_of(slot).expect("a slot that is served");
        let slot = slot.to_string();
        self.nodes[to].ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.id(from)]);
        self.nodes[from].ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.id(to)]);
    }

    /// Moves keys of a slot that is being migrated.
    pub fn move_keys(&self, from: usize, to: usize, keys: &[String]) {
        let port = self.nodes[to].port().to_string();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        words.extend(keys.iter().map(String::as_str));
        self.nodes[from].ask(&words);
    }

    /// Moves the keys of a slot that is being migrated, then the slot itself.
    pub fn finish_migration(&self, slot: u16, to: usize) {
        let from = self.master_of(slot).expect("a slot that is served");
        let number = slot.to_string();
        loop {
            let Value::Array(keys) = self.nodes[from].ask(&["CLUSTER", "GETKEYSINSLOT", &number, "100"])
            else {
                break;
            };
            if keys.is_empty() {
                break;
            }
            let keys: Vec<String> = keys
                .iter()
                .map(|key| match key {
                    Value::BulkString(key) => String::from_utf8(key.clone()).expect("a key that is text"),
                    other => panic!("not a key: {other:?}"),
                })
                .collect();
            self.move_keys(from, to, &keys);
        }
        let id = self.id(to);
        // The new owner first: else nobody would have it for a moment.
        for node in [to, from] {
            self.nodes[node].ask(&["CLUSTER", "SETSLOT", &number, "NODE", &id]);
        }
        self.wait_for_agreement(slot, to);
    }

    /// A slot that moves on before all have heard of its last move can get lost: who has heard of fewer moves gives way.
    fn wait_for_agreement(&self, slot: u16, owner: usize) {
        let epoch = |node: usize| self.cluster_info(node, "cluster_current_epoch");
        wait_for("nodes that agree about a slot", || {
            let agrees = |node| epoch(node) == epoch(owner) && self.names(node, slot, owner);
            self.living().all(agrees).then_some(())
        });
    }

    /// Whether a node holds another, or itself, for the owner of a slot.
    fn names(&self, node: usize, slot: u16, owner: usize) -> bool {
        let Value::Array(ranges) = self.nodes[node].ask(&["CLUSTER", "SLOTS"]) else { return false };
        ranges.iter().any(|range| has(range, slot, self.nodes[owner].port()).unwrap_or(false))
    }

    fn cluster_info(&self, node: usize, field: &str) -> String {
        let Value::BulkString(info) = self.nodes[node].ask(&["CLUSTER", "INFO"]) else {
            return String::new();
        };
        let info = String::from_utf8_lossy(&info).into_owned();
        let mut fields = info.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(name, _)| *name == field).map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    }

    /// Moves a slot with its keys.
    pub fn migrate_slot(&self, slot: u16, to: usize) {
        self.begin_migration(slot, to);
        self.finish_migration(slot, to);
    }

    /// Kills the node that serves a slot. Its number.
    pub fn kill_master_of(&mut self, slot: u16) -> usize {
        let master = self.master_of(slot).expect("a slot that is served");
        self.kill(master);
        master
    }

    /// Kills a node with SIGKILL.
    pub fn kill(&mut self, node: usize) {
        self.nodes[node].kill();
        self.dead.push(node);
    }

    /// Returns when another node than `old` serves the slot, and everybody who is alive says that the cluster is well. Its number.
    pub fn wait_for_new_master(&self, slot: u16, old: usize) -> usize {
        let new =
            wait_for("another master of a slot", || self.master_of(slot).filter(|master| *master != old));
        self.wait_until_well();
        new
    }

    fn wait_until_well(&self) {
        for number in self.living() {
            let node = &self.nodes[number];
            wait_for("a cluster that is well", || {
                let is_ok = self.cluster_info(number, "cluster_state") == "ok";
                let knows_all =
                    self.cluster_info(number, "cluster_known_nodes") == self.nodes.len().to_string();
                let is_linked = node.info("role") == "master" || node.info("master_link_status") == "up";
                (is_ok && knows_all && is_linked).then_some(())
            });
        }
    }

    fn living(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(|node| !self.dead.contains(node))
    }

    fn id(&self, node: usize) -> String {
        let Value::BulkString(id) = self.nodes[node].ask(&["CLUSTER", "MYID"]) else {
            panic!("a node without a name")
        };
        String::from_utf8(id).expect("hexadecimal digits")
    }
}

impl Default for RedisCluster {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether a range of CLUSTER SLOTS has this slot and this master.
fn has(range: &Value, slot: u16, port: u16) -> Option<bool> {
    let Value::Array(range) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = range.as_slice() else {
        return None;
    };
    let Value::Int(found) = master.get(1)? else { return None };
    Some((*first..=*last).contains(&i64::from(slot)) && *found == i64::from(port))
}

fn node() -> Redis {
    let bus = free_port();
    Redis::single(Options::with([
        "cluster-enabled yes",
        "cluster-node-timeout 600",
        "cluster-replica-validity-factor 0",
        "repl-diskless-sync-delay 0",
        &format!("cluster-port {bus}"),
    ]))
}

fn bus_port(node: &Redis) -> u16 {
    let Value::Array(pair) = node.ask(&["CONFIG", "GET", "cluster-port"]) else { panic!("no bus port") };
    let Some(Value::BulkString(port)) = pair.get(1) else { panic!("no bus port") };
    String::from_utf8_lossy(port).parse().expect("a port")
}
