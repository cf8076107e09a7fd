//! Threads that answer. Each has a runtime and connections of its own, which one more thread accepts and deals out. If all threads accepted from one socket,
//! the one that wakes first would have most connections, and by the hash of `SO_REUSEPORT` a few connections are spread unevenly.

use std::{
    future::pending,
    io,
    os::fd::OwnedFd,
    pin::{Pin, pin},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use futures_util::FutureExt as _;
use tokio::{sync::mpsc::Receiver, task::JoinSet};

use super::{
    check,
    credentials::{Credentials, Token},
    dealer::{Dealer, InHand},
    descriptors,
    door::Door,
    drain::{Drain, Draining},
    grpc::{self, rlqs::Quotas},
    listener::{Accepted, BACKLOG, Bound, ClientStream, Listener, Peer},
    protocol::ServedProtocol,
    resp,
};
use crate::{
    config::OPERATORS_ARE_OTHERS,
    log,
    places::{Common, ConnectionPlaces, Guest, Place, PlaceRules},
    policy::{Listen, ListenEndpoint, Policy},
    requests::decision_service::DecisionService,
    secret_file,
    web::gallery::Gallery,
};

/// The most connections of one thread, of all protocols together.
const MAX_CONNECTIONS: usize = 20_000;
/// The most connections of a protocol that have shown and asked nothing yet. They cost memory, and nobody answers for them.
const MAX_UNPROVEN: usize = 2_048;
/// How long a caller has its place at least: across an ocean it takes a while to agree on TLS and to show a token.
const GRACE: Duration = Duration::from_millis(250);
/// The pause after a connection could not be accepted, for lack of descriptors: other connections will be closed.
const BREATHER: Duration = Duration::from_millis(50);

/// Sockets that are bound, and what is needed to answer on them.
#[derive(Debug)]
pub struct ServedSockets {
    bound: Vec<(ServedProtocol, Bound)>,
    /// The certificates and tokens of the listeners.
    credentials: Credentials,
    /// Whether callers over TCP must have a certificate.
    certified: bool,
    quotas: Arc<Quotas>,
    /// Room for streams of gRPC that all connections share.
    streams: Arc<Common>,
}

/// Threads that answer on sockets.
#[derive(Debug)]
pub struct ServingThreads {
    threads: Vec<JoinHandle<()>>,
    drain: Drain,
}

impl ServingThreads {
    /// Whether a thread has ended, which none of them should.
    pub fn has_failed(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Stops to accept connections, answers what was asked, and closes all connections, within seconds.
    pub async fn drain(&self) {
        self.drain.run().await;
    }
}

impl ServedSockets {
    /// Binds everything that a policy names, or nothing.
    pub fn bind(listen: &Listen) -> Result<Self, String> {
        if let Some((one, other)) = listen.both_tokens()
            && secret_file::share_a_token(one, other)
        {
            return Err(OPERATORS_ARE_OTHERS.to_owned());
        }
        let endpoints = [
            (ServedProtocol::Http, &listen.http),
            (ServedProtocol::Grpc, &listen.grpc),
            (ServedProtocol::Resp, &listen.resp),
        ];
        let mut bound = Vec::new();
        for (protocol, endpoint) in
            endpoints.into_iter().flat_map(|(protocol, all)| all.iter().map(move |one| (protocol, one)))
        {
            let socket = Bound::bind(endpoint, &listen.socket_rights)
                .map_err(|error| format!("cannot listen on {endpoint}: {error}"))?;
            bound.push((protocol, socket));
        }
        Self::with(bound, listen)
    }

    /// Takes sockets that another process has bound under this policy.
    pub fn received(
        sockets: Vec<(ServedProtocol, ListenEndpoint, OwnedFd)>,
        listen: &Listen,
    ) -> Result<Self, String> {
        let bound = |(protocol, endpoint, socket)| (protocol, Bound::received(endpoint, socket));
        Self::with(sockets.into_iter().map(bound).collect(), listen)
    }

    fn with(bound: Vec<(ServedProtocol, Bound)>, listen: &Listen) -> Result<Self, String> {
        let credentials = Credentials::read(listen)?;
        let certified = listen.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        let streams = Common::new(grpc::backlog::COMMON_STREAMS);
        Ok(Self { bound, credentials, certified, quotas: Arc::default(), streams })
    }

    /// Duplicates the sockets for another process, which then answers on them, and asks for descriptors for as many connections as they can have.
    pub fn handles(&self, policy: &Policy) -> io::Result<Vec<(ServedProtocol, ListenEndpoint, OwnedFd)>> {
        if !self.is_empty() {
            descriptors::make_room(threads(policy) * MAX_CONNECTIONS);
        }
        let handle = |(protocol, bound): &(ServedProtocol, Bound)| {
            Ok((*protocol, bound.endpoint().clone(), bound.handle()?))
        };
        self.bound.iter().map(handle).collect()
    }

    /// Whether there is nothing to listen on.
    pub fn is_empty(&self) -> bool {
        self.bound.is_empty()
    }

    /// Starts the threads. They go on until the process ends.
    pub fn serve(
        self,
        decisions: &Arc<DecisionService>,
        gallery: &Gallery,
        policy: &Policy,
    ) -> io::Result<ServingThreads> {
        if self.is_empty() {
            return Ok(ServingThreads { threads: Vec::new(), drain: Drain::new(Vec::new()) });
        }
        let threads = threads(policy);
        let places = self.places(threads);
        self.credentials.clone().follow(Arc::clone(decisions))?;
        let drain = Drain::new(places.iter().map(|(_, places)| Arc::clone(places)).collect());
        let start = |name: String, work: Pin<Box<dyn Future<Output = ()> + Send>>| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            thread::Builder::new().name(name).spawn(move || runtime.block_on(work))
        };
        let Self { bound, credentials, certified, quotas, streams } = self;
        // Operators show their token over HTTP. Where nobody listens for HTTP, there is no operator's token.
        let has_http = bound.iter().any(|(protocol, _)| *protocol == ServedProtocol::Http);
        let operator_token = credentials.operator_token.clone().filter(|_| has_http);
        let mut dealer = Dealer::default();
        let mut answer = |n: usize| {
            let answering = Answering {
                decisions: Arc::clone(decisions),
                gallery: gallery.clone(),
                credentials: credentials.clone(),
                operator_token: operator_token.clone(),
                certified,
                quotas: Arc::clone(&quotas),
                streams: Arc::clone(&streams),
                draining: drain.subscribe(),
            };
            start(format!("answers-{n}"), Box::pin(answering.work(dealer.add())))
        };
        let mut threads = (0..threads).map(&mut answer).collect::<io::Result<Vec<_>>>()?;
        let accepting = accept_all(bound, places, Arc::new(dealer), drain.subscribe());
        threads.push(start("accepts".to_owned(), Box::pin(accepting))?);
        Ok(ServingThreads { threads, drain })
    }

    /// Makes the places of every protocol that is spoken, as many as there are descriptors for.
    fn places(&self, threads: usize) -> Vec<(ServedProtocol, Arc<ConnectionPlaces>)> {
        let mut protocols: Vec<ServedProtocol> = self.bound.iter().map(|(protocol, _)| *protocol).collect();
        protocols.dedup();
        let wanted = threads * MAX_CONNECTIONS;
        let budget = descriptors::make_room(wanted);
        if budget.connections < wanted {
            log::info(format!(
                "room for {} connections, of {wanted}: the limit of open files is {}; LimitNOFILE={} gives all",
                budget.connections, budget.limit, budget.wanted
            ));
        }
        let (own, common) = descriptors::shares(budget.connections, protocols.len());
        let common = Common::new(common);
        let of = |protocol: ServedProtocol| {
            let rules = rules(protocol, own, budget.connections);
            (protocol, ConnectionPlaces::new(rules, Some(Arc::clone(&common))))
        };
        protocols.into_iter().map(of).collect()
    }
}

/// A connection on its way to the thread that answers it.
struct NewConnection {
    protocol: ServedProtocol,
    stream: Accepted,
    peer: Peer,
    place: Place,
}

/// What one thread answers with.
struct Answering {
    decisions: Arc<DecisionService>,
    gallery: Gallery,
    credentials: Credentials,
    /// The token of operators, who show it over HTTP; none where nobody listens for HTTP.
    operator_token: Option<Arc<Token>>,
    certified: bool,
    quotas: Arc<Quotas>,
    streams: Arc<Common>,
    draining: Draining,
}

impl Answering {
    /// Answers the connections that the thread is dealt, for as long as the process lives.
    async fn work(self, mut dealt: Receiver<(NewConnection, InHand)>) {
        while let Some((NewConnection { protocol, stream, peer, place }, in_hand)) = dealt.recv().await {
            let greeted = stream.greet(self.credentials.speaking(protocol));
            let door = self.door(peer, Arc::clone(place.guest()));
            place.host(async move {
                if let Ok(stream) = greeted.await {
                    converse(protocol, stream, door).await;
                }
                drop(in_hand);
            });
        }
        // The service ends when the last connection does: nothing else may look like one.
        drop(self);
        pending::<()>().await;
    }

    fn door(&self, peer: Peer, guest: Arc<Guest>) -> Door {
        // A socket in the file system has rights instead of a token.
        let token = self.credentials.token.clone().filter(|_| peer != Peer::Local);
        let is_shown = self.certified || token.is_some() || peer == Peer::Local;
        Door {
            decisions: Arc::clone(&self.decisions),
            token,
            viewer_token: self.credentials.token.clone(),
            operator_token: self.operator_token.clone(),
            gallery: Some(self.gallery.clone()),
            quotas: Arc::clone(&self.quotas),
            streams: Arc::clone(&self.streams),
            peer,
            is_shown,
            guest,
            draining: self.draining.clone(),
        }
    }
}

/// Returns the number of threads that answer.
fn threads(policy: &Policy) -> usize {
    let threads = match policy.requests().threads {
        Some(threads) => threads as usize,
        None => thread::available_parallelism().map_or(1, usize::from),
    };
    threads.max(1)
}

/// Returns the rules for the places of a protocol. Connections of HTTP and gRPC end themselves if they are silent for too long.
fn rules(protocol: ServedProtocol, own: usize, all: usize) -> PlaceRules {
    let (first, idle) = match protocol {
        ServedProtocol::Http | ServedProtocol::Grpc => (Duration::MAX, Duration::MAX),
        ServedProtocol::Resp => (resp::FIRST, resp::IDLE),
    };
    PlaceRules { own, unproven: MAX_UNPROVEN.min(all / 2).max(1), first, idle, grace: GRACE }
}

/// Accepts connections on all sockets until the service ends, and closes the sockets then.
async fn accept_all(
    bound: Vec<(ServedProtocol, Bound)>,
    places: Vec<(ServedProtocol, Arc<ConnectionPlaces>)>,
    dealer: Arc<Dealer<NewConnection>>,
    draining: Draining,
) {
    for (_, places) in &places {
        tokio::spawn(Arc::clone(places).look_after());
    }
    let mut accepting = JoinSet::new();
    for (protocol, bound) in &bound {
        let Some((_, places)) = places.iter().find(|(of, _)| of == protocol) else { continue };
        // Cloning a descriptor fails only where there are no more.
        let Ok(listener) = bound.listener() else { continue };
        let (places, dealer) = (Arc::clone(places), Arc::clone(&dealer));
        accepting.spawn(accept(listener, *protocol, places, dealer, draining.clone()));
    }
    drop(dealer);
    while accepting.join_next().await.is_some() {}
    bound.iter().for_each(|(_, bound)| bound.close());
    // The files of sockets go with these, and the service does not end before that.
    drop(bound);
    drop(draining);
    pending::<()>().await;
}

/// Accepts connections on one socket until the service ends.
async fn accept(
    listener: Listener,
    protocol: ServedProtocol,
    places: Arc<ConnectionPlaces>,
    dealer: Arc<Dealer<NewConnection>>,
    draining: Draining,
) {
    let deal = async |stream, peer| {
        // Only now, when a caller is there, may somebody else lose a place for it.
        let place = places.enter().await;
        dealer.deal(protocol, NewConnection { protocol, stream, peer, place }).await;
    };
    let mut leaving = pin!(draining.begun());
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut leaving => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => deal(stream, peer).await,
            Err(_) => tokio::time::sleep(BREATHER).await,
        }
    }
    // Callers that wait to be accepted have asked, too.
    for _ in 0..BACKLOG {
        let Some(Ok((stream, peer))) = listener.accept().now_or_never() else { return };
        deal(stream, peer).await;
    }
}

async fn converse(protocol: ServedProtocol, stream: ClientStream, door: Door) {
    match protocol {
        ServedProtocol::Http => check::serve(stream, door).await,
        ServedProtocol::Grpc => grpc::serve(stream, door).await,
        ServedProtocol::Resp => resp::serve(stream, door).await,
    }
}
