//! Honest clients that come and go: each opens a connection, has a line echoed, and closes.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicU16, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use serde::Serialize;
use socket2::{Domain, Protocol, Socket, Type};

use super::{Seats, server, site};
use crate::client_wire;

/// Connection and echo together. A lost SYN is sent again after one second, a second time after three.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);
/// Visitors at a time: while one waits for a lost packet, others go on.
const AT_A_TIME: u16 = 4;
/// From the start of one visit to the start of the next.
const EVERY: Duration = Duration::from_millis(20);
const QUESTION: &[u8] = b"are you there?\n";

/// How many visits there were, and what became of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Visits {
    pub(crate) attempted: u64,
    /// Without an echo in time.
    pub(crate) failed: u64,
    /// Of those that succeeded.
    pub(crate) slowest_ms: f64,
    pub(crate) first_failure: Option<String>,
}

impl Visits {
    /// Part of them that succeeded; `None` of none.
    pub(crate) fn share(&self) -> Option<f64> {
        (self.attempted > 0).then(|| 1.0 - self.failed as f64 / self.attempted as f64)
    }

    pub(super) fn add(&mut self, came_of_it: io::Result<Duration>) {
        self.attempted += 1;
        match came_of_it {
            Ok(took) => self.slowest_ms = self.slowest_ms.max(took.as_secs_f64() * 1e3),
            Err(error) => {
                self.failed += 1;
                self.first_failure.get_or_insert_with(|| error.to_string());
            }
        }
    }

    pub(super) fn join(&mut self, other: Self) {
        self.attempted += other.attempted;
        self.failed += other.failed;
        self.slowest_ms = self.slowest_ms.max(other.slowest_ms);
        self.first_failure = self.first_failure.take().or(other.first_failure);
    }
}

/// Gives each visitor an address that nobody had before: a host under attack has to take newcomers.
#[derive(Debug, Default)]
pub(super) struct Newcomers(AtomicU16);

impl Newcomers {
    pub(super) fn next(&self) -> [u8; 4] {
        client_wire::address(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// Visitors come for so long; returns when the last one has an answer or has given up.
pub(super) fn receive(lasts: Duration, newcomers: &Newcomers, seats: Seats) -> Result<Visits> {
    let visitor = || -> Result<Visits> {
        site::join_guests(seats)?;
        let start = Instant::now();
        let mut visits = Visits::default();
        let mut next = start;
        while next < start + lasts {
            thread::sleep(next.saturating_duration_since(Instant::now()));
            visits.add(visit(newcomers.next(), server::ECHO));
            next = (next + EVERY).max(Instant::now());
        }
        Ok(visits)
    };
    let mut all = Visits::default();
    thread::scope(|scope| {
        let visitors: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(visitor)).collect();
        for visitor in visitors {
            all.join(visitor.join().map_err(|_| anyhow!("a visitor's thread panicked"))??);
        }
        Ok(all)
    })
}

fn visit(from: [u8; 4], to: SocketAddr) -> io::Result<Duration> {
    let start = Instant::now();
    let mut stream = connect(from, to)?;
    let left = PATIENCE.checked_sub(start.elapsed()).filter(|left| !left.is_zero());
    stream.set_read_timeout(Some(left.ok_or(io::ErrorKind::TimedOut)?))?;
    stream.set_nodelay(true)?;
    stream.write_all(QUESTION)?;
    let mut echo = [0; QUESTION.len()];
    stream.read_exact(&mut echo)?;
    let took = start.elapsed();
    if echo == QUESTION && took <= PATIENCE { Ok(took) } else { Err(io::ErrorKind::TimedOut.into()) }
}

/// A connection from an address of the guests.
pub(super) fn connect(from: [u8; 4], to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect_timeout(&to.into(), PATIENCE)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn visits_are_added_up_and_the_first_failure_is_kept() {
        let mut visits = Visits::default();
        assert_eq!(visits.share(), None);
        visits.add(Ok(Duration::from_millis(3)));
        let mut others = Visits::default();
        others.add(Err(io::ErrorKind::TimedOut.into()));
        others.add(Ok(Duration::from_millis(1_002)));
        others.add(Ok(Duration::from_millis(2)));
        visits.join(others);
        assert_eq!((visits.attempted, visits.failed, visits.slowest_ms), (4, 1, 1_002.0));
        assert_eq!(visits.share(), Some(0.75));
        assert_eq!(visits.first_failure.as_deref(), Some("timed out"));
    }

    #[test]
    fn a_server_that_closes_without_an_echo_is_a_failure() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let closing = thread::spawn(move || drop(listener.accept().unwrap()));
        assert!(visit([127, 0, 0, 7], address).is_err());
        closing.join().unwrap();
    }
}
