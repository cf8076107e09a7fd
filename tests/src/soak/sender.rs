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

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::netns::Wire;

/// Between two looks at what is due.
const NAP: Duration = Duration::from_millis(1);
/// What a sender that was held up catches up with, as a part of a second: more would be a burst of its own making.
const CATCH_UP: u64 = 100;
/// How long a TCP client waits for each step.
const PATIENCE: Duration = Duration::from_secs(2);

/// What all senders look at.
#[derive(Debug, Default)]
pub(super) struct Signal {
    paused: AtomicBool,
    ended: AtomicBool,
}

impl Signal {
    pub(super) fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::SeqCst);
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_over(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    fn is_paused(&self) -> bool {
        self.paused.load(Ordering::SeqCst)
    }
}

/// A sender of datagrams.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) sent: Arc<AtomicU64>,
    _thread: JoinHandle<()>,
}

impl Sender {
    /// Starts one in the network of a wire.
    pub(super) fn start(wire: &Wire, signal: &Arc<Signal>, from: &str, to: SocketAddr, pps: u64) -> Self {
        let from: IpAddr = from.parse().expect("an address");
        let socket = wire.as_net(|| UdpSocket::bind((from, 0)).expect("bind a sender"));
        // A full queue is a lost packet, not a reason to wait.
        socket.set_nonblocking(true).expect("a socket that does not wait");
        let sent = Arc::new(AtomicU64::new(0));
        let (signal, count) = (Arc::clone(signal), Arc::clone(&sent));
        let thread = thread::spawn(move || {
            let mut last = Instant::now();
            let mut owed = 0.0;
            while !signal.is_over() {
                thread::sleep(NAP);
                let now = Instant::now();
                owed += (now - last).as_secs_f64() * pps as f64;
                last = now;
                if signal.is_paused() {
                    owed = 0.0;
                    continue;
                }
                owed = owed.min((pps / CATCH_UP).max(1) as f64);
                while owed >= 1.0 {
                    owed -= 1.0;
                    // Errors are the wire's: it may be gone.
                    if socket.send_to(b"soak soak soak soak", to).is_ok() {
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                }
            }
        });
        Self { sent, _thread: thread }
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }
}

/// A client that connects over TCP, asks and closes, several times a second.
#[derive(Debug)]
pub(super) struct Caller {
    answers: Arc<Mutex<Answers>>,
    _thread: JoinHandle<()>,
}

/// What became of its questions.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    pub(super) answered: u64,
    pub(super) failed: u64,
    pub(super) last_failure: String,
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
        let answers = Arc::new(Mutex::new(Answers::default()));
        let (signal, told) = (Arc::clone(signal), Arc::clone(&answers));
        let namespace = wire.net_file();
        let thread = thread::spawn(move || {
            crate::netns::enter(&namespace);
            while !signal.is_over() {
                thread::sleep(every);
                if signal.is_paused() {
                    continue;
                }
                let asked = ask(from, to);
                let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                match asked {
                    Ok(()) => told.answered += 1,
                    Err(error) => {
                        told.failed += 1;
                        told.last_failure = error.to_string();
                    }
                }
            }
        });
        Self { answers, _thread: thread }
    }

    pub(super) fn answers(&self) -> Answers {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn ask(from: IpAddr, to: SocketAddr) -> std::io::Result<()> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.bind(&SockAddr::from(SocketAddr::new(from, 0)))?;
    socket.connect_timeout(&to.into(), PATIENCE)?;
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"are you there?\n")?;
    stream.read_exact(&mut [0; 15])
}
