//! The clients: other people's, so that nobody can say that ours was kind to us. Each runs on one core, and not on the server's.

use std::{fs, path::PathBuf, process::Command, time::Duration};

use anyhow::{Context, Result};

use super::output;
use crate::{comparison::Sample, shell};

/// Users, or keys, that questions are about; each as likely as any other.
pub(super) const KEYS: usize = 100_000;
const CONNECTIONS: &str = "50";
/// Calls at once on a connection of HTTP/2.
const STREAMS: &str = "16";
/// Requests of the first round, when nothing is known about the server's speed.
const FIRST: f64 = 20_000.0;

/// redis-benchmark, asking one thing of one server. It takes a number of requests, not a time; so each round tells how many the next one has.
pub(super) struct RedisBenchmark {
    pub(super) cpu: usize,
    pub(super) port: u16,
    /// Commands that are sent before the first answer is waited for.
    pub(super) depth: u32,
    /// `__rand_int__` in it becomes the number of a key.
    pub(super) question: Vec<String>,
    per_second: Option<f64>,
}

impl RedisBenchmark {
    pub(super) fn new(cpu: usize, port: u16, depth: u32, question: &[&str]) -> Self {
        let question = question.iter().map(ToString::to_string).collect();
        Self { cpu, port, depth, question, per_second: None }
    }

    pub(super) fn run(&mut self, round: Duration) -> Result<Sample> {
        let count = self.per_second.map_or(FIRST, |rate| (rate * round.as_secs_f64()).max(FIRST));
        let mut command = on_core(self.cpu, "redis-benchmark");
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "--csv", "-c", CONNECTIONS]);
        command.args(["-P", &self.depth.to_string(), "-n", &format!("{count:.0}"), "-r", &KEYS.to_string()]);
        let sample = output::redis_benchmark(&shell::output(command.args(&self.question))?)?;
        self.per_second = Some(sample.value);
        Ok(sample)
    }
}

/// wrk, with a script that chooses among requests made beforehand.
pub(super) struct Wrk {
    cpu: usize,
    url: String,
    script: PathBuf,
}

impl Wrk {
    /// `request` is Lua for one request, of the user `n`: arguments of `wrk.format`.
    pub(super) fn new(
        cpu: usize,
        port: u16,
        dir: &std::path::Path,
        name: &str,
        request: &str,
    ) -> Result<Self> {
        let script = dir.join(format!("{name}.lua"));
        fs::write(&script, wrk_script(request))
            .with_context(|| format!("cannot write {}", script.display()))?;
        Ok(Self { cpu, url: format!("http://127.0.0.1:{port}/"), script })
    }

    pub(super) fn run(&mut self, round: Duration) -> Result<Sample> {
        let mut command = on_core(self.cpu, "wrk");
        // wrk counts in whole seconds.
        let seconds = round.as_secs().max(1);
        command.args(["-t1", "-c", CONNECTIONS, "--latency", "-d", &format!("{seconds}s"), "-s"]);
        output::wrk(&shell::output(command.arg(&self.script).arg(&self.url))?)
    }
}

fn wrk_script(request: &str) -> String {
    format!(
        "local requests = {{}}\n\
         function init(args)\n  \
           for n = 1, {KEYS} do requests[n] = wrk.format({request}) end\n\
         end\n\
         function request() return requests[math.random({KEYS})] end\n"
    )
}

/// h2load, calling one method with one body, which h2load cannot vary.
pub(super) struct H2load {
    cpu: usize,
    url: String,
    body: PathBuf,
}

impl H2load {
    pub(super) fn new(
        cpu: usize,
        port: u16,
        dir: &std::path::Path,
        method: &str,
        body: &[u8],
    ) -> Result<Self> {
        let path = dir.join(format!("{port}.body"));
        fs::write(&path, body).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { cpu, url: format!("http://127.0.0.1:{port}/{method}"), body: path })
    }

    pub(super) fn run(&mut self, round: Duration) -> Result<Sample> {
        let mut command = on_core(self.cpu, "h2load");
        command.args(["-t1", "-c", CONNECTIONS, "-m", STREAMS, "-D", &format!("{}ms", round.as_millis())]);
        command.args(["-H", "content-type: application/grpc", "-H", "te: trailers", "-d"]);
        output::h2load(&shell::output(command.arg(&self.body).arg(&self.url))?)
    }
}

fn on_core(cpu: usize, program: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &cpu.to_string(), program]);
    command
}
