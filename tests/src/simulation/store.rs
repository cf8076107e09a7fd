//! The store of a simulated world: records in memory, the script in a real Redis with the world's clock, or both side by side, which have to
//! say the same.

use std::collections::BTreeMap;

use ratelimit_user::store::{
    ask::{Ask, Told},
    exchange::{Grant, Line, Timing},
    inquiry::{self, Inquiry},
    lease_batch::{self, Keys},
    redis::{Call, Value},
};
use redis::{Connection, FromRedisValue};

use super::CLUSTER;
use crate::{
    record::{PacketStore, StoreRecord},
    redis::Redis,
};

/// What the store keeps, and a replica of it that is some way behind.
#[derive(Debug)]
pub struct Store {
    memory: Option<Memory>,
    replica: Memory,
    script: Option<Script>,
}

#[derive(Clone, Debug)]
struct Memory {
    packets: PacketStore,
    requests: BTreeMap<String, StoreRecord>,
}

impl Store {
    /// Records in memory. The store has existed for long, and has nothing to remember.
    pub fn in_memory() -> Self {
        let memory = Memory { packets: PacketStore::seasoned(), requests: BTreeMap::new() };
        Self { replica: memory.clone(), memory: Some(memory), script: None }
    }

    /// A store of records in memory, with the script beside them.
    pub fn in_both(script: Script) -> Self {
        Self { script: Some(script.seasoned()), ..Self::in_memory() }
    }

    /// The script alone: the records in memory look at every host in each exchange.
    pub fn in_redis(script: Script) -> Self {
        Self { memory: None, ..Self::in_both(script) }
    }

    /// Answers questions of several hosts at one moment.
    pub(super) fn at_once(
        &mut self,
        recent_us: u64,
        now_us: u64,
        asked: &[(String, Vec<Inquiry>)],
    ) -> Vec<Vec<Told>> {
        match &mut self.script {
            Some(script) => script.at_once(recent_us, now_us, asked),
            None => asked.iter().map(|(host, asked)| self.requests(host, recent_us, now_us, asked)).collect(),
        }
    }

    pub(super) fn packets(&mut self, host: &str, timing: &Timing, now_us: u64, lines: &[Line]) -> Vec<Grant> {
        let real = self.script.as_mut().map(|script| script.packets(host, timing, now_us, lines));
        let model = self.memory.as_mut().map(|memory| memory.packets.exchange(host, timing, now_us, lines));
        agreed(real, model)
    }

    pub(super) fn requests(
        &mut self,
        host: &str,
        recent_us: u64,
        now_us: u64,
        asked: &[Inquiry],
    ) -> Vec<Told> {
        let real = self.script.as_mut().map(|script| script.requests(host, recent_us, now_us, asked));
        let model = self.memory.as_mut().map(|memory| {
            let told = asked.iter().map(|Inquiry { key, limits, ask }| {
                let record = memory.requests.entry(key.clone()).or_default();
                record.exchange(limits, recent_us, now_us, host, ask)
            });
            told.collect()
        });
        agreed(real, model)
    }

    /// The replica hears of everything.
    pub(super) fn replicate(&mut self) {
        if let Some(memory) = &self.memory {
            self.replica.clone_from(memory);
        }
        self.script.iter_mut().for_each(Script::replicate);
    }

    /// The replica takes over.
    pub(super) fn fail_over(&mut self) {
        if let Some(memory) = &mut self.memory {
            *memory = Memory { packets: self.replica.packets.clone().taken_over(), ..self.replica.clone() };
        }
        self.script.iter_mut().for_each(Script::fail_over);
    }

    /// Empties the store, as an operator does with FLUSHALL.
    pub(super) fn empty(&mut self) {
        if let Some(memory) = &mut self.memory {
            *memory = Memory { packets: PacketStore::default(), requests: BTreeMap::new() };
        }
        self.script.iter_mut().for_each(Script::empty);
    }
}

fn agreed<T: PartialEq + std::fmt::Debug>(real: Option<T>, model: Option<T>) -> T {
    if let (Some(real), Some(model)) = (&real, &model) {
        assert_eq!(real, model, "the script and the record in memory");
    }
    real.or(model).expect("a store")
}

/// The script of production in a real server, which has its last three arguments for what it asks the server: its id, seconds, microseconds.
/// Everything else is as it is.
pub struct Script {
    connection: Connection,
    sha1: String,
    run: u64,
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Script").field("run", &self.run).finish_non_exhaustive()
    }
}

impl Script {
    /// Gives the script to a server.
    pub fn new(server: &Redis) -> Self {
        Self::with(server, &[])
    }

    /// Gives it a script whose keys stay for an hour of the server's clock: a world of many hosts takes longer than its own time.
    pub fn lasting(server: &Redis) -> Self {
        Self::with(server, &[("floor(lasts / 1000) + 1000", "3600000")])
    }

    fn with(server: &Redis, further: &[(&str, &str)]) -> Self {
        let client = redis::Client::open(server.url()).expect("an address");
        let mut connection = client.get_connection().expect("a server");
        let asked = Inquiry { key: "k".into(), limits: Vec::new(), ask: Ask::default() };
        let mut text = inquiry::calls("h", 0, &[&asked], false, 0).remove(0).1.script.text().to_owned();
        let clock = [
            ("local time = redis.call('TIME')\n", "local time = { ARGV[#ARGV - 1], ARGV[#ARGV] }\n"),
            (
                "local replication = redis.call('INFO', 'replication')\n",
                "local replication = 'master_replid:' .. ARGV[#ARGV - 2]\n",
            ),
            // The server has only just been started, so that no record can have come from another one.
            ("tonumber(string.match(redis.call('INFO', 'server'), 'uptime_in_seconds:(%d+)'))", "0"),
        ];
        for (asked, given) in clock.iter().chain(further) {
            assert!(text.contains(asked), "the script asks otherwise: {asked}");
            text = text.replace(asked, given);
        }
        let sha1 = redis::cmd("SCRIPT").arg("LOAD").arg(text).query(&mut connection).expect("a script");
        Self { connection, sha1, run: 0xabc }
    }

    /// What the script says to a lease batch.
    pub fn packets(&mut self, host: &str, timing: &Timing, now_us: u64, lines: &[Line]) -> Vec<Grant> {
        let (_, call) = lease_batch::calls(&Keys::new(CLUSTER), host, timing, lines, false).remove(0);
        lease_batch::grants(&self.run(call, now_us), lines.len()).expect("grants")
    }

    /// What the script says to questions about requests.
    pub fn requests(&mut self, host: &str, recent_us: u64, now_us: u64, asked: &[Inquiry]) -> Vec<Told> {
        let asked: Vec<&Inquiry> = asked.iter().collect();
        let (_, call) = inquiry::calls(host, recent_us, &asked, false, now_us).remove(0);
        inquiry::answers(&self.run(call, now_us), asked.len()).expect("answers")
    }

    /// What the script says to questions of several hosts, which are all sent before an answer is read.
    fn at_once(&mut self, recent_us: u64, now_us: u64, asked: &[(String, Vec<Inquiry>)]) -> Vec<Vec<Told>> {
        let mut pipe = redis::pipe();
        for (host, asked) in asked {
            let asked: Vec<&Inquiry> = asked.iter().collect();
            let (_, call) = inquiry::calls(host, recent_us, &asked, false, now_us).remove(0);
            pipe.add_command(self.command(call, now_us));
        }
        let answers: Vec<Value> = pipe.query(&mut self.connection).unwrap_or_else(|error| panic!("{error}"));
        let told = |(answer, (_, asked)): (&Value, &(String, Vec<Inquiry>))| {
            inquiry::answers(answer, asked.len()).expect("answers")
        };
        answers.iter().zip(asked).map(told).collect()
    }

    fn run(&mut self, call: Call<'_>, now_us: u64) -> Value {
        self.command(call, now_us).query(&mut self.connection).unwrap_or_else(|error| panic!("{error}"))
    }

    fn command(&self, call: Call<'_>, now_us: u64) -> redis::Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.sha1).arg(call.keys.len()).arg(call.keys).arg(call.args);
        command.arg(format!("{:x}", self.run)).arg(now_us / 1_000_000).arg(now_us % 1_000_000);
        command
    }

    /// Asks the server something else.
    pub fn ask<T: FromRedisValue>(&mut self, words: &[&str]) -> T {
        let (verb, rest) = words.split_first().expect("a command");
        redis::cmd(verb)
            .arg(rest)
            .query(&mut self.connection)
            .unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// A server that has existed for long, and has nothing to remember.
    fn seasoned(mut self) -> Self {
        self.empty();
        let (since, known) = (format!("{CLUSTER}:3:since"), format!("{:x} 0 0", self.run));
        self.ask::<()>(&["SET", &since, &known]);
        self.replicate();
        self
    }

    /// Has the second database be like the first: what a replica has heard.
    fn replicate(&mut self) {
        let text = "redis.call('SELECT', 1) redis.call('FLUSHDB') redis.call('SELECT', 0)
            for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('COPY', key, key, 'DB', 1) end";
        self.ask::<()>(&["EVAL", text, "0"]);
    }

    /// Becomes another server, with everything that this one has.
    pub fn take_over(&mut self) {
        self.run += 1;
    }

    /// Another server has taken over, with what the replica had heard.
    fn fail_over(&mut self) {
        self.take_over();
        self.ask::<()>(&["SWAPDB", "0", "1"]);
        self.replicate();
    }

    /// Deletes every key of the server.
    pub fn empty(&mut self) {
        self.ask::<()>(&["FLUSHDB"]);
    }
}
