//! `CL.THROTTLE` as redis-cell answers it, and `THROTTLE` as throttlecrab does: limits that the caller describes with every question.
//!
//! Both count in nanoseconds: one unit costs `interval = period / count`, whole nanoseconds, and a key may owe `limit x interval`. That is a
//! [`RequestBucket`](crate::meter::RequestBucket) which takes `interval` for a unit and is paid 1000 in every microsecond. Its debt is
//! redis-cell's `tat - now`: a time, which stays as it is when a caller comes with other numbers for a key.

use super::reply::RespReply;
use crate::requests::{
    decision_service::DecisionService,
    throttle::{ThrottleAnswer, ThrottleTerms},
};

const NS_IN_S: f64 = 1e9;

/// The program whose words and numbers the answers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `limited, limit, remaining, retry_after, reset_after`; the limit is one more than the burst.
    Cell,
    /// `allowed, limit, remaining, reset_after, retry_after`; the limit is the burst.
    Crab,
}

/// Answers one question. `arguments` are those behind the name of the command.
pub fn answer(decisions: &DecisionService, dialect: Dialect, arguments: &[&[u8]], reply: &mut RespReply<'_>) {
    match question(dialect, arguments) {
        Ok((key, terms)) => {
            let answer = terms.answer(|bucket, quantity| decisions.throttle(key, bucket, quantity));
            say(&answer, dialect, reply);
        }
        Err(problem) => match dialect {
            Dialect::Cell => reply.error(format_args!("Cell error: Store error: {problem}")),
            Dialect::Crab => reply.error(format_args!("ERR {problem}")),
        },
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThrottleProblem {
    /// Too few or too many arguments.
    #[error("Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]")]
    Usage,
    /// Too few or too many arguments, in the other dialect.
    #[error("wrong number of arguments for 'throttle' command")]
    WrongNumber,
    /// An argument that is no number.
    #[error("Couldn't parse as integer: {0}")]
    NoInteger(String),
    /// An argument that is no number, in the other dialect.
    #[error("invalid {0}")]
    Invalid(&'static str),
    /// No rate at all, or more than one in a nanosecond.
    #[error("Zero rates are not supported")]
    ZeroRate,
    /// A negative rate.
    #[error("negative rates are not supported: count {count}, period {period}")]
    NegativeRate {
        /// The rejected value, as the caller sent it.
        count: i64,
        /// The rejected value, as the caller sent it.
        period: i64,
    },
    /// Units that would be given back.
    #[error("negative quantities are not supported: {0}")]
    NegativeQuantity(i64),
    /// Units that would be given back, in the other dialect.
    #[error("Rate limit check failed: negative quantity: {0}")]
    Negative(i64),
    /// Numbers that are no limit, in the other dialect.
    #[error("Rate limit check failed: invalid rate limit parameters")]
    NoLimit,
    /// A debt beyond what can be counted.
    #[error("a burst of {0} takes more than 292 years to come back; use a smaller one or a higher rate")]
    TooSlow(i64),
}

/// Reads the key and the limit of a question.
pub fn question<'a>(
    dialect: Dialect,
    arguments: &[&'a [u8]],
) -> Result<(&'a [u8], ThrottleTerms), ThrottleProblem> {
    let (key, burst, count, period, quantity) = match *arguments {
        [key, burst, count, period] => (key, burst, count, period, None),
        [key, burst, count, period, quantity] => (key, burst, count, period, Some(quantity)),
        _ if dialect == Dialect::Cell => return Err(ThrottleProblem::Usage),
        _ => return Err(ThrottleProblem::WrongNumber),
    };
    let number = |name, text: &[u8]| {
        integer(text).ok_or_else(|| match dialect {
            Dialect::Cell => ThrottleProblem::NoInteger(String::from_utf8_lossy(text).into_owned()),
            Dialect::Crab => ThrottleProblem::Invalid(name),
        })
    };
    let burst = number("max_burst", burst)?;
    let count = number("count_per_period", count)?;
    let period = number("period", period)?;
    let quantity = quantity.map_or(Ok(1), |text| number("quantity", text))?;
    Ok((key, terms(dialect, burst, count, period, quantity)?))
}

/// Makes the limit that a caller describes.
fn terms(
    dialect: Dialect,
    burst: i64,
    count: i64,
    period: i64,
    quantity: i64,
) -> Result<ThrottleTerms, ThrottleProblem> {
    match dialect {
        Dialect::Cell if count == 0 || period == 0 => return Err(ThrottleProblem::ZeroRate),
        Dialect::Cell if count < 0 || period < 0 => {
            return Err(ThrottleProblem::NegativeRate { count, period });
        }
        Dialect::Cell if quantity < 0 => return Err(ThrottleProblem::NegativeQuantity(quantity)),
        Dialect::Crab if quantity < 0 => return Err(ThrottleProblem::Negative(quantity)),
        Dialect::Crab if burst <= 0 || count <= 0 || period <= 0 => return Err(ThrottleProblem::NoLimit),
        Dialect::Cell | Dialect::Crab => {}
    }
    let limit = match dialect {
        Dialect::Cell => burst.saturating_add(1),
        Dialect::Crab => burst,
    };
    // Divides as redis-cell does, so that both round alike.
    let interval_ns = (period as f64 * NS_IN_S / count as f64) as u64;
    if interval_ns == 0 {
        return Err(ThrottleProblem::ZeroRate);
    }
    if limit.unsigned_abs().checked_mul(interval_ns).is_none_or(|most| most > i64::MAX as u64) {
        return Err(ThrottleProblem::TooSlow(burst));
    }
    Ok(ThrottleTerms { limit, interval_ns, quantity: quantity.unsigned_abs() })
}

fn say(answer: &ThrottleAnswer, dialect: Dialect, reply: &mut RespReply<'_>) {
    let ThrottleAnswer { limited, limit, remaining, retry_us, reset_us } = *answer;
    reply.array(5);
    match dialect {
        Dialect::Cell => {
            reply.integer(limited.into());
            reply.integer(limit);
            reply.integer(remaining);
            reply.integer(retry_us.map_or(-1, seconds));
            reply.integer(seconds(reset_us));
        }
        Dialect::Crab => {
            reply.integer((!limited).into());
            reply.integer(limit);
            reply.integer(remaining);
            reply.integer(seconds(reset_us));
            reply.integer(if limited { retry_us.map_or(-1, seconds) } else { 0 });
        }
    }
}

/// Converts microseconds to whole seconds, rounded up from a millisecond on, so that nobody comes back too early. Less than a millisecond is 0, as with redis-cell.
pub fn seconds(us: u64) -> i64 {
    let whole = (us / 1_000_000) as i64;
    whole + i64::from(!(us / 1_000).is_multiple_of(1_000))
}

/// Reads a whole number as Rust and so redis-cell do: an optional sign in front and digits, nothing else.
pub fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_i64, |sum, byte| {
        let digit = i64::from(byte.wrapping_sub(b'0'));
        let sum = sum.checked_mul(10).filter(|_| digit < 10)?;
        // Negative numbers are added up downwards: there is one more of them.
        if negative { sum.checked_sub(digit) } else { sum.checked_add(digit) }
    })
}

#[cfg(test)]
mod tests;
