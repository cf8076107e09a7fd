//! The daemon from start to stop.

use std::{
    fs::File,
    io::{self, Write as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use ratelimit_common::abi::Event;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{Notify, broadcast, mpsc},
    time::MissedTickBehavior,
};

use super::{
    answer::answer,
    cluster::driver::{converse, say_goodbye},
    dashboard,
    drops::READ_EVERY,
    frames,
    front::{self, Answers, Front, FrontKeeper, Start},
    headroom,
    host::{Host, HostCell},
    keeping::Keeper,
    listeners::Listeners,
    log,
    options::Options,
    progress,
    record::{self, Origin, Record},
    requests,
    shared::Shared,
    start::start,
    state_dir::StateDir,
    status::status,
    supervisor::Supervisor,
    unsaved,
    witnesses::follow_samples,
};
use crate::{
    attacks::Tallied,
    config::{self, Reader},
    control::{
        protocol::{EarlierStats, Order, Reply, StatsReply, Status},
        server::{self, Answer, Caller},
    },
    dataplane::{netlink, probe, table::TableUse},
    drops::{Filter, Sighting},
    failure::{ExitCode, Failure},
    metrics,
    serve::http::Metrics,
    stats::{Snapshot, feed::Views, view::View},
    web::gallery,
};

/// How often blocks that have run out are forgotten.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

/// How long the largest sources are looked for after the last scrape: scrapers ask at least once in two minutes.
const SCRAPE_GRACE: Duration = Duration::from_secs(150);
/// How long a view may take. It is made once a second.
const VIEW_PATIENCE: Duration = Duration::from_secs(5);

/// Runs the daemon until it is told to stop.
pub fn run(options: &Options) -> Result<(), Failure> {
    let progress = progress::watch();
    progress::step("reading the policy");
    let mut reader = Reader::default();
    let (record, damage) = Record::read(&options.state)?;
    damage.iter().for_each(log::error);
    let (version, warnings, origin) = record::choose(
        &mut reader,
        record,
        &options.state,
        &options.policy,
        config::read_text(&options.policy),
    )?;
    warnings.iter().for_each(log::warning);
    headroom::require(&options.proc)?;
    probe::require_rights("loading XDP programs")?;
    front::require_user(options.user.as_deref())?;
    let state = StateDir::claim(&options.state)?;
    let keeper = Keeper::claim(options, &state)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(ExitCode::Unsupported, format!("cannot start the runtime: {error}")))?;
    runtime.block_on(async {
        progress::step("taking the addresses to listen on");
        // Listeners first: an address in use must not leave a program attached.
        let listeners = Listeners::bind(version.policy(), state.path()).await?;
        let control = server::bind(&state.socket()).map_err(|error| {
            Failure::new(ExitCode::NotPermitted, format!("cannot make {}: {error}", state.socket().display()))
        })?;
        // Signals too: one that comes while the program is being loaded must not end the daemon half way.
        let mut signals = Signals::take()?;
        let mut host =
            start(options, version, reader, keeper).map_err(|failure| hint(failure, &origin, options))?;
        unsaved::say_lost(&options.state, &host.in_force.version);
        settle(&mut host, &origin, options)?;
        if !damage.is_empty() && origin == Origin::Applied {
            host.in_force.keep_in_force()?;
        }
        let gossip = host.cluster.as_ref().map(|cluster| &cluster.gossip);
        host.lists.keeper.write_all_down(&host.lists.lists, gossip);
        host.conditions.warnings(host.policy()).iter().for_each(log::warning);
        drop(progress);
        let daemon = Arc::new(Daemon {
            host: HostCell::new(host),
            asked: Notify::new(),
            usage: Shared::default(),
            stats: Shared::default(),
            scrape: Shared::default(),
            scraped: Mutex::default(),
            last_counters: Mutex::default(),
        });
        tokio::spawn(server::serve(control, Arc::clone(&daemon)));
        let keeper = serve(&daemon, &listeners, options).await?;
        tokio::spawn(follow_attacks(Arc::clone(&daemon)));
        tokio::spawn(follow_samples(Arc::clone(&daemon.host)));
        let talks = Talks::begin(&daemon.host)?;
        daemon.until_stopped(&mut signals, &state).await?;
        // What is being said is said once more, if need be: it counts once.
        talks.end();
        say_goodbye(&daemon.host).await;
        keeper.end();
        log::info(format!("state directory {} released", state.path().display()));
        Ok(())
    })
}

/// Starts the front process, which answers on the listeners.
async fn serve(
    daemon: &Arc<Daemon>,
    listeners: &Listeners,
    options: &Options,
) -> Result<FrontKeeper, Failure> {
    let failed = |error| Failure::new(ExitCode::Unsupported, format!("cannot hand over listeners: {error}"));
    let (policy, id) = {
        let host = daemon.host();
        (host.policy().clone(), host.cluster.as_ref().map(|cluster| cluster.id().to_owned()))
    };
    let (orders, ordered) = mpsc::channel(gallery::MAX_WAITING);
    let (questions, asked) = mpsc::channel(gallery::MAX_WAITING);
    tokio::spawn(dashboard::take_orders(Arc::clone(daemon), [ordered, asked]));
    let answers = Answers::new(Arc::clone(daemon), [orders, questions], &policy, options.redis.as_ref());
    let start = Start {
        user: options.user.clone(),
        log: options.log.clone(),
        redis: options.redis.clone(),
        id,
        sockets: listeners.handles(&policy).map_err(failed)?,
    };
    FrontKeeper::begin(&daemon.front(), start, answers).await
}

/// The conversation with the store, on a thread of its own: leases run out within a second, and must not wait for whoever else the daemon answers.
struct Talks {
    stop: Arc<Notify>,
    thread: thread::JoinHandle<()>,
}

impl Talks {
    fn begin(host: &Arc<HostCell>) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            Failure::new(
                ExitCode::Unsupported,
                format!("cannot start the thread that renews leases: {error}"),
            )
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (host, stop) = (Arc::clone(host), Arc::new(Notify::new()));
        let stopped = Arc::clone(&stop);
        let talk = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = converse(host) => {}
                    () = stopped.notified() => {}
                }
            });
        };
        let thread = thread::Builder::new().name("leases".to_owned()).spawn(talk).map_err(failed)?;
        Ok(Self { stop, thread })
    }

    fn end(self) {
        self.stop.notify_one();
        // One that has panicked has nothing more to say.
        let _over = self.thread.join();
    }
}

/// A start that fails with a kept policy must say how to get rid of it.
fn hint(failure: Failure, origin: &Origin, options: &Options) -> Failure {
    if !matches!(origin, Origin::Applied | Origin::NotConfirmed(_)) {
        return failure;
    }
    let (kept, file) = (Record::path(&options.state), options.policy.display());
    let message =
        format!("{failure}; this was the policy kept in {}: without that file {file} counts", kept.display());
    Failure::new(failure.code, message)
}

/// Says which policy is in force and why, and writes down what the next restart goes on with.
fn settle(host: &mut Host, origin: &Origin, options: &Options) -> Result<(), Failure> {
    let file = options.policy.display();
    match origin {
        Origin::PolicyFile => Ok(()),
        Origin::PolicyFileChanged => {
            log::info(format!("{file} has changed since another policy was applied, and counts again"));
            host.in_force.forget()
        }
        Origin::Applied => {
            log::info(format!(
                "the applied policy stays in force; {}; SIGHUP reads it",
                host.in_force.after_restart()
            ));
            Ok(())
        }
        Origin::NotConfirmed(unconfirmed) => {
            host.in_force.keep_in_force()?;
            log::warning(format!(
                "rolled back to {}: {unconfirmed} was applied and not confirmed before the daemon ended; {}",
                host.in_force.version.describe(),
                host.in_force.after_restart()
            ));
            Ok(())
        }
    }
}

/// The signals that mean something.
struct Signals {
    hangup: Signal,
    /// They mean nothing, and must not end the daemon either.
    others: [Signal; 2],
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn take() -> Result<Self, Failure> {
        let one = |kind| {
            signal(kind)
                .map_err(|error| Failure::new(ExitCode::Unsupported, format!("cannot take signals: {error}")))
        };
        Ok(Self {
            hangup: one(SignalKind::hangup())?,
            others: [one(SignalKind::user_defined1())?, one(SignalKind::user_defined2())?],
            terminate: one(SignalKind::terminate())?,
            interrupt: one(SignalKind::interrupt())?,
        })
    }
}

/// The running daemon.
#[derive(Debug)]
pub(super) struct Daemon {
    host: Arc<HostCell>,
    /// Notified after every order: it may have moved the end of a wait.
    asked: Notify,
    /// Looks at the tables, for everybody who asks at the same time.
    usage: Shared<TableUse>,
    stats: Shared<Snapshot>,
    scrape: Shared<String>,
    /// Views of the traffic for metrics, if the policy wants series of sources, and when somebody last asked for metrics.
    scraped: Mutex<Option<(Views, Instant)>>,
    /// What `stats` showed last, and when: the next one tells rates since then.
    last_counters: Mutex<Option<(Instant, Snapshot)>>,
}

impl Daemon {
    /// Says "ready", then follows signals and the clock.
    async fn until_stopped(&self, signals: &mut Signals, state: &StateDir) -> Result<(), Failure> {
        let links = listen_to_links();
        // What changed before somebody listened.
        self.host().guard();
        let mut sweep = tokio::time::interval(SWEEP_EVERY);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut second = tokio::time::interval(Duration::from_secs(1));
        second.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut drops = tokio::time::interval(READ_EVERY);
        drops.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut supervisor = Supervisor::of_environment();
        supervisor.ready(&self.host());
        say_ready();
        let [user1, user2] = &mut signals.others;
        loop {
            let deadline = self.host().in_force.deadline();
            tokio::select! {
                _ = signals.hangup.recv() => {
                    supervisor.reloading();
                    self.reload();
                    supervisor.ready(&self.host());
                }
                _ = user1.recv() => log::info("SIGUSR1 means nothing here; SIGHUP reads the policy again"),
                _ = user2.recv() => log::info("SIGUSR2 means nothing here; SIGHUP reads the policy again"),
                () = self.asked.notified() => {}
                () = reached(deadline) => self.expire(),
                _ = sweep.tick() => self.sweep(),
                () = links.notified() => self.host().guard(),
                _ = second.tick() => self.observe(),
                _ = drops.tick() => self.host().take_in_drops(),
                () = supervisor.due() => supervisor.alive(&self.host()),
                _ = signals.terminate.recv() => break,
                _ = signals.interrupt.recv() => break,
            }
        }
        supervisor.stopping();
        let mut host = self.host();
        let (in_force, mut enforcer) = host.change();
        in_force.stop_waiting(&mut enforcer);
        host.attacks.stop();
        let unpinned = host.interfaces.unpinned();
        unpinned.iter().for_each(log::warning);
        for interface in host.interfaces.statuses() {
            match interface.mode.as_str() {
                _ if !unpinned.is_empty() => {
                    log::warning(format!("stopping; {} is NOT PROTECTED from now on", interface.name));
                }
                "native" | "generic" => {
                    log::info(format!("stopping; {} stays protected by the limits in force", interface.name));
                }
                mode => log::warning(format!("stopping; {} is NOT PROTECTED ({mode})", interface.name)),
            }
        }
        log::info(format!(
            "to remove the protection: ratelimit detach --state {} --pin {}",
            state.path().display(),
            host.interfaces.pins.root().display()
        ));
        Ok(())
    }

    pub(super) fn host(&self) -> MutexGuard<'_, Host> {
        self.host.host()
    }

    /// The front process.
    pub(super) fn front(&self) -> Front {
        self.host().requests.front.clone()
    }

    fn expire(&self) {
        let mut host = self.host();
        let (in_force, mut enforcer) = host.change();
        if in_force.expire(Instant::now(), &mut enforcer) {
            host.attacks.note("nobody confirmed, the policy before is in force again");
        }
    }

    fn reload(&self) {
        let mut host = self.host();
        let (in_force, mut enforcer) = host.change();
        match in_force.reload(&mut enforcer) {
            Ok(()) => {
                let limits = host.policy().source().limits().len();
                log::info(format!("policy read again: {limits} limits in force"));
                host.attacks.note("SIGHUP: policy read again");
                host.conditions.warnings(host.policy()).iter().for_each(log::warning);
            }
            Err(failure) => log::error(format!("policy not reloaded, the old one stays in force: {failure}")),
        }
        host.in_force.note_unsaved();
    }

    fn observe(&self) {
        self.look_away();
        let mut host = self.host();
        host.guard();
        host.interfaces.look_after_pins();
        if let Err(failure) = host.observe() {
            log::warning(format!("the counters were not read: {failure}"));
        }
        host.follow_facts(Instant::now());
        host.list_editor().look_after_blocks(probe::now_ns());
    }

    fn sweep(&self) {
        if let Err(failure) = self.host().list_editor().sweep(probe::now_ns()) {
            log::warning(format!("blocks that ran out were not removed: {failure}"));
        }
    }

    /// Waits until what was written down is on disk. What to say if it is not.
    async fn on_disk(&self, file: Option<Arc<File>>) -> String {
        let synced = match file {
            Some(file) => {
                tokio::task::spawn_blocking(move || file.sync_data()).await.map_err(io::Error::other)
            }
            None => Ok(Ok(())),
        };
        let mut host = self.host();
        if let Err(error) = synced.flatten() {
            host.lists.keeper.journal.failed(&error);
        }
        host.lists.keeper.journal.problem().map_or_else(String::new, |problem| {
            format!("; NOT ON DISK, a restart or a reboot may undo it: {problem}")
        })
    }

    /// The counters.
    pub(super) async fn snapshot(&self) -> Result<Snapshot, Failure> {
        let look = self.stats.look(|| {
            let (meters, services) = self.host().meters();
            beside(move || Ok(Snapshot::new(&meters.counts()?, &services)))
        });
        look.await
    }

    /// The counters, those of the last time that somebody asked, and users.
    async fn counters(&self) -> Result<StatsReply, Failure> {
        let snapshot = self.snapshot().await?;
        let now = Instant::now();
        let users = super::users::users_with_buckets(&self.host(), probe::now_ns())?;
        let last = self
            .last_counters
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .replace((now, snapshot.clone()));
        let before = last.map(|(then, snapshot)| EarlierStats {
            ms_ago: u64::try_from(now.saturating_duration_since(then).as_millis()).unwrap_or(u64::MAX),
            snapshot,
        });
        Ok(StatsReply { snapshot, before, users })
    }

    /// Views from now on, one a second.
    pub(super) fn views(&self) -> Views {
        let traffic = Arc::clone(&self.host().traffic);
        traffic.feed(&self.host).look()
    }

    /// The last view of the traffic, for series of the largest sources; none unless the policy wants some. The first time begins to look.
    fn largest_sources(&self) -> (Option<Arc<View>>, usize) {
        let most = self.host().policy().listen().metrics_top as usize;
        let mut scraped = self.scraped.lock().unwrap_or_else(PoisonError::into_inner);
        if most == 0 {
            *scraped = None;
            return (None, 0);
        }
        let views = match scraped.take() {
            Some((views, _)) => views,
            None => self.views(),
        };
        let view = views.borrow().clone();
        *scraped = Some((views, Instant::now()));
        (view, most)
    }

    /// Looks away when nobody has asked for metrics for a while.
    fn look_away(&self) {
        let mut scraped = self.scraped.lock().unwrap_or_else(PoisonError::into_inner);
        scraped.take_if(|(_, asked)| asked.elapsed() > SCRAPE_GRACE);
    }

    /// What the next second of traffic brings.
    async fn view(&self) -> Result<View, Failure> {
        let mut views = self.views();
        let late = || Failure::new(ExitCode::Unsupported, "the counters were not read within five seconds");
        tokio::time::timeout(VIEW_PATIENCE, views.changed())
            .await
            .map_err(|_| late())?
            .map_err(|_| late())?;
        let view = views.borrow().clone();
        view.map(|view| (*view).clone()).ok_or_else(late)
    }

    /// The status with the table counted, which happens beside everything else.
    pub(super) async fn status(&self) -> Result<Status, Failure> {
        self.front().refresh().await;
        let (mut status, promotions) = {
            let host = self.host();
            let mut status = status(&host);
            status.prefix_promotions = host.event(Event::PrefixPromoted)?;
            status.drop_reports_lost = host.event(Event::ReportLost)?;
            (status, host.event(Event::Promoted)?)
        };
        let usage = self.usage.look(|| {
            let table = self.host().table();
            beside(move || Ok(table.usage(probe::now_ns())?))
        });
        let usage = usage.await?;
        status.table_entries = usage.entries;
        status.table_capacity = usage.capacity;
        status.hot_cells = usage.hot_cells;
        status.promotions = promotions;
        // Nothing but eviction removes an entry. Read after the promotions, so never too many by more than what came since.
        status.evictions = promotions.saturating_sub(usage.entries);
        Ok(status)
    }
}

/// Does something that takes a while on a thread of its own, so that leases, packets' reports and operators do not wait for it.
async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let failed = |error| Failure::new(ExitCode::Unsupported, format!("cannot read the tables: {error}"));
    tokio::task::spawn_blocking(work).await.map_err(failed)?
}

impl Answer for Daemon {
    async fn answer(&self, request: Order, caller: Caller) -> Reply {
        if matches!(caller, Caller::Process { pid, .. } if self.front().is(pid)) {
            return Reply::Failed(Failure::new(
                ExitCode::NotPermitted,
                "the front process gives no orders here",
            ));
        }
        let reply = match request {
            Order::Test(question) => requests::ask(&self.front(), question).await,
            Order::Status => self.status().await.map(|status| Reply::Status(Box::new(status))),
            Order::Stats => self.counters().await.map(|counters| Reply::Stats(Box::new(counters))),
            Order::Top => self.view().await.map(|view| Reply::View(Box::new(view))),
            // Whoever is answered counts on the lists to stay as they are then.
            request if request.changes_lists() => {
                let (reply, file) = {
                    let mut host = self.host();
                    (answer(&mut host, request, caller), host.lists.keeper.file())
                };
                match reply {
                    Ok(Reply::Done(message)) => Ok(Reply::Done(message + &self.on_disk(file).await)),
                    reply => reply,
                }
            }
            request => {
                let reply = {
                    let mut host = self.host();
                    let reply = answer(&mut host, request, caller);
                    host.in_force.note_unsaved();
                    reply
                };
                // Whoever has changed the policy and asks about a request is told by that policy.
                self.front().settled().await;
                reply
            }
        };
        self.asked.notify_one();
        reply.unwrap_or_else(Reply::Failed)
    }

    fn watch(&self) -> broadcast::Receiver<Arc<Sighting>> {
        self.host().drops.watch()
    }

    fn watch_frames(&self, filter: Filter) -> mpsc::Receiver<Reply> {
        frames::watch(&self.host, filter)
    }
}

impl Metrics for Daemon {
    async fn metrics(&self) -> Result<String, String> {
        let look = self.scrape.look(|| async {
            let (status, snapshot) = (self.status().await?, self.snapshot().await?);
            let failed = |error: prometheus::Error| Failure::new(ExitCode::Unsupported, error.to_string());
            let (view, most) = self.largest_sources();
            let render =
                move || metrics::render(&status, &snapshot, view.as_deref().map(|view| (view, most)));
            beside(move || render().map_err(failed)).await
        });
        look.await.map_err(|failure| failure.message)
    }
}

/// Looks once a second whether an attack begins or ends, until the daemon ends.
async fn follow_attacks(daemon: Arc<Daemon>) {
    let mut second = tokio::time::interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        second.tick().await;
        daemon.front().refresh().await;
        let ((meters, services), decisions) = {
            let host = daemon.host();
            (host.meters(), host.requests.status().decisions)
        };
        let decisions: Vec<_> =
            decisions.into_iter().map(|count| (count.api, count.outcome, count.decisions)).collect();
        let tallied = beside(move || Ok(Tallied::new(&meters.counts()?, &services, &decisions))).await;
        match tallied {
            Ok(tallied) => daemon.host().observe_attacks(tallied),
            Err(failure) => log::warning(format!("attacks were not looked for: {failure}")),
        }
    }
}

/// Notified whenever an interface has changed.
fn listen_to_links() -> Arc<Notify> {
    let changed = Arc::new(Notify::new());
    let notify = Arc::clone(&changed);
    let unheard = |error| {
        log::warning(format!("interfaces that come back are guarded within a second, not at once: {error}"));
    };
    let tell = move |heard: io::Result<()>| match heard {
        Ok(()) => notify.notify_one(),
        Err(error) => unheard(error),
    };
    if let Err(error) = netlink::follow_links(tell) {
        unheard(error);
    }
    changed
}

/// Comes back at that time; never, if there is none.
async fn reached(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

/// Whoever started the daemon may have gone already; protection does not depend on them.
fn say_ready() {
    let mut out = io::stdout().lock();
    let _unread = writeln!(out, "ready").and_then(|()| out.flush());
}
