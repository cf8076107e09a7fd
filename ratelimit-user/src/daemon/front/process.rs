//! `ratelimit front`: the front process itself, from its streams to the threads that answer.

use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream as StdUnix,
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError, mpsc as std_mpsc},
    thread,
    time::Duration,
};

use bytes::Bytes;
use rustix::thread::set_name;
use tokio::{
    net::UnixStream,
    runtime::Handle,
    signal::unix::{SignalKind, signal},
};

use super::{confinement, handles, renewal::LeaseRenewal, store_socket::StoreSocket, user};
use crate::{
    config::Reader,
    control::protocol::Reply,
    daemon::{
        line::{
            asking::{Asker, answer_all},
            message::{
                Beginning, FrontAnswers, FrontAsks, FrontReport, HostAnswers, HostAsks, PolicyText, SocketUse,
            },
            requests,
        },
        state::version::PolicyVersion,
        supervisor_socket::SupervisorSocket,
        views::shared::Shared,
    },
    failure::{ExitCode, Failure},
    log,
    policy::address::StoreAddress,
    requests::decision_service::DecisionService,
    secret_file::{self, FileReader, TokenDigest},
    serve::{
        descriptors, http,
        workers::{ServedSockets, ServingThreads},
    },
    stamp::Stamp,
    store::{lease_batch::Keys, worker::Store},
    web::{
        gallery::{Camera, Gallery},
        metrics_source::MetricsSource,
        order_queues::Handed,
    },
};

/// The largest message of the daemon in bytes. It has a policy in it, which is at most twice as long as JSON.
const LARGEST: usize = 48 << 20;
/// The number of the daemon's questions that are answered at a time.
const AT_A_TIME: usize = 64;
/// How long the daemon may take to read a file.
const TO_READ: Duration = Duration::from_secs(5);

type HostLine = Asker<FrontAsks, HostAnswers>;

/// The front process, which has given up its rights.
#[derive(Debug)]
pub struct FrontProcess {
    asked: StdUnix,
    asking: StdUnix,
    /// The socket of the supervisor, if it has started this process.
    supervisor: SupervisorSocket,
    /// Warnings about rights that could not be given up.
    warnings: Vec<&'static str>,
}

impl FrontProcess {
    /// Gives up every right. `name` is the user to run as. A front that a supervisor has started (`is_hired`) has one stream, and receives the other over it.
    pub fn confined(name: Option<&str>, is_hired: bool) -> Result<Self, Failure> {
        let asked = stream(&io::stdin()).map_err(|_| not_a_front())?;
        let asking = match is_hired {
            true => None,
            false => Some(stream(&io::stdout()).map_err(|_| not_a_front())?),
        };
        // Sets the name for lists of processes, which would otherwise show `exe`.
        let _unnamed = set_name(c"ratelimit-front");
        // This must happen while sockets of the host can still be reached by their paths.
        let supervisor = SupervisorSocket::of_environment();
        let user = user::find(name).map_err(Failure::usage)?;
        let warnings = confinement::give_up(&user).map_err(|why| {
            let sentence = format!("the front process cannot give up its rights: {why}");
            Failure::new(ExitCode::NotPermitted, sentence)
        })?;
        let asking = match asking {
            Some(asking) => asking,
            None => handed_over(&asked).map_err(|_| not_a_front())?,
        };
        Ok(Self { asked, asking, supervisor, warnings })
    }

    /// Serves until the daemon ends.
    pub fn serve(self) -> Result<(), Failure> {
        let Self { asked, asking, supervisor, warnings } = self;
        warnings.iter().for_each(log::warning);
        let unsupported = |what: &'static str| {
            move |error: io::Error| {
                Failure::new(ExitCode::Unsupported, format!("front process: {what}: {error}"))
            }
        };
        let sockets = handles::receive(&asked).map_err(unsupported("cannot take the sockets"))?;
        let (line, handle) = ask_daemon(asking).map_err(unsupported("cannot start a thread"))?;
        let store = Arc::new(OnceLock::new());
        secret_file::read_by(Elsewhere { line: line.clone(), runtime: handle, store: Arc::clone(&store) });
        let runtime = runtime().map_err(unsupported("cannot start the runtime"))?;
        runtime.block_on(async {
            tokio::spawn(give_signs_of_life(supervisor));
            outlive_signals().map_err(unsupported("cannot take signals"))?;
            asked.set_nonblocking(true).map_err(unsupported("cannot use its stream"))?;
            let asked = UnixStream::from_std(asked).map_err(unsupported("cannot use its stream"))?;
            let office = Arc::new(FrontService {
                line,
                store,
                sockets: Mutex::new(Some(sockets)),
                serving: OnceLock::new(),
                reader: Mutex::default(),
            });
            let answer = move |question| Arc::clone(&office).answer(question);
            let served = answer_all(asked, LARGEST, AT_A_TIME, answer).await;
            served.map_err(unsupported("the daemon is not understood"))
        })
    }
}

fn not_a_front() -> Failure {
    Failure::usage(
        "`ratelimit front` is what `ratelimit run` starts for its listeners; it is of no use by itself",
    )
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Returns the socket behind a standard stream.
fn stream(standard: &impl AsFd) -> io::Result<StdUnix> {
    let socket = StdUnix::from(standard.as_fd().try_clone_to_owned()?);
    socket.peer_addr()?;
    Ok(socket)
}

/// Receives the second stream, which the daemon sends first.
fn handed_over(asked: &StdUnix) -> io::Result<StdUnix> {
    let handed = handles::receive(asked)?.pop().ok_or_else(|| io::Error::other("no stream"))?;
    Ok(StdUnix::from(handed))
}

/// Ignores signals: the daemon handles them, and closes the streams when it is done.
fn outlive_signals() -> io::Result<()> {
    for kind in [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate()] {
        let mut signal = signal(kind)?;
        tokio::spawn(async move { while signal.recv().await.is_some() {} });
    }
    Ok(())
}

/// Tells the supervisor that this process lives, from the thread that answers the daemon. If that thread hangs, the supervisor kills the process, because
/// the daemon may not kill a process of another user.
async fn give_signs_of_life(supervisor: SupervisorSocket) {
    let Some(mut due) = supervisor.signs_of_life() else { return };
    loop {
        due.tick().await;
        supervisor.send("WATCHDOG=1\n");
    }
}

/// Starts a thread that exchanges questions and answers with the daemon, so that other threads can wait for a file.
fn ask_daemon(stream: StdUnix) -> io::Result<(HostLine, Handle)> {
    let runtime = runtime()?;
    let handle = runtime.handle().clone();
    stream.set_nonblocking(true)?;
    let (line, work) = {
        let _inside = runtime.enter();
        Asker::begin(UnixStream::from_std(stream)?, LARGEST)
    };
    let work = move || {
        let _ended = runtime.block_on(work);
        // Without the daemon this process has nothing to do.
        std::process::exit(0);
    };
    thread::Builder::new().name("daemon".to_owned()).spawn(work)?;
    Ok((line, handle))
}

/// Answers the questions of the daemon.
struct FrontService {
    line: HostLine,
    /// The way to the store's socket, set when the front begins.
    store: Arc<OnceLock<StoreSocket>>,
    /// Sockets of the listeners, until they are served.
    sockets: Mutex<Option<Vec<OwnedFd>>>,
    serving: OnceLock<Serving>,
    /// Reads policies, quickly if they are much like the one before.
    reader: Mutex<Reader>,
}

/// The state of a front that serves.
struct Serving {
    decisions: Arc<DecisionService>,
    redis: Option<StoreAddress>,
    renewal: Option<LeaseRenewal>,
    threads: ServingThreads,
    /// Descriptors that stay open as long as this process lives.
    _locks: Vec<OwnedFd>,
}

impl FrontService {
    async fn answer(self: Arc<Self>, question: HostAsks) -> FrontAnswers {
        if let HostAsks::Begin(beginning) = question {
            return match self.begin(*beginning) {
                Ok(()) => FrontAnswers::Done,
                Err(failure) => FrontAnswers::Failed(failure),
            };
        }
        let too_early = || Failure::new(ExitCode::Unsupported, "the front process has not begun");
        let Some(Serving { decisions, redis, renewal, threads, .. }) = self.serving.get() else {
            return FrontAnswers::Failed(too_early());
        };
        match question {
            HostAsks::Begin(_) | HostAsks::Alive => FrontAnswers::Done,
            HostAsks::Follow(policy) => match self.read(&policy) {
                Ok(version) => {
                    decisions.follow(version.policy(), redis.as_ref());
                    FrontAnswers::Done
                }
                Err(failure) => FrontAnswers::Failed(failure),
            },
            HostAsks::Headroom(is_there) => {
                decisions.engine().set_headroom(is_there);
                FrontAnswers::Done
            }
            HostAsks::Report => FrontAnswers::Report(Box::new(FrontReport {
                requests: decisions.status(),
                warnings: decisions.warnings(),
            })),
            HostAsks::Test(question) => FrontAnswers::Tested(requests::test(decisions, &question).await),
            HostAsks::Meet => match renewal {
                Some(renewal) => renewal.meet().await,
                None => FrontAnswers::Failed(too_early()),
            },
            HostAsks::Exchange { lines, gossip, timing, deadline } => match renewal {
                Some(renewal) => renewal.exchange(&lines, gossip, &timing, deadline).await,
                None => FrontAnswers::Failed(too_early()),
            },
            HostAsks::Reset { keys, deadline } => match renewal {
                Some(renewal) => renewal.reset(&keys, deadline).await,
                None => FrontAnswers::Failed(too_early()),
            },
            HostAsks::Drain => {
                threads.drain().await;
                FrontAnswers::Done
            }
            HostAsks::Post { posting, patience } => FrontAnswers::Posted(posting.send(patience).await),
        }
    }

    /// Reads a policy that the daemon has read and accepted before.
    fn read(&self, policy: &PolicyText) -> Result<PolicyVersion, Failure> {
        let PolicyText { file, text, set } = policy;
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let (version, _) = PolicyVersion::parse(&mut reader, file, text.as_str())?;
        version.with_all(set)
    }

    /// Begins to serve, once.
    fn begin(&self, beginning: Beginning) -> Result<(), Failure> {
        let Beginning { policy, redis, id, has_headroom, sockets } = beginning;
        let failed = |error: io::Error| {
            Failure::new(ExitCode::Unsupported, format!("cannot start threads that answer: {error}"))
        };
        let handles = self.sockets.lock().ok().and_then(|mut sockets| sockets.take()).unwrap_or_default();
        let mut bound = Vec::new();
        let (mut scrapers, mut locks) = (Vec::new(), Vec::new());
        for (socket, handle) in sockets.into_iter().zip(handles) {
            match socket {
                SocketUse::Requests(protocol, endpoint) => bound.push((protocol, endpoint, handle)),
                SocketUse::Metrics => scrapers.push(std::net::TcpListener::from(handle)),
                SocketUse::Store => _ = self.store.set(StoreSocket::new(handle).map_err(failed)?),
                SocketUse::Lock => locks.push(handle),
            }
        }
        let version = self.read(&policy)?;
        let policy = version.policy().clone().moved_to(redis.as_ref());
        let store = Store::of(&policy, id.as_deref()).map_err(failed)?;
        let renewal = match (&store, policy.cluster(), id) {
            (Some(store), Some(cluster), Some(id)) => {
                Some(LeaseRenewal { store: store.clone(), keys: Keys::new(cluster.name()), id })
            }
            _ => None,
        };
        let decisions = Arc::new(DecisionService::with(&policy, store));
        decisions.engine().set_headroom(has_headroom);
        let sockets = ServedSockets::received(bound, policy.listen()).map_err(Failure::usage)?;
        let line = self.line.clone();
        let scraped_last = Arc::new(Shared::default());
        let metrics = MetricsSource::new(move || scraped(line.clone(), Arc::clone(&scraped_last)));
        let (gallery, [orders, questions]) = Gallery::of_host(metrics.clone());
        tokio::spawn(show(self.line.clone(), gallery.clone()));
        tokio::spawn(pass_on_orders(self.line.clone(), orders));
        tokio::spawn(pass_on_orders(self.line.clone(), questions));
        tokio::spawn(pass_on_offenders(self.line.clone(), Arc::clone(&decisions)));
        for listener in scrapers {
            let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
            tokio::spawn(http::serve(listener, metrics.clone()));
        }
        let threads = sockets.serve(&decisions, &gallery, &policy).map_err(failed)?;
        confinement::hide();
        descriptors::settle();
        let _twice = self.serving.set(Serving { decisions, redis, renewal, threads, _locks: locks });
        Ok(())
    }
}

/// Reads files by asking the daemon.
struct Elsewhere {
    line: HostLine,
    /// The runtime of the thread that asks.
    runtime: Handle,
    store: Arc<OnceLock<StoreSocket>>,
}

impl Elsewhere {
    /// Asks the daemon and waits. Must not be called on the thread that asks.
    fn ask(&self, question: FrontAsks) -> Option<HostAnswers> {
        let (sender, answer) = std_mpsc::channel();
        let line = self.line.clone();
        self.runtime.spawn(async move { sender.send(line.ask(question).await) });
        answer.recv_timeout(TO_READ).ok().flatten()
    }
}

impl FileReader for Elsewhere {
    fn read(&self, path: &Path) -> io::Result<String> {
        match self.ask(FrontAsks::File(path.to_owned())) {
            Some(HostAnswers::File(Ok(text))) => Ok(text),
            Some(HostAnswers::File(Err(error))) => Err(match error.number {
                Some(number) => io::Error::from_raw_os_error(number),
                None => io::Error::other(error.why),
            }),
            _ => Err(io::Error::other("the daemon does not read it")),
        }
    }

    fn token(&self, key: &str, path: &Path) -> Result<TokenDigest, String> {
        match self.ask(FrontAsks::Token { key: key.to_owned(), file: path.to_owned() }) {
            Some(HostAnswers::Token(token)) => token,
            _ => Err(format!("cannot read {key} {}: the daemon does not read it", path.display())),
        }
    }

    fn connect(&self, path: &Path) -> io::Result<StdUnix> {
        let store = self.store.get().ok_or_else(|| io::Error::other("the front process has not begun"))?;
        store.connect(path)
    }

    fn stamps(&self, paths: &[PathBuf]) -> Vec<Stamp> {
        match self.ask(FrontAsks::Stamps(paths.to_vec())) {
            Some(HostAnswers::Stamps(stamps)) => stamps,
            _ => Vec::new(),
        }
    }
}

/// Asks the daemon for its metrics, once for all scrapes that wait: it makes one page at a time for its front.
async fn scraped(line: HostLine, last: Arc<Shared<String>>) -> Result<String, String> {
    let ask = || async {
        let answer = match line.ask(FrontAsks::Metrics).await {
            Some(HostAnswers::Metrics(metrics)) => metrics.text,
            _ => Err("the daemon is stopping".to_owned()),
        };
        answer.map_err(|why| Failure::new(ExitCode::Unsupported, why))
    };
    last.look(ask).await.map_err(|failure| failure.message)
}

/// A camera whose pictures the daemon takes.
struct Pictured(HostLine);

impl Camera for Pictured {
    async fn take(&mut self) -> Option<Bytes> {
        match self.0.ask(FrontAsks::Picture).await {
            Some(HostAnswers::Picture(picture)) => picture.map(Bytes::from),
            _ => None,
        }
    }
}

async fn show(line: HostLine, gallery: Gallery) {
    gallery.show(|| Pictured(line.clone())).await;
}

/// Passes on questions and orders of the dashboard. The daemon decides about them.
async fn pass_on_orders(line: HostLine, mut orders: tokio::sync::mpsc::Receiver<Handed>) {
    while let Some(Handed { order, from, token, reply }) = orders.recv().await {
        let line = line.clone();
        tokio::spawn(async move {
            let stopping = || Reply::Failed(Failure::new(ExitCode::NoDaemon, "the daemon is stopping"));
            let answer = match line.ask(FrontAsks::Order { order, from, token }).await {
                Some(HostAnswers::Reply(answer)) => *answer,
                _ => stopping(),
            };
            // A browser that has hung up gets no answer, but its order is carried out.
            let _unread = reply.send(answer);
        });
    }
}

/// Passes on callers that stay above their limits, so that the daemon blocks them.
async fn pass_on_offenders(line: HostLine, decisions: Arc<DecisionService>) {
    let Some(mut offenders) = decisions.escalations() else { return };
    while let Some(offence) = offenders.recv().await {
        let asked = FrontAsks::Offence {
            prefix: offence.prefix.to_string(),
            for_ns: offence.for_ns,
            reason: offence.reason,
        };
        if line.ask(asked).await.is_none() {
            return log::warning("no address is blocked from now on: the daemon is stopping");
        }
    }
}
