//! The bulk transfer of one honest client, while others visit.
//!
//! Both ends are in one thread, which never sleeps. This favours the transfer: with a thread for each end, which wait
//! for each other all the time, it got no more than a hundredth of its goodput beside a flood on a core that the flood
//! alone can fill. What is measured here is what the limiter leaves of the core and lets through, not how soon a
//! thread that was woken gets its turn.

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    net::TcpStream,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use socket2::SockRef;

use super::{
    Seats,
    server::{BULK, Server},
    site,
    visits::{self, Newcomers, PATIENCE, Visits},
};

/// Until the window has grown to what the way carries.
const GROWING: Duration = Duration::from_millis(200);
const PORTION: usize = 64 << 10;
/// The kernel takes it twice. A veth's queue has room for 256 packets: a client that sent more in one go would lose them
/// to its own wire, and then wait for a timer.
const IN_FLIGHT: usize = 128 << 10;

/// What a transfer and the visitors beside it got.
#[derive(Debug)]
pub(super) struct Transfer {
    /// Bits per second that the server has read.
    pub(super) bits_per_second: f64,
    /// The transfer's own connection included.
    pub(super) visits: Visits,
}

/// Transfers for so long, after a while in which the window grows.
pub(super) fn measure(
    server: &Server,
    lasts: Duration,
    newcomers: &Newcomers,
    seats: Seats,
) -> Result<Transfer> {
    let done = &AtomicBool::new(false);
    thread::scope(|scope| {
        let transferring = scope.spawn(move || {
            site::join_guests(seats)?;
            let start = Instant::now();
            // A transfer that cannot even begin is a connection that failed, and nothing transferred.
            let client = match visits::connect(newcomers.next(), BULK) {
                Ok(client) => client,
                Err(error) => return Ok((0.0, Err(error))),
            };
            let opened = start.elapsed();
            let served = server.accept_bulk().context("cannot accept the transfer")?;
            Ok::<_, anyhow::Error>(match transfer(&client, &served, lasts, done) {
                Ok(bits_per_second) => (bits_per_second, Ok(opened)),
                Err(error) => (0.0, Err(error)),
            })
        });
        let visits = visits::receive(GROWING + lasts, newcomers, seats);
        done.store(true, Ordering::Relaxed);
        let (bits_per_second, opened) =
            transferring.join().map_err(|_| anyhow!("the transfer's thread panicked"))??;
        let mut visits = visits?;
        visits.add(opened);
        Ok(Transfer { bits_per_second, visits })
    })
}

/// Bits per second that have come through. Goes on until the visitors are done, or too little comes for too long.
fn transfer(client: &TcpStream, served: &TcpStream, lasts: Duration, done: &AtomicBool) -> io::Result<f64> {
    // The kernel's default, whatever this machine prefers.
    SockRef::from(client).set_tcp_congestion(b"cubic")?;
    SockRef::from(client).set_send_buffer_size(IN_FLIGHT)?;
    client.set_nonblocking(true)?;
    served.set_nonblocking(true)?;
    let mut pipe = Pipe { client, served, portion: vec![0x5a; PORTION], last: Instant::now() };
    let grown = Instant::now() + GROWING;
    while Instant::now() < grown {
        pipe.pump()?;
    }
    let (mut bytes, start) = (0, Instant::now());
    while start.elapsed() < lasts {
        bytes += pipe.pump()?;
    }
    let bits_per_second = bytes as f64 * 8.0 / start.elapsed().as_secs_f64();
    while !done.load(Ordering::Relaxed) {
        pipe.pump()?;
    }
    Ok(bits_per_second)
}

struct Pipe<'s> {
    client: &'s TcpStream,
    served: &'s TcpStream,
    portion: Vec<u8>,
    /// When something came through.
    last: Instant,
}

impl Pipe<'_> {
    /// Sends what there is room for and reads what has come.
    fn pump(&mut self) -> io::Result<usize> {
        at_once(self.client.write(&self.portion))?;
        let read = at_once(self.served.read(&mut self.portion))?;
        if read > 0 {
            self.last = Instant::now();
        } else if self.last.elapsed() > PATIENCE {
            // Standing still for as long as a visitor would wait is a failure.
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(read)
    }
}

fn at_once(done: io::Result<usize>) -> io::Result<usize> {
    match done {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn what_is_pumped_in_comes_out_and_is_measured() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let served = listener.accept().unwrap().0;
        let done = AtomicBool::new(true);
        let bits_per_second = transfer(&client, &served, Duration::from_millis(20), &done).unwrap();
        assert!(bits_per_second > 0.0);
    }
}
