//! An edge whose daemon has hired an intruder as its front, and the intruder.
//!
//! The test is the supervisor that the daemon hires its front from (`run --front SOCKET`), and plays the front itself. Messages are written by hand, as an
//! intruder writes them: four bytes with the length, then JSON.

use std::{
    fs,
    io::{self, ErrorKind, IoSliceMut, Read as _, Write as _},
    mem::MaybeUninit,
    net::UdpSocket,
    os::{
        fd::OwnedFd,
        unix::net::{UnixListener, UnixStream},
    },
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use ratelimit_tests::{
    daemon::{Daemon, Edge, binary},
    netns::{EDGE, EDGE_V4, run},
    redis::wait_for,
};
use ratelimit_user::control::protocol::Reply;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde_json::{Value, json};

use super::http;

/// The largest question that a front may ask, in bytes, and the largest answer that it may give.
pub(super) const LARGEST_QUESTION: u32 = 64 << 10;
pub(super) const LARGEST_ANSWER: u32 = 16 << 20;
/// Packets that a source may send in a day.
pub(super) const PER_SOURCE: u64 = 10;
/// How long the daemon may take to answer or to hang up.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

pub(super) const TOKEN: &str = "an-operators-token-0123456789";
pub(super) const PASSWORD: &str = "a-password-of-the-store";
/// The edge's way to other networks: whoever blocks it cuts the host off.
pub(super) const GATEWAY: &str = "10.99.0.254";

/// An edge whose daemon has hired an intruder.
pub(super) struct Invaded {
    pub(super) edge: Edge,
    pub(super) daemon: Daemon,
    pub(super) supervisor: UnixListener,
}

impl Invaded {
    pub(super) fn new() -> (Self, Intruder) {
        Self::by(Intruder::hired)
    }

    pub(super) fn by(hired: impl FnOnce(&UnixListener) -> Intruder + Send + 'static) -> (Self, Intruder) {
        let edge = Edge::new();
        fs::write(edge.dir().join("operator.token"), format!("{TOKEN}\n")).unwrap();
        fs::write(edge.dir().join("password"), format!("{PASSWORD}\n")).unwrap();
        let dir = edge.dir().display();
        edge.write_policy(&format!(
            "[source]\nlimits = [\"{PER_SOURCE} packets/day\"]\nladder = false\n\
             [listen]\nhttp = \"unix:{dir}/http.sock\"\noperator_token_file = \"{dir}/operator.token\"\ntrusted_proxies = [\"198.51.100.9\"]\n\
             [cluster]\nredis = \"redis+unix://limiter@{dir}/redis.sock\"\npassword_file = \"{dir}/password\"\n\
             [[api]]\nname = \"a\"\nlimits = [\"1000/min\"]\n"
        ));
        run(edge.wire.on_edge("ip").args(["route", "add", "default", "via", GATEWAY]));
        let supervisor = UnixListener::bind(edge.dir().join("front.sock")).unwrap();
        let of_first = supervisor.try_clone().unwrap();
        let first = thread::spawn(move || hired(&of_first));
        let mut command = edge.run_command();
        command.args(["--iface", EDGE, "--front"]).arg(edge.dir().join("front.sock"));
        let daemon = Daemon::start(command);
        (Self { edge, daemon, supervisor }, first.join().unwrap())
    }

    /// What an intruder must not change: the policy, limits, lists, and the interface that is guarded.
    pub(super) fn standing(&self) -> Value {
        let said =
            [["limit", "list"], ["allow", "list"], ["block", "list"]].map(|words| self.edge.json(&words));
        let status = self.edge.json(&["status"]);
        let kept = ["policy", "policy_generation", "policy_before", "unconfirmed", "mode"]
            .map(|field| &status[field]);
        json!([said, kept, status["interfaces"][0]["name"]])
    }

    /// The prefixes that are blocked.
    pub(super) fn blocked(&self) -> Vec<String> {
        let list = self.edge.json(&["block", "list"]);
        let prefixes =
            list["blocks"].as_array().unwrap().iter().map(|one| one["prefix"].as_str().unwrap().to_owned());
        prefixes.collect()
    }

    /// A source that has not sent anything yet may send as much as its limit lets it, and no more.
    pub(super) fn assert_limits_are_in_force(&self, source: u8) {
        let source = format!("10.99.0.{source}");
        self.edge.wire.add_source(source.parse().unwrap());
        let (dropped, more) = (self.edge.dropped("limit_packets"), 20);
        self.edge.wire.as_net(|| {
            let socket = UdpSocket::bind((source.as_str(), 0)).unwrap();
            for _ in 0..PER_SOURCE + more {
                socket.send_to(b"x", (EDGE_V4, 7777)).unwrap();
            }
        });
        wait_for("packets above the limit to be dropped", || {
            (self.edge.dropped("limit_packets") >= dropped + more).then_some(())
        });
        assert_eq!(self.edge.dropped("limit_packets"), dropped + more);
    }

    /// Lets an honest front serve the daemon, which has ended the one before.
    pub(super) fn hire_an_honest_front(&self) -> HonestFront {
        let (connection, _) = self.supervisor.accept().unwrap();
        let mut front = Command::new(binary("ratelimit"));
        front.args(["front", "--hired"]).env_clear();
        front.stdin(OwnedFd::from(connection)).stdout(Stdio::null()).stderr(Stdio::null());
        let front = HonestFront(front.spawn().unwrap());
        self.daemon.wait_for_log("another front process serves requests");
        assert_eq!(http(&self.edge).get("/v1/check?user=u&api=a").status, 200);
        front
    }

    /// A line of the daemon's `/proc/PID/status` in KiB.
    pub(super) fn memory(&self, field: &str) -> u64 {
        let words = super::status_of(self.daemon.pid(), field);
        words.strip_suffix(" kB").unwrap().parse().unwrap()
    }

    /// How many of the daemon's threads have a name.
    pub(super) fn threads(&self, name: &str) -> usize {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.daemon.pid())).unwrap();
        let names = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok());
        names.filter(|one| one.trim() == name).count()
    }
}

pub(super) struct HonestFront(Child);

impl Drop for HonestFront {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// A front that was taken over. It does whatever the daemon asks it to, as far as the daemon can see, so that it is not replaced for silence.
pub(super) struct Intruder {
    /// The daemon asks on this stream.
    pub(super) asked: UnixStream,
    /// The daemon is asked on this stream.
    pub(super) asking: UnixStream,
    /// The sockets of the listeners, and the stream to the store at the end.
    pub(super) sockets: Vec<OwnedFd>,
    pub(super) questions: u64,
}

impl Intruder {
    /// Takes the connection of a daemon that hires a front, and begins.
    pub(super) fn hired(supervisor: &UnixListener) -> Self {
        Self::who_reports(supervisor, "\"Done\"".to_owned())
    }

    /// Begins as a front that gives this answer when it is asked for its counters.
    pub(super) fn who_reports(supervisor: &UnixListener, report: String) -> Self {
        let (asked, _) = supervisor.accept().unwrap();
        let asking = UnixStream::from(received(&asked).unwrap().pop().unwrap());
        let sockets = received(&asked).unwrap();
        let mut stream = asked.try_clone().unwrap();
        thread::spawn(move || {
            while let Ok(question) = heard(&mut stream) {
                let answer = if question["said"] == "Report" { &report } else { "\"Done\"" };
                let message = format!(r#"{{"number":{},"said":{answer}}}"#, question["number"]);
                if stream.write_all(&framed(message.as_bytes())).is_err() {
                    return;
                }
            }
        });
        for stream in [&asked, &asking] {
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
        }
        asking.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { asked, asking, sockets, questions: 0 }
    }

    /// Asks the daemon and returns its answer.
    pub(super) fn ask(&mut self, question: &Value) -> Value {
        self.questions += 1;
        said(&mut self.asking, &json!({ "number": self.questions, "said": question })).unwrap();
        let answer = heard(&mut self.asking).unwrap();
        assert_eq!(answer["number"], self.questions);
        answer["said"].clone()
    }

    pub(super) fn order(&mut self, order: &Value, token: Option<&str>) -> Reply {
        let answer = self.ask(&json!({ "Order": { "order": order, "from": "127.0.0.1", "token": token } }));
        serde_json::from_value(answer["Reply"].clone()).unwrap()
    }

    pub(super) fn report_offence(&mut self, prefix: &str) {
        let offence = json!({ "prefix": prefix, "for_ns": 3_600_000_000_000_u64, "reason": "intruder" });
        assert_eq!(self.ask(&json!({ "Offence": offence })), "Done", "{prefix}");
    }

    /// Waits until the daemon has hung up.
    pub(super) fn wait_for_the_end(&mut self) {
        let mut rest = [0; 4096];
        loop {
            match self.asking.read(&mut rest) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
                Err(error) => panic!("the daemon does not hang up: {error}"),
            }
        }
    }
}

/// Reads one message.
pub(super) fn heard(stream: &mut UnixStream) -> io::Result<Value> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut body = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut body)?;
    serde_json::from_slice(&body).map_err(io::Error::other)
}

/// Writes one message.
pub(super) fn said(stream: &mut UnixStream, message: &Value) -> io::Result<()> {
    stream.write_all(&framed(message.to_string().as_bytes()))
}

pub(super) fn framed(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap();
    [&length.to_be_bytes(), body].concat()
}

/// Takes the descriptors that the daemon sends: their number in four bytes, then all of them beside one byte if they are fewer than a hundred.
pub(super) fn received(stream: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut count = [0; 4];
    (&mut &*stream).read_exact(&mut count)?;
    if u32::from_be_bytes(count) == 0 {
        return Ok(Vec::new());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(100))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    recvmsg(stream, &mut [IoSliceMut::new(&mut [0])], &mut beside, RecvFlags::CMSG_CLOEXEC)?;
    let handed = beside.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(handles) => Some(handles),
        _ => None,
    });
    let handles: Vec<OwnedFd> = handed.flatten().collect();
    assert_eq!(handles.len(), u32::from_be_bytes(count) as usize);
    Ok(handles)
}
