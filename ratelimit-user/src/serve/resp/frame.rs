//! Requests as bytes: arrays of strings, and lines as people type them. Nothing is copied: arguments are slices of the input.
//!
//! ```text
//! *2\r\n$4\r\nPING\r\n$2\r\nhi\r\n        an array of two strings
//! PING hi\r\n                            the same as a line
//! ```
//! Pure. Lengths are refused before anything waits for what they announce.

use std::ops::Deref;

/// The longest request, in bytes.
pub const MAX_FRAME: usize = 64 * 1024;
/// The most arguments of a request, with the name of the command.
pub const MAX_ARGUMENTS: usize = 64;
/// Digits of a length. More than [`MAX_FRAME`] has, so that too large a number is told from no number.
const MAX_DIGITS: usize = 10;

/// What is wrong with bytes that are no request. The connection cannot go on: nobody knows where the next request starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameFault {
    /// No number, or too many arguments.
    #[error("invalid multibulk length")]
    Count,
    /// No number, or too long a string.
    #[error("invalid bulk length")]
    Length,
    /// Something other than a string in an array.
    #[error("expected '$', got '{}'", .0.escape_ascii())]
    NoString(u8),
    /// A string that goes on behind its end.
    #[error("expected CRLF behind a string")]
    NoEnd,
    /// A request that is longer than any may be.
    #[error("request of more than {MAX_FRAME} bytes")]
    TooLong,
    /// More than a caller may send before it has shown the token.
    #[error("request of more than 4096 bytes before the token was shown")]
    BeforeToken,
    /// A line that never ends.
    #[error("too big inline request")]
    LongLine,
    /// A quote that is not closed, or is followed by more than a space.
    #[error("unbalanced quotes in request")]
    Quotes,
    /// A line with an escape, which is not read.
    #[error("escapes are not for inline requests, send an array")]
    Escape,
}

/// Arguments of one request: slices of the input.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'i> {
    list: [&'i [u8]; MAX_ARGUMENTS],
    count: usize,
}

impl Default for Arguments<'_> {
    fn default() -> Self {
        Self { list: [&[]; MAX_ARGUMENTS], count: 0 }
    }
}

impl<'i> Deref for Arguments<'i> {
    type Target = [&'i [u8]];

    fn deref(&self) -> &Self::Target {
        &self.list[..self.count]
    }
}

impl<'i> Arguments<'i> {
    fn push(&mut self, argument: &'i [u8]) -> Result<(), FrameFault> {
        *self.list.get_mut(self.count).ok_or(FrameFault::Count)? = argument;
        self.count += 1;
        Ok(())
    }
}

/// Reads the first request of `input` into `arguments`, and returns its length in bytes; none while it is not all there. A request without arguments
/// asks for nothing.
pub fn parse<'i>(input: &'i [u8], arguments: &mut Arguments<'i>) -> Result<Option<usize>, FrameFault> {
    arguments.count = 0;
    match input.first() {
        None => Ok(None),
        Some(b'*') => array(input, arguments),
        Some(_) => line(input, arguments),
    }
}

fn array<'i>(input: &'i [u8], arguments: &mut Arguments<'i>) -> Result<Option<usize>, FrameFault> {
    // A negative number of arguments is none, as with Redis.
    let negative = input.get(1) == Some(&b'-');
    let Some((count, mut at)) = number(input, 1 + usize::from(negative), FrameFault::Count)? else {
        return Ok(None);
    };
    if negative {
        return Ok(Some(at));
    }
    if count > MAX_ARGUMENTS {
        return Err(FrameFault::Count);
    }
    for _ in 0..count {
        match input.get(at) {
            None => return unfinished(input),
            Some(b'$') => {}
            Some(other) => return Err(FrameFault::NoString(*other)),
        }
        let Some((length, start)) = number(input, at + 1, FrameFault::Length)? else {
            return unfinished(input);
        };
        if length > MAX_FRAME {
            return Err(FrameFault::Length);
        }
        let end = start + length;
        if end + 2 > MAX_FRAME {
            return Err(FrameFault::TooLong);
        }
        match input.get(end..end + 2) {
            None => return unfinished(input),
            Some(b"\r\n") => arguments.push(&input[start..end])?,
            Some(_) => return Err(FrameFault::NoEnd),
        }
        at = end + 2;
    }
    Ok(Some(at))
}

/// Returns none for a request of which more is to come, or the fault that it is too long.
fn unfinished(input: &[u8]) -> Result<Option<usize>, FrameFault> {
    if input.len() >= MAX_FRAME { Err(FrameFault::TooLong) } else { Ok(None) }
}

/// Returns the number at `at`, and where the text behind its line starts; none while the line is not all there.
#[inline]
fn number(input: &[u8], at: usize, fault: FrameFault) -> Result<Option<(usize, usize)>, FrameFault> {
    let mut number = 0;
    for (digits, byte) in input.iter().skip(at).enumerate() {
        match byte {
            b'0'..=b'9' if digits < MAX_DIGITS => number = number * 10 + usize::from(byte - b'0'),
            b'\r' if digits > 0 => {
                return match input.get(at + digits + 1) {
                    None => Ok(None),
                    Some(b'\n') => Ok(Some((number, at + digits + 2))),
                    Some(_) => Err(fault),
                };
            }
            _ => return Err(fault),
        }
    }
    Ok(None)
}

fn line<'i>(input: &'i [u8], arguments: &mut Arguments<'i>) -> Result<Option<usize>, FrameFault> {
    let Some(end) = input.iter().take(MAX_FRAME).position(|byte| *byte == b'\n') else {
        return if input.len() >= MAX_FRAME { Err(FrameFault::LongLine) } else { Ok(None) };
    };
    let mut rest = input[..end].trim_ascii();
    while let Some(first) = rest.first() {
        let (word, behind) = match first {
            quote @ (b'"' | b'\'') => quoted(&rest[1..], *quote)?,
            _ => {
                let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
                rest.split_at(end)
            }
        };
        if word.contains(&b'\\') && *first == b'"' {
            return Err(FrameFault::Escape);
        }
        arguments.push(word)?;
        rest = behind.trim_ascii_start();
    }
    Ok(Some(end + 1))
}

/// Returns the text within quotes, and the text behind them.
fn quoted(text: &[u8], quote: u8) -> Result<(&[u8], &[u8]), FrameFault> {
    let end = text.iter().position(|byte| *byte == quote).ok_or(FrameFault::Quotes)?;
    match text.get(end + 1) {
        Some(next) if !next.is_ascii_whitespace() => Err(FrameFault::Quotes),
        _ => Ok((&text[..end], &text[end + 1..])),
    }
}

#[cfg(test)]
mod tests;
