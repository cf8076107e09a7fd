//! `CHECK`, `REFUND` and `RESETKEY`: questions about the policy's limits.

use std::{net::IpAddr, time::Duration};

use super::{reply::RespReply, throttle::integer};
use crate::{
    requests::{
        BadRequest, Decision, Outcome, Priority, Request,
        asking::{Asking, NotRefunded, NotReset},
        decision_service::DecisionService,
        turns::Turn,
    },
    serve::door::Door,
};

/// The most further parts of a key that one question can have.
const MAX_PARTS: usize = 16;
/// Microseconds in a millisecond.
const US_IN_MS: u64 = 1_000;

/// What a question may say beside user, API, address and cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckWords {
    /// `PRIORITY`, `PEEK` and `KEY`.
    All,
    /// Only the word `KEY`.
    Keys,
}

/// A question that cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckProblem {
    /// Bytes where a name belongs.
    #[error("{0} is not UTF-8 text")]
    NoText(&'static str),
    /// Neither an address, nor a cost, nor a word that is known.
    #[error("{word:?} is no address, no cost, and none of {known}")]
    UnknownWord {
        /// The rejected value, as the caller sent it.
        word: String,
        /// The words that are known.
        known: &'static str,
    },
    /// An address or a cost that comes twice, or an address behind the cost.
    #[error("{0:?} is one too many; use [ip] [cost], each once, in this order")]
    OneTooMany(String),
    /// A number that cannot be a cost.
    #[error("{0:?} is no address, and no cost from 1 on")]
    NoCost(String),
    /// No priority of this name.
    #[error("priority {0:?} is unknown; use background, normal or critical")]
    NoPriority(String),
    /// A word at the end that another word must follow.
    #[error("{0} needs {1} behind it")]
    Unfinished(&'static str, &'static str),
    /// More parts of a key than a question may have.
    #[error("more than {MAX_PARTS} parts of a key")]
    TooManyParts,
    /// A change that is not for everybody on this host.
    #[error(
        "changes need more than being on this host; name a token_file in [listen] and AUTH with the token, or use a socket in the file system"
    )]
    NoChange,
    /// A reset where operators have a token of their own, which nobody shows over this protocol.
    #[error(
        "resets need the operator's token, the one of operator_token_file in [listen]; send it with POST /v1/reset over HTTP"
    )]
    NoReset,
    /// A question that the engine does not take.
    #[error(transparent)]
    Bad(#[from] BadRequest),
    /// Units that cannot be given back.
    #[error(transparent)]
    NotRefunded(#[from] NotRefunded),
    /// A key that cannot be reset.
    #[error(transparent)]
    NotReset(#[from] NotReset),
}

impl CheckProblem {
    /// The word that this kind of error begins with.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NoChange | Self::NoReset => "NOPERM",
            _ => "ERR",
        }
    }
}

/// A question as it was typed.
#[derive(Clone, Copy, Debug)]
pub struct RespCheck<'a> {
    user: &'a str,
    api: &'a str,
    ip: Option<IpAddr>,
    cost: Option<u64>,
    priority: Priority,
    asking: Asking,
}

/// Further parts of the key of a question. Most questions have none, and an empty list allocates nothing.
pub type Parts<'a> = Vec<(&'a str, &'a str)>;

impl<'a> RespCheck<'a> {
    /// Reads `user api [ip] [cost]` and the words that are allowed behind them; parts of keys go to `parts`.
    pub fn parse(
        arguments: &[&'a [u8]],
        words: CheckWords,
        parts: &mut Parts<'a>,
    ) -> Result<Self, CheckProblem> {
        let (mut rest, user, api) = match arguments {
            [user, api, rest @ ..] => (rest, text(user, "user")?, text(api, "api")?),
            _ => return Err(CheckProblem::Unfinished("a question", "user and api")),
        };
        let mut question =
            Self { user, api, ip: None, cost: None, priority: Priority::Normal, asking: Asking::Counted };
        while let [word, behind @ ..] = rest {
            rest = question.take(word, behind, words, parts)?;
        }
        Ok(question)
    }

    /// Takes one word and the words that belong to it, and returns the words behind them.
    fn take<'r>(
        &mut self,
        word: &'a [u8],
        behind: &'r [&'a [u8]],
        words: CheckWords,
        parts: &mut Parts<'a>,
    ) -> Result<&'r [&'a [u8]], CheckProblem> {
        if word.eq_ignore_ascii_case(b"KEY") {
            let [name, value, rest @ ..] = behind else {
                return Err(CheckProblem::Unfinished("KEY", "a name and a value"));
            };
            if parts.len() == MAX_PARTS {
                return Err(CheckProblem::TooManyParts);
            }
            parts.push((text(name, "the name of a key")?, text(value, "the value of a key")?));
            return Ok(rest);
        }
        if words == CheckWords::All && word.eq_ignore_ascii_case(b"PEEK") {
            self.asking = Asking::Peeking;
            return Ok(behind);
        }
        if words == CheckWords::All && word.eq_ignore_ascii_case(b"PRIORITY") {
            let [name, rest @ ..] = behind else {
                return Err(CheckProblem::Unfinished("PRIORITY", "background, normal or critical"));
            };
            let name = text(name, "priority")?;
            let priority = Priority::parse(&name.to_ascii_lowercase());
            self.priority = priority.ok_or_else(|| CheckProblem::NoPriority(name.to_owned()))?;
            return Ok(rest);
        }
        self.place(word, words)?;
        Ok(behind)
    }

    /// Takes an address or a cost: no word is both.
    fn place(&mut self, word: &[u8], words: CheckWords) -> Result<(), CheckProblem> {
        let lossy = || String::from_utf8_lossy(word).into_owned();
        if let Ok(ip) = std::str::from_utf8(word).unwrap_or_default().parse::<IpAddr>() {
            if self.ip.is_some() || self.cost.is_some() {
                return Err(CheckProblem::OneTooMany(lossy()));
            }
            self.ip = Some(ip);
            return Ok(());
        }
        if !word.first().is_some_and(|first| first.is_ascii_digit() || matches!(first, b'-' | b'+')) {
            let known = match words {
                CheckWords::All => "PRIORITY, PEEK and KEY",
                CheckWords::Keys => "KEY",
            };
            return Err(CheckProblem::UnknownWord { word: lossy(), known });
        }
        let cost = integer(word).and_then(|cost| u64::try_from(cost).ok()).filter(|cost| *cost > 0);
        let cost = cost.ok_or_else(|| CheckProblem::NoCost(lossy()))?;
        if self.cost.replace(cost).is_some() {
            return Err(CheckProblem::OneTooMany(lossy()));
        }
        Ok(())
    }

    fn request(&self, parts: &'a [(&'a str, &'a str)]) -> Request<'a> {
        let request = Request::new(self.user, self.api).costing(self.cost.unwrap_or(1));
        let request = request.with_priority(self.priority).with_parts(parts);
        Request { ip: self.ip, ..request }
    }
}

/// An answer whose time has not come.
#[derive(Debug, Default)]
pub struct Hold {
    /// How long until the answer may be sent.
    pub wait: Duration,
    /// The turns that are kept for the caller until then.
    pub turns: Vec<Turn>,
}

/// Answers `CHECK`, and says for how long the answer is to be held.
pub async fn check(
    door: &Door,
    arguments: &[&[u8]],
    reply: &mut RespReply<'_>,
) -> Result<Option<Hold>, CheckProblem> {
    let mut parts = Parts::new();
    let question = RespCheck::parse(arguments, CheckWords::All, &mut parts)?;
    let request = question.request(&parts);
    // Where no address is named there is nobody to vouch for, and finding out takes a lock.
    let request = request.vouched(request.ip.is_some() && door.vouches());
    let outcome = door.decisions.check(&request, question.asking, |decision| {
        say(decision, reply);
        decision.outcome
    });
    Ok(match outcome.await? {
        // A peek does not wait.
        Outcome::Delayed { wait_us } if question.asking == Asking::Counted => {
            let turns = Vec::from_iter(door.decisions.turn(&request, wait_us));
            Some(Hold { wait: Duration::from_micros(wait_us), turns })
        }
        _ => None,
    })
}

/// Answers the command `REFUND`.
pub async fn refund(door: &Door, arguments: &[&[u8]], reply: &mut RespReply<'_>) -> Result<(), CheckProblem> {
    let mut parts = Parts::new();
    let question = RespCheck::parse(arguments, CheckWords::Keys, &mut parts)?;
    changing(door)?.refund(&question.request(&parts), 0).await?;
    reply.word("OK");
    Ok(())
}

/// Answers the command `RESETKEY`.
pub async fn reset(door: &Door, arguments: &[&[u8]], reply: &mut RespReply<'_>) -> Result<(), CheckProblem> {
    let mut parts = Parts::new();
    let question = RespCheck::parse(arguments, CheckWords::Keys, &mut parts)?;
    if door.operator_token.is_some() {
        return Err(CheckProblem::NoReset);
    }
    changing(door)?.reset(&question.request(&parts)).await?;
    reply.word("OK");
    Ok(())
}

/// Returns the decision service to callers that have shown more than that they are on this host.
fn changing(door: &Door) -> Result<&DecisionService, CheckProblem> {
    if door.is_shown { Ok(&door.decisions) } else { Err(CheckProblem::NoChange) }
}

/// Writes a decision as an array in both versions of the protocol: whether it is allowed comes first, also for libraries that make one list of a map.
fn say(decision: &Decision<'_>, reply: &mut RespReply<'_>) {
    reply.array(6);
    // Rounded up, so that nobody comes back too early.
    let ms = |us: u64| i64::try_from(us.div_ceil(US_IN_MS)).unwrap_or(i64::MAX);
    let retry_ms = match decision.outcome {
        Outcome::Refused { retry_us } => retry_us.map_or(-1, ms),
        Outcome::Delayed { .. } | Outcome::Allowed | Outcome::InMargin | Outcome::Deprioritised => -1,
    };
    reply.integer(decision.outcome.is_served().into());
    let remaining = |left: u64| i64::try_from(left).unwrap_or(i64::MAX);
    reply.integer(decision.limit.map_or(-1, |nearest| remaining(nearest.remaining)));
    reply.integer(retry_ms);
    reply.integer(decision.limit.map_or(0, |nearest| ms(nearest.reset_us)));
    match decision.limit {
        Some(nearest) => reply.text(&nearest.limit.name),
        None => reply.null(),
    }
    reply.text(decision.outcome.name());
}

fn text<'a>(bytes: &'a [u8], what: &'static str) -> Result<&'a str, CheckProblem> {
    std::str::from_utf8(bytes).map_err(|_| CheckProblem::NoText(what))
}

#[cfg(test)]
mod tests;
