//! The script that keeps the store records in Redis and the record that the simulator has proved are the same, number for number.
//!
//! Random conversations from seeds go to both, with a clock and a run id of our own. `SEED=n` repeats one, `CONVERSATIONS=n` holds more.

use std::time::Duration;

use fastrand::Rng;
use ratelimit_common::limit::text::parse_rate;
use ratelimit_tests::{
    record::{PacketRecord, PacketStore},
    redis::{Options, Redis, wait_for},
    seeds::seeds,
    simulation::Script,
};
use ratelimit_user::{
    policy::{Reserve, terms::Terms},
    store::{
        exchange::{Entry, Line, Timing},
        lease_batch::{self, Keys},
        redis::Value,
    },
};

const STEPS: usize = 400;
/// Above every whole number that a script counts exactly.
const EXACT: u64 = 1 << 53;

/// What a key says: level and what is out.
fn record(script: &mut Script, key: &str) -> Option<(i64, u64)> {
    let text = "local kind, stored, out = redis.call('TYPE', KEYS[1]).ok, nil, 0
        if kind == 'none' then return {} end
        if kind == 'string' then
          stored = redis.call('GET', KEYS[1])
        else
          stored = string.sub(redis.call('ZRANGE', KEYS[1], -1, -1)[1], 2)
          for _, row in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(0')) do
            local _, held = struct.unpack('<dd', string.sub(row, 2))
            out = out + held
          end
        end
        local record = cmsgpack.unpack(stored)
        for h = 1, #record[7], 7 do out = out + record[7][h + 2] end
        assert(out == record[2], 'the sum of all rows')
        local limit, debt = record[12], record[1][1][2]
        local left = math.max(math.floor((limit[3] * limit[2] - debt) / limit[2]), 0)
        return { string.format('%.0f', left - out), string.format('%.0f', out) }";
    let said: Vec<String> = script.ask(&["EVAL", text, "1", key]);
    match said.as_slice() {
        [level, out] => Some((level.parse().unwrap(), out.parse().unwrap())),
        _ => None,
    }
}

/// Long, so that no key expires by the server's clock while ours stands still.
const TIMING: Timing = Timing { lifetime_us: 20_000_000, margin_us: 2_500_000, recent_us: 4_000_000 };

fn terms(rate: &str, permille: u32) -> Terms {
    Terms::of(&parse_rate(rate).unwrap(), Reserve::new(permille, 3)).unwrap()
}

fn entry(sequence: u64, used: u64, held: u64, wanted: u64) -> Entry {
    Entry { sequence, used, held, wanted }
}

/// Limits of all sizes; the last ones have bursts as large as the store can count.
fn limits() -> Vec<Terms> {
    let round =
        ["1/s burst 1", "1000/s burst 500", "20000/s burst 40000", "7/min burst 3", "100000000/s", "5/day"];
    let odd = [
        "9973/day burst 90000",
        "1000003/hour burst 2501000",
        "104729/min burst 150111000",
        "1 GB/s burst 8000000 GB",
    ];
    let mut all: Vec<Terms> =
        round.iter().flat_map(|rate| [0, 50, 333].map(|permille| terms(rate, permille))).collect();
    all.extend(odd.map(|rate| terms(rate, 0)));
    let largest = |terms: &Terms| (terms.burst() + 3) * terms.period_us() + terms.amount();
    assert!(
        all.iter().any(|terms| largest(terms) > EXACT / 10 * 9),
        "some are near the end of exact numbers"
    );
    all
}

/// One start of one host, and what it believes to have of each record.
struct Host {
    name: String,
    believed: Vec<Believed>,
}

#[derive(Clone, Copy)]
struct Believed {
    sequence: u64,
    has: u64,
    last: Entry,
}

/// Hosts, records and a clock, all random.
struct Conversation<'s> {
    rng: Rng,
    redis: &'s mut Script,
    in_memory_store: PacketStore,
    now_us: u64,
    timing: Timing,
    hosts: Vec<Host>,
    limits: Vec<(String, Terms)>,
    births: u64,
    /// Answers in all, and those that gave something.
    answers: (usize, usize),
}

impl<'s> Conversation<'s> {
    fn new(seed: u64, redis: &'s mut Script) -> Self {
        let mut rng = Rng::with_seed(seed);
        redis.empty();
        let limits =
            (0..rng.usize(1..5)).map(|n| (format!("t:3:{{u{n}}}:x"), *rng.choice(&limits()).unwrap()));
        let limits = limits.collect();
        let now_us = rng.choice([1_700_000_000_000_000, 1, EXACT / 2]).unwrap();
        let (in_memory_store, hosts) = (PacketStore::default(), Vec::new());
        let (timing, births, answers) = (TIMING, 0, (0, 0));
        let mut it = Self { rng, redis, in_memory_store, now_us, timing, hosts, limits, births, answers };
        // Few are in the record itself, many are not, and of very many some have to wait until they are written off.
        let hosts = *it.rng.choice(&[1, 2, 3, 5, 9, 14, 150]).unwrap();
        (0..hosts).for_each(|_| it.be_born());
        it
    }

    fn be_born(&mut self) {
        self.births += 1;
        let believed = Believed { sequence: 0, has: 0, last: entry(0, 0, 0, 0) };
        self.hosts
            .push(Host { name: format!("h:{}", self.births), believed: vec![believed; self.limits.len()] });
    }

    fn step(&mut self) {
        match self.rng.u32(0..1_000) {
            0..10 => {
                self.redis.empty();
                self.in_memory_store = PacketStore::default();
            }
            10..20 => {
                self.redis.take_over();
                self.in_memory_store = std::mem::take(&mut self.in_memory_store).taken_over();
            }
            20..40 => self.be_born(),
            40..60 if self.hosts.len() > 1 => {
                let dies = self.rng.usize(..self.hosts.len());
                self.hosts.remove(dies);
            }
            60..80 => {
                let at = self.rng.usize(..self.limits.len());
                self.limits[at].1 = *self.rng.choice(&limits()).unwrap();
            }
            80..90 => {
                let lifetime_us = TIMING.lifetime_us * self.rng.u64(1..4);
                self.timing = Timing { lifetime_us, margin_us: lifetime_us / 8, ..TIMING };
            }
            _ => {}
        }
        self.pass_time();
        self.talk();
    }

    fn pass_time(&mut self) {
        let longest = self.timing.longest_us();
        self.now_us = match self.rng.u32(0..100) {
            0..20 => self.now_us,
            20..25 => self.now_us.saturating_sub(self.rng.u64(..=longest)).max(1),
            25..30 => self.now_us + longest + self.rng.u64(0..3),
            30..33 => self.now_us + self.rng.u64(..100 * longest),
            33..38 => self.now_us + self.timing.recent_us,
            38..60 => self.now_us + self.rng.u64(..longest / 4),
            60..80 => self.now_us + self.rng.u64(..1_000),
            _ => self.now_us + self.rng.u64(..100_000),
        };
    }

    fn talk(&mut self) {
        let from = self.rng.usize(..self.hosts.len());
        let mut about: Vec<usize> = (0..self.limits.len()).filter(|_| self.rng.bool()).collect();
        self.rng.shuffle(&mut about);
        if about.is_empty() {
            return;
        }
        let line = |at: &usize| {
            let (key, terms) = self.limits[*at].clone();
            let entry = next_entry(&mut self.rng, &mut self.hosts[from].believed[*at], &terms);
            Line { key, terms, entry }
        };
        let lines: Vec<Line> = about.iter().map(line).collect();
        // The batch is lost on its way to the store.
        if self.rng.u32(0..20) == 0 {
            return;
        }
        let name = &self.hosts[from].name;
        let in_redis = self.redis.packets(name, &self.timing, self.now_us, &lines);
        let in_memory = self.in_memory_store.exchange(name, &self.timing, self.now_us, &lines);
        assert_eq!(in_redis, in_memory, "{name} at {} us says {lines:#?}", self.now_us);
        let given = in_memory.iter().filter(|grant| grant.units > 0).count();
        self.answers = (self.answers.0 + lines.len(), self.answers.1 + given);
        self.compare();
        // The answer is lost on its way back.
        if self.rng.u32(0..20) == 0 {
            return;
        }
        for (at, grant) in about.iter().zip(in_memory) {
            let believed = &mut self.hosts[from].believed[*at];
            believed.has = believed.last.held + grant.units;
        }
    }

    fn compare(&mut self) {
        for (key, _) in &self.limits {
            let in_redis = record(self.redis, key).map(|(level, out)| (level.max(0).cast_unsigned(), out));
            let in_memory = self.in_memory_store.record(key).map(PacketRecord::level_and_out);
            assert_eq!(in_redis, in_memory, "{key} at {} us", self.now_us);
        }
    }
}

/// What a host says next: mostly something sensible, now and then something old, nothing, or nonsense.
fn next_entry(rng: &mut Rng, believed: &mut Believed, terms: &Terms) -> Entry {
    // What all hosts together say is below the end of exact numbers too.
    let most = (terms.burst() + 1).min(EXACT / 64);
    match rng.u32(0..100) {
        0..5 => return entry(0, 0, 0, 0),
        5..15 => return believed.last,
        15..20 => {
            return entry(rng.u64(..=believed.sequence), rng.u64(..most), rng.u64(..most), rng.u64(..most));
        }
        20..25 => believed.sequence += rng.u64(..5),
        _ => {}
    }
    let used = match rng.u32(0..10) {
        0 => rng.u64(..most),
        1 => believed.has,
        _ => rng.u64(..=believed.has),
    };
    let held = match rng.u32(0..20) {
        0 => rng.u64(..most),
        1..5 => rng.u64(..=believed.has.saturating_sub(used)),
        _ => believed.has.saturating_sub(used),
    };
    let wanted = match rng.u32(0..20) {
        0 => rng.u64(..EXACT / 64),
        1..4 => 0,
        4..8 => most,
        _ => rng.u64(..most),
    };
    believed.sequence += 1;
    believed.last = entry(believed.sequence, used, held, wanted);
    believed.last
}

#[test]
fn redis_and_the_model_answer_alike_whatever_is_said_and_whatever_the_clock_does() {
    let server = Redis::single(Options::default());
    let mut store = Script::new(&server);
    let (mut answers, mut given) = (0, 0);
    for seed in seeds("CONVERSATIONS", 60) {
        println!("SEED={seed}");
        let mut conversation = Conversation::new(seed, &mut store);
        (0..STEPS).for_each(|_| conversation.step());
        answers += conversation.answers.0;
        given += conversation.answers.1;
    }
    println!("{answers} answers alike, {given} of them gave something");
    assert!(given > answers / 10, "too little happened: {given} of {answers}");
}

#[test]
fn a_record_expires_by_itself_when_nobody_can_hold_anything_and_its_bucket_is_full() {
    let server = Redis::single(Options::default());
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let mut say = |key: &str, terms: Terms, timing: &Timing| {
        let line = Line { key: key.into(), terms, entry: entry(1, 0, 0, 1) };
        let (_, call) = lease_batch::calls(&Keys::new("t"), "h", timing, &[line], false).remove(0);
        let mut command = redis::cmd("EVAL");
        command.arg(call.script.text()).arg(call.keys.len()).arg(call.keys).arg(call.args);
        lease_batch::grants(&command.query::<Value>(&mut connection).unwrap(), 1).unwrap();
    };
    let left_ms = |key: &str| match server.ask(&["PTTL", key]) {
        Value::Int(left) => left,
        other => panic!("{other:?}"),
    };
    let short = Timing::new(Duration::from_millis(40), Duration::from_millis(10));
    say("short", terms("1000/s burst 1", 0), &short);
    // The time that it takes to fill, twice the longest lease, a second.
    assert!((1_000..=1_092).contains(&left_ms("short")), "{}", left_ms("short"));
    let timing = Timing::new(Duration::from_secs(1), Duration::from_millis(50));
    say("long", terms("20000/s burst 40000", 0), &timing);
    assert!((5_000..=5_250).contains(&left_ms("long")), "{}", left_ms("long"));
    // What tells an emptied store from one that nobody has used must stay.
    assert_eq!(left_ms("t:3:since"), -1);
    let Value::BulkString(since) = server.ask(&["GET", "t:3:since"]) else { panic!("no text") };
    assert!(String::from_utf8(since).unwrap().starts_with(&server.info("master_replid")));
    wait_for("a key that expires", || (server.ask(&["EXISTS", "short"]) == Value::Int(0)).then_some(()));
    assert_eq!(server.ask(&["EXISTS", "long"]), Value::Int(1));
}
