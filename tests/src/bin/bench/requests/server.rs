//! A server of this run: on a core of its own, on ports of the loopback interface, and gone with the value that stands for it.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

/// How long a server may take until its ports answer.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct Server {
    child: Child,
}

/// Where a server runs and where its files go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'p> {
    pub(super) cpu: usize,
    pub(super) dir: &'p Path,
}

impl Server {
    /// Starts a program and waits until all its ports answer.
    pub(super) fn start(place: Place<'_>, program: &str, words: &[String], ports: &[u16]) -> Result<Self> {
        let log = log_path(place, program, ports);
        let sink = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", &place.cpu.to_string()]);
        // If this process is killed, no server stays behind.
        command.args(["setpriv", "--pdeathsig", "KILL", program]).args(words);
        command.current_dir(place.dir).stdin(Stdio::null()).stdout(sink.try_clone()?).stderr(sink);
        let child = command.spawn().context("cannot start taskset, of util-linux")?;
        let mut server = Self { child };
        for port in ports {
            server.wait_for(*port, &log).with_context(|| format!("cannot start {program}"))?;
        }
        Ok(server)
    }

    fn wait_for(&mut self, port: u16, log: &Path) -> Result<()> {
        let begun = Instant::now();
        while TcpStream::connect(local(port)).is_err() {
            if let Some(status) = self.child.try_wait()? {
                let said = fs::read_to_string(log).unwrap_or_default();
                bail!("it ended with {status}: {}", last_words(&said));
            }
            if begun.elapsed() > PATIENCE {
                bail!("port {port} did not answer within {} s", PATIENCE.as_secs());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Ends it as a crash would.
    pub(super) fn kill(&mut self) {
        let _gone_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(super) fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Whether a program is there to be started.
pub(super) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

fn log_path(place: Place<'_>, program: &str, ports: &[u16]) -> PathBuf {
    let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
    let port = ports.first().copied().unwrap_or_default();
    place.dir.join(format!("{name}-{port}.log"))
}

/// The end of a log as one line: that is where the reason is.
fn last_words(log: &str) -> String {
    let lines: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(3)..].join("; ")
}

#[cfg(test)]
mod tests {
    use ratelimit_tests::redis::free_port;

    use super::*;

    #[test]
    fn a_server_that_does_not_come_up_is_told_of_with_its_last_words() {
        let dir = std::env::temp_dir();
        let script = ["-c".to_owned(), "echo no such policy >&2; exit 2".to_owned()];
        let place = Place { cpu: 0, dir: &dir };
        let error = format!("{:#}", Server::start(place, "sh", &script, &[free_port()]).unwrap_err());
        assert_eq!(error, "cannot start sh: it ended with exit status: 2: no such policy");
    }
}
