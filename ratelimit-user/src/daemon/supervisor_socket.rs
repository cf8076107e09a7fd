//! The socket of the supervisor that started this process and waits for messages: systemd names it in `NOTIFY_SOCKET` (`sd_notify(3)`).

use std::{
    env, io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
    process,
    time::Duration,
};

use tokio::time::{Interval, MissedTickBehavior, interval};

use super::log;

/// How long one message may wait for a supervisor that does not read.
const PATIENCE: Duration = Duration::from_millis(200);

/// The supervisor's socket, if there is one.
#[derive(Debug)]
pub(super) struct SupervisorSocket {
    socket: Option<UnixDatagram>,
    /// How long the supervisor waits for a sign of life of this process, if it waits for any.
    patience: Option<Duration>,
}

impl SupervisorSocket {
    /// Connects to the supervisor that the environment names, if it names one.
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
        let patience = patience.filter(|_| socket.is_some());
        Self { socket, patience }
    }

    /// Returns the times at which signs of life are due, two in the time that the supervisor waits; `None` if it does not. Needs a runtime with a clock.
    pub(super) fn signs_of_life(&self) -> Option<Interval> {
        let mut due = interval(self.patience? / 2);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Some(due)
    }

    pub(super) fn send(&self, message: &str) {
        let Some(socket) = &self.socket else { return };
        // A failure is only logged: a supervisor that misses a sign of life gets the next one.
        if let Err(error) = socket.send(message.as_bytes()) {
            log::warning(format!("the supervisor was not told {:?}: {error}", message.trim_end()));
        }
    }
}

/// Connects to a socket, given as a path or as `@` and an abstract name.
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

/// Returns how long the supervisor waits for a sign of life, if it waits for this process; `None` for zero, which systemd uses for no waiting.
fn patience(microseconds: Option<String>, of_process: Option<String>, own: u32) -> Option<Duration> {
    if of_process.is_some_and(|pid| pid.parse() != Ok(own)) {
        return None;
    }
    // Half of the time must not be zero.
    let microseconds = microseconds?.parse().ok().filter(|&microseconds| microseconds > 1)?;
    Some(Duration::from_micros(microseconds))
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
