//! `ratelimit run --trace` of a build with the feature `trace`, with the rights that a daemon has.

use std::{
    io::{BufRead as _, BufReader},
    net::UdpSocket,
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use crate::{
    daemon::Edge,
    netns::{EDGE, EDGE_V4},
};

/// Who sends the packet.
const SENDER: &str = "10.99.0.66";
/// How long the first line may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts a build by hand as root, and with the capabilities of the packaged unit. An error if the verdict about a packet is not printed, or not as it was.
pub fn lines_come(build: &Path) -> Result<(), String> {
    let by_hand = |edge: &Edge| edge.run_command_with(build);
    let by_the_unit = |edge: &Edge| edge.run_command_of_the_unit_with(build);
    told("started by root", by_hand)?;
    told("with the capabilities of the unit", by_the_unit)
}

fn told(who: &str, command: impl Fn(&Edge) -> Command) -> Result<(), String> {
    let edge = Edge::new();
    edge.write_policy("[source]\nlimits = [\"1000 packets/s\"]\n");
    let mut command = command(&edge);
    command.args(["--iface", EDGE, "--trace"]).stdout(Stdio::piped());
    let mut daemon = command.spawn().map_err(|error| format!("{who}: {error}"))?;
    let lines = BufReader::new(daemon.stdout.take().ok_or("no output")?).lines();
    let (heard, said) = mpsc::channel();
    thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| heard.send(line)));
    let seen = verdict(&edge, &said);
    let _gone = daemon.kill();
    let _gone = daemon.wait();
    seen.map_err(|why| format!("--trace {who}: {why}"))
}

/// Sends packets until the verdict about one is printed.
fn verdict(edge: &Edge, said: &mpsc::Receiver<String>) -> Result<(), String> {
    // Frames that pass before the daemon is ready have lines already.
    while said.recv_timeout(PATIENCE).map_err(|_| "the daemon does not come up")? != "ready" {}
    edge.wire.add_source(SENDER.parse().map_err(|error| format!("{error}"))?);
    let sender = edge.wire.as_net(|| UdpSocket::bind((SENDER, 0)).expect("a socket"));
    let wanted = format!("pass {SENDER} - conforming, ");
    let until = Instant::now() + PATIENCE;
    let mut others = Vec::new();
    while Instant::now() < until {
        sender.send_to(b"traced", (EDGE_V4, 9)).map_err(|error| error.to_string())?;
        while let Ok(line) = said.recv_timeout(Duration::from_millis(100)) {
            if line.starts_with(&wanted) {
                return Ok(());
            }
            others.push(line);
        }
    }
    Err(format!("no line {wanted:?} within {PATIENCE:?}: {others:?}"))
}
