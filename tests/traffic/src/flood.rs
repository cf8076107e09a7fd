//! The UDP flood.

use std::io::{self, ErrorKind};
use std::net::UdpSocket;

use anyhow::{Context, Result};

use crate::Route;
use crate::pace::{self, Sent};

/// "No buffer space available": the queue of the interface is full. `ErrorKind` has no stable name for it.
const ENOBUFS: i32 = 105;

pub(crate) fn run(route: &Route, pps: Option<u64>, size: u16) -> Result<()> {
    let Route { from, to, lasts } = route;
    let socket = UdpSocket::bind((*from, 0)).with_context(|| format!("cannot send from {from}"))?;
    // Connected: the route is looked up once, not for each datagram.
    socket.connect(to).with_context(|| format!("cannot send to {to}"))?;
    let payload = vec![b'x'; usize::from(size)];
    let tally = pace::send_for(*lasts, pps, || outcome(socket.send(&payload)))
        .with_context(|| format!("cannot send from {from} to {to}"))?;
    tally.print();
    Ok(())
}

fn outcome(sent: io::Result<usize>) -> io::Result<Sent> {
    match sent {
        Ok(_) => Ok(Sent::Yes),
        Err(error) if is_passing(&error) => Ok(Sent::Refused),
        Err(error) => Err(error),
    }
}

/// Errors about this one datagram. A refused connection is an earlier datagram's ICMP answer, reported in place of sending.
fn is_passing(error: &io::Error) -> bool {
    let kinds = [
        ErrorKind::ConnectionRefused,
        ErrorKind::PermissionDenied,
        ErrorKind::WouldBlock,
        ErrorKind::Interrupted,
    ];
    kinds.contains(&error.kind()) || error.raw_os_error() == Some(ENOBUFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_and_a_refusing_peer_do_not_end_the_flood() {
        for error in [
            io::Error::from_raw_os_error(ENOBUFS),
            ErrorKind::ConnectionRefused.into(),
            ErrorKind::PermissionDenied.into(),
        ] {
            assert!(matches!(outcome(Err(error)), Ok(Sent::Refused)));
        }
        assert!(outcome(Err(ErrorKind::NetworkUnreachable.into())).is_err());
    }
}
