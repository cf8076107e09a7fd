//! Asks the kernel over route netlink for all objects of a kind or for one, and follows changes of interfaces.

use std::{io, thread};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

#[derive(PartialEq, Eq)]
enum Dump {
    More,
    Done,
}

/// Asks for all objects of a kind, and calls `each` with every message of the answer.
pub(super) fn dump(
    question: RouteNetlinkMessage,
    mut each: impl FnMut(RouteNetlinkMessage),
) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&request(question, NLM_F_DUMP | NLM_F_REQUEST), 0)?;
    loop {
        let (reply, _) = socket.recv_from_full()?;
        if read(&reply, &mut each)? == Dump::Done {
            return Ok(());
        }
    }
}

/// Asks for one object, and returns the message of the answer.
pub(super) fn one(question: RouteNetlinkMessage) -> io::Result<RouteNetlinkMessage> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&request(question, NLM_F_REQUEST), 0)?;
    let (reply, _) = socket.recv_from_full()?;
    let mut answer = None;
    read(&reply, &mut |message| answer = Some(message))?;
    answer.ok_or_else(|| io::Error::other("the kernel did not say"))
}

fn request(question: RouteNetlinkMessage, flags: u16) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(question));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Calls `each` with every message of one datagram, and returns whether more datagrams follow.
fn read(mut datagram: &[u8], each: &mut impl FnMut(RouteNetlinkMessage)) -> io::Result<Dump> {
    while !datagram.is_empty() {
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(datagram)
            .map_err(|e| io::Error::other(e.to_string()))?;
        match message.payload {
            NetlinkPayload::InnerMessage(inner) => each(inner),
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            NetlinkPayload::Done(_) => return Ok(Dump::Done),
            _ => {}
        }
        // Messages are padded to four bytes.
        let len = (message.header.length as usize).next_multiple_of(4);
        datagram = datagram.get(len..).unwrap_or_default();
    }
    Ok(Dump::More)
}

/// The kernel's group for interfaces that come, go or change (RTNLGRP_LINK).
const LINKS: u32 = 1;

/// Calls `tell` whenever an interface of this network namespace has changed, for as long as the process lives; after an error `tell` is
/// not called again. The receiver has to find out what has changed: many messages may be about one interface, and some are lost when
/// there are too many.
pub fn follow_links(mut tell: impl FnMut(io::Result<()>) + Send + 'static) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.add_membership(LINKS)?;
    let listen = move || {
        hurry();
        let mut message = Vec::with_capacity(MESSAGE_BYTES);
        loop {
            message.clear();
            match socket.recv(&mut message, 0) {
                Ok(_) => {
                    skip_what_waits(&socket);
                    tell(Ok(()));
                }
                // Messages were lost, so an interface has changed.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => tell(Ok(())),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return tell(Err(error)),
            }
        }
    };
    thread::Builder::new().name("links".into()).spawn(listen)?;
    Ok(())
}

/// Gives this thread the highest priority, because until it has run, packets pass unjudged on an interface that has come back. It works for milliseconds
/// at a time. Without the right to this priority, the thread waits for a CPU like any other.
fn hurry() {
    let _as_everybody = rustix::process::setpriority_process(None, MOST_URGENT);
}

/// The nice value with the highest priority.
const MOST_URGENT: i32 = -20;

/// Skips messages that have come already, because one look at the interfaces is enough for all of them. Their number is bounded, so that the look comes.
fn skip_what_waits(socket: &Socket) {
    let mut message = Vec::with_capacity(MESSAGE_BYTES);
    for _ in 0..MOST_SKIPPED {
        message.clear();
        if socket.recv(&mut message, libc::MSG_DONTWAIT).is_err() {
            return;
        }
    }
}

const MOST_SKIPPED: usize = 1_000;

/// Bytes of room for a message. Only its arrival matters, so the rest is cut off.
const MESSAGE_BYTES: usize = 64;
