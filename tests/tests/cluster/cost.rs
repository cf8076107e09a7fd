//! What one call costs the store, whatever the number of hosts.
//!
//! `cargo test -p ratelimit-tests --test cluster cost:: -- --ignored --nocapture` measures it, best on a machine with nothing else to do.

use std::time::Duration;

use ratelimit_common::limit::text::parse_rate;
use ratelimit_tests::redis::{Options, Redis};
use ratelimit_user::{
    meter::{Log, Meter, RequestBucket},
    policy::{Reserve, terms::Terms},
    store::{
        ask::{Ask, CountedLimit},
        exchange::{Entry, Line, Timing},
        inquiry::{self, Inquiry},
        lease_batch::{self, Keys},
        redis::Call,
    },
};
use redis::Connection;

const MINUTE: u64 = 60_000_000;

/// A server that is asked what its scripts took.
struct Server {
    redis: Redis,
    connection: Connection,
    sha1: String,
}

impl Server {
    fn new() -> Self {
        let redis = Redis::single(Options::default());
        let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
        let text = packets(0, 1).script.text();
        let sha1 = redis::cmd("SCRIPT").arg("LOAD").arg(text).query(&mut connection).unwrap();
        Self { redis, connection, sha1 }
    }

    fn run(&mut self, calls: &[Call<'_>]) {
        for calls in calls.chunks(500) {
            let mut pipe = redis::pipe();
            for Call { keys, args, .. } in calls {
                pipe.cmd("EVALSHA").arg(&self.sha1).arg(keys.len()).arg(keys).arg(args).ignore();
            }
            pipe.exec(&mut self.connection).unwrap();
        }
    }

    /// Microseconds of CPU time that one of these calls takes the server, from reading it to writing the answer: the quickest of several lots, because
    /// others use this machine.
    fn cost_us(&mut self, calls: &[Call<'_>]) -> f64 {
        let lot = |calls: &[Call<'_>], server: &mut Self| {
            let before = server.cpu_us();
            server.run(calls);
            (server.cpu_us() - before) / calls.len() as f64
        };
        calls.chunks(calls.len() / 8).map(|calls| lot(calls, self)).fold(f64::INFINITY, f64::min)
    }

    fn cpu_us(&self) -> f64 {
        let seconds = |field: &str| self.redis.info(field).parse::<f64>().expect("seconds");
        (seconds("used_cpu_user_main_thread") + seconds("used_cpu_sys_main_thread")) * 1e6
    }
}

/// What a host says of a limit of packets, as the call that it is.
fn packets(host: usize, sequence: u64) -> Call<'static> {
    let terms = Terms::of(&parse_rate("20000/s burst 40000").unwrap(), Reserve::new(50, 16)).unwrap();
    let entry = Entry { sequence, used: 1, held: 2, wanted: 3 };
    let line = Line { key: Keys::new("t").record("acme", "packets"), terms, entry };
    let timing = Timing::new(Duration::from_secs(60), Duration::from_millis(50));
    lease_batch::calls(&Keys::new("t"), &format!("host-{host}:1"), &timing, &[line], false).remove(0).1
}

fn ask(host: usize, key: &str, meter: Meter, ask: Ask) -> Call<'static> {
    let inquiry = Inquiry { key: format!("t:3:{{u}}:{key}"), limits: vec![CountedLimit::plain(meter)], ask };
    inquiry::calls(&format!("host-{host}:1"), 200_000, &[&inquiry], false, 0).remove(0).1
}

/// What a host says of its lease of a key of requests.
fn requests(host: usize, sequence: u64) -> Call<'static> {
    let lease = Entry { sequence, used: 1, held: 2, wanted: 3 };
    let meter = Meter::Bucket(RequestBucket::new(1_000_000, MINUTE, 1_000_000));
    ask(host, "leased", meter, Ask { lease, life_us: 2 * MINUTE, ..Ask::default() })
}

/// What each kind of call takes when so many hosts have something of the limit.
fn costs(server: &mut Server, hosts: usize, calls: usize) -> [f64; 2] {
    server.redis.ask(&["FLUSHALL"]);
    let kinds: [fn(usize, u64) -> Call<'static>; 2] = [packets, requests];
    kinds.map(|kind| {
        let all: Vec<Call<'static>> = (0..hosts).map(|host| kind(host, 1)).collect();
        server.run(&all);
        // Each host in its turn, in an order that is not that of their ends.
        let again = |n: usize| kind(n * 7_919 % hosts, 2 + (n / hosts) as u64);
        let again: Vec<Call<'static>> = (0..calls).map(again).collect();
        server.cost_us(&again)
    })
}

#[test]
fn a_call_costs_about_as_much_with_a_thousand_hosts_as_with_one() {
    let mut server = Server::new();
    let alone = costs(&mut server, 1, 1_600);
    let many = costs(&mut server, 1_024, 1_600);
    println!("packets and requests: {alone:.1?} us with one host, {many:.1?} us with 1024");
    // 60 times as much when every row was read with every call. Beside other suites a server has been three times as slow as a moment before.
    assert!(many.iter().zip(alone).all(|(many, alone)| *many < 10.0 * alone), "{alone:?} and {many:?} us");
}

#[test]
fn a_log_of_nine_thousand_entries_costs_about_as_much_as_an_empty_one() {
    let mut server = Server::new();
    let log = |key: &str| {
        ask(0, key, Meter::Log(Log::new(9_000, 600 * MINUTE)), Ask { spend: 1, ..Ask::default() })
    };
    let few: Vec<Call<'static>> = (0..400).map(|_| log("few")).collect();
    let few = server.cost_us(&few);
    let fill: Vec<Call<'static>> = (0..9_000).map(|_| log("full")).collect();
    server.run(&fill);
    let refused = server.cost_us(&fill[..400]);
    println!("a log of 9000: {few:.1} us at first, {refused:.1} us when it is full");
    assert!(refused < 4.0 * few, "{few} and {refused} us");
}

#[test]
#[ignore = "long"]
fn what_calls_cost() {
    let mut server = Server::new();
    for hosts in [1, 16, 64, 256, 1_024, 10_000] {
        let [packets, requests] = costs(&mut server, hosts, 16_000);
        println!("{hosts} hosts: {packets:.1} us of packets, {requests:.1} us of requests");
        assert!(packets.max(requests) < 60.0 || hosts > 1_024, "{hosts} hosts: {packets} and {requests} us");
        let bytes = server.redis.ask(&["MEMORY", "USAGE", "t:3:{acme}:packets", "SAMPLES", "0"]);
        println!("  a limit: {bytes:?} bytes");
    }
}
