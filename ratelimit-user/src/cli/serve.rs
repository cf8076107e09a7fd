//! `ratelimit serve`: only the decision service, without the packet path.

use std::{
    future::ready,
    io::{self, Write as _},
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use clap::Args;
use tokio::{
    net::TcpListener,
    runtime::Runtime,
    signal::unix::{Signal, SignalKind, signal},
    time::MissedTickBehavior,
};

use super::{log_options::LogOptions, store::StoreOptions};
use crate::{
    config,
    daemon::{
        conditions::headroom::{self, HeadroomWatch},
        state::state_dir::StateDir,
    },
    dataplane::probe,
    failure::{ExitCode, Failure},
    log, metrics,
    policy::{Policy, address::StoreAddress, changes::changes},
    requests::decision_service::DecisionService,
    serve::{
        http,
        workers::{ServedSockets, ServingThreads},
    },
    store::worker::Store,
    web::{
        decisions::DecisionHistory,
        gallery::{Camera, Gallery},
        metrics_source::MetricsSource,
        picture::Picture,
    },
};

/// Answer questions about requests, without guarding any interface; prints "ready" when listening.
///
/// For hosts that guard no interface, for trying a policy, and where the kernel program cannot be loaded. Needs no rights; callers that stay above
/// their limits are not blocked in the kernel, and the policy needs no `[source]`. `ratelimit run` does this and guards interfaces as well.
///
/// SIGHUP reads the policy again. A broken policy changes nothing. SIGTERM answers what was asked, ends connections and stops, within 5 s.
///
/// Example: ratelimit serve --policy /etc/ratelimit.toml
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Policy file
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// State directory, locked while this runs so that no other one starts with it; none without it
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    #[command(flatten)]
    store: StoreOptions,
    /// Process file system to read the host's headroom from, for elastic limits
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    proc: PathBuf,
    #[command(flatten)]
    log: LogOptions,
}

/// How often it is looked whether all threads still answer and the host has headroom, the latter as in `ratelimit run`.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Changes named in the log: thousands of new users are a number.
const LOGGED: usize = 50;

impl Serve {
    pub(super) fn execute(self) -> Result<(), Failure> {
        self.log.start()?;
        headroom::require(&self.proc)?;
        let redis = self.store.address()?;
        let runtime = current_thread()?;
        // Taken first: a SIGHUP that comes while sockets are bound must not end the process.
        let kinds = [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate()];
        let signals = runtime
            .block_on(async { Ok([signal(kinds[0])?, signal(kinds[1])?, signal(kinds[2])?]) })
            .map_err(|error: io::Error| {
                Failure::new(ExitCode::Unsupported, format!("cannot take signals: {error}"))
            })?;
        let loaded =
            config::load_for_requests(&self.policy).map_err(|error| Failure::usage(error.to_string()))?;
        // Held until the process ends. Nothing is kept there: counts of requests end with it.
        let _claim = self.state.as_deref().map(StateDir::claim).transpose()?;
        let sockets = ServedSockets::bind(loaded.policy.listen()).map_err(Failure::usage)?;
        if sockets.is_empty() {
            return Err(Failure::usage(
                "the policy names nowhere to listen; add [listen] with http, grpc or resp = \"127.0.0.1:8080\"",
            ));
        }
        let scrapers = loaded.policy.listen().metrics().map(Scrapers::bind).transpose()?;
        loaded.warnings.iter().for_each(log::warning);
        warn_of_idle_keys(&loaded.policy);
        let policy = loaded.policy.clone().moved_to(redis.as_ref());
        let store = Store::of(&policy, None).map_err(no_threads)?;
        let decisions = Arc::new(DecisionService::with(&policy, store));
        let scraped = Arc::clone(&decisions);
        let metrics = MetricsSource::new(move || ready(render(&scraped)));
        if let Some(scrapers) = scrapers {
            scrapers.serve(metrics.clone())?;
        }
        let gallery = Gallery::of_requests(metrics);
        show(&decisions, &gallery)?;
        let threads = sockets.serve(&decisions, &gallery, &policy).map_err(no_threads)?;
        let mut out = io::stdout().lock();
        let _unread = writeln!(out, "ready").and_then(|()| out.flush());
        drop(out);
        let headroom = HeadroomWatch::new(&self.proc, Instant::now());
        let office = ServedPolicy { file: self.policy, redis, policy: loaded.policy, decisions, headroom };
        runtime.block_on(office.follow(signals, &threads))
    }
}

/// The policy in force, and where it is read again.
struct ServedPolicy {
    file: PathBuf,
    redis: Option<StoreAddress>,
    /// As it was read: the store of the command line is not in it.
    policy: Policy,
    decisions: Arc<DecisionService>,
    /// Whether there is some for what is above elastic limits.
    headroom: HeadroomWatch,
}

impl ServedPolicy {
    /// Reads the policy whenever it is told to, until it is told to stop.
    async fn follow(mut self, signals: [Signal; 3], threads: &ServingThreads) -> Result<(), Failure> {
        let [mut hangup, mut interrupt, mut terminate] = signals;
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = hangup.recv() => self.reload(),
                _ = interrupt.recv() => break,
                _ = terminate.recv() => break,
                _ = look.tick() => {
                    self.headroom.look(Instant::now());
                    self.decisions.engine().set_headroom(self.headroom.is_there());
                }
            }
            if threads.has_failed() {
                return Err(Failure::new(ExitCode::Unsupported, "a thread that answers has ended"));
            }
        }
        log::info("stopping: what was asked is answered, connections end; another signal ends at once");
        tokio::select! {
            () = threads.drain() => {}
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        Ok(())
    }

    fn reload(&mut self) {
        let readable = config::read_text_again(&self.file);
        let loaded = match readable.and_then(|_text| config::load_for_requests(&self.file)) {
            Ok(loaded) => loaded,
            Err(error) => {
                return log::error(format!("policy not reloaded, the old one stays in force: {error}"));
            }
        };
        loaded.warnings.iter().for_each(log::warning);
        warn_of_idle_keys(&loaded.policy);
        let rows = changes(&self.policy, &loaded.policy);
        self.decisions.follow(&loaded.policy, self.redis.as_ref());
        self.policy = loaded.policy;
        let changed = match rows.len() {
            1 => "1 change".to_owned(),
            n => format!("{n} changes"),
        };
        let apis = self.policy.requests().apis.len();
        log::info(format!("policy read again: {changed}, {apis} APIs in force"));
        for row in rows.iter().take(LOGGED) {
            log::info(format!("  {row}"));
        }
        if rows.len() > LOGGED {
            log::info(format!("  and {} more", rows.len() - LOGGED));
        }
    }
}

fn warn_of_idle_keys(policy: &Policy) {
    for api in policy.requests().apis.iter().filter(|api| api.escalation.is_some()) {
        log::warning(format!(
            "api {:?}: escalate does nothing here, only in ratelimit run, which guards interfaces",
            api.name
        ));
    }
    if !policy.notifiers().is_empty() {
        log::warning("notify does nothing here, only in ratelimit run, which looks for attacks");
    }
}

/// Answers scrapers of metrics in a thread of its own, which takes no time from decisions.
struct Scrapers {
    runtime: Runtime,
    listener: TcpListener,
}

impl Scrapers {
    fn bind(address: SocketAddr) -> Result<Self, Failure> {
        let runtime = current_thread()?;
        let listener = runtime.block_on(http::bind(address)).map_err(Failure::usage)?;
        Ok(Self { runtime, listener })
    }

    fn serve(self, metrics: MetricsSource) -> Result<(), Failure> {
        let Self { runtime, listener } = self;
        let answer = http::serve(listener, metrics);
        let thread = thread::Builder::new().name("metrics".to_owned());
        thread.spawn(move || runtime.block_on(answer)).map(drop).map_err(no_threads)
    }
}

/// Takes pictures for the dashboard while somebody looks, in a thread of its own.
fn show(decisions: &Arc<DecisionService>, gallery: &Gallery) -> Result<(), Failure> {
    let (runtime, decisions, gallery, started) =
        (current_thread()?, Arc::clone(decisions), gallery.clone(), Instant::now());
    let begin = move || RequestsCamera {
        decisions: Arc::clone(&decisions),
        started,
        host: probe::host_name(),
        history: DecisionHistory::default(),
        before: Instant::now(),
    };
    let thread = thread::Builder::new().name("dashboard".to_owned());
    thread.spawn(move || runtime.block_on(gallery.show(begin))).map(drop).map_err(no_threads)
}

/// Takes the pictures of the dashboard of `serve`.
struct RequestsCamera {
    decisions: Arc<DecisionService>,
    started: Instant,
    host: String,
    history: DecisionHistory,
    before: Instant,
}

impl Camera for RequestsCamera {
    async fn take(&mut self) -> Option<Bytes> {
        let span = std::mem::replace(&mut self.before, Instant::now()).elapsed();
        let picture = Picture::<()> {
            host: &self.host,
            packets: None,
            status: None,
            hosts: &[],
            attacks: None,
            decisions: &self.history.rates(self.decisions.status(), span),
            uptime_seconds: self.started.elapsed().as_secs(),
            warnings: &self.decisions.warnings(),
        };
        picture.event()
    }
}

/// The metrics of a service that guards nothing.
fn render(decisions: &DecisionService) -> Result<String, String> {
    metrics::render_requests(&decisions.status()).map_err(|error| error.to_string())
}

fn current_thread() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_threads)
}

#[expect(clippy::needless_pass_by_value, reason = "what map_err hands over")]
fn no_threads(error: io::Error) -> Failure {
    Failure::new(ExitCode::Unsupported, format!("cannot start threads: {error}"))
}
