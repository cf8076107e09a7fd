//! Senders that go on for as long as a soak lasts, whatever becomes of the wire, and that can be told to pause.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpStream, UdpSocket},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::socket::{setsockopt, sockopt},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::netns::Wire;

/// Between two looks at what is due.
const NAP: Duration = Duration::from_millis(1);
/// What a sender that was held up catches up with, as a part of a second: more would be a burst of its own making.
const CATCH_UP: u64 = 100;
/// How long a TCP client waits for its answer, and how much longer it is found out whether the answer was late or lost: a segment that is lost
/// four times in a row is sent a fifth time after fifteen seconds.
const PATIENCE: Duration = Duration::from_secs(2);
const LATE: Duration = Duration::from_secs(30);
const QUESTION: &[u8] = b"are you there?\n";

/// What all senders look at.
#[derive(Debug, Default)]
pub(super) struct Signal {
    /// How often everybody was told to pause or to go on: odd while there is a pause.
    turns: AtomicU64,
    ended: AtomicBool,
}

impl Signal {
    pub(super) fn pause(&self, paused: bool) {
        if is_pause(self.turn()) != paused {
            self.turns.fetch_add(1, Ordering::SeqCst);
        }
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_over(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    fn turn(&self) -> u64 {
        self.turns.load(Ordering::SeqCst)
    }
}

fn is_pause(turn: u64) -> bool {
    !turn.is_multiple_of(2)
}

/// What a sender has done so far.
#[derive(Debug, Default)]
struct Done {
    sent: AtomicU64,
    refused: AtomicU64,
    /// The turn of the signal that was seen when nothing was being sent.
    heeded: AtomicU64,
}

/// A sender of datagrams.
#[derive(Debug)]
pub(super) struct Sender {
    done: Arc<Done>,
    _thread: JoinHandle<()>,
}

impl Sender {
    /// Starts one in the network of a wire.
    pub(super) fn start(wire: &Wire, signal: &Arc<Signal>, from: &str, to: SocketAddr, pps: u64) -> Self {
        let from: IpAddr = from.parse().expect("an address");
        let socket = wire.as_net(|| open(from));
        let done = Arc::new(Done::default());
        let (signal, count) = (Arc::clone(signal), Arc::clone(&done));
        let thread = thread::spawn(move || {
            let mut last = Instant::now();
            let mut owed = 0.0;
            while !signal.is_over() {
                thread::sleep(NAP);
                let now = Instant::now();
                owed += (now - last).as_secs_f64() * pps as f64;
                last = now;
                let turn = signal.turn();
                count.heeded.store(turn, Ordering::SeqCst);
                if is_pause(turn) {
                    owed = 0.0;
                    continue;
                }
                owed = owed.min((pps / CATCH_UP).max(1) as f64);
                while owed >= 1.0 {
                    owed -= 1.0;
                    match socket.send_to(b"soak soak soak soak", to) {
                        Ok(_) => count.sent.fetch_add(1, Ordering::SeqCst),
                        Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => {
                            count.refused.fetch_add(1, Ordering::SeqCst)
                        }
                        // The wire may be gone.
                        Err(_) => continue,
                    };
                }
            }
        });
        Self { done, _thread: thread }
    }

    /// Datagrams that the interface took.
    pub(super) fn sent(&self) -> u64 {
        self.done.sent.load(Ordering::SeqCst)
    }

    /// Datagrams that the interface did not take: the queue to its other end was full.
    pub(super) fn refused(&self) -> u64 {
        self.done.refused.load(Ordering::SeqCst)
    }

    /// Whether it has seen that there is a pause, so that nothing more of it comes. One that has no CPU for a while is in the middle of sending.
    pub(super) fn rests(&self, signal: &Signal) -> bool {
        let turn = signal.turn();
        is_pause(turn) && self.done.heeded.load(Ordering::SeqCst) == turn
    }
}

/// The socket of a sender. It asks for errors (`IP_RECVERR`): without that the kernel says that a datagram was sent which it threw away because
/// the queue to the other end of a veth was full, and with it ENOBUFS. Older kernels say nothing in either case.
pub(super) fn open(from: IpAddr) -> UdpSocket {
    let socket = UdpSocket::bind((from, 0)).expect("bind a sender");
    match from {
        IpAddr::V4(_) => setsockopt(&socket, sockopt::Ipv4RecvErr, &true),
        IpAddr::V6(_) => setsockopt(&socket, sockopt::Ipv6RecvErr, &true),
    }
    .expect("a socket that hears of errors");
    // A full queue is a lost packet, not a reason to wait.
    socket.set_nonblocking(true).expect("a socket that does not wait");
    socket
}

/// A client that connects over TCP, asks and closes, several times a second.
#[derive(Debug)]
pub(super) struct Caller {
    told: Arc<Mutex<Answers>>,
    heeded: Arc<AtomicU64>,
    _thread: JoinHandle<()>,
}

/// What became of its questions.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    pub(super) answered: u64,
    /// Answered when the client would have given up.
    pub(super) late: u64,
    pub(super) latest: Duration,
    pub(super) failed: u64,
    pub(super) last_failure: String,
    /// Questions that were not answered in time, and may be yet.
    pub(super) open: u64,
    /// How often a wire has become whole: what was asked before that, and is open, is the wire's.
    wires: u64,
}

impl Caller {
    pub(super) fn start(
        wire: &Wire,
        signal: &Arc<Signal>,
        from: &str,
        to: SocketAddr,
        every: Duration,
    ) -> Self {
        let from: IpAddr = from.parse().expect("an address");
        let told = Arc::new(Mutex::new(Answers::default()));
        let heeded = Arc::new(AtomicU64::new(0));
        let (signal, shared, heeds) = (Arc::clone(signal), Arc::clone(&told), Arc::clone(&heeded));
        let namespace = wire.net_file();
        let thread = thread::spawn(move || {
            crate::netns::enter(&namespace);
            while !signal.is_over() {
                thread::sleep(every);
                let turn = signal.turn();
                heeds.store(turn, Ordering::SeqCst);
                if !is_pause(turn) {
                    ask(from, to, &shared);
                }
            }
        });
        Self { told, heeded, _thread: thread }
    }

    pub(super) fn answers(&self) -> Answers {
        locked(&self.told).clone()
    }

    /// Whether it has seen that there is a pause, so that it asks nothing more.
    pub(super) fn rests(&self, signal: &Signal) -> bool {
        let turn = signal.turn();
        is_pause(turn) && self.heeded.load(Ordering::SeqCst) == turn
    }

    /// Counts what is open as lost with a wire that was gone.
    pub(super) fn give_up_open(&self) {
        let mut told = locked(&self.told);
        told.wires += 1;
        told.failed += std::mem::take(&mut told.open);
    }
}

fn locked(told: &Mutex<Answers>) -> std::sync::MutexGuard<'_, Answers> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks once, and has a thread follow a question that is not answered in time.
fn ask(from: IpAddr, to: SocketAddr, told: &Arc<Mutex<Answers>>) {
    let mut question = match Question::new(from, to) {
        Ok(question) => question,
        Err(error) => return locked(told).fail(&error),
    };
    match question.wait(PATIENCE) {
        Ok(true) => locked(told).answered += 1,
        Err(error) => locked(told).fail(&error),
        Ok(false) => {
            let mut answers = locked(told);
            answers.open += 1;
            let (wires, told) = (answers.wires, Arc::clone(told));
            thread::spawn(move || {
                let answered = question.wait(LATE);
                let mut told = locked(&told);
                if told.wires != wires {
                    return;
                }
                told.open -= 1;
                match answered {
                    Ok(true) => {
                        told.late += 1;
                        told.latest = told.latest.max(question.begun.elapsed());
                    }
                    Ok(false) => {
                        let nothing = format!("nothing came for {:?}", PATIENCE + LATE);
                        told.fail(&std::io::Error::other(nothing));
                    }
                    Err(error) => told.fail(&error),
                }
            });
        }
    }
}

impl Answers {
    fn fail(&mut self, error: &std::io::Error) {
        self.failed += 1;
        self.last_failure = error.to_string();
    }
}

/// One question on a connection of its own. The kernel goes on with it for as long as the value lives, whoever waits.
#[derive(Debug)]
struct Question {
    stream: TcpStream,
    begun: Instant,
    is_asked: bool,
    heard: usize,
}

impl Question {
    fn new(from: IpAddr, to: SocketAddr) -> std::io::Result<Self> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        socket.bind(&SockAddr::from(SocketAddr::new(from, 0)))?;
        socket.set_nonblocking(true)?;
        match socket.connect(&to.into()) {
            Err(error) if error.raw_os_error() != Some(Errno::EINPROGRESS as i32) => return Err(error),
            Ok(()) | Err(_) => {}
        }
        Ok(Self { stream: TcpStream::from(socket), begun: Instant::now(), is_asked: false, heard: 0 })
    }

    /// Waits so long for the answer, and says whether it has come.
    fn wait(&mut self, patience: Duration) -> std::io::Result<bool> {
        let deadline = Instant::now() + patience;
        loop {
            let wanted = if self.is_asked { PollFlags::IN } else { PollFlags::OUT };
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).expect("a few seconds");
            if poll(&mut [PollFd::new(&self.stream, wanted)], Some(&left))? == 0 {
                return Ok(false);
            }
            if let Some(error) = self.stream.take_error()? {
                return Err(error);
            }
            if !self.is_asked {
                self.stream.write_all(QUESTION)?;
                self.is_asked = true;
                continue;
            }
            match self.stream.read(&mut [0; QUESTION.len()])? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                bytes => self.heard += bytes,
            }
            if self.heard >= QUESTION.len() {
                return Ok(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn a_question_that_is_answered_late_is_late_and_one_that_is_closed_has_failed() {
        let listener = TcpListener::bind((HERE, 0)).unwrap();
        let to = listener.local_addr().unwrap();
        let mut late = Question::new(HERE, to).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        assert!(!late.wait(Duration::from_millis(20)).unwrap(), "nobody has answered yet");
        server.write_all(QUESTION).unwrap();
        assert!(late.wait(LATE).unwrap());
        let mut closed = Question::new(HERE, to).unwrap();
        drop(listener.accept().unwrap());
        assert!(closed.wait(LATE).is_err());
    }

    #[test]
    fn a_pause_is_one_however_often_it_is_said_and_ends_once() {
        let signal = Signal::default();
        let turns: Vec<u64> = [true, true, false, false, true]
            .map(|paused| {
                signal.pause(paused);
                signal.turn()
            })
            .to_vec();
        assert_eq!(turns, [1, 1, 2, 2, 3]);
    }
}
