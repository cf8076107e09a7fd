//! One host of a soak: its wire, its daemon, and the builds that the daemon may be of.

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use crate::{
    daemon::Edge,
    netns::{EDGE, NET, run},
};

/// How long a daemon may take to enforce, beside floods on a busy machine: at a load of 40 the kernel took more than a minute to verify the program. A daemon
/// that is given up too early is no fault of its own, and those that follow from it look like faults: an interface that comes back meanwhile is bare.
const START: Duration = Duration::from_secs(180);
const STEP: Duration = Duration::from_millis(100);
/// The second interface, and its other end.
pub(super) const SECOND: &str = "edge1";
const SECOND_NET: &str = "net1";
/// The edge host's address on the second interface.
pub(super) const SECOND_V4: &str = "10.98.0.1";
/// What the disk of the state has room for.
const DISK: &str = "size=4m";

/// How a daemon says for how long new maps were held.
const REFUSED: &str = "what limits apply to was refused for ";

/// A program that can be the daemon.
#[derive(Clone, Debug)]
pub struct Build {
    /// What it is called in the log.
    pub name: String,
    /// The path of the executable.
    pub path: PathBuf,
    /// Words of the command line after `run`.
    pub words: Vec<String>,
    /// Whether its maps have the layout of those of the build that is soaked.
    pub same_layout: bool,
}

/// A daemon that runs.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    pub(super) build: usize,
}

impl Running {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The exit status of a daemon that has ended by itself.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// A host with its wires, directories and daemon.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) edge: Edge,
    pub(super) daemon: Option<Running>,
    pub(super) builds: Vec<Build>,
    log: PathBuf,
    /// How many bytes of the log were read by [`Site::refused_s`].
    log_read: usize,
    /// Variables that give its daemon a wall clock of its own.
    clock: Vec<(String, String)>,
    interfaces: Vec<&'static str>,
    sources: Vec<&'static str>,
}

impl Site {
    /// A host with these sources in front of it, and a second interface if `both`.
    pub(super) fn new(
        sources: &[&'static str],
        both: bool,
        builds: &[Build],
        log: PathBuf,
        clock: &[(String, String)],
    ) -> Self {
        let edge = Edge::new();
        fs::create_dir_all(edge.state()).expect("the state directory");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", DISK, "tmpfs"]).arg(edge.state()));
        for name in ["net.ipv4.tcp_syncookies=2", "net.ipv4.tcp_timestamps=2"] {
            run(edge.wire.on_edge("sysctl").args(["-qw", name]));
        }
        for name in ["all", EDGE] {
            let keep = format!("net.ipv6.conf.{name}.keep_addr_on_down=1");
            run(edge.wire.on_edge("sysctl").args(["-qw", &keep]));
        }
        let site = Self {
            edge,
            daemon: None,
            builds: builds.to_vec(),
            log,
            log_read: 0,
            clock: clock.to_vec(),
            interfaces: if both { vec![EDGE, SECOND] } else { vec![EDGE] },
            sources: sources.to_vec(),
        };
        if both {
            site.add_second();
        }
        site.add_sources();
        site
    }

    pub(super) fn interfaces(&self) -> &[&'static str] {
        &self.interfaces
    }

    /// The addresses in front of it that a new wire has to have.
    pub(super) fn add_sources(&self) {
        for source in self.sources.iter().filter(|source| !source.starts_with("10.98.")) {
            self.edge.wire.add_source(source.parse().expect("an address"));
        }
    }

    /// The second interface, with its address and those in front of it. Returns how long it was there before anything could arrive over it.
    pub(super) fn add_second(&self) -> Duration {
        let wire = &self.edge.wire;
        run(wire.on_edge("ip").args(["link", "add", SECOND, "type", "veth", "peer", "name", SECOND_NET]));
        let made = Instant::now();
        run(wire.on_edge("ip").args(["link", "set", SECOND_NET, "netns", &wire.net_file()]));
        run(wire.on_edge("ip").args(["address", "add", &format!("{SECOND_V4}/16"), "dev", SECOND]));
        for source in self.sources.iter().filter(|source| source.starts_with("10.98.")) {
            run(wire.in_net("ip").args(["address", "add", &format!("{source}/16"), "dev", SECOND_NET]));
        }
        run(wire.in_net("ip").args(["link", "set", SECOND_NET, "up"]));
        let bare = made.elapsed();
        run(wire.on_edge("ip").args(["link", "set", SECOND, "up"]));
        bare
    }

    /// Stops what arrives over an interface, and says when nothing does.
    pub(super) fn silence(&self, interface: &str) {
        let other = if interface == EDGE { NET } else { SECOND_NET };
        run(self.edge.wire.in_net("ip").args(["link", "set", other, "down"]));
        thread::sleep(Duration::from_millis(50));
    }

    /// `ratelimit run` of a build, not started yet.
    pub(super) fn command(&self, build: usize) -> Command {
        let Build { path, words, .. } = &self.builds[build];
        let mut command = self.edge.wire.on_edge(path);
        command.arg("run").args(words).arg("--policy").arg(self.edge.policy());
        command.arg("--state").arg(self.edge.state()).arg("--pin").arg(self.edge.pin());
        for name in &self.interfaces {
            command.args(["--iface", name]);
        }
        command.envs(self.clock.iter().cloned());
        command
    }

    fn log_file(&self) -> File {
        OpenOptions::new().create(true).append(true).open(&self.log).expect("the log")
    }

    /// What the daemons of this host have logged.
    pub(super) fn logged(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// How many seconds the daemons of this host say that they refused what limits apply to, while programs were replaced, since they were asked last.
    pub(super) fn refused_s(&mut self) -> f64 {
        let log = self.logged();
        let new = log.get(self.log_read..).unwrap_or_default();
        self.log_read = log.len();
        let refused =
            new.lines().filter_map(|line| line.split_once(REFUSED)?.1.split(' ').next()?.parse::<f64>().ok());
        refused.sum()
    }

    /// Starts a command without waiting for it.
    pub(super) fn spawn(&self, mut command: Command, build: usize) -> Running {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(self.log_file()).spawn();
        Running { child: child.expect("start a daemon"), build }
    }

    /// Starts a build and waits until it enforces.
    pub(super) fn start(&mut self, build: usize) -> Result<(), String> {
        let running = self.try_start(self.command(build), build)?;
        self.daemon = Some(running);
        Ok(())
    }

    /// Starts a daemon with a command that the caller has made.
    pub(super) fn try_start(&self, command: Command, build: usize) -> Result<Running, String> {
        let mut running = self.spawn(command, build);
        let mut stdout = BufReader::new(running.child.stdout.take().expect("stdout"));
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            // A traced program's verdicts may come first.
            let mut line = String::new();
            while line != "ready\n" && {
                line.clear();
                stdout.read_line(&mut line).is_ok_and(|read| read > 0)
            } {}
            let _nobody = tell.send(line == "ready\n");
            let _ended = std::io::copy(&mut stdout, &mut std::io::sink());
        });
        // In steps: a machine that stands still meanwhile does not use up the daemon's time.
        let steps = START.as_millis() / STEP.as_millis();
        let told = (0..steps).find_map(|_| match told.recv_timeout(STEP) {
            Err(mpsc::RecvTimeoutError::Timeout) => None,
            told => Some(told),
        });
        match told.unwrap_or(Err(mpsc::RecvTimeoutError::Timeout)) {
            Ok(true) => Ok(running),
            Ok(false) => {
                let status = running.child.wait().map(|status| status.to_string()).unwrap_or_default();
                Err(format!("{} did not start, {status}: {}", self.builds[build].name, self.last_lines()))
            }
            Err(_) => {
                Err(format!("{} was not ready in {START:?}: {}", self.builds[build].name, self.last_lines()))
            }
        }
    }

    fn last_lines(&self) -> String {
        let log = self.logged();
        let lines: Vec<&str> = log.lines().rev().take(4).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
    }

    /// Kills the daemon without warning.
    pub(super) fn kill(&mut self) {
        self.daemon = None;
    }

    /// Asks the daemon to stop.
    pub(super) fn stop(&mut self) -> Result<(), String> {
        let Some(mut running) = self.daemon.take() else { return Ok(()) };
        run(Command::new("kill").arg("-TERM").arg(running.pid().to_string()));
        for _ in 0..1_000 {
            match running.ended() {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("a daemon that was asked to stop ended with {status}")),
                None => thread::sleep(Duration::from_millis(10)),
            }
        }
        Err("a daemon that was asked to stop did not within 10 s".to_owned())
    }

    /// Tells the daemon to read its policy again.
    pub(super) fn reload(&self) {
        if let Some(running) = &self.daemon {
            run(Command::new("kill").arg("-HUP").arg(running.pid().to_string()));
        }
    }

    /// A verb of the command line, of the build that runs.
    pub(super) fn cli(&self, words: &[&str]) -> Output {
        let build = self.daemon.as_ref().map_or(0, |running| running.build);
        let mut command = self.edge.wire.on_edge(&self.builds[build].path);
        command.args(words).arg("--state").arg(self.edge.state());
        if ["detach", "status", "stats"].contains(&words[0]) {
            command.arg("--pin").arg(self.edge.pin());
        }
        command.env_remove("SSH_CONNECTION").env_remove("SSH_CLIENT");
        command.output().expect("run the command line")
    }

    /// Runs one verb of the command line that must succeed.
    pub(super) fn order(&self, words: &[&str]) -> Result<(), String> {
        let output = self.cli(words);
        match output.status.success() {
            true => Ok(()),
            false => Err(format!(
                "ratelimit {}: {}",
                words.join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            )),
        }
    }

    /// Fills the disk of the state to the last byte.
    pub(super) fn fill_disk(&self) -> PathBuf {
        let path = self.edge.state().join("filler");
        let mut file = File::create(&path).expect("a file");
        while std::io::Write::write_all(&mut file, &[0; 4096]).is_ok() {}
        while std::io::Write::write_all(&mut file, &[0]).is_ok() {}
        path
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.daemon = None;
        let _gone = Command::new("umount").arg("-l").arg(self.edge.state()).status();
    }
}

/// The library that gives a process a clock of its own, from Debian's package faketime.
pub(super) fn faketime() -> Option<PathBuf> {
    let dirs = fs::read_dir("/usr/lib").ok()?.flatten();
    dirs.map(|dir| dir.path().join("faketime/libfaketimeMT.so.1")).find(|path| path.exists())
}

/// Variables for a process whose wall clock is off by what a file says.
pub(super) fn clock_variables(library: &Path, file: &Path) -> Vec<(String, String)> {
    let text = |path: &Path| path.display().to_string();
    [
        ("LD_PRELOAD", text(library)),
        ("FAKETIME_TIMESTAMP_FILE", text(file)),
        ("FAKETIME_CACHE_DURATION", "1".to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ("DONT_FAKE_MONOTONIC", "1".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}
