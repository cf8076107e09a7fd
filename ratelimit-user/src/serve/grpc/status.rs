//! How a call ends: a code that every client knows, and a sentence.

use std::{borrow::Cow, sync::Arc};

use http::{HeaderMap, HeaderValue};

use super::backlog::{Backlog, WENT_WELL};

/// The codes that are of use here, with the numbers that gRPC gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The call succeeded.
    Ok = 0,
    /// The question makes no sense.
    InvalidArgument = 3,
    /// The question took too long to arrive.
    DeadlineExceeded = 4,
    /// Nothing has that name.
    NotFound = 5,
    /// The call is more than there is room for.
    ResourceExhausted = 8,
    /// There is no such method.
    Unimplemented = 12,
    /// The service ends; another connection may find another.
    Unavailable = 14,
    /// The caller has not shown who it is.
    Unauthenticated = 16,
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcStatus {
    /// How the call ended.
    pub code: Code,
    /// Why the call ended so.
    pub message: Cow<'static, str>,
}

impl GrpcStatus {
    /// A call that went well.
    pub const OK: Self = Self { code: Code::Ok, message: Cow::Borrowed("") };

    /// Makes the end of a call that did not go well.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into() }
    }

    /// Makes the end of a call whose question makes no sense.
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// Adds the status to the fields that end an answer with a message of `bytes` bytes. The fields have a share of the backlog until they are written.
    pub fn write(&self, fields: &mut HeaderMap, backlog: &Arc<Backlog>, bytes: usize) {
        let code: Cow<'static, str> = match self.code {
            Code::Ok => Cow::Borrowed(WENT_WELL),
            other => Cow::Owned((other as u16).to_string()),
        };
        fields.insert("grpc-status", backlog.ending(code, bytes + self.message.len()));
        if !self.message.is_empty()
            && let Ok(message) = HeaderValue::from_str(&escaped(&self.message))
        {
            fields.insert("grpc-message", message);
        }
    }
}

/// Writes a sentence as `grpc-message` has it: printable ASCII as it is, all else in percent-encoding.
fn escaped(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::{Common, Guest};

    fn backlog() -> Arc<Backlog> {
        Backlog::new(Guest::anybody(), Common::new(0))
    }

    #[test]
    fn a_sentence_with_other_letters_stays_a_header_value() {
        let mut fields = HeaderMap::new();
        GrpcStatus::invalid("user \"ä\" is 100% wrong\n").write(&mut fields, &backlog(), 0);
        assert_eq!(fields["grpc-status"], "3");
        assert_eq!(fields["grpc-message"], "user \"%C3%A4\" is 100%25 wrong%0A");
    }

    #[test]
    fn a_call_that_went_well_says_nothing_else() {
        let mut fields = HeaderMap::new();
        GrpcStatus::OK.write(&mut fields, &backlog(), 0);
        assert_eq!(fields["grpc-status"], "0");
        assert!(!fields.contains_key("grpc-message"));
    }
}
