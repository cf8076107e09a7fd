//! A client that asks at a steady rate, whatever the server does. An answer's time counts from when the question was due, not from when
//! there was a connection free to ask it: a server that stalls does not get fewer questions to be slow at.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use ratelimit_tests::resp::packed;
use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
};

use super::{client::KEYS, reply, server::local};
use crate::{comparison::Sample, place};

const CONNECTIONS: usize = 50;
/// How long the last answers may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The word that the number of a key replaces, with as many digits as the word has letters, as redis-benchmark does.
const NUMBER: &str = "__rand_int__";

/// What is asked of whom, and how often.
#[derive(Clone, Debug)]
pub(super) struct Paced {
    pub(super) cpu: usize,
    pub(super) port: u16,
    pub(super) question: Vec<String>,
    pub(super) per_second: f64,
}

impl Paced {
    /// The 99th percentile, in microseconds.
    pub(super) fn run(&self, round: Duration) -> Result<Sample> {
        let mut took = place::in_thread(|| {
            place::pin(None, self.cpu)?;
            Client::new(self.port, &self.question)?.ask(self.per_second, round)
        })?;
        ensure!(!took.is_empty(), "no question was due within {} ms", round.as_millis());
        Ok(Sample { value: percentile(&mut took, 0.99).as_secs_f64() * 1e6, beside: None })
    }
}

/// The smallest time that so large a part of all did not exceed.
fn percentile(took: &mut [Duration], part: f64) -> Duration {
    took.sort_unstable();
    let rank = (took.len() as f64 * part).ceil() as usize;
    took[rank.clamp(1, took.len()) - 1]
}

struct Client {
    connections: Vec<Connection>,
    /// Connections that wait for no answer.
    free: Vec<usize>,
    ready: OwnedFd,
    question: Template,
    random: fastrand::Rng,
}

struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    /// When the question that it waits for was due.
    due: Instant,
}

impl Client {
    fn new(port: u16, question: &[String]) -> Result<Self> {
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot make an epoll instance")?;
        let mut connections = Vec::new();
        for at in 0..CONNECTIONS {
            let stream = TcpStream::connect(local(port)).context("cannot connect")?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            epoll::add(&ready, &stream, epoll::EventData::new_u64(at as u64), epoll::EventFlags::IN)?;
            connections.push(Connection { stream, received: Vec::new(), due: Instant::now() });
        }
        let question = Template::new(question);
        let free = (0..CONNECTIONS).collect();
        Ok(Self { connections, free, ready, question, random: fastrand::Rng::with_seed(1) })
    }

    /// Asks for a while, and returns how long each answer took.
    fn ask(&mut self, per_second: f64, round: Duration) -> Result<Vec<Duration>> {
        let (begun, count) = (Instant::now(), (per_second * round.as_secs_f64()) as u32);
        let mut took = Vec::with_capacity(count as usize);
        let (mut asked, mut events) = (0, Vec::with_capacity(CONNECTIONS));
        while took.len() < count as usize {
            let now = Instant::now();
            ensure!(
                now < begun + round + PATIENCE,
                "{} questions were left without an answer",
                count as usize - took.len()
            );
            while asked < count {
                let due = begun + Duration::from_secs_f64(f64::from(asked) / per_second);
                if due > now {
                    break;
                }
                let Some(at) = self.free.pop() else { break };
                self.send(at, due)?;
                asked += 1;
            }
            epoll::wait(&self.ready, spare_capacity(&mut events), Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
            for event in events.drain(..) {
                let at = event.data.u64() as usize;
                if self.connections[at].has_answer()? {
                    took.push(self.connections[at].due.elapsed());
                    self.free.push(at);
                }
            }
        }
        Ok(took)
    }

    fn send(&mut self, at: usize, due: Instant) -> Result<()> {
        let connection = &mut self.connections[at];
        connection.due = due;
        let bytes = self.question.about(self.random.usize(..KEYS));
        // One question at a time fits into any buffer.
        connection.stream.write_all(bytes).context("cannot send a question")
    }
}

impl Connection {
    fn has_answer(&mut self) -> Result<bool> {
        let mut bytes = [0; 1_024];
        match self.stream.read(&mut bytes) {
            Ok(0) => bail!("the server closed a connection"),
            Ok(count) => self.received.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("cannot read an answer"),
        }
        let Some(length) = reply::length(&self.received)? else { return Ok(false) };
        self.received.drain(..length);
        Ok(true)
    }
}

/// A question on the wire, with a place for the number of a key.
struct Template {
    bytes: Vec<u8>,
    number: Option<usize>,
}

impl Template {
    fn new(words: &[String]) -> Self {
        let bytes = packed(&words.join(" "));
        let number = bytes.windows(NUMBER.len()).position(|part| part == NUMBER.as_bytes());
        Self { bytes, number }
    }

    fn about(&mut self, key: usize) -> &[u8] {
        if let Some(at) = self.number {
            let digits = format!("{key:0width$}", width = NUMBER.len());
            self.bytes[at..at + NUMBER.len()].copy_from_slice(digits.as_bytes());
        }
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;

    #[test]
    fn one_in_a_hundred_is_above_the_99th_percentile() {
        let mut took: Vec<Duration> = (1..=200).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile(&mut took, 0.99), Duration::from_millis(198));
        assert_eq!(percentile(&mut [Duration::from_millis(7)], 0.99), Duration::from_millis(7));
    }

    #[test]
    fn a_server_that_stalls_is_charged_for_the_questions_that_were_due_meanwhile() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let stall = Duration::from_millis(200);
        thread::spawn(move || {
            let mut streams: Vec<_> = (0..CONNECTIONS).map(|_| listener.accept().unwrap().0).collect();
            // The first question goes to the last connection; it stalls from then on.
            streams[CONNECTIONS - 1].peek(&mut [0]).unwrap();
            thread::sleep(stall);
            let answer = |stream: &mut TcpStream| {
                while stream.read(&mut [0; 64]).is_ok_and(|n| n > 0) && stream.write_all(b"+PONG\r\n").is_ok()
                {
                }
            };
            thread::scope(|scope| {
                streams.iter_mut().for_each(|stream| drop(scope.spawn(move || answer(stream))));
            });
        });
        // 100 questions, due within the stall; the connections are enough for half of them.
        let took = Client::new(port, &["PING".into()]).unwrap().ask(1_000.0, stall / 2).unwrap();
        assert_eq!(took.len(), 100);
        assert!(took.iter().all(|time| *time >= stall / 2), "{took:?}");
    }
}
