//! Whoever started the daemon and wants to hear from it: systemd, by the socket that `NOTIFY_SOCKET` names (`sd_notify(3)`).
//!
//! The sign of life is sent by the loop that follows signals and the clock, and only when the loop has the host to itself: a loop that hangs, or a host
//! that somebody does not let go of, is silent, and systemd starts the daemon again. Limits stay in force in the kernel meanwhile.

use std::{
    env, io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
    process,
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::{host::Host, log};
use crate::control::protocol;

/// How long one message may wait for a supervisor that does not read.
const PATIENCE: Duration = Duration::from_millis(200);

/// The supervisor, if there is one.
#[derive(Debug)]
pub(super) struct Supervisor {
    socket: Option<UnixDatagram>,
    /// When the next sign of life is due, if the supervisor waits for them.
    due: Option<Interval>,
    /// What the supervisor heard last of how the host is.
    said: String,
}

impl Supervisor {
    /// Whom the environment names. Needs a runtime with a clock.
    pub(super) fn of_environment() -> Self {
        let name = env::var_os("NOTIFY_SOCKET");
        let socket = name.and_then(|name| match connect(name.as_encoded_bytes()) {
            Ok(socket) => Some(socket),
            Err(error) => {
                log::warning(format!(
                    "the supervisor at {name:?} (NOTIFY_SOCKET) is not told anything: {error}; a unit with Type=notify will not become active"
                ));
                None
            }
        });
        let variable = |name| env::var(name).ok();
        let patience = patience(variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"), process::id());
        let due = patience.filter(|_| socket.is_some()).map(|patience| {
            let mut due = interval(patience / 2);
            due.set_missed_tick_behavior(MissedTickBehavior::Delay);
            due
        });
        Self { socket, due, said: String::new() }
    }

    /// The policy is in force, also once it has been read again.
    pub(super) fn ready(&mut self, host: &Host) {
        self.said = words(host);
        self.send(&format!("READY=1\nSTATUS={}\n", self.said));
    }

    /// The policy is about to be read again; `ready` follows.
    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}\nSTATUS=reading the policy again\n"));
    }

    /// The daemon ends; limits stay in force.
    pub(super) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=stopping; limits stay in force\n");
    }

    /// Comes back when a sign of life is due; never, if nobody waits for one.
    pub(super) async fn due(&mut self) {
        match &mut self.due {
            Some(due) => {
                due.tick().await;
            }
            None => std::future::pending().await,
        }
    }

    /// The sign of life. Whoever sends it has the host.
    pub(super) fn alive(&mut self, host: &Host) {
        let now = words(host);
        if now == self.said {
            return self.send("WATCHDOG=1\n");
        }
        self.send(&format!("WATCHDOG=1\nSTATUS={now}\n"));
        self.said = now;
    }

    fn send(&self, message: &str) {
        let Some(socket) = &self.socket else { return };
        // A supervisor that misses a sign of life gets the next one; one that is gone cannot be told so.
        if let Err(error) = socket.send(message.as_bytes()) {
            log::warning(format!("the supervisor was not told {:?}: {error}", message.trim_end()));
        }
    }
}

/// A path, or a name without one behind an `@`.
fn connect(name: &[u8]) -> io::Result<UnixDatagram> {
    let address = match name {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(std::str::from_utf8(name).map_err(io::Error::other)?)?,
        _ => {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is neither a path nor a name after @",
            ));
        }
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// How long the supervisor waits for a sign of life, if it waits for one of this process. None for zero, as systemd has it.
fn patience(microseconds: Option<String>, of_process: Option<String>, own: u32) -> Option<Duration> {
    if of_process.is_some_and(|pid| pid.parse() != Ok(own)) {
        return None;
    }
    // Half of it must be a time.
    let microseconds = microseconds?.parse().ok().filter(|&microseconds| microseconds > 1)?;
    Some(Duration::from_micros(microseconds))
}

/// How the host is, in a line that `systemctl status` shows.
fn words(host: &Host) -> String {
    let interfaces = host.interfaces.statuses();
    let guarded: Vec<String> =
        interfaces.iter().map(|interface| format!("{} {}", interface.name, interface.mode)).collect();
    let protection = if protocol::all_protected(&interfaces) { "guarding" } else { "NOT PROTECTED:" };
    let (mode, attack_state) = (host.policy().mode().name(), host.attack.watch.attack_state().name());
    format!("{protection} {}; mode {mode}; attack state {attack_state}", guarded.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_of_life_are_for_whom_the_supervisor_waits() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(patience(text("3000000"), None, 7), Some(Duration::from_secs(3)));
        assert_eq!(patience(text("3000000"), text("7"), 7), Some(Duration::from_secs(3)));
        for (microseconds, pid) in [
            (None, None),
            (None, text("7")),
            (text("3000000"), text("8")),
            (text("3000000"), text("")),
            (text("0"), None),
            (text("1"), None),
            (text("-5"), None),
            (text("soon"), None),
        ] {
            assert_eq!(patience(microseconds.clone(), pid.clone(), 7), None, "{microseconds:?} {pid:?}");
        }
    }

    #[test]
    fn a_socket_is_a_path_or_an_abstract_name_and_nothing_else() {
        let name = format!("ratelimit-supervisor-{}", process::id());
        let heard = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        connect(format!("@{name}").as_bytes()).unwrap().send(b"READY=1\n").unwrap();
        let mut message = [0; 16];
        let length = heard.recv(&mut message).unwrap();
        assert_eq!(&message[..length], b"READY=1\n");
        for wrong in
            [&b"vsock:2:1234"[..], b"", b"relative/path", b"/nowhere/at/all", b"@nobody-has-this-name"]
        {
            connect(wrong).unwrap_err();
        }
    }
}
