//! The server behind the limiter: counts UDP datagrams by source, echoes TCP.
//!
//! Standard input is the remote control, so that no signal has to be caught: each line is answered with the counts of
//! that moment (the first answer also means that the sockets are open), and its end brings the last counts and the exit.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt;

use crate::arrivals::Arrivals;

/// An abandoned connection must not hold its thread for long.
const IDLE: Duration = Duration::from_secs(2);
/// A burst that a limit lets through arrives faster than one thread reads: 10 000 small datagrams, with what the kernel
/// charges for each, fit in here.
const RECEIVE_BUFFER: usize = 64 << 20;
const LARGEST_DATAGRAM: usize = 65_535;

struct Counts {
    udp: Mutex<Datagrams>,
    tcp_connections: AtomicU64,
}

/// What arrived, and the socket that more may be waiting in. One lock for both: whoever has it counts everything that has arrived until then, so that
/// counts are those of the moment they are asked for, also when the thread that reads the socket has not run for a while.
struct Datagrams {
    socket: UdpSocket,
    by_source: BTreeMap<IpAddr, u64>,
    bytes: u64,
    buffer: Vec<u8>,
    /// When datagrams came, for whoever wants to know.
    arrivals: Option<Arrivals>,
}

impl Datagrams {
    /// Counts what is waiting in the socket, which does not block.
    fn drain(&mut self) {
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.begin();
        }
        loop {
            let received = match &mut self.arrivals {
                Some(arrivals) => arrivals.receive(&self.socket, &mut self.buffer),
                None => self.socket.recv_from(&mut self.buffer).map(|(bytes, from)| (bytes, from.ip())),
            };
            match received {
                Ok((bytes, from)) => {
                    self.bytes += bytes as u64;
                    *self.by_source.entry(from).or_default() += 1;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // An ICMP answer to something we never sent, or a passing shortage: nothing arrived.
                Err(_nothing) => {}
            }
        }
    }
}

pub(crate) fn run(listen: SocketAddr, times: bool) -> Result<()> {
    let (_address, counts) = open(listen, times)?;
    let mut stdout = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        line.context("cannot read standard input")?;
        writeln!(stdout, "{}", counts.json())?;
    }
    writeln!(stdout, "{}", counts.json())?;
    Ok(())
}

/// Both sockets are open when this returns; their threads end with the process.
fn open(listen: SocketAddr, times: bool) -> Result<(SocketAddr, Arc<Counts>)> {
    let tcp = TcpListener::bind(listen).with_context(|| format!("cannot listen on TCP {listen}"))?;
    let address = tcp.local_addr()?;
    let socket = UdpSocket::bind(address).with_context(|| format!("cannot listen on UDP {address}"))?;
    enlarge_buffer(&socket).with_context(|| format!("cannot enlarge the receive buffer of UDP {address}"))?;
    socket.set_nonblocking(true)?;
    let waiting = socket.try_clone()?;
    let arrivals = times.then(|| Arrivals::of(&socket)).transpose();
    let arrivals =
        arrivals.with_context(|| format!("cannot have the kernel stamp datagrams of UDP {address}"))?;
    let buffer = vec![0; LARGEST_DATAGRAM];
    let datagrams = Datagrams { socket, by_source: BTreeMap::new(), bytes: 0, buffer, arrivals };
    let counts = Arc::new(Counts { udp: Mutex::new(datagrams), tcp_connections: AtomicU64::new(0) });
    let counting = Arc::clone(&counts);
    thread::spawn(move || counting.count_datagrams(&waiting));
    let accepting = Arc::clone(&counts);
    thread::spawn(move || accepting.accept(&tcp));
    Ok((address, counts))
}

/// By force, which takes root: what the socket loses would be taken for what the limiter dropped. Without root, as much
/// as the system allows, which is fine for a handful of datagrams.
fn enlarge_buffer(socket: &UdpSocket) -> rustix::io::Result<()> {
    sockopt::set_socket_recv_buffer_size_force(socket, RECEIVE_BUFFER)
        .or_else(|_not_root| sockopt::set_socket_recv_buffer_size(socket, RECEIVE_BUFFER))
}

impl Counts {
    fn count_datagrams(&self, socket: &UdpSocket) {
        loop {
            // An error is a signal or a passing shortage; the look at the socket tells.
            let _ready = poll(&mut [PollFd::new(socket, PollFlags::IN)], None);
            self.udp.lock().unwrap_or_else(PoisonError::into_inner).drain();
        }
    }

    fn accept(&self, listener: &TcpListener) {
        loop {
            // The peer may be gone by the time it is accepted.
            let Ok((stream, _from)) = listener.accept() else { continue };
            self.tcp_connections.fetch_add(1, Ordering::Relaxed);
            // A client that finds no thread sees its connection closed, and counts it.
            let _handle = thread::Builder::new().spawn(move || echo(&stream));
        }
    }

    fn json(&self) -> String {
        let mut udp = self.udp.lock().unwrap_or_else(PoisonError::into_inner);
        udp.drain();
        let by_source: Vec<String> =
            udp.by_source.iter().map(|(source, count)| format!(r#""{source}":{count}"#)).collect();
        let arrived = udp.arrivals.as_mut().map(Arrivals::take_json);
        let arrived = arrived.map(|times| format!(r#","arrived_ns":{{{times}}}"#)).unwrap_or_default();
        format!(
            r#"{{"udp":{{{}}},"udp_total":{},"udp_bytes":{},"tcp_connections":{}{arrived}}}"#,
            by_source.join(","),
            udp.by_source.values().sum::<u64>(),
            udp.bytes,
            self.tcp_connections.load(Ordering::Relaxed)
        )
    }
}

fn echo(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(IDLE))?;
    io::copy(&mut &*stream, &mut &*stream).map(drop)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Instant;

    use super::*;

    #[test]
    fn datagrams_are_counted_by_source_and_tcp_is_echoed_on_the_same_port() {
        let (address, counts) = open("127.0.0.1:0".parse().unwrap(), false).unwrap();
        for source in ["127.0.0.2:0", "127.0.0.2:0", "127.0.0.3:0"] {
            UdpSocket::bind(source).unwrap().send_to(b"abc", address).unwrap();
        }
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"hello").unwrap();
        let mut echoed = [0; 5];
        stream.read_exact(&mut echoed).unwrap();
        assert_eq!(&echoed, b"hello");
        // The datagrams are already in the socket's queue, and are counted when they are asked for; the connection is counted by its thread.
        let expected =
            r#"{"udp":{"127.0.0.2":2,"127.0.0.3":1},"udp_total":3,"udp_bytes":9,"tcp_connections":1}"#;
        let deadline = Instant::now() + Duration::from_secs(10);
        while counts.json() != expected && Instant::now() < deadline {
            thread::yield_now();
        }
        assert_eq!(counts.json(), expected);
    }
}
