//! The SYN flood: connections that are begun and abandoned.

use std::io;
use std::time::Duration;

use anyhow::{Context, Result};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::Route;
use crate::pace::{self, Sent};

/// "Operation now in progress": the SYN has left.
const EINPROGRESS: i32 = 115;
/// No local port is free just now.
const EADDRNOTAVAIL: i32 = 99;
const EADDRINUSE: i32 = 98;
/// "No buffer space available".
const ENOBUFS: i32 = 105;

pub(crate) fn run(route: &Route, pps: Option<u64>) -> Result<()> {
    let Route { from, to, lasts } = route;
    let tally = pace::send_for(*lasts, pps, || knock(route))
        .with_context(|| format!("cannot send SYNs from {from} to {to}"))?;
    tally.print();
    Ok(())
}

fn knock(route: &Route) -> io::Result<Sent> {
    let socket = Socket::new(Domain::for_address(route.to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // Closing then leaves no trace: no TIME_WAIT that would eat the local ports, at most a reset.
    socket.set_linger(Some(Duration::ZERO))?;
    let begun = socket
        .bind(&SockAddr::from(std::net::SocketAddr::new(route.from, 0)))
        .and_then(|()| socket.connect(&route.to.into()));
    match begun.map_err(|error| (error.raw_os_error(), error)) {
        Ok(()) | Err((Some(EINPROGRESS), _)) => Ok(Sent::Yes),
        Err((Some(EADDRNOTAVAIL | EADDRINUSE | ENOBUFS), _)) => Ok(Sent::Refused),
        Err((_, error)) => Err(error),
    }
}
