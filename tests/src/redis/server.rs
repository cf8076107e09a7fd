//! One redis-server process.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use redis::{RedisResult, Value};

use super::{Certificates, Directory, asked, asked_patiently, free_port, wait_for};

/// How a server is started.
#[derive(Debug, Default, Clone)]
pub struct Options {
    /// Settings as in redis.conf: `["maxmemory-policy allkeys-lru", "requirepass secret"]`.
    pub settings: Vec<String>,
    /// Only TLS on its port, with these certificates; a client must show one if `client_certificates`.
    pub tls: Option<Tls>,
    /// Listens on this address instead of 127.0.0.1.
    pub bind: Option<String>,
    /// Runs in this network namespace.
    pub netns: Option<String>,
    /// Is started as a Sentinel.
    pub is_sentinel: bool,
}

/// TLS on the port of a server.
#[derive(Debug, Clone)]
pub struct Tls {
    /// The directory of the certificates.
    pub certificates: PathBuf,
    /// Clients must show one.
    pub client_certificates: bool,
}

impl Options {
    /// Nothing but these settings.
    pub fn with<S: ToString>(settings: impl IntoIterator<Item = S>) -> Self {
        Self { settings: settings.into_iter().map(|line| line.to_string()).collect(), ..Self::default() }
    }

    /// Options of a server that speaks TLS alone.
    pub fn tls(certificates: &Certificates, client_certificates: bool) -> Self {
        let certificates = certificates.dir().to_owned();
        Self { tls: Some(Tls { certificates, client_certificates }), ..Self::default() }
    }
}

/// A server of our own. It may be killed and come back on the same port with the same settings.
#[derive(Debug)]
pub struct Redis {
    child: Child,
    options: Options,
    port: u16,
    directory: Directory,
}

impl Redis {
    /// Starts one and waits until it answers.
    pub fn single(options: Options) -> Self {
        Self::on_port(free_port(), options)
    }

    pub(super) fn on_port(port: u16, options: Options) -> Self {
        let directory = Directory::new();
        write_configuration(directory.path(), port, &options);
        let child = spawn(directory.path(), &options);
        let mut server = Self { child, options, port, directory };
        server.wait_until_up();
        server
    }

    /// The server's TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's address, `127.0.0.1:PORT`.
    pub fn at(&self) -> String {
        format!("{}:{}", self.options.bind.as_deref().unwrap_or("127.0.0.1"), self.port)
    }

    /// The server's URL, `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.at())
    }

    /// The path of the server's Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("s")
    }

    /// The directory of the server's files.
    pub fn dir(&self) -> &Path {
        self.directory.path()
    }

    /// The server's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// One command, as the harness' own user; panics if it is refused.
    pub fn ask(&self, words: &[&str]) -> Value {
        let answer = self.client().and_then(|client| asked_patiently(&client, words));
        answer.unwrap_or_else(|error| panic!("{words:?} at {}: {error}", self.at()))
    }

    /// Asks one command; an error reply is returned and not a panic.
    pub fn try_ask(&self, words: &[&str]) -> RedisResult<Value> {
        asked(&self.client()?, words)
    }

    fn client(&self) -> RedisResult<redis::Client> {
        let login = if self.options.is_sentinel { "" } else { "?user=harness&pass=harness" };
        redis::Client::open(format!("unix://{}{login}", self.socket().display()))
    }

    /// A field of INFO. A server that changes its role hangs up on its clients, and is asked again.
    pub fn info(&self, field: &str) -> String {
        let info = || self.try_ask(&["INFO", "everything"]).ok();
        let Value::BulkString(text) = wait_for("INFO", info) else { panic!("INFO is not text") };
        let text = String::from_utf8(text).expect("text");
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(name, _)| *name == field).map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    }

    /// Has more in its memory than it may, from now on: it takes no writes unless it evicts.
    pub fn fill(&self) {
        self.ask(&["DEBUG", "POPULATE", "300", "filling", "10000"]);
        self.ask(&["CONFIG", "SET", "maxmemory", "1mb"]);
    }

    /// Has room in its memory again.
    pub fn make_room(&self) {
        self.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    }

    /// Ends it as a crash would, and waits until it is gone.
    pub fn kill(&mut self) {
        let _gone_already = self.child.kill();
        self.child.wait().expect("its end");
    }

    /// Starts it again, on the same port, with what it has saved.
    pub fn start(&mut self) {
        self.child = spawn(self.directory.path(), &self.options);
        self.wait_until_up();
    }

    /// Starts the server again without waiting until it answers commands: it may be loading.
    pub fn start_loading(&mut self) {
        self.child = spawn(self.directory.path(), &self.options);
        wait_for("a server that loads", || {
            self.try_ask(&["PING"]).is_err_and(|error| error.code() == Some("LOADING")).then_some(())
        });
    }

    /// Kills it and starts it again.
    pub fn restart(&mut self) {
        self.kill();
        self.start();
    }

    /// Stops the process without closing its connections: SIGSTOP.
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
        let stat = format!("/proc/{}/stat", self.child.id());
        wait_for("a stopped process", || fs::read_to_string(&stat).ok()?.contains(") T ").then_some(()));
    }

    /// Lets a stopped process go on: SIGCONT.
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"));
        kill(pid, signal).expect("a signal to our own child");
    }

    fn wait_until_up(&mut self) {
        wait_for("a server that answers", || {
            if let Some(status) = self.child.try_wait().expect("its state") {
                let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
                panic!("redis-server ended with {status}:\n{log}");
            }
            self.try_ask(&["PING"]).ok()
        });
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

fn write_configuration(directory: &Path, port: u16, options: &Options) {
    let dir = directory.display();
    let bind = options.bind.as_deref().unwrap_or("127.0.0.1");
    let mut lines = vec![
        format!("dir {dir}"),
        format!("unixsocket {dir}/s"),
        format!("bind {bind}"),
        "daemonize no".into(),
        "protected-mode no".into(),
    ];
    if !options.is_sentinel {
        lines.extend([
            "save \"\"".into(),
            "enable-debug-command local".into(),
            "enable-protected-configs local".into(),
        ]);
        lines.push("user harness on >harness ~* &* +@all".into());
    }
    match &options.tls {
        None => lines.push(format!("port {port}")),
        Some(Tls { certificates, client_certificates }) => {
            let files = certificates.display();
            lines.extend(["port 0".into(), format!("tls-port {port}")]);
            lines.push(format!("tls-cert-file {files}/server.pem"));
            lines.push(format!("tls-key-file {files}/server.key"));
            lines.push(format!("tls-ca-cert-file {files}/ca.pem"));
            lines.push(format!("tls-auth-clients {}", if *client_certificates { "yes" } else { "no" }));
        }
    }
    lines.extend(options.settings.iter().cloned());
    fs::write(directory.join("conf"), lines.join("\n") + "\n").expect("a configuration");
}

fn spawn(directory: &Path, options: &Options) -> Child {
    let program = executable("redis-server");
    let mut command = match &options.netns {
        // The command becomes the server, so that the process id is the server's.
        Some(netns) => {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", netns]).arg(program);
            command
        }
        None => Command::new(program),
    };
    let log = File::create(directory.join("log")).expect("a log");
    command.arg(directory.join("conf")).args(options.is_sentinel.then_some("--sentinel"));
    command.stdout(log.try_clone().expect("a second handle")).stderr(log).spawn().expect("start redis-server")
}

/// An executable from PATH, or from where `cargo xtask test` has put it.
fn executable(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("own path");
    // target/<profile>/deps/<test>, or target/<profile>/<program>
    let dir = test.parent().expect("a directory");
    let dir = if dir.ends_with("deps") { dir.parent().expect("the profile's directory") } else { dir };
    let tools = dir.parent().expect("the target directory").join("tools");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs = std::env::split_paths(&path).chain([tools]);
    dirs.find(|dir| dir.join(name).exists())
        .unwrap_or_else(|| panic!("{name} is not there; cargo xtask test installs it"))
        .join(name)
}
