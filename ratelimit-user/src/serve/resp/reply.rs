//! Answers as bytes, in both versions of the protocol.

use std::{fmt, io::Write as _};

/// The version of the protocol that a connection has agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RespVersion {
    /// The version that every client speaks.
    #[default]
    Two,
    /// The version after `HELLO 3`, which has maps and a null of its own.
    Three,
}

/// Writes answers behind one another.
#[derive(Debug)]
pub struct RespReply<'o> {
    out: &'o mut Vec<u8>,
    version: RespVersion,
}

impl<'o> RespReply<'o> {
    /// Makes a writer whose answers go to the end of `out`.
    pub fn new(out: &'o mut Vec<u8>, version: RespVersion) -> Self {
        Self { out, version }
    }

    /// Writes a fixed word.
    pub fn word(&mut self, word: &str) {
        self.out.push(b'+');
        self.out.extend_from_slice(word.as_bytes());
        self.end();
    }

    /// Writes an error: its code and a sentence. A line end in it would end the answer, so it becomes a space.
    pub fn error(&mut self, text: fmt::Arguments<'_>) {
        self.out.push(b'-');
        let start = self.out.len();
        // Cannot fail: it writes to memory.
        let _written = self.out.write_fmt(text);
        for byte in &mut self.out[start..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.end();
    }

    /// Writes a whole number.
    pub fn integer(&mut self, number: i64) {
        self.headed(b':', number.is_negative(), number.unsigned_abs());
    }

    /// Writes a bulk string of bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.headed(b'$', false, bytes.len() as u64);
        self.out.extend_from_slice(bytes);
        self.end();
    }

    /// Writes a text.
    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Writes a null.
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.version {
            RespVersion::Two => b"$-1\r\n",
            RespVersion::Three => b"_\r\n",
        });
    }

    /// Begins an array of `count` answers.
    pub fn array(&mut self, count: usize) {
        self.headed(b'*', false, count as u64);
    }

    /// Begins a map of `pairs` pairs.
    pub fn map(&mut self, pairs: usize) {
        match self.version {
            RespVersion::Two => self.array(pairs * 2),
            RespVersion::Three => self.headed(b'%', false, pairs as u64),
        }
    }

    /// Begins a set of `count` answers, which have no order.
    pub fn set(&mut self, count: usize) {
        match self.version {
            RespVersion::Two => self.array(count),
            RespVersion::Three => self.headed(b'~', false, count as u64),
        }
    }

    fn end(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes a number behind the sign of its kind. By hand: the standard library would take most of the time of a short answer.
    #[inline]
    fn headed(&mut self, kind: u8, negative: bool, mut number: u64) {
        // Kind, sign, 20 digits, line end.
        let mut line = [0; 24];
        let mut at = line.len() - 2;
        line[at..].copy_from_slice(b"\r\n");
        loop {
            at -= 1;
            line[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        if negative {
            at -= 1;
            line[at] = b'-';
        }
        at -= 1;
        line[at] = kind;
        self.out.extend_from_slice(&line[at..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(version: RespVersion, say: impl FnOnce(&mut RespReply<'_>)) -> String {
        let mut out = Vec::new();
        say(&mut RespReply::new(&mut out, version));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_number_is_written_as_it_is() {
        for number in [0, 1, -1, 9, 10, 99, 100, 65_536, i64::MAX, i64::MIN] {
            assert_eq!(said(RespVersion::Two, |reply| reply.integer(number)), format!(":{number}\r\n"));
        }
    }

    #[test]
    fn an_error_is_one_line() {
        let said = said(RespVersion::Two, |reply| reply.error(format_args!("ERR {}", "a\r\nb")));
        assert_eq!(said, "-ERR a  b\r\n");
    }

    #[test]
    fn what_the_second_version_has_no_form_for_is_an_array() {
        let say = |reply: &mut RespReply<'_>| {
            reply.map(2);
            reply.set(1);
            reply.null();
            reply.text("hé");
            reply.word("OK");
        };
        assert_eq!(said(RespVersion::Two, say), "*4\r\n*1\r\n$-1\r\n$3\r\nhé\r\n+OK\r\n");
        assert_eq!(said(RespVersion::Three, say), "%2\r\n~1\r\n_\r\n$3\r\nhé\r\n+OK\r\n");
    }
}
