//! Keys of an `[[api]]` whose values are more than one word: algorithm and throttle, `on_limit`, `escalate` and `reserved`.

use std::time::Duration;

use ratelimit_common::limit::{
    lifetime::parse_lifetime,
    manner::{Algorithm, Manner, Throttle},
    rate::Rate,
    text::request::{parse_request, parse_throttle},
};

use super::{ApiTable, about, one_of, prefix};
use crate::{
    config::{
        problem::Problems,
        table::policy_table,
        value::{At, KeyLookup, integer, string},
    },
    policy::{Api, Escalation, OnRefusal, RequestLimit, Reserved},
};

/// The longest that a request waits.
const MAX_DELAY: Duration = Duration::from_secs(60);
/// The longest time that a caller may stay above its limit before it is blocked.
const MAX_LASTING: Duration = Duration::from_secs(3_600);

policy_table! {
    /// `reserved = { … }`.
    ReservedTable {
        at,
        "critical" => critical: Option<At<String>> = string,
        "normal" => normal: Option<At<String>> = string,
    }
}

policy_table! {
    /// `escalate = { … }`.
    EscalateTable {
        at,
        "above" => above: KeyLookup<At<String>> = string,
        "for" => lasting: KeyLookup<At<String>> = string,
        "block" => block: KeyLookup<At<String>> = string,
        "ipv4_prefix" => ipv4_prefix: Option<At<i64>> = integer,
        "ipv6_prefix" => ipv6_prefix: Option<At<i64>> = integer,
    }
}

/// The manner of limits that name no algorithm or throttle themselves.
pub(super) fn manner(table: &ApiTable, problems: &mut Problems<'_>) -> Option<Manner> {
    let algorithms = Algorithm::ALL.map(|algorithm| (algorithm.name(), algorithm));
    let algorithm = match &table.algorithm {
        None => Some(Algorithm::TokenBucket),
        Some(word) => one_of("algorithm", Some(word), algorithms, problems),
    };
    let throttle = match &table.throttle {
        None => Some(Throttle::Hard),
        Some((text, at)) => match parse_throttle(text) {
            Some(Ok(throttle)) => Some(throttle),
            Some(Err(error)) => {
                problems.error(at, format!("throttle: {error}"));
                None
            }
            None => {
                let message = format!(
                    "throttle = {text:?} is not known; use \"hard\", or a margin such as \"soft 10%\" or \"elastic 50%\""
                );
                problems.error(at, message);
                None
            }
        },
    };
    Some(Manner { algorithm: algorithm?, throttle: throttle? })
}

pub(super) fn on_limit(written: Option<&At<String>>, problems: &mut Problems<'_>) -> OnRefusal {
    let Some((text, at)) = written else { return OnRefusal::Refuse };
    let mut words = text.split_whitespace();
    let delay = match (words.next(), words.next(), words.next()) {
        (Some("refuse"), None, _) => return OnRefusal::Refuse,
        (Some("deprioritise"), None, _) => return OnRefusal::Deprioritise,
        (Some("delay"), None, _) => {
            problems.error(at, about("on_limit", text, "it says no time; write \"delay 2s\""));
            return OnRefusal::Refuse;
        }
        (Some("delay"), Some(time), None) => time,
        _ => {
            let known = "\"refuse\", \"delay 2s\" or \"deprioritise\"";
            problems.error(at, format!("on_limit = {text:?} is not known; use {known}"));
            return OnRefusal::Refuse;
        }
    };
    match parse_lifetime(delay).map(Duration::from_nanos) {
        Ok(delay) if delay <= MAX_DELAY => OnRefusal::Delay(delay),
        Ok(_) => {
            problems.error(at, about("on_limit", text, "no caller waits that long; use at most 60s"));
            OnRefusal::Refuse
        }
        Err(error) => {
            problems.error(at, about("on_limit", text, error));
            OnRefusal::Refuse
        }
    }
}

/// Reports `delay` beside a window: a delayed request takes a slot in time, which only buckets have.
pub(super) fn judge_delay(table: &ApiTable, api: &Api, problems: &mut Problems<'_>) {
    let (OnRefusal::Delay(_), Some((text, at))) = (api.on_limit, &table.on_limit) else { return };
    let mut limits = api.lists().flatten();
    if let Some(window) = limits.find(|limit| limit.rate.manner.algorithm.is_window()) {
        let why = format!(
            "\"{window}\" is a window, and a window has no slot to hold; use token-bucket or leaky-bucket"
        );
        problems.error(at, about("on_limit", text, why));
    }
}

pub(super) fn reserved(table: Option<&ReservedTable>, problems: &mut Problems<'_>) -> Reserved {
    let Some(table) = table else { return Reserved::default() };
    let mut part = |key: &str, written: &Option<At<String>>| {
        let Some((text, at)) = written else { return 0 };
        percent(text).unwrap_or_else(|| {
            let what = "it is no part of a limit; use \"0%\" to \"99%\", without decimals";
            problems.error(at, about(key, text, what));
            0
        })
    };
    let reserved =
        Reserved { critical: part("critical", &table.critical), normal: part("normal", &table.normal) };
    let all = reserved.critical + reserved.normal;
    if all > 99 {
        let message =
            format!("reserved is {all}% of every limit: nothing is left for others; keep it below 100%");
        problems.error(&table.at, message);
    }
    reserved
}

fn percent(text: &str) -> Option<u32> {
    let digits = text.trim().strip_suffix('%')?.trim_end();
    let plain = !digits.is_empty() && digits.len() <= 2 && digits.bytes().all(|c| c.is_ascii_digit());
    plain.then(|| digits.parse().ok())?
}

pub(super) fn escalation(table: &EscalateTable, problems: &mut Problems<'_>) -> Option<Escalation> {
    let above = required("above", "10/s", &table.above, table, problems, above);
    let lasting = required("for", "30s", &table.lasting, table, problems, |text| {
        let time = lifetime(text)?;
        let range = Duration::from_secs(1)..=MAX_LASTING;
        if range.contains(&time) { Ok(time) } else { Err("it is not possible; use 1s to 1h".to_owned()) }
    });
    let block_for = required("block", "10m", &table.block, table, problems, lifetime);
    let ipv4_prefix = prefix("ipv4_prefix", table.ipv4_prefix.as_ref(), 32, 32, problems);
    let ipv6_prefix = prefix("ipv6_prefix", table.ipv6_prefix.as_ref(), 128, 64, problems);
    Some(Escalation { above: above?, lasting: lasting?, block_for: block_for?, ipv4_prefix, ipv6_prefix })
}

/// Reads a required key of `escalate`; `None` if it is missing or invalid, and reported.
fn required<T>(
    key: &str,
    example: &str,
    written: &KeyLookup<At<String>>,
    table: &EscalateTable,
    problems: &mut Problems<'_>,
    read: impl Fn(&str) -> Result<T, String>,
) -> Option<T> {
    match written {
        KeyLookup::Unreadable => None,
        KeyLookup::Absent => {
            problems.missing(&table.at, format!("escalate has no {key}; write {key} = {example:?}"));
            None
        }
        KeyLookup::Read((text, at)) => {
            read(text).map_err(|error| problems.error(at, about(key, text, error))).ok()
        }
    }
}

fn lifetime(text: &str) -> Result<Duration, String> {
    parse_lifetime(text).map(Duration::from_nanos).map_err(|error| error.to_string())
}

fn above(text: &str) -> Result<Rate, String> {
    let rate = parse_request(text, Manner::PLAIN).map_err(|error| error.to_string())?;
    let limit = RequestLimit::new(rate, None).map_err(|error| error.to_string())?;
    if limit.rate.manner == Manner::PLAIN && limit.rate.burst == limit.rate.amount {
        Ok(limit.rate)
    } else {
        Err("it is a plain rate of refusals; write it like \"10/s\"".to_owned())
    }
}
