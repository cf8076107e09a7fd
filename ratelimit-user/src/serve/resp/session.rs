//! One caller: what it has agreed on and shown, and the answers to commands about the connection itself.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{
    command::{self, Command, RespVerb},
    reply::{RespReply, RespVersion},
    throttle::{self, Dialect, integer},
    transaction::Transaction,
};
use crate::{build::BUILD, serve::door::Door};

/// The longest name of a connection, in bytes.
const MAX_NAME: usize = 256;
/// The version of Redis whose protocol this is: clients choose by it what they may ask.
const LIKE_REDIS: &str = "7.0.0";

const WRONG_TOKEN: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_TOKEN_NEEDED: &str = "ERR AUTH <password> called without any password configured for the default user. \
                               Are you sure your configuration is correct?";
const TOKEN_FIRST: &str = "NOAUTH Authentication required.";
const TOKEN_WITH_HELLO: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
                                HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
                                select the RESP protocol version at the same time";

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The connection goes on with the next command.
    Next,
    /// The connection ends when this answer is out.
    Close,
}

/// What a request means for this caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// A command that the caller may use.
    Verb(RespVerb),
    /// The request has no words.
    Nothing,
    /// No command for this caller, which was told why.
    Wrong,
    /// The caller speaks HTTP. Nothing that it says is carried out.
    Http,
}

/// The state of one caller's connection.
#[derive(Debug)]
pub struct Session {
    /// The decision service that the caller asks, and what it must show.
    pub door: Door,
    /// The protocol version that the caller has agreed on.
    pub version: RespVersion,
    /// The transaction since `MULTI`, if there is one.
    pub transaction: Option<Transaction>,
    /// The number of the token that the caller has shown, counted from 1; 0 is none.
    shown: u64,
    id: u64,
    name: Vec<u8>,
}

impl Session {
    /// Makes the session of a new connection.
    pub fn new(door: Door) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { door, version: RespVersion::Two, transaction: None, shown: 0, id, name: Vec::new() }
    }

    /// Whether the caller has shown the token in force, or need not show one. A new token in the file ends what the token before has opened.
    #[inline]
    pub fn is_known(&self) -> bool {
        self.door.token.as_ref().is_none_or(|token| token.generation() == self.shown)
    }

    /// Returns the command of a request, or answers why there is none for this caller.
    #[inline]
    pub fn command(&self, arguments: &[&[u8]], reply: &mut RespReply<'_>) -> Called {
        let Some(name) = arguments.first() else { return Called::Nothing };
        let Some(command) = command::find(name) else {
            if command::is_http(arguments) {
                return Called::Http;
            }
            // A caller that has shown no token is told nothing.
            match self.is_known() {
                true => command::unknown(arguments, reply),
                false => reply.error(format_args!("{TOKEN_FIRST}")),
            }
            return Called::Wrong;
        };
        if !self.is_known() && !command.is_open() {
            reply.error(format_args!("{TOKEN_FIRST}"));
            return Called::Wrong;
        }
        if !command.takes(arguments.len()) {
            wrong_number(command, reply);
            return Called::Wrong;
        }
        Called::Verb(command.verb)
    }

    /// Carries out a command that needs no waiting. `arguments` are the words behind its name.
    #[inline]
    pub fn obey(&mut self, verb: RespVerb, arguments: &[&[u8]], out: &mut Vec<u8>) -> After {
        let mut reply = RespReply::new(out, self.version);
        match verb {
            RespVerb::CellThrottle => {
                throttle::answer(&self.door.decisions, Dialect::Cell, arguments, &mut reply);
            }
            RespVerb::Throttle => {
                throttle::answer(&self.door.decisions, Dialect::Crab, arguments, &mut reply);
            }
            RespVerb::Ping => match arguments {
                [] => reply.word("PONG"),
                [message] => reply.bytes(message),
                _ => reply.error(format_args!("ERR wrong number of arguments for 'ping' command")),
            },
            RespVerb::Echo => arguments.iter().for_each(|message| reply.bytes(message)),
            RespVerb::Quit => {
                reply.word("OK");
                return After::Close;
            }
            RespVerb::Hello => self.hello(arguments, out),
            RespVerb::Auth => self.auth(arguments, &mut reply),
            RespVerb::Client => self.client(arguments, &mut reply),
            RespVerb::Command => command::answer(arguments, &mut reply),
            RespVerb::Info => reply.text(&self.info()),
            RespVerb::Select => match arguments.first().and_then(|index| integer(index)) {
                Some(0) => reply.word("OK"),
                Some(_) => reply.error(format_args!("ERR DB index is out of range")),
                None => reply.error(format_args!("ERR value is not an integer or out of range")),
            },
            RespVerb::Config => match arguments {
                [subcommand, ..] if subcommand.eq_ignore_ascii_case(b"GET") => reply.map(0),
                [subcommand, ..] => command::unknown_subcommand("CONFIG", subcommand, &mut reply),
                [] => {}
            },
            RespVerb::Reset => {
                self.version = RespVersion::Two;
                self.shown = 0;
                self.transaction = None;
                self.name.clear();
                reply.word("RESET");
            }
            RespVerb::Multi => match &mut self.transaction {
                Some(transaction) => {
                    transaction.spoil();
                    reply.error(format_args!("ERR MULTI calls can not be nested"));
                }
                none => {
                    *none = Some(Transaction::default());
                    reply.word("OK");
                }
            },
            RespVerb::Discard => match self.transaction.take() {
                Some(_) => reply.word("OK"),
                None => reply.error(format_args!("ERR DISCARD without MULTI")),
            },
            // The connection carries these commands out, because they may wait.
            RespVerb::Check | RespVerb::Refund | RespVerb::ResetKey | RespVerb::Exec => {}
        }
        After::Next
    }

    /// Whether a token is the right one. From then on the caller may use all commands.
    fn shows(&mut self, given: &[u8]) -> bool {
        let Some(token) = &self.door.token else { return false };
        // The number comes first: if another token comes in between, the caller has to show it.
        let generation = token.generation();
        let right = token.is(given);
        if right {
            self.shown = generation;
        }
        right
    }

    fn auth(&mut self, arguments: &[&[u8]], reply: &mut RespReply<'_>) {
        let given = match arguments {
            // The name of the user does not matter: there is one token.
            [given] | [_, given] => *given,
            _ => return reply.error(format_args!("ERR syntax error")),
        };
        match (self.door.token.is_some(), self.shows(given)) {
            (false, _) => reply.error(format_args!("{NO_TOKEN_NEEDED}")),
            (true, true) => reply.word("OK"),
            (true, false) => reply.error(format_args!("{WRONG_TOKEN}")),
        }
    }

    /// Answers `HELLO [2|3 [AUTH user token] [SETNAME name]]`. All of it is carried out, or nothing.
    fn hello(&mut self, arguments: &[&[u8]], out: &mut Vec<u8>) {
        let before = self.version;
        let refuse =
            |out: &mut Vec<u8>, text: &str| RespReply::new(out, before).error(format_args!("{text}"));
        let (version, mut rest) = match arguments {
            [] => (self.version, arguments),
            [b"2", rest @ ..] => (RespVersion::Two, rest),
            [b"3", rest @ ..] => (RespVersion::Three, rest),
            _ => return refuse(out, "NOPROTO unsupported protocol version"),
        };
        let mut name = None;
        while let [word, behind @ ..] = rest {
            rest = match behind {
                [_user, token, rest @ ..] if word.eq_ignore_ascii_case(b"AUTH") => {
                    // Where no token is needed, every token will do.
                    if !self.shows(token) && self.door.token.is_some() {
                        return refuse(out, WRONG_TOKEN);
                    }
                    rest
                }
                [given, rest @ ..] if word.eq_ignore_ascii_case(b"SETNAME") => {
                    name = Some(*given);
                    rest
                }
                _ => return refuse(out, "ERR Syntax error in HELLO"),
            };
        }
        if !self.is_known() {
            return refuse(out, TOKEN_WITH_HELLO);
        }
        if name.is_some_and(|name| !self.is_named(name)) {
            return refuse(out, BAD_NAME);
        }
        self.version = version;
        self.greet(&mut RespReply::new(out, version));
    }

    fn greet(&self, reply: &mut RespReply<'_>) {
        reply.map(7);
        for (what, text) in [("server", "ratelimit"), ("version", BUILD)] {
            reply.text(what);
            reply.text(text);
        }
        reply.text("proto");
        reply.integer(if self.version == RespVersion::Three { 3 } else { 2 });
        reply.text("id");
        reply.integer(self.id as i64);
        for (what, text) in [("mode", "standalone"), ("role", "master")] {
            reply.text(what);
            reply.text(text);
        }
        reply.text("modules");
        reply.array(0);
    }

    /// Sets the name of the connection, if it is a possible name. Returns whether it is.
    fn is_named(&mut self, name: &[u8]) -> bool {
        let good = name.len() <= MAX_NAME && name.iter().all(u8::is_ascii_graphic);
        if good {
            self.name = name.to_vec();
        }
        good
    }

    fn client(&mut self, arguments: &[&[u8]], reply: &mut RespReply<'_>) {
        let Some((subcommand, rest)) = arguments.split_first() else { return };
        match (subcommand.to_ascii_uppercase().as_slice(), rest) {
            (b"SETNAME", [name]) => match self.is_named(name) {
                true => reply.word("OK"),
                false => reply.error(format_args!("{BAD_NAME}")),
            },
            (b"GETNAME", []) if self.name.is_empty() => reply.null(),
            (b"GETNAME", []) => reply.bytes(&self.name),
            (b"ID", []) => reply.integer(self.id as i64),
            (b"INFO", []) => {
                let (id, name) = (self.id, String::from_utf8_lossy(&self.name));
                let version = if self.version == RespVersion::Three { 3 } else { 2 };
                reply.text(&format!("id={id} name={name} db=0 resp={version}\n"));
            }
            // Libraries tell about themselves and what they wish; nothing depends on it.
            (b"SETINFO", [_, _]) | (b"NO-EVICT" | b"NO-TOUCH", [_]) => reply.word("OK"),
            (b"SETNAME" | b"GETNAME" | b"ID" | b"INFO" | b"SETINFO" | b"NO-EVICT" | b"NO-TOUCH", _) => {
                let name = String::from_utf8_lossy(subcommand).to_ascii_lowercase();
                reply.error(format_args!("ERR wrong number of arguments for 'client|{name}' command"));
            }
            _ => command::unknown_subcommand("CLIENT", subcommand, reply),
        }
    }

    fn info(&self) -> String {
        let usage = self.door.decisions.engine().usage();
        format!(
            "# Server\r\nredis_version:{LIKE_REDIS}\r\nserver_name:ratelimit\r\nratelimit_version:{}\r\n\
             redis_mode:standalone\r\nprocess_id:{}\r\n\r\n# Keyspace\r\nkeys:{}\r\nevicted_keys:{}\r\n",
            BUILD,
            std::process::id(),
            usage.keys,
            usage.evicted,
        )
    }
}

const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";

fn wrong_number(command: &Command, reply: &mut RespReply<'_>) {
    reply.error(format_args!("ERR wrong number of arguments for '{}' command", command.name));
}
