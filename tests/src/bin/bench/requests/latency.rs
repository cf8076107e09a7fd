//! How long the slowest hundredth of answers takes over RESP, at half of what the slower server can do.

use anyhow::Result;

use super::{
    client::RedisBenchmark,
    comparison::{Comparison, Unit},
    entrant::{Entrant, Pace, compare},
    field::{BURST, COUNT, Field, PERIOD_S, Protocol, Running},
    paced::Paced,
    targets::{OURS, THROTTLECRAB},
    wire::KEY,
};
use crate::interrupt::Interrupt;

pub(super) fn measure(field: &mut Field, pace: Pace, interrupt: &Interrupt) -> Result<Comparison> {
    let [ours, throttlecrab] = [field.limiter(Protocol::Resp, None), field.throttlecrab(Protocol::Resp)];
    let ours = field.admit("ratelimit's latency", ours);
    let throttlecrab = field.admit("throttlecrab-server's latency", throttlecrab);
    let asked = |verb: &'static str| [verb, KEY, BURST, COUNT, PERIOD_S];
    let contestants: Vec<(&str, &str, &Running, _)> = [
        (OURS, "ratelimit", &ours, asked("CL.THROTTLE")),
        (THROTTLECRAB, "throttlecrab-server", &throttlecrab, asked("THROTTLE")),
    ]
    .into_iter()
    .filter_map(|(name, title, running, question)| Some((name, title, running.as_ref()?, question)))
    .collect();
    let mut most = f64::INFINITY;
    for (_, _, running, question) in &contestants {
        let mut client = RedisBenchmark::new(field.client_cpu, running.port, 1, question);
        client.run(pace.round)?;
        most = most.min(client.run(pace.round)?.value);
    }
    let per_second = most / 2.0;
    let mut entrants = Vec::new();
    for (name, title, running, question) in contestants {
        let question = question.map(String::from).to_vec();
        let client = Paced { cpu: field.client_cpu, port: running.port, question, per_second };
        entrants.push(Entrant::new(name, title, move |round| client.run(round)));
    }
    let title = format!(
        "99th percentile over RESP, 50 connections, {:.1} k questions/s: half of what the slower one can do",
        per_second / 1e3
    );
    compare(Comparison::new("latency", title, Unit::P99Microseconds), entrants, pace, interrupt)
}
