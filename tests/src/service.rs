//! `ratelimit serve` on ports of its own, and a client that sees every byte of its answers over HTTP.

use std::{
    ffi::OsStr,
    fmt::Write as _,
    fs,
    io::{self, BufRead as _, BufReader, Read as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use crate::{
    daemon::{Daemon, binary},
    redis::free_port,
};

/// How long an answer may take that is not to be held.
const PATIENCE: Duration = Duration::from_secs(20);

/// A decision service with a listener per protocol. It ends with the value.
#[derive(Debug)]
pub struct Service {
    /// Where it answers over HTTP.
    pub http: SocketAddr,
    /// Where it answers over gRPC.
    pub grpc: SocketAddr,
    /// Where it answers in the protocol of Redis.
    pub resp: SocketAddr,
    daemon: Daemon,
    directory: Directory,
}

impl Service {
    /// Starts it with a policy that has no `[listen]`, and waits until it listens.
    pub fn start(policy: &str) -> Self {
        Self::start_listening(policy, "")
    }

    /// Starts a service with further lines in `[listen]`, after `http`, `grpc` and `resp`.
    pub fn start_listening(policy: &str, listen: &str) -> Self {
        Self::start_by(Command::new(binary("ratelimit")), Directory::new(), policy, listen, &[])
    }

    /// Starts a service with a limit of open files that it cannot raise.
    pub fn start_limited(policy: &str, listen: &str, open_files: u32) -> Self {
        let command = with_open_files(&binary("ratelimit"), open_files);
        Self::start_by(command, Directory::new(), policy, listen, &[])
    }

    /// Starts a service on a host of which the kernel says that tasks waited for a CPU for this part of the time.
    pub fn start_under_pressure(policy: &str, percent: u32) -> Self {
        let directory = Directory::new();
        let proc = directory.0.join("proc");
        fs::create_dir_all(proc.join("pressure")).expect("make a directory");
        let line = format!("some avg10={percent}.00 avg60=0.00 avg300=0.00 total=1\n");
        fs::write(proc.join("pressure/cpu"), line).expect("write a reading");
        let options = ["--proc".as_ref(), proc.as_os_str()];
        Self::start_by(Command::new(binary("ratelimit")), directory, policy, "", &options)
    }

    fn start_by(
        mut command: Command,
        directory: Directory,
        policy: &str,
        listen: &str,
        options: &[&OsStr],
    ) -> Self {
        let [http, grpc, resp] = [(); 3].map(|()| SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())));
        let unix = |name: &str| directory.0.join(name).display().to_string();
        let text = format!(
            "{policy}\n[listen]\nhttp = [\"{http}\", \"unix:{}\"]\ngrpc = \"{grpc}\"\nresp = [\"{resp}\", \"unix:{}\"]\n{listen}\n",
            unix("http.sock"),
            unix("resp.sock")
        );
        let file = directory.0.join("policy.toml");
        fs::write(&file, text).expect("write the policy");
        command.arg("serve").arg("--policy").arg(&file).args(options);
        let daemon = Daemon::start(command);
        Self { http, grpc, resp, daemon, directory }
    }

    /// The service's process id.
    pub fn pid(&self) -> u32 {
        self.daemon.pid()
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.daemon.log()
    }

    /// Waits until the log has this text.
    pub fn wait_for_log(&self, text: &str) {
        self.daemon.wait_for_log(text);
    }

    /// Sends a signal by name.
    pub fn signal(&self, name: &str) {
        self.daemon.signal(name);
    }

    /// Waits until the service has ended.
    pub fn wait(&mut self) -> ExitStatus {
        self.daemon.wait()
    }

    /// The text of its policy file.
    pub fn policy_text(&self) -> String {
        fs::read_to_string(self.policy_file()).expect("read the policy")
    }

    /// Writes its policy file, whole.
    pub fn write_policy(&self, text: &str) {
        fs::write(self.policy_file(), text).expect("write the policy");
    }

    /// Where its policy is.
    pub fn policy_file(&self) -> PathBuf {
        self.directory.0.join("policy.toml")
    }

    /// The socket in the file system on which it answers over HTTP too.
    pub fn http_socket(&self) -> PathBuf {
        self.directory.0.join("http.sock")
    }

    /// The path of the Unix socket for the protocol of Redis.
    pub fn resp_socket(&self) -> PathBuf {
        self.directory.0.join("resp.sock")
    }

    /// A connection over HTTP through the file system: of somebody who may change things without a token.
    pub fn open(&self) -> Client<UnixStream> {
        let stream = UnixStream::connect(self.http_socket()).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Client::new(stream)
    }

    /// A directory for files of this test; it goes with the service.
    pub fn dir(&self) -> &Path {
        &self.directory.0
    }

    /// A connection over HTTP that stays open.
    pub fn connect(&self) -> Client<TcpStream> {
        let stream = TcpStream::connect(self.http).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Client::new(stream)
    }

    /// Asks once, on a connection of its own: `GET /v1/check?user=ann&api=search`.
    pub fn get(&self, target: &str) -> Reply {
        self.connect().get(target)
    }

    /// Posts JSON once, on a connection of its own.
    pub fn post(&self, target: &str, json: &str) -> Reply {
        self.connect().post(target, json)
    }
}

/// A program with a limit of open files that it cannot raise, not started yet.
pub fn with_open_files(program: &Path, most: u32) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-sys_resource", "--inh-caps", "-sys_resource"]);
    command.args(["prlimit", &format!("--nofile={most}:{most}")]).arg(program);
    command
}

/// One connection of an HTTP client.
#[derive(Debug)]
pub struct Client<S: io::Read + io::Write> {
    stream: BufReader<S>,
    host: String,
}

impl<S: io::Read + io::Write> Client<S> {
    /// A client on a stream that is connected.
    pub fn new(stream: S) -> Self {
        Self { stream: BufReader::new(stream), host: "ratelimit".to_owned() }
    }

    /// A client that asks for another host: what stands in the Host field.
    pub fn under(mut self, host: &str) -> Self {
        host.clone_into(&mut self.host);
        self
    }

    /// Asks with GET for a stream of events, and returns the answer's head. Events are read with [`Self::event`].
    pub fn stream_events(&mut self, target: &str, fields: &[(&str, &str)]) -> Reply {
        self.ask("GET", target, fields, "")
    }

    /// The name and the data of the next event; none if the stream has ended.
    pub fn event(&mut self) -> Option<(String, serde_json::Value)> {
        let (mut name, mut line) = (String::new(), String::new());
        loop {
            line.clear();
            // Lengths of pieces are lines of their own.
            if self.stream.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(word) = line.strip_prefix("event: ") {
                word.trim_end().clone_into(&mut name);
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some((name, serde_json::from_str(data).expect("JSON")));
            }
        }
    }

    /// The stream under the client.
    pub fn stream(&self) -> &S {
        self.stream.get_ref()
    }

    /// Asks with GET and no body.
    pub fn get(&mut self, target: &str) -> Reply {
        self.ask("GET", target, &[], "")
    }

    /// Asks with GET and further header fields.
    pub fn get_with(&mut self, target: &str, fields: &[(&str, &str)]) -> Reply {
        self.ask("GET", target, fields, "")
    }

    /// Asks with POST and a body of JSON.
    pub fn post(&mut self, target: &str, json: &str) -> Reply {
        self.ask("POST", target, &[("Content-Type", "application/json")], json)
    }

    /// Asks with any method, header fields and body.
    pub fn ask(&mut self, method: &str, target: &str, fields: &[(&str, &str)], body: &str) -> Reply {
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {}\r\n", self.host);
        for (name, value) in fields {
            write!(head, "{name}: {value}\r\n").expect("room");
        }
        if !body.is_empty() {
            write!(head, "Content-Length: {}\r\n", body.len()).expect("room");
        }
        head.push_str("\r\n");
        head.push_str(body);
        self.send(head.as_bytes());
        self.receive_answer_to(method)
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("send");
    }

    /// Reads the next answer of the connection.
    pub fn receive(&mut self) -> Reply {
        self.receive_answer_to("GET")
    }

    /// What else comes until the other end closes.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _ended = self.stream.read_to_end(&mut rest);
        rest
    }

    fn receive_answer_to(&mut self, method: &str) -> Reply {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a status line");
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status in {line:?}"));
        let mut fields = Vec::new();
        loop {
            line.clear();
            self.stream.read_line(&mut line).expect("a header field");
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut reply = Reply { status, fields, body: String::new() };
        let bodiless = method == "HEAD" || status == 204;
        let length = if bodiless { 0 } else { reply.number("content-length").unwrap_or(0) };
        let mut body = vec![0; usize::try_from(length).expect("a length")];
        self.stream.read_exact(&mut body).expect("the body");
        reply.body = String::from_utf8(body).expect("text");
        reply
    }
}

/// An answer over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// 200, 429 or another.
    pub status: u16,
    /// All header fields in their order, names in lower case.
    pub fields: Vec<(String, String)>,
    /// The body as text.
    pub body: String,
}

impl Reply {
    /// A header field; its name in lower case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A header field that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.field(name).and_then(|value| value.parse().ok())
    }

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {:?}", self.body))
    }
}

/// A temporary directory that goes with the value.
#[derive(Debug)]
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("ratelimit-service-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}
