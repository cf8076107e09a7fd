//! Comparisons over a wire: RESP, HTTP, gRPC. All servers of a comparison are up at once, each is asked in turn, and who waits uses no CPU.

use anyhow::Result;
use ratelimit_tests::redis::redis_command;
use redis::Value;

use super::{
    body,
    client::{H2load, RedisBenchmark, Wrk},
    comparison::{Comparison, Unit},
    entrant::{Entrant, Pace, compare},
    field::{BURST, CALM_API, COUNT, Field, HOT_API, HOT_PER_SECOND, PERIOD_S, Protocol, Running},
    targets::{NGINX_LIMIT, OURS, OURS_CHECK},
};
use crate::interrupt::Interrupt;

/// A token bucket the way it is done in Redis: one key, the time at which the bucket is full again.
const GCRA: &str = include_str!("gcra.lua");
/// A key that redis-benchmark chooses.
pub(super) const KEY: &str = "key:__rand_int__";

/// RESP, without and with commands that are sent before the last answer is there.
pub(super) fn resp(field: &mut Field, pace: Pace, interrupt: &Interrupt) -> Result<Vec<Comparison>> {
    let redis = field.redis();
    let redis = field.admit("redis-server", redis);
    let throttlecrab = field.throttlecrab(Protocol::Resp);
    let throttlecrab = field.admit("throttlecrab-server over RESP", throttlecrab);
    let ours = field.limiter(Protocol::Resp, None);
    let ours = field.admit("ratelimit over RESP", ours);
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
        enter("throttlecrab", "throttlecrab-server", &throttlecrab, &question);
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
    let ours = field.limiter(Protocol::Http, None);
    let ours = field.admit("ratelimit over HTTP", ours);
    let throttlecrab = field.throttlecrab(Protocol::Http);
    let throttlecrab = field.admit("throttlecrab-server over HTTP", throttlecrab);
    let [limited, bare] = [field.nginx(true), field.nginx(false)];
    let (limited, bare) = (field.admit("nginx limit_req", limited), field.admit("nginx", bare));
    let get = format!(r#""GET", "/v1/check?user=u" .. n .. "&api={CALM_API}""#);
    let post = format!(
        r#""POST", "/throttle", {{["Content-Type"] = "application/json"}}, '{{"key":"u' .. n .. '","max_burst":{BURST},"count_per_period":{COUNT},"period":{PERIOD_S}}}'"#
    );
    let mut entrants = Vec::new();
    for (name, title, running, request) in [
        (OURS, "ratelimit", &ours, &get),
        ("throttlecrab", "throttlecrab-server", &throttlecrab, &post),
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

/// gRPC: Envoy's rate limit service, and throttlecrab's own.
pub(super) fn grpc(field: &mut Field, pace: Pace, interrupt: &Interrupt) -> Result<Comparison> {
    const RLS: &str = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let ours = field.limiter(Protocol::Grpc, None);
    let ours = field.admit("ratelimit over gRPC", ours);
    let limitador = field.limitador();
    let limitador = field.admit("Limitador over gRPC", limitador);
    let throttlecrab = field.throttlecrab(Protocol::Grpc);
    let throttlecrab = field.admit("throttlecrab-server over gRPC", throttlecrab);
    let question = body::envoy("bench", &[("user", "u1"), ("api", HOT_API)]);
    let to_throttlecrab = body::throttlecrab("u1", HOT_PER_SECOND, HOT_PER_SECOND, 1);
    let mut entrants = Vec::new();
    for (name, title, running, method, body) in [
        (OURS, "ratelimit, Envoy's RLS", &ours, RLS, &question),
        ("limitador", "Limitador, Envoy's RLS", &limitador, RLS, &question),
        (
            "throttlecrab",
            "throttlecrab-server",
            &throttlecrab,
            "throttlecrab.RateLimiter/Throttle",
            &to_throttlecrab,
        ),
    ] {
        let Some(running) = running else { continue };
        let mut client = H2load::new(field.client_cpu, running.port, field.dir(), method, body)?;
        entrants.push(Entrant::new(name, title, move |round| client.run(round)));
    }
    let comparison =
        Comparison::new("grpc", "gRPC, one user (h2load -t1 -c50 -m16)", Unit::DecisionsPerSecond);
    compare(comparison, entrants, pace, interrupt, &mut field.notes)
}
