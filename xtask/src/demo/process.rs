//! A child process that does not outlive its guard.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::interrupt::Interrupt;
use crate::tool;

/// How long a process may take to end by itself after it was asked to.
const PATIENCE: Duration = Duration::from_secs(3);

pub(super) struct Process {
    name: &'static str,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Process {
    /// Starts a process with standard input and output connected to us; standard error stays as the command has it.
    pub(super) fn start(name: &'static str, command: &mut Command) -> Result<Self> {
        // The process gets a group of its own: Ctrl-C at the terminal reaches only us, and we end the children in order.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().with_context(|| format!("{name} has no standard output"))?;
        let (sender, lines) = mpsc::channel();
        // This thread ends by itself when the process closes its output.
        thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Ok(Self { name, child, stdin, lines })
    }

    pub(super) fn write_line(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().with_context(|| format!("{} no longer listens", self.name))?;
        writeln!(stdin, "{line}").with_context(|| format!("cannot talk to {}", self.name))
    }

    /// Closes standard input, which asks a well-behaved process to finish.
    pub(super) fn close_input(&mut self) {
        self.stdin = None;
    }

    /// Returns the next line of output; `None` if none comes in time.
    pub(super) fn next_line(&mut self, interrupt: &Interrupt, limit: Duration) -> Result<Option<String>> {
        let name = self.name;
        interrupt.wait_for(limit, || match self.lines.try_recv() {
            Ok(line) => Ok(Some(line)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => bail!("{name} stopped too early"),
        })
    }

    /// Prints every further line as it comes. If nobody reads our output any more (`| head`), only this printing ends.
    pub(super) fn print_lines(&mut self) {
        let (_, nothing_more) = mpsc::channel();
        let lines = std::mem::replace(&mut self.lines, nothing_more);
        thread::spawn(move || lines.iter().try_for_each(|line| writeln!(io::stdout(), "{line}")));
    }

    /// Waits for the end and returns every line that has not been read yet.
    pub(super) fn finish(mut self, interrupt: &Interrupt, limit: Duration) -> Result<Vec<String>> {
        let name = self.name;
        self.close_input();
        let status = interrupt
            .wait_for(limit, || self.child.try_wait().with_context(|| format!("cannot wait for {name}")))?
            .with_context(|| format!("{name} did not finish within {} s", limit.as_secs()))?;
        let lines: Vec<String> = self.lines.iter().collect();
        // ping ends with 1 if replies are missing, which is a result and not a failure to run.
        if lines.is_empty() {
            bail!("{name} ended with {status} and printed nothing");
        }
        Ok(lines)
    }

    fn ask_to_end(&self) {
        // The kill of the shell is used: the standard library can only send SIGKILL, and /bin/kill is not on every machine.
        let _asked = tool::command("sh")
            .args(["-c", &format!("kill -TERM {}", self.child.id())])
            .stderr(Stdio::null())
            .status();
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stdin = None;
        if self.has_ended() {
            return;
        }
        self.ask_to_end();
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if self.has_ended() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn shell(script: &str) -> Process {
        Process::start("a shell", Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn dropping_the_guard_ends_the_process() {
        let process = shell("exec sleep 600");
        let entry = PathBuf::from(format!("/proc/{}", process.child.id()));
        assert!(entry.exists());
        drop(process);
        assert!(!entry.exists());
    }

    #[test]
    fn lines_are_exchanged_and_the_rest_is_returned_at_the_end() {
        let interrupt = Interrupt::never();
        let mut process = shell("while read word; do echo got $word; done; echo bye");
        process.write_line("one").unwrap();
        let answer = process.next_line(&interrupt, Duration::from_secs(10)).unwrap();
        assert_eq!(answer.as_deref(), Some("got one"));
        assert_eq!(process.finish(&interrupt, Duration::from_secs(10)).unwrap(), ["bye"]);
    }

    #[test]
    fn a_process_that_stops_early_is_named() {
        let interrupt = Interrupt::never();
        let error = shell("exit 0").next_line(&interrupt, Duration::from_secs(10)).unwrap_err();
        assert_eq!(error.to_string(), "a shell stopped too early");
    }
}
