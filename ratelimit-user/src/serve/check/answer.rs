//! Answers: decisions as status, header fields and JSON, and trouble as a sentence.

use std::{borrow::Cow, fmt::Write as _};

use http_body_util::Full;
use hyper::{
    Method, Response, StatusCode,
    body::Bytes,
    header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE},
};
use serde::Serialize;

use super::shown::shown;
use crate::requests::{
    BadRequest, Decision, Nearest, Outcome,
    allowance::AllowanceLimit,
    asking::{NotRefunded, NotReset},
    seconds,
};

/// An answer over HTTP.
pub(super) type HttpAnswer = Response<Full<Bytes>>;

/// The field with the limits that a request has.
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// The field with what is left of the limit that decided, or that has least left.
const STANDING: HeaderName = HeaderName::from_static("ratelimit");
/// The field that says that the request is to be served after others.
const PRIORITY: HeaderName = HeaderName::from_static("x-ratelimit-priority");
/// The field that says that the request is above its limit, in the margin.
const MARGIN: HeaderName = HeaderName::from_static("x-ratelimit-margin");
/// The field with the milliseconds that the answer was held.
const DELAYED: HeaderName = HeaderName::from_static("x-ratelimit-delayed");

const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// The problem type of "too many requests", by draft-ietf-httpapi-ratelimit-headers.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// Why nothing is changed for a caller that has shown nothing.
pub(super) const NO_CHANGE: &str = "changes need more than being on this host; name a token_file in [listen] and send Authorization: Bearer \
                                    TOKEN, or use a socket in the file system";
/// Why nothing is reset for a caller that may only ask.
pub(super) const NO_RESET: &str = "resets need the operator's token, the one of operator_token_file in [listen]; send it as Authorization: \
                                   Bearer TOKEN. What one request was charged, /v1/refund gives back without it";
/// Why nothing is changed by a body that does not say that it is JSON.
pub(super) const NO_JSON: &str =
    "changes are taken from bodies of JSON that say so; send Content-Type: application/json";

/// Makes the answer of a decision: status and header fields, and for a refusal a problem as the body.
pub(super) fn decided(decision: &Decision<'_>) -> HttpAnswer {
    let mut answer = match decision.outcome {
        Outcome::Refused { retry_us } => refusal(decision, retry_us.map(seconds)),
        _ => Response::new(Full::default()),
    };
    mark(&mut answer, decision);
    answer
}

/// Makes the answer of a decision with JSON as the body. A refusal is answered as by [`decided`].
pub(super) fn decided_in_json(decision: &Decision<'_>) -> HttpAnswer {
    if matches!(decision.outcome, Outcome::Refused { .. }) {
        return decided(decision);
    }
    let mut body = Vec::with_capacity(192);
    write(&mut body, &DecisionJson::new(decision));
    let mut answer = json(StatusCode::OK, body);
    mark(&mut answer, decision);
    answer
}

/// A decision, to be written as JSON.
#[derive(Debug, Serialize)]
pub(super) struct DecisionJson<'r> {
    allowed: bool,
    outcome: &'static str,
    #[serde(flatten)]
    limit: Option<NearestLimit<'r>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
struct NearestLimit<'r> {
    policy: &'r str,
    limit: u64,
    window: u64,
    remaining: u64,
    reset: u64,
}

impl<'r> DecisionJson<'r> {
    /// Makes the JSON of a decision.
    pub(super) fn new(decision: &Decision<'r>) -> Self {
        let (retry_after, delay_ms) = match decision.outcome {
            Outcome::Refused { retry_us } => (retry_us.map(|us| seconds(us).max(1)), None),
            Outcome::Delayed { wait_us } => (None, Some(milliseconds(wait_us))),
            _ => (None, None),
        };
        let standing = |nearest: Nearest<'r>| NearestLimit {
            policy: &nearest.limit.name,
            limit: nearest.limit.quota,
            window: nearest.limit.window_s,
            remaining: nearest.remaining,
            reset: seconds(nearest.reset_us),
        };
        let outcome = decision.outcome;
        Self {
            allowed: outcome.is_served(),
            outcome: outcome.name(),
            limit: decision.limit.map(standing),
            retry_after,
            delay_ms,
        }
    }
}

/// Adds the header fields that every decision has.
fn mark(answer: &mut HttpAnswer, decision: &Decision<'_>) {
    let headers = answer.headers_mut();
    if let Some(Nearest { allowance, limit, remaining, more_us, .. }) = &decision.limit {
        let mut policies = Cow::Borrowed(allowance.header.as_str());
        // The other allowances that refuse: the problem names their limits, too.
        for other in decision.violated.allowances().filter(|other| other.id != allowance.id) {
            let policies = policies.to_mut();
            policies.push_str(", ");
            policies.push_str(&other.header);
        }
        // Cannot fail: names in a policy have only letters that header fields may have.
        if let Ok(value) = HeaderValue::from_str(&policies) {
            headers.insert(POLICY, value);
        }
        let mut line = HeaderLine::new();
        line.text("\"")
            .text(&limit.name)
            .text("\";r=")
            .number(*remaining)
            .text(";t=")
            .number(seconds(*more_us));
        headers.insert(STANDING, line.value());
    }
    match decision.outcome {
        Outcome::Allowed => {}
        Outcome::InMargin => _ = headers.insert(MARGIN, HeaderValue::from_static("1")),
        Outcome::Deprioritised => _ = headers.insert(PRIORITY, HeaderValue::from_static("low")),
        Outcome::Delayed { wait_us } => _ = headers.insert(DELAYED, milliseconds(wait_us).into()),
        Outcome::Refused { retry_us: Some(retry_us) } => {
            _ = headers.insert(RETRY_AFTER, seconds(retry_us).max(1).into());
        }
        Outcome::Refused { retry_us: None } => {}
    }
}

/// Makes the answer of a refusal, a problem. Under load most answers are refusals, so the text is put together at once. Names in a policy need no escapes.
fn refusal(decision: &Decision<'_>, retry_after: Option<u64>) -> HttpAnswer {
    let limit = decision.limit.as_ref();
    let retry_after = retry_after.map(|seconds| seconds.max(1));
    let mut body = String::with_capacity(384);
    let _written = write!(
        body,
        "{{\"type\":\"{QUOTA_EXCEEDED}\",\"title\":\"Request cannot be satisfied as assigned quota has been exceeded\",\
         \"status\":429,\"detail\":\""
    );
    if let Some(Nearest { limit, .. }) = limit {
        let AllowanceLimit { name, quota, window_s, .. } = limit;
        let _written = write!(body, "policy \\\"{name}\\\" allows {quota} in {window_s} s; ");
    }
    let _written = match retry_after {
        Some(seconds) => write!(body, "try again in {seconds} s\""),
        None => write!(body, "this request asks for more than there ever is at once\""),
    };
    if let Some(Nearest { limit, .. }) = limit {
        let name = &limit.name;
        let _written = write!(body, ",\"policy\":\"{name}\",\"violated-policies\":[");
        for (nth, AllowanceLimit { name, .. }) in decision.violated.limits().enumerate() {
            let comma = if nth > 0 { "," } else { "" };
            let _written = write!(body, "{comma}\"{name}\"");
        }
        body.push(']');
    }
    if let Some(seconds) = retry_after {
        let _written = write!(body, ",\"retry_after\":{seconds}");
    }
    body.push('}');
    with_body(StatusCode::TOO_MANY_REQUESTS, PROBLEM, body)
}

/// A problem in the format of RFC 9457.
#[derive(Debug, Serialize)]
struct ProblemJson<'p> {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'p str,
    status: u16,
    detail: &'p str,
}

/// A request that is not answered, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    status: StatusCode,
    /// The trouble, as a sentence.
    pub detail: String,
    field: Option<(HeaderName, HeaderValue)>,
}

impl Trouble {
    /// Makes trouble of any status.
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), field: None }
    }

    /// Makes trouble: the request makes no sense.
    pub(super) fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// Makes trouble: there is nothing at this path.
    pub(super) fn path(path: &str) -> Self {
        let detail = format!("there is nothing at {}; ask at /v1/check, and see /openapi.json", shown(path));
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// Makes trouble: what is at this path takes other methods.
    pub(super) fn method(method: &Method, allowed: &'static str) -> Self {
        let detail = format!("method {} is not for this path; use {allowed}", shown(method.as_str()));
        let field = Some((ALLOW, HeaderValue::from_static(allowed)));
        Self { field, ..Self::new(StatusCode::METHOD_NOT_ALLOWED, detail) }
    }

    /// Makes trouble: the caller has not shown the token, or has shown another.
    pub(super) fn unauthorised(shown: bool) -> Self {
        let wrong = if shown { "the token is not the right one" } else { "the token is missing" };
        let field = Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")));
        let detail = format!("{wrong}; send Authorization: Bearer TOKEN");
        Self { field, ..Self::new(StatusCode::UNAUTHORIZED, detail) }
    }

    /// Whether the question makes no sense: the caller has made a mistake that the operator should know of.
    pub(super) fn is_senseless(&self) -> bool {
        matches!(self.status, StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND)
    }

    /// Makes the answer that tells of the trouble.
    pub(super) fn into_answer(self) -> HttpAnswer {
        let problem = ProblemJson {
            kind: "about:blank",
            title: self.status.canonical_reason().unwrap_or("Trouble"),
            status: self.status.as_u16(),
            detail: &self.detail,
        };
        let mut body = Vec::with_capacity(192);
        write(&mut body, &problem);
        let mut answer = with_body(self.status, PROBLEM, body);
        if let Some((name, value)) = self.field {
            answer.headers_mut().insert(name, value);
        }
        answer
    }
}

impl From<BadRequest> for Trouble {
    fn from(bad: BadRequest) -> Self {
        let status = match bad {
            BadRequest::UnknownApi { .. } => StatusCode::NOT_FOUND,
            _ => StatusCode::BAD_REQUEST,
        };
        Self::new(status, bad.to_string())
    }
}

impl From<NotRefunded> for Trouble {
    fn from(not: NotRefunded) -> Self {
        match not {
            NotRefunded::Bad(bad) => bad.into(),
            away @ NotRefunded::StoreAway => {
                let field = Some((RETRY_AFTER, HeaderValue::from_static("1")));
                Self { field, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, away.to_string()) }
            }
        }
    }
}

impl From<NotReset> for Trouble {
    fn from(not: NotReset) -> Self {
        match not {
            NotReset::Bad(bad) => bad.into(),
            full @ NotReset::TooMany => {
                let field = Some((RETRY_AFTER, HeaderValue::from_static("1")));
                Self { field, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, full.to_string()) }
            }
        }
    }
}

impl From<String> for Trouble {
    fn from(detail: String) -> Self {
        Self::bad(detail)
    }
}

/// Makes an answer with a JSON body.
pub(super) fn json(status: StatusCode, body: impl Into<Bytes>) -> HttpAnswer {
    with_body(status, JSON, body)
}

/// Makes an answer with a body of plain text.
pub(super) fn text(body: impl Into<Bytes>) -> HttpAnswer {
    with_body(StatusCode::OK, TEXT, body)
}

/// Makes an empty answer, which says that something is done.
pub(super) fn done() -> HttpAnswer {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    answer
}

fn with_body(status: StatusCode, kind: HeaderValue, body: impl Into<Bytes>) -> HttpAnswer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

/// Adds JSON to a body.
pub(super) fn write(body: &mut Vec<u8>, value: &impl Serialize) {
    // Cannot fail: memory takes everything, and all keys in answers are text.
    let _written = serde_json::to_writer(body, value);
}

fn milliseconds(us: u64) -> u64 {
    us.div_ceil(1_000)
}

/// The value of a header field, put together without allocating memory.
struct HeaderLine {
    bytes: [u8; Self::LENGTH],
    length: usize,
}

impl HeaderLine {
    /// Room in bytes. The longest name of a limit has 64 letters for the API, as many for the plan or user, and a period.
    const LENGTH: usize = 256;

    fn new() -> Self {
        Self { bytes: [0; Self::LENGTH], length: 0 }
    }

    fn text(&mut self, text: &str) -> &mut Self {
        let room = &mut self.bytes[self.length..];
        let taken = text.len().min(room.len());
        room[..taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.length += taken;
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        let mut digits = [0; 20];
        let (mut at, mut rest) = (digits.len(), number);
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.text(std::str::from_utf8(&digits[at..]).unwrap_or_default())
    }

    fn value(&self) -> HeaderValue {
        HeaderValue::from_bytes(&self.bytes[..self.length]).unwrap_or(HeaderValue::from_static(""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_every_number_as_people_write_it() {
        for number in [0, 9, 10, 99, 100, 1_234_567, u64::MAX] {
            assert_eq!(HeaderLine::new().text("r=").number(number).value(), format!("r={number}"));
        }
    }

    #[test]
    fn a_line_ends_where_its_room_does() {
        let mut line = HeaderLine::new();
        line.text(&"x".repeat(HeaderLine::LENGTH)).number(12);
        assert_eq!(line.value(), "x".repeat(HeaderLine::LENGTH));
    }

    #[test]
    fn seconds_are_never_too_few() {
        assert_eq!([0, 1, 999_999, 1_000_000, 1_000_001].map(seconds), [0, 1, 1, 1, 2]);
    }
}
