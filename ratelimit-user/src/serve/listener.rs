//! Where questions come in: TCP, with or without TLS, and sockets in the file system, alike for all protocols.

use std::{
    io,
    net::{IpAddr, TcpListener as StdTcp},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixListener as StdUnix,
    },
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use rustix::net::{Shutdown, shutdown};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    time::timeout,
};
use tokio_rustls::server::TlsStream;

use super::{
    credentials::Speaking,
    socket_file::{self, SocketFile},
};
use crate::policy::{ListenEndpoint, SocketRights};

/// How long a caller may take to agree on TLS.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// The most connections that wait to be accepted.
pub(super) const BACKLOG: i32 = 1024;
/// Silence after which the kernel checks whether the other end still exists, so that hosts that are gone do not keep their places.
const KEEPALIVE: Duration = Duration::from_secs(300);
/// Bytes that are read and thrown away, for at most [`LINGER`], after the last answer of a connection.
const LINGER_BYTES: u64 = 1024 * 1024;
const LINGER: Duration = Duration::from_secs(1);

/// A socket that is bound, before any thread has it.
#[derive(Debug)]
pub struct Bound {
    endpoint: ListenEndpoint,
    socket: BoundSocket,
}

#[derive(Debug)]
enum BoundSocket {
    Tcp(StdTcp),
    Unix(StdUnix, #[expect(dead_code, reason = "goes when the socket does")] Option<SocketFile>),
}

/// A listening socket, as the thread has it that accepts connections.
#[derive(Debug)]
pub enum Listener {
    /// A socket for TCP.
    Tcp(TcpListener),
    /// A socket in the file system.
    Unix(UnixListener),
}

/// A connection that no thread has yet.
#[derive(Debug)]
pub enum Accepted {
    /// A connection over TCP.
    Tcp(std::net::TcpStream),
    /// A connection over a socket in the file system.
    Unix(std::os::unix::net::UnixStream),
}

/// A connection of a client.
#[derive(Debug)]
pub enum ClientStream {
    /// A connection over TCP.
    Tcp(TcpStream),
    /// A connection over TCP and TLS.
    Tls(Box<TlsStream<TcpStream>>),
    /// A connection over a socket in the file system.
    Unix(UnixStream),
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A host with this address.
    Host(IpAddr),
    /// A process on this host that may open the socket's file.
    Local,
}

impl Bound {
    /// Binds a socket. The file of a socket that an earlier run left is replaced. A socket that somebody listens on stays, and so does every other file.
    pub fn bind(endpoint: &ListenEndpoint, rights: &SocketRights) -> io::Result<Self> {
        let socket = match endpoint {
            ListenEndpoint::Tcp(address) => {
                let domain = socket2::Domain::for_address(*address);
                let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
                socket.set_reuse_address(true)?;
                socket.bind(&(*address).into())?;
                socket.listen(BACKLOG)?;
                BoundSocket::Tcp(socket.into())
            }
            ListenEndpoint::Unix(path) => {
                let (listener, file) = socket_file::bind(path, rights)?;
                BoundSocket::Unix(listener, Some(file))
            }
        };
        match &socket {
            BoundSocket::Tcp(listener) => listener.set_nonblocking(true)?,
            BoundSocket::Unix(listener, _) => listener.set_nonblocking(true)?,
        }
        Ok(Self { endpoint: endpoint.clone(), socket })
    }

    /// Takes a socket that another process has bound. That process removes the socket's file.
    pub fn received(endpoint: ListenEndpoint, socket: OwnedFd) -> Self {
        let socket = match endpoint {
            ListenEndpoint::Tcp(_) => BoundSocket::Tcp(socket.into()),
            ListenEndpoint::Unix(_) => BoundSocket::Unix(socket.into(), None),
        };
        Self { endpoint, socket }
    }

    /// Duplicates the socket, for another process.
    pub fn handle(&self) -> io::Result<OwnedFd> {
        match &self.socket {
            BoundSocket::Tcp(listener) => listener.as_fd().try_clone_to_owned(),
            BoundSocket::Unix(listener, _) => listener.as_fd().try_clone_to_owned(),
        }
    }

    /// Refuses connections from now on, also where other processes have the socket.
    pub fn close(&self) {
        let _closed = match &self.socket {
            BoundSocket::Tcp(listener) => shutdown(listener, Shutdown::Read),
            BoundSocket::Unix(listener, _) => shutdown(listener, Shutdown::Read),
        };
    }

    /// The endpoint that is listened on.
    pub fn endpoint(&self) -> &ListenEndpoint {
        &self.endpoint
    }

    /// Makes a listener of the socket; called on the runtime of the thread that accepts.
    pub fn listener(&self) -> io::Result<Listener> {
        Ok(match &self.socket {
            BoundSocket::Tcp(listener) => Listener::Tcp(TcpListener::from_std(listener.try_clone()?)?),
            BoundSocket::Unix(listener, _) => Listener::Unix(UnixListener::from_std(listener.try_clone()?)?),
        })
    }
}

impl Listener {
    /// Accepts the next connection, for any thread.
    pub async fn accept(&self) -> io::Result<(Accepted, Peer)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((Accepted::Tcp(stream.into_std()?), Peer::Host(peer.ip())))
            }
            Self::Unix(listener) => Ok((Accepted::Unix(listener.accept().await?.0.into_std()?), Peer::Local)),
        }
    }
}

impl Accepted {
    /// Takes the connection to the runtime of the thread that answers it, and agrees on TLS if there are certificates. TLS is for the network.
    pub async fn greet(self, tls: Option<Speaking>) -> io::Result<ClientStream> {
        let stream = match self {
            Self::Tcp(stream) => {
                // Answers are short and go out whole.
                stream.set_nodelay(true)?;
                let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE);
                socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
                TcpStream::from_std(stream)?
            }
            Self::Unix(stream) => return Ok(ClientStream::Unix(UnixStream::from_std(stream)?)),
        };
        let Some(tls) = tls.as_ref().and_then(Speaking::acceptor) else {
            return Ok(ClientStream::Tcp(stream));
        };
        let agreed = timeout(HANDSHAKE, tls.accept(stream)).await;
        let slow = || io::Error::new(io::ErrorKind::TimedOut, "TLS was not agreed on in time");
        Ok(ClientStream::Tls(Box::new(agreed.map_err(|_| slow())??)))
    }
}

/// Closes the sending side, and throws away what the caller still sends for a moment: closing at once would take the last answer from it.
pub(super) async fn linger(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
    stream.shutdown().await?;
    let mut rest = stream.take(LINGER_BYTES);
    timeout(LINGER, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await??;
    Ok(())
}

impl AsyncRead for ClientStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
            Self::Unix(stream) => stream.is_write_vectored(),
        }
    }
}
