//! When datagrams came in, by the word of the kernel: whoever reads a socket may have had no CPU for seconds.
//!
//! The kernel stamps a packet when the interface hands it on, in the turn in which the program has judged it. Stamps are of CLOCK_REALTIME: the kernel has no
//! other clock for them. Somebody may set that clock, and limits count by CLOCK_MONOTONIC. So a stamp is moved by the distance between the two clocks
//! when the socket is read. Where that distance is not what it was when the socket was last read, somebody has set the clock in between, and which stamps are from before
//! is not known. Such a stamp is held to what is known without it: the datagram came after the socket was last empty, and has come by now.

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockaddrLike, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;
use rustix::time::{ClockId, clock_gettime};

const NS: i64 = 1_000_000_000;
/// The distance between the clocks moves by half a millisecond per second at most while the time service corrects one of them.
const SLEWED_NS: i64 = NS / 100;
/// Both clocks are read at once if no more than this passes meanwhile.
const AT_ONCE_NS: i64 = NS / 1_000;

/// When the datagrams of each source came, in nanoseconds of CLOCK_MONOTONIC.
#[derive(Default)]
pub(crate) struct Arrivals {
    at_ns: BTreeMap<IpAddr, Vec<i64>>,
    clocks: Clocks,
    /// When the socket was last empty.
    empty_ns: i64,
    space: Vec<u8>,
}

/// How far CLOCK_REALTIME is ahead of CLOCK_MONOTONIC, and whether somebody has set it since it was last asked for.
#[derive(Clone, Copy, Default)]
struct Clocks {
    ahead_ns: i64,
    is_set: bool,
}

impl Arrivals {
    /// Has the kernel stamp what comes in. It begins with that a moment later; until then it stamps what is read.
    pub(crate) fn of(socket: &UdpSocket) -> io::Result<Self> {
        setsockopt(socket, sockopt::ReceiveTimestampns, &true)?;
        let clocks = Clocks::default().read();
        let space = nix::cmsg_space!(TimeSpec);
        Ok(Self { clocks, empty_ns: monotonic_ns(), space, ..Self::default() })
    }

    /// Looks at the clocks, before the socket is read until it is empty.
    pub(crate) fn begin(&mut self) {
        self.clocks = self.clocks.read();
    }

    /// Receives one datagram, and keeps when it came.
    pub(crate) fn receive(&mut self, socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, IpAddr)> {
        let begun_ns = monotonic_ns();
        let mut slices = [IoSliceMut::new(buffer)];
        let (socket, space) = (socket.as_raw_fd(), Some(&mut self.space[..]));
        let got = recvmsg::<SockaddrStorage>(socket, &mut slices, space, MsgFlags::empty());
        if got == Err(Errno::EAGAIN) {
            self.empty_ns = begun_ns;
        }
        let got = got?;
        let stamp = got.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::ScmTimestampns(time) => Some(time.tv_sec() * NS + time.tv_nsec()),
            _ => None,
        });
        let from = got.address.as_ref().and_then(address).ok_or(io::ErrorKind::InvalidData)?;
        let stamp = stamp.ok_or_else(|| io::Error::other("the kernel did not stamp a datagram"))?;
        let at_ns = self.clocks.monotonic_ns(stamp, (self.empty_ns, monotonic_ns()));
        self.at_ns.entry(from).or_default().push(at_ns);
        Ok((got.bytes, from))
    }

    /// Everything since the last time, as members of a JSON object.
    pub(crate) fn take_json(&mut self) -> String {
        let by_source = std::mem::take(&mut self.at_ns).into_iter().map(|(source, at_ns)| {
            let at_ns: Vec<String> = at_ns.iter().map(i64::to_string).collect();
            format!(r#""{source}":[{}]"#, at_ns.join(","))
        });
        by_source.collect::<Vec<_>>().join(",")
    }
}

impl Clocks {
    fn read(self) -> Self {
        let ahead_ns = loop {
            let before = monotonic_ns();
            let real = ns(ClockId::Realtime);
            if monotonic_ns() - before < AT_ONCE_NS {
                break real - before;
            }
        };
        Self { ahead_ns, is_set: (ahead_ns - self.ahead_ns).abs() > SLEWED_NS }
    }

    /// The moment of a stamp, which lies between two if the clock was set.
    fn monotonic_ns(self, stamp_ns: i64, (earliest, latest): (i64, i64)) -> i64 {
        let moved = stamp_ns - self.ahead_ns;
        if self.is_set { moved.clamp(earliest, latest.max(earliest)) } else { moved }
    }
}

fn monotonic_ns() -> i64 {
    ns(ClockId::Monotonic)
}

fn ns(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * NS + time.tv_nsec
}

fn address(from: &SockaddrStorage) -> Option<IpAddr> {
    match from.family()? {
        AddressFamily::Inet => Some(from.as_sockaddr_in()?.ip().into()),
        _ => Some(from.as_sockaddr_in6()?.ip().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_moved_by_the_distance_of_the_clocks_and_held_between_moments_if_one_was_set() {
        let clocks = Clocks { ahead_ns: 1_000 * NS, is_set: false };
        assert_eq!(
            clocks.monotonic_ns(1_005 * NS, (7 * NS, 9 * NS)),
            5 * NS,
            "it was stamped, and queued later"
        );
        let set = Clocks { is_set: true, ..clocks };
        for (stamp, expected) in [(1_005, 7), (1_008, 8), (9_000, 9)] {
            assert_eq!(set.monotonic_ns(stamp * NS, (7 * NS, 9 * NS)), expected * NS, "{stamp}");
        }
        assert!(Clocks::default().read().is_set, "nobody had asked before");
        assert!(!Clocks::default().read().read().is_set);
    }

    #[test]
    fn datagrams_have_the_time_at_which_they_came_however_late_they_are_read() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut arrivals = Arrivals::of(&socket).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut sent_and_read_late = || {
            let before = monotonic_ns();
            sender.send_to(b"a", socket.local_addr().unwrap()).unwrap();
            let after = monotonic_ns();
            while monotonic_ns() < after + 20 * AT_ONCE_NS {
                std::thread::yield_now();
            }
            arrivals.begin();
            arrivals.receive(&socket, &mut [0; 8]).unwrap();
            let at_ns = arrivals.at_ns.values().next().unwrap()[0];
            assert_eq!(arrivals.take_json(), format!(r#""127.0.0.1":[{at_ns}]"#));
            assert_eq!(arrivals.take_json(), "");
            // Give or take what reading two clocks takes.
            (before - AT_ONCE_NS..after + AT_ONCE_NS).contains(&at_ns)
        };
        // The kernel begins with it a moment after it was told, and until then a datagram is stamped when it is read.
        assert!((0..100).any(|_| sent_and_read_late()), "datagrams are not stamped when they come");
        assert!((0..3).all(|_| sent_and_read_late()), "the kernel has stopped stamping");
    }
}
