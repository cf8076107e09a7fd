//! Tells the supervisor of the daemon, systemd, how it is, through the socket that `NOTIFY_SOCKET` names (`sd_notify(3)`).
//!
//! The loop that follows signals and the clock sends the sign of life, and only while it holds the lock of the host. If the loop hangs, or another thread does not
//! release the lock, no sign comes, and systemd starts the daemon again. Limits stay in force in the kernel meanwhile.

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Interval;

use crate::{
    control::protocol,
    daemon::{host::Host, supervisor_socket::SupervisorSocket},
};

/// The supervisor, if there is one.
#[derive(Debug)]
pub(super) struct Supervisor {
    socket: SupervisorSocket,
    /// When the next sign of life is due, if the supervisor waits for them.
    due: Option<Interval>,
    /// The last state of the host that the supervisor was told.
    said: String,
}

impl Supervisor {
    /// Makes the supervisor that the environment names. Needs a runtime with a clock.
    pub(in crate::daemon) fn of_environment() -> Self {
        let socket = SupervisorSocket::of_environment();
        let due = socket.signs_of_life();
        Self { socket, due, said: String::new() }
    }

    /// Tells that the policy is in force, at the start and after each reload.
    pub(in crate::daemon) fn ready(&mut self, host: &Host) {
        self.said = words(host);
        self.socket.send(&format!("READY=1\nSTATUS={}\n", self.said));
    }

    /// Tells that the policy is about to be read again; `ready` follows.
    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.socket
            .send(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}\nSTATUS=reading the policy again\n"));
    }

    /// Tells that the daemon ends; limits stay in force.
    pub(in crate::daemon) fn stopping(&self) {
        self.socket.send("STOPPING=1\nSTATUS=stopping; limits stay in force\n");
    }

    /// Waits until a sign of life is due; for ever if the supervisor does not wait for one.
    pub(in crate::daemon) async fn due(&mut self) {
        match &mut self.due {
            Some(due) => {
                due.tick().await;
            }
            None => std::future::pending().await,
        }
    }

    /// Sends the sign of life. The caller holds the lock of the host.
    pub(in crate::daemon) fn alive(&mut self, host: &Host) {
        let now = words(host);
        if now == self.said {
            return self.socket.send("WATCHDOG=1\n");
        }
        self.socket.send(&format!("WATCHDOG=1\nSTATUS={now}\n"));
        self.said = now;
    }
}

/// Returns the state of the host in a line that `systemctl status` shows.
fn words(host: &Host) -> String {
    let interfaces = host.interfaces.with(|interfaces| interfaces.statuses());
    let guarded: Vec<String> =
        interfaces.iter().map(|interface| format!("{} {}", interface.name, interface.mode)).collect();
    let protection = if protocol::all_protected(&interfaces) { "guarding" } else { "NOT PROTECTED:" };
    let (mode, attack_state) = (host.policy().mode().name(), host.attack.watch.attack_state().name());
    format!("{protection} {}; mode {mode}; attack state {attack_state}", guarded.join(", "))
}
