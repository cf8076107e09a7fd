//! `ratelimit test`: one question to the decision engine.

use std::net::IpAddr;

use clap::Args;

use super::{
    DaemonArgs, Format,
    output::{Output, print, print_json},
};
use crate::{
    control::{
        client::{ask, unexpected},
        protocol::{DecisionInfo, Order, Reply, TestQuestion},
    },
    failure::{ExitCode, Failure},
    policy::KeyPart,
};

/// Ask the decision service once: may this user call this API now? Exits with 1 if not.
///
/// The request counts, as if a web server had asked, unless --peek is given.
///
/// Example: ratelimit test --user acme --api create-url --ip 203.0.113.7 --peek
#[derive(Debug, Args)]
pub(super) struct Test {
    /// User who makes the request
    #[arg(long, value_name = "NAME", default_value = "")]
    user: String,
    /// API that the request is for
    #[arg(long, value_name = "NAME")]
    api: String,
    /// Address that the request comes from
    #[arg(long, value_name = "ADDRESS")]
    ip: Option<IpAddr>,
    /// Units that the request takes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=9_007_199_254_740_991))]
    cost: u64,
    /// Priority of the request: critical, normal or background
    #[arg(long, value_name = "WORD")]
    priority: Option<String>,
    /// A further part of the key, as NAME=VALUE; may be given more than once
    #[arg(long = "key", value_name = "NAME=VALUE", value_parser = part)]
    parts: Vec<(String, String)>,
    /// Ask without counting the request
    #[arg(long)]
    peek: bool,
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(flatten)]
    format: Format,
}

fn part(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    if !KeyPart::is_further(name) {
        return Err(format!("{name:?} cannot be a part of a key; {}", KeyPart::NAMES));
    }
    Ok((name.to_owned(), value.to_owned()))
}

impl Test {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let Self { user, api, ip, cost, priority, parts, peek, daemon, format } = self;
        let question = TestQuestion { user, api, ip, cost, priority, parts, peek };
        let decision = match ask(&daemon.state, Order::Test(question))? {
            Reply::Decision(decision) => decision,
            other => return Err(unexpected(&other)),
        };
        match format.output {
            Output::Json => print_json(&decision)?,
            Output::Text => print(&text(&decision))?,
        }
        match decision.allowed {
            true => Ok(()),
            false => Err(Failure::new(ExitCode::Found, String::new())),
        }
    }
}

fn text(decision: &DecisionInfo) -> String {
    let mut words = decision.outcome.replace('_', " ");
    if let Some(delay) = decision.delay_ms {
        words += &format!(", after {delay} ms");
    }
    if let Some((policy, remaining)) = decision.policy.as_ref().zip(decision.remaining) {
        words += &format!("; {policy}: {remaining} left");
        if let Some((limit, window)) = decision.limit.zip(decision.window_seconds) {
            words += &format!(" of {limit} in {window} s");
        }
    }
    match (decision.allowed, decision.retry_after_ms) {
        (false, Some(retry)) => words += &format!("; try again in {retry} ms"),
        (false, None) => words += "; it will never fit",
        (true, _) => {}
    }
    words + "\n"
}
