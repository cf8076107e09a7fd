//! Sends sockets from the daemon to its front process: descriptors beside bytes on a stream.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// Descriptors in one message; the kernel takes at most 253.
const AT_A_TIME: usize = 100;
/// The largest number of sockets that is accepted, more than any policy names.
const MOST: usize = 10_000;

/// Sends descriptors: their number in four bytes, then one byte with each portion of them.
pub(super) fn send(stream: &UnixStream, handles: &[BorrowedFd<'_>]) -> io::Result<()> {
    let count = u32::try_from(handles.len()).map_err(io::Error::other)?;
    rustix::net::send(stream, &count.to_be_bytes(), SendFlags::empty())?;
    for some in handles.chunks(AT_A_TIME) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_A_TIME))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !beside.push(SendAncillaryMessage::ScmRights(some)) {
            return Err(io::Error::other("there is no room for sockets beside a message"));
        }
        sendmsg(stream, &[IoSlice::new(&[0])], &mut beside, SendFlags::empty())?;
    }
    Ok(())
}

/// Receives the descriptors that the other side sends first.
pub(super) fn receive(stream: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut count = [0; 4];
    io::Read::read_exact(&mut &*stream, &mut count)?;
    let count = u32::from_be_bytes(count) as usize;
    if count > MOST {
        return Err(io::Error::other(format!("{count} sockets; at most {MOST} are taken")));
    }
    let mut handles = Vec::new();
    while handles.len() < count {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_A_TIME))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let got = recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut beside, RecvFlags::CMSG_CLOEXEC)?;
        let before = handles.len();
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                handles.extend(some);
            }
        }
        if got.bytes == 0 || handles.len() == before {
            return Err(io::Error::other("the daemon has ended before it sent its sockets"));
        }
    }
    Ok(handles)
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, os::fd::AsFd as _};

    use super::*;

    #[test]
    fn sockets_arrive_in_their_order_and_what_follows_them_stays_on_the_stream() {
        let listeners: Vec<TcpListener> =
            (0..250).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let ports: Vec<u16> = listeners.iter().map(|one| one.local_addr().unwrap().port()).collect();
        let (one, other) = UnixStream::pair().unwrap();
        send(&one, &listeners.iter().map(|listener| listener.as_fd()).collect::<Vec<_>>()).unwrap();
        io::Write::write_all(&mut &one, b"rest").unwrap();
        let got: Vec<u16> = receive(&other)
            .unwrap()
            .into_iter()
            .map(|handle| TcpListener::from(handle).local_addr().unwrap().port())
            .collect();
        assert_eq!(got, ports);
        let mut rest = [0; 4];
        io::Read::read_exact(&mut &other, &mut rest).unwrap();
        assert_eq!(&rest, b"rest");
    }

    #[test]
    fn a_daemon_that_ends_before_it_sent_its_sockets_is_an_error() {
        let (one, other) = UnixStream::pair().unwrap();
        io::Write::write_all(&mut &one, &2_u32.to_be_bytes()).unwrap();
        drop(one);
        assert!(receive(&other).is_err());
        let (one, other) = UnixStream::pair().unwrap();
        io::Write::write_all(&mut &one, &u32::MAX.to_be_bytes()).unwrap();
        assert_eq!(receive(&other).unwrap_err().to_string(), "4294967295 sockets; at most 10000 are taken");
    }
}
