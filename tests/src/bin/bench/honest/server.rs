//! The server of the attacked host: one port that echoes, one for the bulk transfer.

use std::{
    io::{self, Read as _},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use socket2::SockRef;

use crate::{lane, place, traffic};

/// The echo, on the port that the SYN flood is for.
pub(super) const ECHO: SocketAddr = at(traffic::PORT);
/// The bulk receiver.
pub(super) const BULK: SocketAddr = at(traffic::PORT + 1);
/// An abandoned connection must not hold its thread for long.
const IDLE: Duration = Duration::from_secs(5);

const fn at(port: u16) -> SocketAddr {
    let [a, b, c, d] = lane::HOST_V4;
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(a, b, c, d)), port)
}

/// Both listeners; they close with the value.
pub(super) struct Server {
    echo: TcpListener,
    bulk: TcpListener,
}

impl Server {
    /// Listens in a namespace and serves on a CPU.
    pub(super) fn start(namespace: &str, cpu: usize) -> Result<Self> {
        place::inside(namespace, || {
            // The threads that serve begin where this one is.
            place::stay_on(cpu)?;
            let (echo, bulk) = (listen(ECHO)?, listen(BULK)?);
            let accepting = echo.try_clone()?;
            thread::spawn(move || {
                accept(&accepting, |stream| drop(thread::spawn(move || return_all(&stream))));
            });
            Ok(Self { echo, bulk })
        })
    }

    /// The host's end of a transfer that a client has opened.
    pub(super) fn accept_bulk(&self) -> io::Result<TcpStream> {
        Ok(self.bulk.accept()?.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ends `accept`, which closing a copy would not.
        let _closed = SockRef::from(&self.echo).shutdown(Shutdown::Both);
    }
}

fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))
}

/// Until the listener is shut down.
fn accept(listener: &TcpListener, serve: impl Fn(TcpStream)) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => serve(stream),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
            // The peer may be gone by the time it is accepted.
            Err(_) => {}
        }
    }
}

fn return_all(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(IDLE))?;
    // By hand: `io::copy` between sockets goes through a pipe.
    let mut buffer = [0; 512];
    loop {
        let read = (&*stream).read(&mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        io::Write::write_all(&mut &*stream, &buffer[..read])?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepting_ends_when_the_listener_is_shut_down() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let copy = listener.try_clone().unwrap();
        let accepting = thread::spawn(move || accept(&listener, drop));
        SockRef::from(&copy).shutdown(Shutdown::Both).unwrap();
        accepting.join().unwrap();
    }
}
