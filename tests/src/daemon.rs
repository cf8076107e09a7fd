//! A real daemon on a real wire, and the command line that talks to it.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{MemfdFlags, memfd_create};

use crate::{
    bpffs::Scratch,
    netns::{EDGE, Wire, run},
};

/// A binary of this workspace, from the directory that this test was built into.
pub fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("own path");
    // target/<profile>/deps/<test>, or target/<profile>/<program>
    let dir = test.parent().expect("a directory");
    let dir = if dir.ends_with("deps") { dir.parent().expect("the profile's directory") } else { dir };
    let path = dir.join(name);
    assert!(path.exists(), "{} is not built; run cargo build --workspace --bins", path.display());
    path
}

/// One edge host: a wire, a state directory and a pin directory. The daemon on it may come and go.
#[derive(Debug)]
pub struct Edge {
    /// The wire it is on.
    pub wire: Wire,
    scratch: Scratch,
}

impl Edge {
    /// A new host without a daemon.
    pub fn new() -> Self {
        Self { wire: Wire::new(), scratch: Scratch::new() }
    }

    /// Directory for files of this test.
    pub fn dir(&self) -> &Path {
        self.scratch.dir()
    }

    /// The directory of the daemon's pins.
    pub fn pin(&self) -> PathBuf {
        self.scratch.pin()
    }

    /// Makes the maps look as if a build with another layout had left them. No daemon may run.
    pub fn rename_layouts(&self, abi: u32) -> std::io::Result<()> {
        for dir in fs::read_dir(self.pin())? {
            let dir = dir?.path();
            let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let layout = name.strip_prefix("abi-").and_then(|rest| rest.split_once('-'));
            if let Some((version, rest)) = layout
                && version.parse() == Ok(ratelimit_common::abi::ABI_VERSION)
            {
                fs::rename(&dir, self.pin().join(format!("abi-{abi}-{rest}")))?;
            }
        }
        Ok(())
    }

    /// The directory of the daemon's state.
    pub fn state(&self) -> PathBuf {
        self.scratch.dir().join("state")
    }

    /// The path of the policy file.
    pub fn policy(&self) -> PathBuf {
        self.scratch.dir().join("policy.toml")
    }

    /// Writes the policy file.
    pub fn write_policy(&self, text: &str) {
        fs::write(self.policy(), text).expect("write the policy");
    }

    /// `ratelimit run` with this host's directories, not started yet.
    pub fn run_command(&self) -> Command {
        self.run_command_with(&binary("ratelimit"))
    }

    /// `run` of the build at a path, with this host's directories, not started yet.
    pub fn run_command_with(&self, build: &Path) -> Command {
        self.run_by(self.wire.on_edge(build))
    }

    /// `ratelimit run` with the capabilities that the packaged unit leaves it (`packaging/systemd/ratelimit.service`), not started yet.
    pub fn run_command_of_the_unit(&self) -> Command {
        self.run_command_of_the_unit_with(&binary("ratelimit"))
    }

    /// `run` of the build at a path, with the capabilities that the packaged unit leaves it, not started yet.
    pub fn run_command_of_the_unit_with(&self, build: &Path) -> Command {
        let mut command = self.wire.on_edge("setpriv");
        command.args(["--bounding-set", "-all,+bpf,+net_admin,+perfmon", "--no-new-privs"]);
        command.arg(build);
        self.run_by(command)
    }

    fn run_by(&self, mut command: Command) -> Command {
        command.arg("run").arg("--policy").arg(self.policy());
        command.arg("--state").arg(self.state()).arg("--pin").arg(self.pin());
        command
    }

    /// Starts a daemon on the guarded interface and waits until it enforces.
    pub fn start(&self, policy: &str) -> Daemon {
        self.write_policy(policy);
        self.start_again()
    }

    /// Starts a daemon with the policy file that is there, and waits until it enforces.
    pub fn start_again(&self) -> Daemon {
        let mut command = self.run_command();
        command.args(["--iface", EDGE]);
        Daemon::start(command)
    }

    /// Runs one verb of the command line against this host.
    pub fn cli(&self, words: &[&str]) -> Output {
        self.cli_command(words).output().expect("run the command line")
    }

    /// One verb of the command line against this host, not run yet.
    pub fn cli_command(&self, words: &[&str]) -> Command {
        let mut command = self.wire.on_edge(binary("ratelimit"));
        command.args(words).arg("--state").arg(self.state());
        if ["detach", "doctor", "status", "stats"].contains(&words[0]) {
            command.arg("--pin").arg(self.pin());
        }
        // Whoever runs the tests over SSH does not come from a test's own network.
        command.env_remove("SSH_CONNECTION").env_remove("SSH_CLIENT");
        command
    }

    /// The JSON answer of a verb that must succeed; `status` may find that something is not protected, and `doctor` what is in the way.
    pub fn json(&self, words: &[&str]) -> serde_json::Value {
        let output = self.cli(&[words, &["--output", "json"]].concat());
        let found = ["status", "doctor"].contains(&words[0]) && output.status.code() == Some(1);
        assert!(found || output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Frames dropped for a reason so far.
    pub fn dropped(&self, reason: &str) -> u64 {
        self.json(&["stats"])["drops_by_reason"][reason].as_u64().expect("a count")
    }

    /// Frames passed for a reason so far.
    pub fn passed(&self, reason: &str) -> u64 {
        self.json(&["stats"])["passes_by_reason"][reason].as_u64().expect("a count")
    }
}

impl Default for Edge {
    fn default() -> Self {
        Self::new()
    }
}

/// A running daemon. Killed with the value; what it pinned stays until its host goes.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    /// A file, not a pipe with a reader: what the daemon wrote before it answered is there once the answer is.
    log: File,
}

impl Daemon {
    /// Starts a daemon and waits for "ready".
    pub fn start(mut command: Command) -> Self {
        let log = File::from(memfd_create("log", MemfdFlags::CLOEXEC).expect("a file in memory"));
        let written = log.try_clone().expect("a second handle of the log");
        let mut child = command.stdout(Stdio::piped()).stderr(written).spawn().expect("start the daemon");
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("read the daemon's output");
        let daemon = Self { child, log };
        assert_eq!(line, "ready\n", "the daemon did not come up: {}", daemon.log());
        thread::spawn(move || stdout.read_to_end(&mut Vec::new()));
        daemon
    }

    /// The daemon's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The front process that the daemon has started.
    pub fn front(&self) -> u32 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).expect("the daemon runs");
        let children: String = tasks
            .flatten()
            .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
            .collect();
        let mut children = children.split_whitespace().map(|child| child.parse().expect("a number"));
        children.next().expect("a front process")
    }

    /// What the daemon has logged so far.
    pub fn log(&self) -> String {
        let length = self.log.metadata().expect("the length of the log").len();
        let mut bytes = vec![0; usize::try_from(length).expect("a log that fits into memory")];
        self.log.read_exact_at(&mut bytes, 0).expect("read the log");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until the log has this text; panics when it does not come.
    pub fn wait_for_log(&self, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !self.log().contains(text) {
            assert!(Instant::now() < deadline, "{text:?} not logged: {}", self.log());
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sends a signal by name.
    pub fn signal(&self, name: &str) {
        run(Command::new("kill").arg(format!("-{name}")).arg(self.pid().to_string()));
    }

    /// Kills the daemon without a chance to tidy up.
    pub fn kill_9(mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
    }

    /// Waits until the daemon has ended.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("wait")
    }

    /// Asks the daemon to stop, and returns its exit status and everything that it logged.
    pub fn terminate(mut self) -> (ExitStatus, String) {
        self.signal("TERM");
        let status = self.wait();
        self.wait_for_log("released");
        (status, self.log())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}
