//! How long the slowest hundredth of answers takes over RESP, at half of what the slower server can do.

use anyhow::Result;

use super::{
    client::RedisBenchmark,
    entrant::{Entrant, compare},
    field::{BURST, COUNT, Field, PERIOD_S, Protocol},
    paced::Paced,
    wire::KEY,
};
use crate::{
    comparison::{Comparison, Unit},
    interrupt::Interrupt,
    rounds::Pace,
    targets::{OURS, THROTTLECRAB},
};

pub(super) fn measure(field: &mut Field, pace: Pace, interrupt: &Interrupt) -> Result<Comparison> {
    let ours = field.admit("ratelimit's latency", |field| field.limiter(Protocol::Resp, None));
    let throttlecrab =
        field.admit("throttlecrab-server's latency", |field| field.throttlecrab(Protocol::Resp));
    let asked = |verb: &'static str| [verb, KEY, BURST, COUNT, PERIOD_S];
    let mut contestants = Vec::new();
    let mut most = f64::INFINITY;
    for (name, title, running, question) in [
        (OURS, "ratelimit", &ours, asked("CL.THROTTLE")),
        (THROTTLECRAB, "throttlecrab-server", &throttlecrab, asked("THROTTLE")),
    ] {
        let Some(running) = running else { continue };
        let mut client = RedisBenchmark::new(field.client_cpu, running.port, 1, &question);
        let able = client.run(pace.round).and_then(|_first| client.run(pace.round));
        interrupt.check()?;
        if let Some(able) = field.admit(title, |_| able) {
            most = most.min(able.value);
            contestants.push((name, title, running, question));
        }
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
    compare(
        Comparison::new("latency", title, Unit::P99Microseconds),
        entrants,
        pace,
        interrupt,
        &mut field.notes,
    )
}
