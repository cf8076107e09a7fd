//! What a supervisor such as systemd hears of the daemon, on a real socket.

use std::{
    io::{BufRead as _, BufReader},
    os::unix::net::UnixDatagram,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use ratelimit_tests::{
    daemon::{Daemon, Edge},
    netns::EDGE,
};

const POLICY: &str = "[source]\nlimits = [\"5000 packets/s burst 10000\"]\n";

/// How long a message may take beside busy neighbours.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the supervisor waits for a sign of life.
const WATCHDOG: Duration = Duration::from_millis(400);

/// The other end of `NOTIFY_SOCKET`.
struct Heard(UnixDatagram);

impl Heard {
    /// The next message; `None` if none comes within this time.
    fn next(&self, within: Duration) -> Option<String> {
        self.0.set_read_timeout(Some(within)).unwrap();
        let mut message = [0; 4096];
        let length = self.0.recv(&mut message).ok()?;
        Some(String::from_utf8(message[..length].to_vec()).unwrap())
    }

    /// The next message that has this line in it.
    fn until(&self, line: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{line} was not said");
            if let Some(message) = self.next(left)
                && message.lines().any(|said| said == line)
            {
                return message;
            }
        }
    }

    /// Takes what has been said already.
    fn forget(&self) {
        while self.next(Duration::from_millis(1)).is_some() {}
    }
}

fn supervised(edge: &Edge, watchdog: Duration) -> (Heard, Daemon) {
    let path = edge.dir().join("notify");
    let heard = Heard(UnixDatagram::bind(&path).unwrap());
    edge.write_policy(POLICY);
    let mut command = edge.run_command();
    command.args(["--iface", EDGE]).env("NOTIFY_SOCKET", &path);
    command.env("WATCHDOG_USEC", watchdog.as_micros().to_string()).env_remove("WATCHDOG_PID");
    let daemon = Daemon::start(command);
    (heard, daemon)
}

#[test]
fn a_supervisor_hears_of_the_start_of_life_of_a_reload_and_of_the_end() {
    let edge = Edge::new();
    let (heard, daemon) = supervised(&edge, WATCHDOG);
    let first = heard.next(PATIENCE).unwrap();
    assert!(first.starts_with("READY=1\n"), "{first}");
    let status = format!("STATUS=guarding {EDGE} native; mode enforce; attack state normal");
    assert!(first.lines().any(|line| line == status), "{first}");
    heard.until("WATCHDOG=1");
    edge.write_policy(&format!("mode = \"monitor\"\n{POLICY}"));
    daemon.signal("HUP");
    let reloading = heard.until("RELOADING=1");
    assert!(reloading.contains("\nMONOTONIC_USEC="), "{reloading}");
    // Nothing comes between: systemd takes the next READY=1 for the end of the reload.
    let ready = heard.next(PATIENCE).unwrap();
    assert!(ready.starts_with("READY=1\n") && ready.contains("mode monitor"), "{ready}");
    heard.until("WATCHDOG=1");
    let (status, _log) = daemon.terminate();
    assert!(status.success());
    heard.until("STOPPING=1");
}

/// Holds one thread of a process, as a debugger does, until its standard input ends. The other threads go on.
const HOLD: &str = "
import ctypes, os, sys
libc, thread = ctypes.CDLL(None, use_errno=True), int(sys.argv[1])
for request in (0x4206, 0x4207):  # PTRACE_SEIZE, PTRACE_INTERRUPT
    if libc.ptrace(request, thread, None, None) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
os.waitpid(thread, 0x40000000)  # __WALL
print('held', flush=True)
sys.stdin.read()
";

#[test]
fn a_daemon_whose_loop_stands_still_while_its_other_threads_run_gives_no_sign_of_life() {
    let edge = Edge::new();
    let (heard, daemon) = supervised(&edge, WATCHDOG);
    heard.until("WATCHDOG=1");
    let mut hold = Command::new("python3");
    hold.args(["-c", HOLD, &daemon.pid().to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holding = hold.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(holding.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    heard.forget();
    assert_eq!(heard.next(WATCHDOG * 2), None);
    drop(holding.stdin.take());
    holding.wait().unwrap();
    heard.until("WATCHDOG=1");
}

#[test]
fn a_daemon_that_nobody_supervises_and_one_whose_supervisor_is_gone_run_all_the_same() {
    let edge = Edge::new();
    let (heard, daemon) = supervised(&edge, Duration::ZERO);
    heard.until("READY=1");
    drop(heard);
    daemon.signal("HUP");
    daemon.wait_for_log("the supervisor was not told \"READY=1");
    assert_eq!(edge.json(&["status"])["protected"], true);
    let (_, log) = daemon.terminate();
    assert_eq!(log.matches("WATCHDOG").count(), 0, "{log}");
    let mut command = edge.run_command();
    command.args(["--iface", EDGE]).env("NOTIFY_SOCKET", "nonsense").env("WATCHDOG_USEC", "1000");
    Daemon::start(command)
        .wait_for_log("(NOTIFY_SOCKET) is not told anything: it is neither a path nor a name");
}
