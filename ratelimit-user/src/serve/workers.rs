//! Threads that answer. Each has a runtime of its own and takes connections from every socket: nothing is handed from one to another.

use std::{
    io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::sync::Semaphore;

use super::{
    check,
    credentials::{Credentials, Token},
    descriptors,
    desk::Desk,
    grpc::{self, rlqs::Quotas},
    listener::{Bound, Listener, Peer, Stream},
    resp,
};
use crate::policy::{Listen, Policy};

/// Connections of one thread. More wait to be taken in, and cost nothing.
const MAX_CONNECTIONS: usize = 20_000;
/// After a socket could not be taken in: out of descriptors, others will be closed.
const BREATHER: Duration = Duration::from_millis(50);

/// What is spoken on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http,
    /// gRPC, over HTTP/2.
    Grpc,
    /// The protocol of Redis.
    Resp,
}

impl Protocol {
    /// What it is called while TLS is agreed on.
    pub(super) fn in_tls(self) -> Option<&'static [u8]> {
        match self {
            Self::Http => Some(b"http/1.1"),
            Self::Grpc => Some(b"h2"),
            Self::Resp => None,
        }
    }
}

/// Sockets that are bound, and what is needed to answer on them.
#[derive(Debug)]
pub struct Sockets {
    bound: Vec<(Protocol, Bound)>,
    /// What listeners show and ask for.
    credentials: Credentials,
    /// Whether callers over TCP must have a certificate.
    certified: bool,
    quotas: Arc<Quotas>,
}

/// What a caller has to show, and may ask.
#[derive(Clone, Debug)]
pub struct Door {
    /// Everybody asks here.
    pub desk: Arc<Desk>,
    /// What this caller must show first, if anything.
    pub token: Option<Arc<Token>>,
    /// What all proxies hold that decide for themselves.
    pub quotas: Arc<Quotas>,
    /// Who it is.
    pub peer: Peer,
    /// Whether whoever gets an answer here has shown something that others on this host do not have: the token, a certificate, or rights to
    /// the socket's file.
    pub is_shown: bool,
}

impl Door {
    /// Whether its word about an address counts so far that the address may be blocked.
    pub fn vouches(&self) -> bool {
        self.is_shown || matches!(self.peer, Peer::Host(ip) if self.desk.trusts(ip))
    }
}

impl Sockets {
    /// Binds everything that a policy names, or nothing.
    pub fn bind(listen: &Listen) -> Result<Self, String> {
        let endpoints =
            [(Protocol::Http, &listen.http), (Protocol::Grpc, &listen.grpc), (Protocol::Resp, &listen.resp)];
        let mut bound = Vec::new();
        for (protocol, endpoint) in
            endpoints.into_iter().flat_map(|(protocol, all)| all.iter().map(move |one| (protocol, one)))
        {
            let socket =
                Bound::bind(endpoint).map_err(|error| format!("cannot listen on {endpoint}: {error}"))?;
            bound.push((protocol, socket));
        }
        let credentials = Credentials::read(listen)?;
        let certified = listen.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        Ok(Self { bound, credentials, certified, quotas: Arc::default() })
    }

    /// Whether there is nothing to listen on.
    pub fn is_empty(&self) -> bool {
        self.bound.is_empty()
    }

    /// Starts the threads. They end with the process.
    pub fn serve(self, desk: &Arc<Desk>, policy: &Policy) -> io::Result<Vec<JoinHandle<()>>> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        let threads = match policy.requests().threads {
            Some(threads) => threads as usize,
            None => thread::available_parallelism().map_or(1, usize::from),
        };
        descriptors::make_room(threads.max(1) * MAX_CONNECTIONS);
        self.credentials.clone().follow(Arc::clone(desk))?;
        let sockets = Arc::new(self);
        let start = |n: usize| {
            let (sockets, desk) = (Arc::clone(&sockets), Arc::clone(desk));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            thread::Builder::new()
                .name(format!("answers-{n}"))
                .spawn(move || runtime.block_on(sockets.work(desk)))
        };
        (0..threads.max(1)).map(start).collect()
    }

    async fn work(&self, desk: Arc<Desk>) {
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut tasks = tokio::task::JoinSet::new();
        for (protocol, bound) in &self.bound {
            // Registered with this thread's runtime; cloning a descriptor fails only where there are no more.
            let Ok(listener) = bound.listener(self.credentials.speaking(*protocol)) else { continue };
            let (desk, slots, token) =
                (Arc::clone(&desk), Arc::clone(&slots), self.credentials.token.clone());
            let quotas = Arc::clone(&self.quotas);
            let door = Door { desk, token, quotas, peer: Peer::Local, is_shown: self.certified };
            tasks.spawn(accept(listener, *protocol, slots, door));
        }
        while tasks.join_next().await.is_some() {}
    }
}

async fn accept(listener: Listener, protocol: Protocol, slots: Arc<Semaphore>, door: Door) {
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(BREATHER).await;
            continue;
        };
        // A socket's file has its own rights.
        let token = door.token.clone().filter(|_| peer != Peer::Local);
        let is_shown = door.is_shown || token.is_some() || peer == Peer::Local;
        let door = Door { token, peer, is_shown, ..door.clone() };
        let greeted = listener.greet(stream);
        tokio::spawn(async move {
            if let Ok(stream) = greeted.await {
                converse(protocol, stream, door).await;
            }
            drop(slot);
        });
    }
}

async fn converse(protocol: Protocol, stream: Stream, door: Door) {
    match protocol {
        Protocol::Http => check::serve(stream, door).await,
        Protocol::Grpc => grpc::serve(stream, door).await,
        Protocol::Resp => resp::serve(stream, door).await,
    }
}
