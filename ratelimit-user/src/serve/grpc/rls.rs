//! Envoy's rate limit service: may this request pass, by all of its descriptors?
//!
//! All descriptors of a request are charged, or none: a descriptor that refuses costs the others nothing. A descriptor whose own hits are 0 is charged
//! nothing. A request whose descriptors all have hits of their own tells what an answer has cost that went out: it is charged as far as there is something left.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use super::{
    descriptor::{DescriptorQuery, problem},
    framing::{decoded, framed},
    messages::{
        self, Descriptor, DescriptorStatus, HeaderMessage, LimitCode, RateLimit, RateLimitRequest,
        RateLimitResponse, RateUnit, text,
    },
    rlqs,
    status::GrpcStatus,
};
use crate::requests::{
    Decision, Nearest, Outcome, asking::Asking, decision_service::DecisionService, seconds, turns::Turn,
};

/// The most descriptors of one request. Proxies send one for each limit of a route.
const MAX_DESCRIPTORS: usize = 64;

/// An answer, and how long to hold it back.
#[derive(Debug)]
pub struct RlsAnswer {
    /// The answer, with its five bytes in front.
    pub frame: Bytes,
    /// How long until the turn of the request.
    pub wait: Duration,
    /// The turns that are kept for the request until then.
    pub turns: Vec<Turn>,
    /// Descriptors that were charged and did not have to wait.
    pub paid: Vec<usize>,
}

/// What was decided about one descriptor.
struct DescriptorFinding {
    outcome: Outcome,
    limit: Option<DescriptorLimit>,
    /// The turn that is kept for a caller that waits.
    turn: Option<Turn>,
}

/// The limit that decided, copied: rules may change.
struct DescriptorLimit {
    status: RateLimit,
    policies: Vec<Bytes>,
    remaining: u64,
    reset_us: u64,
    more_us: u64,
}

/// Answers one question. `vouched` says whether the caller is trusted about addresses, so that they may be blocked.
///
/// A question that can be read and makes no sense is refused, with a sentence. To a proxy an error means that nobody is there, and most proxies let
/// everything pass then.
pub async fn answer(
    decisions: &Arc<DecisionService>,
    message: Bytes,
    vouched: bool,
) -> Result<RlsAnswer, GrpcStatus> {
    let asked = read(message)?;
    match findings(decisions, &asked, vouched).await {
        Ok(findings) => Ok(told(findings)),
        Err(status) => Ok(senseless(decisions, asked.descriptors.len(), &status)),
    }
}

/// Makes the answer to a question that makes no sense.
pub fn senseless(decisions: &DecisionService, descriptors: usize, why: &GrpcStatus) -> RlsAnswer {
    decisions.complain(&why.message);
    let status = DescriptorStatus { code: LimitCode::OverLimit.into(), ..Default::default() };
    let response = RateLimitResponse {
        overall_code: LimitCode::OverLimit.into(),
        statuses: vec![status; descriptors.min(MAX_DESCRIPTORS)],
        raw_body: Bytes::from(format!("{}\n", why.message)),
        ..Default::default()
    };
    RlsAnswer { frame: framed(&response), wait: Duration::ZERO, turns: Vec::new(), paid: Vec::new() }
}

/// Reads a question, and makes text of its values, whatever bytes they are.
fn read(message: Bytes) -> Result<RateLimitRequest, GrpcStatus> {
    let mut asked: RateLimitRequest = decoded(message)?;
    let entries = asked.descriptors.iter_mut().flat_map(|descriptor| &mut descriptor.entries);
    entries.for_each(|entry| messages::readable(&mut entry.value));
    Ok(asked)
}

async fn findings(
    decisions: &Arc<DecisionService>,
    asked: &RateLimitRequest,
    vouched: bool,
) -> Result<Vec<DescriptorFinding>, GrpcStatus> {
    let domain = text("domain", &asked.domain)?;
    if domain.is_empty() {
        return Err(GrpcStatus::invalid("domain is empty"));
    }
    if asked.descriptors.is_empty() || asked.descriptors.len() > MAX_DESCRIPTORS {
        let message = format!("{} descriptors; use 1 to {MAX_DESCRIPTORS}", asked.descriptors.len());
        return Err(GrpcStatus::invalid(message));
    }
    let is_late = is_late(&asked.descriptors);
    // Nobody was refused where a late charge does not fit, so no address is blocked for it.
    let read = |one| question(domain, one, asked.hits_addend, vouched && !is_late);
    let questions = asked.descriptors.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let findings = match &questions[..] {
        [(only, asking)] => vec![ask(decisions, only, *asking).await?],
        several => all_or_none(decisions, several).await?,
    };
    if is_late && findings.iter().any(|finding| !finding.outcome.is_served()) {
        for (question, _) in &questions {
            rlqs::charge(decisions, question, question.request().cost).await;
        }
    }
    Ok(findings)
}

/// Whether descriptors tell what an answer has cost. Envoy gives a descriptor hits of its own where the route says how to read them, which with
/// `apply_on_stream_done` is from the answer. The protocol has no word for it.
fn is_late(descriptors: &[Descriptor]) -> bool {
    descriptors.iter().all(|of| of.hits_addend.as_ref().is_some_and(|own| own.value > 0))
}

/// Gives back what those descriptors of a question (`paid`) were charged whose caller has not waited for its turn.
pub async fn give_back(decisions: &DecisionService, message: Bytes, paid: &[usize]) {
    let Ok(asked) = read(message) else { return };
    let Ok(domain) = text("domain", &asked.domain) else { return };
    for descriptor in paid.iter().filter_map(|at| asked.descriptors.get(*at)) {
        if let Ok((question, Asking::Counted)) = question(domain, descriptor, asked.hits_addend, false) {
            question.give_back(decisions, question.request().cost).await;
        }
    }
}

/// Returns what a descriptor asks, and whether it counts.
fn question<'m>(
    domain: &'m str,
    of: &'m Descriptor,
    hits: u32,
    vouched: bool,
) -> Result<(DescriptorQuery<'m>, Asking), GrpcStatus> {
    // If the hits of a whole request are 0, nobody can tell whether they were given, so they stand for 1. A descriptor's own 0 was given: the caller wants to
    // know whether one more would fit, and is charged nothing.
    let (cost, asking) = match of.hits_addend {
        None => (u64::from(hits.max(1)), Asking::Counted),
        Some(own) if own.value == 0 => (1, Asking::Peeking),
        Some(own) => (own.value, Asking::Counted),
    };
    let entries = of.entries.iter().map(|entry| (&entry.key, &entry.value));
    Ok((DescriptorQuery::read(domain, entries, cost, vouched)?, asking))
}

/// Looks at all questions together, then charges all, those with the smallest limits first: others find units taken of a larger limit only if the smaller ones
/// have said yes. If somebody else takes the last unit in between, what was charged is given back.
async fn all_or_none(
    decisions: &Arc<DecisionService>,
    questions: &[(DescriptorQuery<'_>, Asking)],
) -> Result<Vec<DescriptorFinding>, GrpcStatus> {
    let requests: Vec<_> = questions.iter().map(|(question, asking)| (question.request(), *asking)).collect();
    let peeked = decisions.peek_together(&requests, DescriptorFinding::new).await;
    let mut findings = peeked.map_err(|bad| problem(&bad))?;
    if findings.iter().any(|finding| !finding.outcome.is_served()) {
        return Ok(findings);
    }
    let counted = |(_, (_, asking)): &(usize, &(DescriptorQuery<'_>, Asking))| *asking == Asking::Counted;
    let mut order: Vec<(usize, &(DescriptorQuery<'_>, Asking))> =
        questions.iter().enumerate().filter(counted).collect();
    order.sort_by_cached_key(|(_, (question, _))| decisions.capacity(&question.request()).ok().flatten());
    for (nth, (at, (question, asking))) in order.iter().enumerate() {
        findings[*at] = ask(decisions, question, *asking).await?;
        if findings[*at].outcome.is_served() {
            continue;
        }
        for (before, (charged, _)) in &order[..nth] {
            // A deprioritised request was not charged, and a request that waits leaves its turn to others.
            if !matches!(findings[*before].outcome, Outcome::Deprioritised | Outcome::Delayed { .. }) {
                charged.give_back(decisions, charged.request().cost).await;
            }
        }
        break;
    }
    Ok(findings)
}

async fn ask(
    decisions: &Arc<DecisionService>,
    question: &DescriptorQuery<'_>,
    asking: Asking,
) -> Result<DescriptorFinding, GrpcStatus> {
    let request = question.request();
    let mut finding =
        decisions.check(&request, asking, DescriptorFinding::new).await.map_err(|bad| problem(&bad))?;
    if let (Asking::Counted, Outcome::Delayed { wait_us }) = (asking, finding.outcome) {
        finding.turn = decisions.turn(&request, wait_us);
    }
    Ok(finding)
}

impl DescriptorFinding {
    fn new(decision: &Decision<'_>) -> Self {
        let limit = |nearest: &Nearest<'_>| DescriptorLimit {
            status: RateLimit {
                requests_per_unit: clamped(nearest.limit.quota),
                unit: unit(nearest.limit.window_s).into(),
                name: Bytes::copy_from_slice(nearest.limit.name.as_bytes()),
            },
            policies: std::iter::once(nearest.allowance)
                .chain(decision.violated.allowances().filter(|other| other.id != nearest.allowance.id))
                .map(|allowance| Bytes::copy_from_slice(allowance.header.as_bytes()))
                .collect(),
            remaining: nearest.remaining,
            reset_us: nearest.reset_us,
            more_us: nearest.more_us,
        };
        Self { outcome: decision.outcome, limit: decision.limit.as_ref().map(limit), turn: None }
    }
}

/// Makes the answer to the proxy, with the fields that it is to pass on.
fn told(findings: Vec<DescriptorFinding>) -> RlsAnswer {
    let mut response = RateLimitResponse { overall_code: LimitCode::Ok.into(), ..Default::default() };
    let (mut wait_us, mut retry_s, mut never_fits, mut late) = (0, None, false, false);
    let (mut policies, mut states): (Vec<Bytes>, Vec<String>) = (Vec::new(), Vec::new());
    response.statuses.reserve_exact(findings.len());
    let (mut turns, mut paid) = (Vec::new(), Vec::new());
    for (at, DescriptorFinding { outcome, limit, turn }) in findings.into_iter().enumerate() {
        turns.extend(turn);
        let mut code = LimitCode::Ok;
        match outcome {
            Outcome::Allowed | Outcome::InMargin => paid.push(at),
            Outcome::Deprioritised => late = true,
            Outcome::Delayed { wait_us: wait } => wait_us = wait.max(wait_us),
            Outcome::Refused { retry_us } => {
                code = LimitCode::OverLimit;
                response.overall_code = code.into();
                never_fits |= retry_us.is_none();
                retry_s = retry_s.max(retry_us.map(seconds));
            }
        }
        let mut status = DescriptorStatus { code: code.into(), ..Default::default() };
        if let Some(limit) = limit {
            let name = String::from_utf8_lossy(&limit.status.name);
            states.push(format!("\"{name}\";r={};t={}", limit.remaining, seconds(limit.more_us)));
            for policy in limit.policies {
                if !policies.contains(&policy) {
                    policies.push(policy);
                }
            }
            status.limit_remaining = clamped(limit.remaining);
            status.duration_until_reset = Some(messages::Duration::from_us(limit.reset_us));
            status.current_limit = Some(limit.status);
        }
        response.statuses.push(status);
    }
    let fields = &mut response.response_headers_to_add;
    if !policies.is_empty() {
        fields.reserve_exact(3);
        fields.push(HeaderMessage::new("ratelimit-policy", joined(policies)));
        fields.push(HeaderMessage::new("ratelimit", states.join(", ")));
    }
    if response.overall_code == i32::from(LimitCode::OverLimit) {
        fields.extend(
            retry_s
                .filter(|_| !never_fits)
                .map(|retry_s| HeaderMessage::new("retry-after", retry_s.to_string())),
        );
        wait_us = 0;
        turns.clear();
    } else if late {
        let low = HeaderMessage::new("x-ratelimit-priority", "low");
        fields.push(low.clone());
        response.request_headers_to_add.push(low);
    }
    RlsAnswer { frame: framed(&response), wait: Duration::from_micros(wait_us), turns, paid }
}

fn joined(mut policies: Vec<Bytes>) -> Bytes {
    match &policies[..] {
        [_] => policies.swap_remove(0),
        several => several.join(&b", "[..]).into(),
    }
}

fn clamped(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn unit(window_s: u64) -> RateUnit {
    match window_s {
        1 => RateUnit::Second,
        60 => RateUnit::Minute,
        3_600 => RateUnit::Hour,
        86_400 => RateUnit::Day,
        2_678_400 => RateUnit::Month,
        _ => RateUnit::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    fn answered(outcomes: &[Outcome]) -> (RlsAnswer, Vec<(String, String)>) {
        let finding = |outcome: &Outcome| DescriptorFinding { outcome: *outcome, limit: None, turn: None };
        let answer = told(outcomes.iter().map(finding).collect());
        let response = RateLimitResponse::decode(&answer.frame[5..]).unwrap();
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        let fields = response.response_headers_to_add.iter();
        let fields = fields.map(|HeaderMessage { key, value }| (text(key), text(value))).collect();
        (answer, fields)
    }

    /// A question about an address, with hits of its own or without.
    fn question_from(ip: &'static str, own: Option<u64>) -> Bytes {
        let entry = messages::DescriptorEntry { key: "ip".into(), value: ip.into() };
        let hits_addend = own.map(|value| messages::NumberMessage { value });
        let descriptors = vec![Descriptor { entries: vec![entry], hits_addend }];
        RateLimitRequest { domain: "shop".into(), descriptors, hits_addend: 0 }.encode_to_vec().into()
    }

    #[tokio::test]
    async fn a_charge_after_the_answer_blocks_no_address() {
        let policy = "[source]\nlimits = [\"1/s\"]\n[[api]]\nname = \"shop\"\nkey = [\"ip\"]\nlimits = [\"2/day fixed-window\"]\n\
                      escalate = { above = \"1/day\", for = \"1s\", block = \"9m\" }\n";
        let decisions = Arc::new(DecisionService::new(&crate::config::parse(policy, "test").unwrap().policy));
        let mut blocks = decisions.escalations().unwrap();
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_millis(1_200) {
            answer(&decisions, question_from("192.0.2.1", Some(5_000)), true).await.unwrap();
            answer(&decisions, question_from("192.0.2.2", None), true).await.unwrap();
        }
        let block = blocks.try_recv().unwrap();
        assert_eq!(block.prefix.to_string(), "192.0.2.2/32", "who is refused");
        while let Ok(block) = blocks.try_recv() {
            assert_eq!(block.prefix.to_string(), "192.0.2.2/32");
        }
    }

    #[test]
    fn of_several_descriptors_that_refuse_or_wait_the_longest_time_is_told_whatever_their_order() {
        let refused = |s: u64| Outcome::Refused { retry_us: Some(s * 1_000_000) };
        let never = Outcome::Refused { retry_us: None };
        let delayed = |s: u64| Outcome::Delayed { wait_us: s * 1_000_000 };
        let retry = |s: &str| vec![("retry-after".to_owned(), s.to_owned())];
        for (outcomes, told) in [
            ([refused(5), refused(60), refused(7)], retry("60")),
            // What one descriptor never lets pass does not pass after a minute either.
            ([refused(60), never, refused(5)], vec![]),
        ] {
            for turn in 0..3 {
                let mut outcomes = outcomes;
                outcomes.rotate_left(turn);
                assert_eq!(answered(&outcomes).1, told, "{outcomes:?}");
            }
        }
        for outcomes in [[delayed(5), delayed(60)], [delayed(60), delayed(5)]] {
            let (answer, fields) = answered(&outcomes);
            assert_eq!((answer.wait, fields), (Duration::from_secs(60), vec![]), "{outcomes:?}");
        }
        let (answer, fields) = answered(&[delayed(60), refused(5)]);
        assert_eq!((answer.wait, fields), (Duration::ZERO, retry("5")), "who is refused does not wait");
        let (answer, fields) = answered(&[Outcome::Allowed, Outcome::Deprioritised, Outcome::InMargin]);
        assert_eq!((answer.wait, &answer.paid[..]), (Duration::ZERO, &[0, 2][..]));
        assert_eq!(fields, [("x-ratelimit-priority".to_owned(), "low".to_owned())]);
    }
}
