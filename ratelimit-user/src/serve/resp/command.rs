//! The commands there are: their names, how many arguments they take, and what clients are told about them.

use super::reply::RespReply;

/// The commands that are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RespVerb {
    /// Limits that the caller describes, as redis-cell has them.
    CellThrottle,
    /// Limits that the caller describes, as throttlecrab has them.
    Throttle,
    /// A question about the policy's limits.
    Check,
    /// Gives back what a request was charged.
    Refund,
    /// Forgets what was counted.
    ResetKey,
    /// Answers that the service is there.
    Ping,
    /// Repeats its argument.
    Echo,
    /// Closes the connection.
    Quit,
    /// Agrees on the version of the protocol.
    Hello,
    /// Shows the token.
    Auth,
    /// Names this connection, and tells about it.
    Client,
    /// Lists the commands.
    Command,
    /// Tells about this server.
    Info,
    /// Selects the only database that there is.
    Select,
    /// Answers that there are no settings.
    Config,
    /// Puts the session back to its beginning.
    Reset,
    /// Begins a transaction.
    Multi,
    /// Carries out the transaction.
    Exec,
    /// Drops the transaction.
    Discard,
}

/// One command of a client.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// The verb of the command.
    pub verb: RespVerb,
    /// The name that clients are told.
    pub name: &'static str,
    /// The number of arguments, with the name; if it is negative, the least number of arguments.
    arity: i32,
    flags: &'static [&'static str],
    /// The index of the key among the arguments; 0 if there is none.
    key_at: i32,
    summary: &'static str,
}

const fn about_us(verb: RespVerb, name: &'static str, arity: i32, summary: &'static str) -> Command {
    Command { verb, name, arity, flags: &["noscript", "loading", "stale", "fast"], key_at: 0, summary }
}

const fn counts(verb: RespVerb, name: &'static str, key_at: i32, summary: &'static str) -> Command {
    // Commands with a key (-1) take any number of arguments, and refuse a wrong one in their own words, as redis-cell does.
    let arity = if key_at == 0 { -3 } else { -1 };
    Command { verb, name, arity, flags: &["write", "fast"], key_at, summary }
}

/// All commands, those that are asked most first.
pub const ALL: [Command; 19] = [
    counts(
        RespVerb::CellThrottle,
        "cl.throttle",
        1,
        "Takes from a bucket that the caller describes, like redis-cell",
    ),
    counts(RespVerb::Check, "check", 0, "Decides about a request by the limits of the policy"),
    counts(
        RespVerb::Throttle,
        "throttle",
        1,
        "Takes from a bucket that the caller describes, like throttlecrab",
    ),
    about_us(RespVerb::Ping, "ping", -1, "Returns PONG or the given message"),
    counts(RespVerb::Refund, "refund", 0, "Gives back what a request was charged"),
    counts(RespVerb::ResetKey, "resetkey", 0, "Forgets what was counted under the keys of a request"),
    about_us(RespVerb::Echo, "echo", 2, "Returns the given message"),
    about_us(RespVerb::Quit, "quit", -1, "Closes the connection"),
    about_us(RespVerb::Hello, "hello", -1, "Chooses the version of the protocol"),
    about_us(RespVerb::Auth, "auth", -2, "Shows the token"),
    about_us(RespVerb::Client, "client", -2, "Names the connection"),
    about_us(RespVerb::Command, "command", -1, "Lists commands"),
    about_us(RespVerb::Info, "info", -1, "Describes the server"),
    about_us(RespVerb::Select, "select", 2, "Chooses the one database there is"),
    about_us(RespVerb::Config, "config", -2, "Lists settings: none"),
    about_us(RespVerb::Reset, "reset", 1, "Puts the connection in the state of a new one"),
    about_us(RespVerb::Multi, "multi", 1, "Keeps the commands that follow until EXEC"),
    about_us(RespVerb::Exec, "exec", 1, "Carries out the commands since MULTI, one after another"),
    about_us(RespVerb::Discard, "discard", 1, "Forgets the commands since MULTI"),
];

/// Returns the command of a name, in any case.
#[inline]
pub fn find(name: &[u8]) -> Option<&'static Command> {
    ALL.iter().find(|command| command.name.as_bytes().eq_ignore_ascii_case(name))
}

/// Whether these words are of a caller that speaks HTTP. A page can make a browser send its words as the body of a request, which would be carried out
/// line by line.
pub fn is_http(arguments: &[&[u8]]) -> bool {
    let is = |name: &str| arguments.first().is_some_and(|first| first.eq_ignore_ascii_case(name.as_bytes()));
    let request_line = matches!(arguments, [_, _, version] if version.starts_with(b"HTTP/"));
    is("POST") || is("Host:") || request_line
}

impl Command {
    /// Whether the command takes `count` arguments, with its name counted.
    #[inline]
    pub fn takes(&self, count: usize) -> bool {
        let count = count as i32;
        if self.arity < 0 { count >= -self.arity } else { count == self.arity }
    }

    /// Whether callers may use the command before they have shown the token.
    pub fn is_open(&self) -> bool {
        matches!(
            self.verb,
            RespVerb::Ping | RespVerb::Quit | RespVerb::Hello | RespVerb::Auth | RespVerb::Reset
        )
    }

    fn describe(&self, reply: &mut RespReply<'_>) {
        reply.array(10);
        reply.text(self.name);
        reply.integer(self.arity.into());
        reply.set(self.flags.len());
        for flag in self.flags {
            reply.word(flag);
        }
        // First key, last key, step.
        for place in [self.key_at; 3] {
            reply.integer(place.into());
        }
        // Access categories, tips, places of keys, subcommands: none.
        reply.set(0);
        reply.array(0);
        reply.array(0);
        reply.array(0);
    }

    fn document(&self, reply: &mut RespReply<'_>) {
        reply.text(self.name);
        reply.map(3);
        for (what, text) in [("summary", self.summary), ("since", "1.0.0"), ("group", "connection")] {
            reply.text(what);
            reply.text(text);
        }
    }
}

/// Answers `COMMAND`; `arguments` are the words behind the name.
pub fn answer(arguments: &[&[u8]], reply: &mut RespReply<'_>) {
    let (subcommand, names) = match arguments {
        [] => (&b"INFO"[..], arguments),
        [subcommand, names @ ..] => (*subcommand, names),
    };
    match subcommand.to_ascii_uppercase().as_slice() {
        b"COUNT" => reply.integer(ALL.len() as i64),
        b"LIST" => {
            reply.array(ALL.len());
            ALL.iter().for_each(|command| reply.text(command.name));
        }
        b"INFO" if names.is_empty() => {
            reply.array(ALL.len());
            ALL.iter().for_each(|command| command.describe(reply));
        }
        b"INFO" => {
            reply.array(names.len());
            for name in names {
                match find(name) {
                    Some(command) => command.describe(reply),
                    None => reply.null(),
                }
            }
        }
        b"DOCS" => {
            let asked = |command: &&Command| {
                names.is_empty()
                    || names.iter().any(|name| command.name.as_bytes().eq_ignore_ascii_case(name))
            };
            reply.map(ALL.iter().filter(asked).count());
            ALL.iter().filter(asked).for_each(|command| command.document(reply));
        }
        _ => unknown_subcommand("COMMAND", subcommand, reply),
    }
}

/// Refuses a subcommand in the words of Redis.
pub fn unknown_subcommand(of: &str, subcommand: &[u8], reply: &mut RespReply<'_>) {
    let name = String::from_utf8_lossy(shown(subcommand));
    reply.error(format_args!("ERR unknown subcommand '{name}'. Try {of} HELP."));
}

/// Refuses a command in the words of Redis, with as much of the request as fits in a line.
pub fn unknown(arguments: &[&[u8]], reply: &mut RespReply<'_>) {
    let (name, rest) = arguments.split_first().map_or((&[][..], arguments), |(name, rest)| (*name, rest));
    let mut beginning = String::new();
    for argument in rest {
        if beginning.len() >= SHOWN {
            break;
        }
        let room = SHOWN - beginning.len();
        let argument = &argument[..argument.len().min(room)];
        beginning.push('\'');
        beginning.push_str(&String::from_utf8_lossy(argument));
        beginning.push_str("' ");
    }
    let name = String::from_utf8_lossy(shown(name));
    reply.error(format_args!("ERR unknown command '{name}', with args beginning with: {beginning}"));
}

/// How many bytes of an unknown command are repeated in the answer.
const SHOWN: usize = 128;

fn shown(word: &[u8]) -> &[u8] {
    &word[..word.len().min(SHOWN)]
}
