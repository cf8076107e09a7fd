//! Comparisons over a wire: RESP, HTTP, gRPC. All servers of a comparison are up at once, each is asked in turn, and who waits uses no CPU.

use anyhow::Result;
use prost::Message;
use ratelimit_tests::redis::redis_command;
use ratelimit_user::serve::grpc::{
    framing::framed,
    messages::{Descriptor, DescriptorEntry, RateLimitRequest},
};
use redis::Value;

use super::{
    client::{H2load, RedisBenchmark, Wrk},
    entrant::{Entrant, compare},
    field::{BURST, BUSY_API, BUSY_PER_SECOND, CALM_API, COUNT, Field, PERIOD_S, Protocol, Running},
};
use crate::{
    comparison::{Comparison, Unit},
    interrupt::Interrupt,
    rounds::Pace,
    targets::{NGINX_LIMIT, OURS, OURS_CHECK, THROTTLECRAB},
};

/// A token bucket the way it is done in Redis: one key, the time at which the bucket is full again.
const GCRA: &str = include_str!("gcra.lua");
/// A key that redis-benchmark chooses.
pub(super) const KEY: &str = "key:__rand_int__";

/// RESP, without and with commands that are sent before the last answer is there.
pub(super) fn resp(field: &mut Field, pace: Pace, interrupt: &Interrupt) -> Result<Vec<Comparison>> {
    let redis = field.admit("redis-server", Field::redis);
    let throttlecrab =
        field.admit("throttlecrab-server over RESP", |field| field.throttlecrab(Protocol::Resp));
    let ours = field.admit("ratelimit over RESP", |field| field.limiter(Protocol::Resp, None));
    let script = redis.as_ref().map(|redis| loaded(redis.port, GCRA));
    let mut done = Vec::new();
    for (name, title, depth) in [
        ("resp-1", "RESP, an answer at a time (redis-benchmark -c 50 -P 1)", 1),
        ("resp-16", "RESP, 16 commands at a time (redis-benchmark -c 50 -P 16)", 16),
    ] {
        let mut entrants = Vec::new();
        let mut enter = |name, title, running: &Option<Running>, question: &[&str]| {
            let Some(running) = running else { return };
            let mut client = RedisBenchmark::new(field.client_cpu, running.port, depth, question);
            entrants.push(Entrant::new(name, title, move |round| client.run(round)));
        };
        enter(OURS, "ratelimit, CL.THROTTLE", &ours, &["CL.THROTTLE", KEY, BURST, COUNT, PERIOD_S]);
        enter(OURS_CHECK, "ratelimit, CHECK", &ours, &["CHECK", KEY, CALM_API]);
        enter("redis-ping", "redis-server, PING", &redis, &["PING"]);
        enter("redis-incr", "redis-server, INCR", &redis, &["INCR", KEY]);
        if let Some(script) = &script {
            let question = ["EVALSHA", script, "1", KEY, BURST, COUNT, PERIOD_S];
            enter("redis-gcra", "redis-server, GCRA in Lua", &redis, &question);
        }
        let question = ["THROTTLE", KEY, BURST, COUNT, PERIOD_S];
        enter(THROTTLECRAB, "throttlecrab-server", &throttlecrab, &question);
        let comparison = Comparison::new(name, title, Unit::DecisionsPerSecond);
        done.push(compare(comparison, entrants, pace, interrupt, &mut field.notes)?);
    }
    Ok(done)
}

/// The name of a script that the server now knows.
fn loaded(port: u16, script: &str) -> String {
    match redis_command(port, &["SCRIPT", "LOAD", script]) {
        Value::BulkString(name) => String::from_utf8_lossy(&name).into_owned(),
        other => panic!("SCRIPT LOAD answered {other:?}"),
    }
}

/// HTTP. throttlecrab is asked in the body of a POST, it knows no other way.
pub(super) fn http(field: &mut Field, pace: Pace, interrupt: &Interrupt) -> Result<Comparison> {
    let ours = field.admit("ratelimit over HTTP", |field| field.limiter(Protocol::Http, None));
    let throttlecrab =
        field.admit("throttlecrab-server over HTTP", |field| field.throttlecrab(Protocol::Http));
    let limited = field.admit("nginx limit_req", |field| field.nginx(true));
    let bare = field.admit("nginx", |field| field.nginx(false));
    let get = format!(r#""GET", "/v1/check?user=u" .. n .. "&api={CALM_API}""#);
    let post = format!(
        r#""POST", "/throttle", {{["Content-Type"] = "application/json"}}, '{{"key":"u' .. n .. '","max_burst":{BURST},"count_per_period":{COUNT},"period":{PERIOD_S}}}'"#
    );
    let mut entrants = Vec::new();
    for (name, title, running, request) in [
        (OURS, "ratelimit", &ours, &get),
        (THROTTLECRAB, "throttlecrab-server", &throttlecrab, &post),
        (NGINX_LIMIT, "nginx, limit_req", &limited, &get),
        ("nginx", "nginx, no limit", &bare, &get),
    ] {
        let Some(running) = running else { continue };
        let mut client = Wrk::new(field.client_cpu, running.port, field.dir(), name, request)?;
        entrants.push(Entrant::new(name, title, move |round| client.run(round)));
    }
    let comparison = Comparison::new("http", "HTTP (wrk -t1 -c50)", Unit::DecisionsPerSecond);
    compare(comparison, entrants, pace, interrupt, &mut field.notes)
}

/// What `Throttle` of throttlecrab is asked.
#[derive(Clone, PartialEq, Eq, Message)]
struct ThrottleRequest {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(uint64, tag = "2")]
    max_burst: u64,
    #[prost(uint64, tag = "3")]
    count_per_period: u64,
    /// The period in seconds.
    #[prost(uint64, tag = "4")]
    period: u64,
    #[prost(uint64, tag = "5")]
    quantity: u64,
}

/// gRPC: Envoy's rate limit service, and throttlecrab's own.
pub(super) fn grpc(field: &mut Field, pace: Pace, interrupt: &Interrupt) -> Result<Comparison> {
    const RLS: &str = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    const THROTTLE: &str = "throttlecrab.RateLimiter/Throttle";
    let ours = field.admit("ratelimit over gRPC", |field| field.limiter(Protocol::Grpc, None));
    let limitador = field.admit("Limitador over gRPC", Field::limitador);
    let throttlecrab =
        field.admit("throttlecrab-server over gRPC", |field| field.throttlecrab(Protocol::Grpc));
    let entry =
        |key: &'static str, value: &'static str| DescriptorEntry { key: key.into(), value: value.into() };
    let descriptor =
        Descriptor { entries: vec![entry("user", "u1"), entry("api", BUSY_API)], hits_addend: None };
    let question =
        framed(&RateLimitRequest { domain: "bench".into(), descriptors: vec![descriptor], hits_addend: 0 });
    let to_throttlecrab = framed(&ThrottleRequest {
        key: "u1".into(),
        max_burst: BUSY_PER_SECOND,
        count_per_period: BUSY_PER_SECOND,
        period: 1,
        quantity: 1,
    });
    let mut entrants = Vec::new();
    for (name, title, running, method, body) in [
        (OURS, "ratelimit, Envoy's RLS", &ours, RLS, &question),
        ("limitador", "Limitador, Envoy's RLS", &limitador, RLS, &question),
        (THROTTLECRAB, "throttlecrab-server", &throttlecrab, THROTTLE, &to_throttlecrab),
    ] {
        let Some(running) = running else { continue };
        let mut client = H2load::new(field.client_cpu, running.port, field.dir(), method, body)?;
        entrants.push(Entrant::new(name, title, move |round| client.run(round)));
    }
    let comparison =
        Comparison::new("grpc", "gRPC, one user (h2load -t1 -c50 -m16)", Unit::DecisionsPerSecond);
    compare(comparison, entrants, pace, interrupt, &mut field.notes)
}
