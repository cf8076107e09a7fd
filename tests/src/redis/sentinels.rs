//! A master, a replica and three Sentinels that watch them.

use redis::Value;

use super::{Options, Redis, free_port, wait_for};

/// The name that the Sentinels have for the master.
pub const MASTER_NAME: &str = "limits";

/// After how many milliseconds without an answer Sentinels give up a master: with those that are calm, after none of a test, however long the machine stands still.
const CALM_MS: &str = "3600000";
const WATCHFUL_MS: &str = "500";

/// All five servers.
#[derive(Debug)]
pub struct Sentinels {
    /// Which of the servers is master changes.
    pub servers: [Redis; 2],
    /// The three Sentinels.
    pub sentinels: Vec<Redis>,
}

impl Sentinels {
    /// Starts them; returns when the replica follows and the Sentinels know of each other. The Sentinels are calm: nobody is master in the place of another before the
    /// test says so, although the machine stood still.
    pub fn new() -> Self {
        Self::with(&Options::default())
    }

    /// Starts all five with options of the two that hold data.
    pub fn with(options: &Options) -> Self {
        let mut options = options.clone();
        options.settings.push("repl-diskless-sync-delay 0".into());
        let master = Redis::single(options.clone());
        options.settings.push(format!("replicaof 127.0.0.1 {}", master.port()));
        let replica = Redis::single(options);
        wait_for("a replica that follows", || (replica.info("master_link_status") == "up").then_some(()));
        let ports: Vec<u16> = (0..3).map(|_| free_port()).collect();
        let sentinels: Vec<Redis> =
            (0..3).map(|own| sentinel(own, &ports, master.port(), replica.port())).collect();
        for sentinel in &sentinels {
            wait_for("Sentinels that see everybody", || {
                let seen = field(&sentinel.ask(&["SENTINEL", "MASTER", MASTER_NAME]), "flags")?;
                let replicas = sentinel.ask(&["SENTINEL", "REPLICAS", MASTER_NAME]);
                let Value::Array(replicas) = replicas else { return None };
                let follows = replicas
                    .first()
                    .is_some_and(|one| field(one, "master-link-status").as_deref() == Some("ok"));
                (seen == "master" && follows).then_some(())
            });
        }
        Self { servers: [master, replica], sentinels }
    }

    /// The URL of the master as a policy has it: `redis+sentinel://…/NAME`.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.sentinels.iter().map(Redis::at).collect();
        format!("redis+sentinel://{}/{MASTER_NAME}", hosts.join(","))
    }

    /// The server that most Sentinels hold for the master.
    pub fn master(&self) -> usize {
        let votes =
            self.sentinels.iter().filter(|sentinel| master_port(sentinel) == Some(self.servers[1].port()));
        usize::from(votes.count() >= 2)
    }

    /// From now on Sentinels give up a master that does not answer for half a second.
    pub fn watch(&self) {
        for sentinel in &self.sentinels {
            sentinel.ask(&["SENTINEL", "SET", MASTER_NAME, "down-after-milliseconds", WATCHFUL_MS]);
        }
    }

    /// Kills the master and returns when all Sentinels have the other one for master and it is one. Its number.
    pub fn fail_over(&mut self) -> usize {
        let old = self.master();
        self.watch();
        self.servers[old].kill();
        let new = 1 - old;
        self.wait_for_master(new);
        new
    }

    /// Has the Sentinels exchange the roles of the two; the old master becomes a replica. Returns the number of the new one.
    pub fn hand_over(&self) -> usize {
        let (old, first) = (self.master(), &self.sentinels[0]);
        let new = 1 - old;
        wait_for("a Sentinel that has handed over", || {
            if master_port(first) == Some(self.servers[new].port()) {
                return Some(());
            }
            // A Sentinel that took too long for one of the steps gives up, and does not begin again by itself.
            let flags = field(&first.ask(&["SENTINEL", "MASTER", MASTER_NAME]), "flags")?;
            if !flags.contains("failover_in_progress") {
                let _no_good_replica_yet = first.try_ask(&["SENTINEL", "FAILOVER", MASTER_NAME]);
            }
            None
        });
        self.wait_for_master(new);
        // Until then it takes writes that will be lost.
        wait_for("an old master that follows", || {
            (self.servers[1 - new].info("role") == "slave").then_some(())
        });
        new
    }

    /// Has the Sentinels give up the master, which they can neither ask nor command any more, and which goes on answering everybody else as a master.
    /// Returns the number of the new one.
    pub fn abandon(&self) -> usize {
        let new = 1 - self.master();
        self.watch();
        self.servers[1 - new].ask(&["ACL", "SETUSER", "default", "-ping", "-slaveof", "-replicaof"]);
        self.wait_for_master(new);
        new
    }

    fn wait_for_master(&self, new: usize) {
        let server = &self.servers[new];
        wait_for("a failover", || {
            let all = self.sentinels.iter().all(|sentinel| master_port(sentinel) == Some(server.port()));
            (all && server.info("role") == "master").then_some(())
        });
    }
}

impl Default for Sentinels {
    fn default() -> Self {
        Self::new()
    }
}

/// Sentinels are told of each other and of the replica, because finding out by themselves takes them seconds.
fn sentinel(own: usize, ports: &[u16], master: u16, replica: u16) -> Redis {
    let mut settings = vec![
        format!("sentinel myid {}", id(own)),
        format!("sentinel monitor {MASTER_NAME} 127.0.0.1 {master} 2"),
        format!("sentinel down-after-milliseconds {MASTER_NAME} {CALM_MS}"),
        format!("sentinel failover-timeout {MASTER_NAME} 3000"),
        format!("sentinel known-replica {MASTER_NAME} 127.0.0.1 {replica}"),
    ];
    for (other, port) in ports.iter().enumerate().filter(|(other, _)| *other != own) {
        settings.push(format!("sentinel known-sentinel {MASTER_NAME} 127.0.0.1 {port} {}", id(other)));
    }
    let sentinel = Redis::on_port(ports[own], Options { settings, is_sentinel: true, ..Options::default() });
    // Not the period of their greetings: whoever hears nothing for four of them takes a promotion back.
    sentinel.ask(&["SENTINEL", "DEBUG", "info-period", "200", "ping-period", "100", "ask-period", "100"]);
    // A Sentinel whose timer was two seconds late does nothing for half a minute. In one second it has the answers to ten pings, and knows again who is there.
    sentinel.ask(&["SENTINEL", "DEBUG", "tilt-period", "1000"]);
    sentinel
}

/// A Sentinel that has another server for the master, and has never heard of the others.
pub fn mistaken(master: u16) -> Redis {
    let settings = vec![format!("sentinel monitor {MASTER_NAME} 127.0.0.1 {master} 1")];
    Redis::single(Options { settings, is_sentinel: true, ..Options::default() })
}

fn id(number: usize) -> String {
    format!("{:040x}", number + 1)
}

fn master_port(sentinel: &Redis) -> Option<u16> {
    let Value::Array(place) = sentinel.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME]) else {
        return None;
    };
    text(place.get(1)?)?.parse().ok()
}

fn field(pairs: &Value, name: &str) -> Option<String> {
    let Value::Array(words) = pairs else { return None };
    let place = words.iter().position(|word| text(word).as_deref() == Some(name))?;
    text(words.get(place + 1)?)
}

fn text(value: &Value) -> Option<String> {
    let Value::BulkString(bytes) = value else { return None };
    String::from_utf8(bytes.clone()).ok()
}
