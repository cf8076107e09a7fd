//! The good client: one short TCP exchange after the other, each with a deadline.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::Route;

const QUESTION: &[u8] = b"are you there?\n";

pub(crate) fn run(route: &Route, every: Duration, patience: Duration) -> Result<()> {
    let start = Instant::now();
    let mut answers = Answers::default();
    let mut next = start;
    while next < start + route.lasts {
        thread::sleep(next.saturating_duration_since(Instant::now()));
        let asked = Instant::now();
        match exchange(route, patience) {
            Ok(()) => answers.took_us.push(asked.elapsed().as_micros()),
            Err(error) => answers.failed(&error),
        }
        // A slow answer delays the next question; the missed ones are not asked in a burst.
        next = (next + every).max(Instant::now());
    }
    println!("{}", answers.json());
    Ok(())
}

fn exchange(route: &Route, patience: Duration) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(route.to), Type::STREAM, Some(Protocol::TCP))?;
    socket.bind(&SockAddr::from(SocketAddr::new(route.from, 0)))?;
    socket.connect_timeout(&route.to.into(), patience)?;
    let mut stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(patience))?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(QUESTION)?;
    let mut echo = [0; QUESTION.len()];
    stream.read_exact(&mut echo)?;
    if echo == QUESTION { Ok(()) } else { Err(io::Error::other("the echo differs from the question")) }
}

#[derive(Default)]
struct Answers {
    took_us: Vec<u128>,
    failures: u64,
    first_failure: Option<String>,
}

impl Answers {
    fn failed(&mut self, error: &io::Error) {
        self.failures += 1;
        self.first_failure.get_or_insert_with(|| error.to_string());
    }

    fn json(&mut self) -> String {
        self.took_us.sort_unstable();
        // The smallest value that is not exceeded by this share; null when nothing was answered.
        let share = |percent: usize| match self.took_us.len() {
            0 => "null".to_owned(),
            count => self.took_us[(count * percent).div_ceil(100).saturating_sub(1)].to_string(),
        };
        // Debug of a plain text is a JSON string for everything an operating system's message contains.
        let first_failure =
            self.first_failure.as_ref().map_or_else(|| "null".to_owned(), |text| format!("{text:?}"));
        format!(
            r#"{{"ok":{},"failed":{},"latency_us":{{"p50":{},"p90":{},"p99":{},"max":{}}},"first_failure":{first_failure}}}"#,
            self.took_us.len(),
            self.failures,
            share(50),
            share(90),
            share(99),
            share(100)
        )
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn shares_are_taken_from_the_sorted_times() {
        let mut answers = Answers { took_us: (1..=200).rev().collect(), ..Answers::default() };
        answers.failed(&io::Error::other("timed \"out\""));
        answers.failed(&io::Error::other("another"));
        assert_eq!(
            answers.json(),
            r#"{"ok":200,"failed":2,"latency_us":{"p50":100,"p90":180,"p99":198,"max":200},"first_failure":"timed \"out\""}"#
        );
    }

    #[test]
    fn no_answer_at_all_has_no_latency() {
        let json = Answers::default().json();
        assert_eq!(
            json,
            r#"{"ok":0,"failed":0,"latency_us":{"p50":null,"p90":null,"p99":null,"max":null},"first_failure":null}"#
        );
    }

    #[test]
    fn the_client_comes_from_the_address_it_was_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let from = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 77));
        let server = thread::spawn(move || {
            let (mut stream, peer) = listener.accept().unwrap();
            let mut line = [0; QUESTION.len()];
            stream.read_exact(&mut line).unwrap();
            stream.write_all(&line).unwrap();
            peer.ip()
        });
        exchange(&Route { from, to, lasts: Duration::from_secs(1) }, Duration::from_secs(1)).unwrap();
        assert_eq!(server.join().unwrap(), from);
    }
}
