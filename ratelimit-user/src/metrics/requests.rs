//! Metrics of requests.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use super::histogram::Times;
use crate::requests::status::{QuestionCount, RequestsStatus, ServerCount, StoreProblem};

pub(super) fn register(registry: &Registry, status: &RequestsStatus) -> Result<(), prometheus::Error> {
    let decisions = IntCounterVec::new(
        Opts::new("ratelimit_decisions_total", "Decisions about requests by API and outcome."),
        &["api", "outcome"],
    )?;
    for count in &status.decisions {
        decisions.with_label_values(&[count.api.as_str(), count.outcome.as_str()]).inc_by(count.decisions);
    }
    registry.register(Box::new(decisions))?;
    registry.register(Box::new(Times::new(
        "ratelimit_decision_seconds",
        "Time from the question to the decision, the store included where it was asked.",
        &status.decision_times,
    )?))?;
    let keys = IntGauge::new("ratelimit_request_keys", "Counter keys that are remembered.")?;
    keys.set(status.keys as i64);
    registry.register(Box::new(keys))?;
    let QuestionCount { asked, unanswered } = status.store_questions;
    for (name, help, value) in [
        ("ratelimit_request_keys_evicted_total", "Counter keys that had to make way.", status.evicted),
        ("ratelimit_request_store_questions_total", "Counter keys that the store was asked about.", asked),
        (
            "ratelimit_request_store_failures_total",
            "Counter keys that the store gave no answer about in time.",
            unanswered,
        ),
    ] {
        let counter = IntCounter::new(name, help)?;
        counter.inc_by(value);
        registry.register(Box::new(counter))?;
    }
    if let Some(up) = status.store_up {
        let gauge =
            IntGauge::new("ratelimit_request_store_up", "1 while requests are counted with other hosts.")?;
        gauge.set(up.into());
        registry.register(Box::new(gauge))?;
        let servers = IntGaugeVec::new(
            Opts::new("ratelimit_request_store_servers", "Servers of the store by whether they answer."),
            &["state"],
        )?;
        let ServerCount { answering, away } = status.store_servers;
        servers.with_label_values(&["answering"]).set(answering as i64);
        servers.with_label_values(&["away"]).set(away as i64);
        registry.register(Box::new(servers))?;
        let steps = IntCounter::new(
            "ratelimit_request_store_clock_steps_total",
            "How often the clock of a server of the store was set back.",
        )?;
        steps.inc_by(status.store_clock_steps);
        registry.register(Box::new(steps))?;
        let forgetful = IntGauge::new(
            "ratelimit_request_store_forgetful_servers",
            "Servers of the store that forget what was spent when their memory is full (maxmemory-policy), or when they start again although limits of requests are over more than an hour (appendonly, save).",
        )?;
        forgetful.set(status.store_warnings.len() as i64);
        registry.register(Box::new(forgetful))?;
    }
    if let Some(StoreProblem { kind, .. }) = &status.store_problem {
        let problem = IntGaugeVec::new(
            Opts::new(
                "ratelimit_request_store_problem",
                "1 while a server of the store does not answer: why.",
            ),
            &["kind"],
        )?;
        problem.with_label_values(&[kind.as_str()]).set(1);
        registry.register(Box::new(problem))?;
    }
    Ok(())
}
