//! Starts the front process, tells it the policy in force, and starts another one when it has ended or has not answered for a while.

use std::{
    io,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::net::UnixStream as StdUnix,
    },
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{
    net::UnixStream,
    process::Command,
    sync::{Notify, oneshot},
    time::{Instant, MissedTickBehavior},
};

use super::{
    answers::DaemonAnswers, handles, silence::Silence, store_socket, store_socket::StoreDoor,
    worker::FrontWorker,
};
use crate::{
    daemon::line::{
        asking::{Asker, answer_all},
        front::{Front, FrontLine, FrontState, open},
        message::{Beginning, FrontAnswers, HostAsks, SocketUse},
    },
    failure::{ExitCode, Failure},
    policy::address::StoreAddress,
};

/// The largest answer of the front in bytes. It has room for reports and answers of the store; metrics are made by the daemon.
pub(super) const LARGEST_ANSWER: usize = 16 << 20;
/// The largest question of the front in bytes: paths that the policy names, and orders of the dashboard, which have 4 KiB. Some answers repeat what was asked
/// or have something for each part of it, and answers to [`AT_A_TIME`] questions and as many more wait in memory for a front that does not read them.
pub(super) const LARGEST_QUESTION: usize = 64 << 10;
/// The number of the front's questions that are answered at a time.
const AT_A_TIME: usize = 32;
/// How long the front may take to begin to serve.
const TO_BEGIN: Duration = Duration::from_secs(30);
/// How often the front is asked whether it is there, and how long its answer is waited for. The wait is shorter than the pause between two questions,
/// because a change of the policy may have to wait for it.
const ASKED_EVERY: Duration = Duration::from_secs(1);
const TO_BE_THERE: Duration = Duration::from_millis(500);
/// How often headroom is sent again if the front has not confirmed it. A front that wakes up carries out waiting questions side by side, so an older value
/// may be set last; once a second one is confirmed, the older ones are done.
const HEADROOM_AGAIN: u32 = 2;
/// How long a front that was told to end may take.
const TO_END: Duration = Duration::from_secs(2);
/// The pause before a front is started again, and the longest one while fronts end soon after they were started.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A front that ends later than this after its start has worked, so the next one is started without a long pause.
const WORKED: Duration = Duration::from_secs(10);
/// Environment variables that the front gets from the daemon. It gets no others, because a password may be among them.
const VARIABLES: [&str; 7] =
    ["RATELIMIT_LOG", "SSL_CERT_FILE", "SSL_CERT_DIR", "TZ", "LANG", "JOURNAL_STREAM", "RUST_BACKTRACE"];

/// The settings and sockets that each front is started with.
#[derive(Debug)]
pub(in crate::daemon) struct FrontStart {
    /// The user that the front runs as, if the operator names one.
    pub(in crate::daemon) user: Option<String>,
    /// The socket at which a supervisor starts a front for each connection; without it the daemon starts fronts itself.
    pub(in crate::daemon) hired_at: Option<PathBuf>,
    /// Arguments of the front about its log.
    pub(in crate::daemon) log: Vec<String>,
    /// The store of the command line.
    pub(in crate::daemon) redis: Option<StoreAddress>,
    /// The name of this start of this host in the store.
    pub(in crate::daemon) id: Option<String>,
    /// The bound sockets, and what each is for.
    pub(in crate::daemon) sockets: Vec<(SocketUse, OwnedFd)>,
}

/// Keeps a front process running, from a thread of its own.
#[derive(Debug)]
pub(in crate::daemon) struct FrontKeeper {
    stop: Arc<Notify>,
    thread: JoinHandle<()>,
}

impl FrontKeeper {
    /// Starts a front, and returns when it serves or has failed.
    pub(in crate::daemon) async fn begin(
        front: &Front,
        start: FrontStart,
        answers: DaemonAnswers,
    ) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            Failure::new(
                ExitCode::Unsupported,
                format!("cannot start the thread of the front process: {error}"),
            )
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (stop, (serves, served)) = (Arc::new(Notify::new()), oneshot::channel());
        let keeper = FrontWatch { front: front.clone(), start, answers, stop: Arc::clone(&stop) };
        let work = move || runtime.block_on(keeper.keep(serves));
        let thread = thread::Builder::new().name("front".to_owned()).spawn(work).map_err(failed)?;
        match served.await {
            Ok(Ok(())) => Ok(Self { stop, thread }),
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(Failure::new(ExitCode::Unsupported, "the thread of the front process has ended")),
        }
    }

    /// Ends the front and waits for its end, so that its sockets are free.
    pub(in crate::daemon) fn end(self) {
        self.stop.notify_one();
        // A thread that has panicked has nothing more to do.
        let _over = self.thread.join();
    }
}

#[derive(Debug)]
struct FrontWatch {
    front: Front,
    start: FrontStart,
    answers: DaemonAnswers,
    stop: Arc<Notify>,
}

impl FrontWatch {
    async fn keep(self, serves: oneshot::Sender<Result<(), Failure>>) {
        let mut serves = Some(serves);
        let mut pause = PAUSE;
        loop {
            let begun = Instant::now();
            let ended = self.one(&mut serves).await;
            open(&self.front.0.line).take();
            self.front.0.followed.send_replace(0);
            let why = match ended {
                Ended::Stopped => return,
                Ended::Gone(how) if serves.is_some() => Failure::new(
                    how.code,
                    format!("the front process has ended before it served anybody: {how}"),
                ),
                Ended::By(why) | Ended::Gone(why) => why,
            };
            if let Some(serves) = serves.take() {
                let _gone = serves.send(Err(why));
                return;
            }
            pause = if begun.elapsed() > WORKED { PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
            tracing::error!(
                event = "front_ended",
                "the front process has ended ({why}); packets are judged as before, requests and the store wait for another one"
            );
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stop.notified() => return,
            }
        }
    }

    /// Runs one front from start to end.
    async fn one(&self, serves: &mut Option<oneshot::Sender<Result<(), Failure>>>) -> Ended {
        let unsupported = |error: io::Error| {
            Ended::By(Failure::new(ExitCode::Unsupported, format!("cannot start the front process: {error}")))
        };
        let (mut worker, asked, asking, _store) = match self.employ() {
            Ok(employed) => employed,
            Err(error) => return unsupported(error),
        };
        let (line, asker) = Asker::begin(asked, LARGEST_ANSWER);
        let answers = self.answers.clone();
        let answering =
            answer_all(asking, LARGEST_QUESTION, AT_A_TIME, move |question| answers.clone().answer(question));
        let ended = tokio::select! {
            // The streams end with the process; its exit status tells why.
            _ = asker => Ended::Gone(worker.why_ended(TO_END).await),
            _ = answering => Ended::Gone(worker.why_ended(TO_END).await),
            how = worker.wait() => Ended::Gone(how),
            failure = self.tell(line, serves) => {
                // This front does not work, and a front that hangs would not end by itself.
                worker.kill();
                Ended::By(failure)
            }
            () = self.stop.notified() => Ended::Stopped,
        };
        // The streams are closed, so a front that is not stuck ends by itself.
        worker.end(TO_END).await;
        ended
    }

    /// Gets a front process and sends it the sockets. The daemon asks on the first stream, and is asked on the second. Connections to the store's socket
    /// are handed out until the last value is dropped.
    fn employ(&self) -> io::Result<(FrontWorker, UnixStream, UnixStream, StoreDoor)> {
        let (worker, asked, asking) = match &self.start.hired_at {
            None => self.spawn()?,
            Some(socket) => match hire(socket) {
                Ok((asked, asking)) => (FrontWorker::Hired, asked, asking),
                Err(error) => {
                    tracing::warn!(
                        "no supervisor starts a front process at {}: {error}; the daemon starts one itself, which keeps its user",
                        socket.display()
                    );
                    self.spawn()?
                }
            },
        };
        self.front.0.process.store(worker.id(), Ordering::Relaxed);
        let (store, store_there) = StdUnix::pair()?;
        let store = store_socket::serve(store, self.answers.clone())?;
        let mut handles: Vec<BorrowedFd<'_>> =
            self.start.sockets.iter().map(|(_, socket)| socket.as_fd()).collect();
        handles.push(store_there.as_fd());
        handles::send(&asked, &handles)?;
        asked.set_nonblocking(true)?;
        asking.set_nonblocking(true)?;
        Ok((worker, UnixStream::from_std(asked)?, UnixStream::from_std(asking)?, store))
    }

    /// Starts the process with one stream as its standard input and the other as its standard output.
    fn spawn(&self) -> io::Result<(FrontWorker, StdUnix, StdUnix)> {
        let ((asked, asked_there), (asking, asking_there)) = (StdUnix::pair()?, StdUnix::pair()?);
        let mut command = Command::new("/proc/self/exe");
        command.arg0("ratelimit");
        command.arg("front").args(&self.start.log).env_clear().current_dir("/");
        command.args(self.start.user.iter().flat_map(|user| ["--user", user]));
        command.envs(VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.stdin(Stdio::from(OwnedFd::from(asked_there)));
        command.stdout(Stdio::from(OwnedFd::from(asking_there)));
        Ok((FrontWorker::Child(Box::new(command.kill_on_drop(true).spawn()?)), asked, asking))
    }

    /// Tells the front its beginning, and then every change. Returns only when the front fails.
    async fn tell(
        &self,
        line: FrontLine,
        serves: &mut Option<oneshot::Sender<Result<(), Failure>>>,
    ) -> Failure {
        let FrontState { wanted, followed, has_headroom, .. } = &*self.front.0;
        let (mut wanted, mut has_headroom) = (wanted.subscribe(), has_headroom.subscribe());
        let (number, policy) = wanted.borrow_and_update().clone();
        let sockets = self.start.sockets.iter().map(|(socket, _)| socket.clone());
        let beginning = Beginning {
            policy: (*policy).clone(),
            redis: self.start.redis.clone(),
            id: self.start.id.clone(),
            has_headroom: *has_headroom.borrow_and_update(),
            sockets: sockets.chain([SocketUse::Store]).collect(),
        };
        let begin = HostAsks::Begin(Box::new(beginning));
        if let Err(failure) = said(&line, begin, TO_BEGIN).await {
            return failure;
        }
        *open(&self.front.0.line) = Some(line.clone());
        followed.send_replace(number);
        match serves.take() {
            Some(serves) => _ = serves.send(Ok(())),
            None => tracing::info!(event = "front_began", "another front process serves requests"),
        }
        let (mut silence, mut headroom_again) = (Silence::default(), 0);
        let mut due = tokio::time::interval(ASKED_EVERY);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let outcome = tokio::select! {
                // The front is not asked while it reads a policy, which may take seconds and has a limit of its own.
                _ = due.tick() => {
                    let question = match headroom_again {
                        0 => HostAsks::Alive,
                        _ => HostAsks::Headroom(*has_headroom.borrow_and_update()),
                    };
                    let is_heard = is_heard(&line, question).await;
                    headroom_again -= u32::from(is_heard && headroom_again > 0);
                    silence.after(is_heard)
                }
                _ = wanted.changed() => {
                    let (number, policy) = wanted.borrow_and_update().clone();
                    let outcome = said(&line, HostAsks::Follow((*policy).clone()), TO_BEGIN).await;
                    followed.send_replace(number);
                    outcome
                }
                // Headroom changes when the host is busy, and then a front is slow: a value that was not confirmed is sent again with the next questions,
                // and a front is replaced only for silence.
                _ = has_headroom.changed() => {
                    let headroom = HostAsks::Headroom(*has_headroom.borrow_and_update());
                    if !is_heard(&line, headroom).await {
                        headroom_again = HEADROOM_AGAIN;
                    }
                    Ok(())
                }
            };
            if let Err(failure) = outcome {
                return failure;
            }
        }
    }
}

/// How a front came to its end.
enum Ended {
    /// The daemon ends its front, because it ends itself.
    Stopped,
    /// The daemon ends a front that it cannot start, or that does not do what it is told.
    By(Failure),
    /// The front has ended, or nonsense has come from it. The failure is how it ended.
    Gone(Failure),
}

/// Asks for something that the front has to do, and fails if it is not done in time.
async fn said(line: &FrontLine, what: HostAsks, patience: Duration) -> Result<(), Failure> {
    match tokio::time::timeout(patience, line.ask(what)).await {
        Ok(Some(FrontAnswers::Done)) => Ok(()),
        Ok(Some(FrontAnswers::Failed(failure))) => Err(failure),
        Ok(None) => std::future::pending().await,
        Ok(Some(_)) => Err(Failure::new(ExitCode::Unsupported, "the front process answers something else")),
        Err(_) => Err(Failure::new(ExitCode::Unsupported, "the front process does not answer")),
    }
}

/// Whether the front answers in time. If the front has gone, its streams end, which `FrontWatch::one` notices.
async fn is_heard(line: &FrontLine, what: HostAsks) -> bool {
    tokio::time::timeout(TO_BE_THERE, line.ask(what)).await.is_ok()
}

/// Connects to a supervisor, which starts a front with the connection as its standard input. The second stream is sent over it first.
fn hire(socket: &Path) -> io::Result<(StdUnix, StdUnix)> {
    let asked = StdUnix::connect(socket)?;
    let (asking, asking_there) = StdUnix::pair()?;
    handles::send(&asked, &[asking_there.as_fd()])?;
    Ok((asked, asking))
}
