//! The daemon from start to stop.

use std::{io, sync::Arc};

use super::{
    conditions::headroom,
    front::{self, DaemonAnswers, FrontKeeper, FrontStart},
    host::Host,
    in_force::Unread,
    leases::{driver::say_goodbye, lease_thread::LeaseThread},
    log,
    options::Options,
    service::{Daemon, dashboard, signals::Signals},
    start::{listeners::Listeners, progress, readers, rights, start},
    state::{
        keeping::StateKeeper,
        record::{self, ChangeOrigin, Record},
        state_dir::StateDir,
        unsaved,
        version::PolicyVersion,
    },
    views::witnesses::{follow_attacks, follow_clients, follow_samples},
};
use crate::{
    config::{self, LoadError, Reader},
    control::{
        admission::{Admission, Readers},
        server,
    },
    dataplane::{pin::PinDir, probe},
    failure::{ExitCode, Failure},
    web::order_queues::OrderQueues,
};

/// Runs the daemon until it is told to stop.
pub fn run(options: &Options) -> Result<(), Failure> {
    rights::give_up_the_rest(&PinDir::new(&options.pin))?;
    let progress = progress::watch();
    progress::step("reading the policy");
    let mut reader = Reader::default();
    let Chosen { version, origin, damage, unread } = Chosen::read(&mut reader, options)?;
    headroom::require(&options.proc)?;
    probe::require_rights("loading XDP programs")?;
    let front_user = front::require_user(options.user.as_deref())?;
    let readers = readers::find(options.group.as_deref())?;
    let state = StateDir::claim(&options.state)?;
    let keeper = StateKeeper::claim(options, &state)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(ExitCode::Unsupported, format!("cannot start the runtime: {error}")))?;
    runtime.block_on(async {
        // Signals are taken before anything is made that has to be cleaned up: a signal during the start must not end it halfway.
        let mut signals = Signals::take()?;
        progress::step("taking the addresses to listen on");
        // Listeners are bound before the program is attached: an address in use must not leave a program attached.
        let listeners = Listeners::bind(version.policy(), state.path()).await?;
        let control = server::bind(&state.socket()).map_err(|error| {
            Failure::new(ExitCode::NotPermitted, format!("cannot make {}: {error}", state.socket().display()))
        })?;
        let admission = admit(&state, readers.as_ref(), options, front_user)?;
        let mut host =
            start(options, version, reader, keeper).map_err(|failure| hint(failure, &origin, options))?;
        host.in_force.unread = unread.map(|error| Unread::new(&Failure::from(error), true));
        unsaved::say_lost(&options.state, &host.in_force.version);
        settle(&mut host, &origin, options).inspect_err(|_| say_limits_stay(&host, &state))?;
        if !damage.is_empty() && origin == ChangeOrigin::Applied {
            host.in_force.keep_in_force().inspect_err(|_| say_limits_stay(&host, &state))?;
        }
        write_lists_down(&mut host);
        host.warnings().iter().for_each(log::warning);
        drop(progress);
        let daemon = Arc::new(Daemon::new(host));
        tokio::spawn(server::serve(control, admission, Arc::clone(&daemon)));
        let keeper = start_front(&daemon, &listeners, options).await;
        let keeper = keeper.inspect_err(|_| say_limits_stay(&daemon.host(), &state))?;
        tokio::spawn(follow_attacks(Arc::clone(daemon.cell())));
        tokio::spawn(follow_samples(Arc::clone(daemon.cell())));
        tokio::spawn(follow_clients(Arc::clone(daemon.cell())));
        let leases = LeaseThread::begin(daemon.cell());
        let leases = leases.inspect_err(|_| say_limits_stay(&daemon.host(), &state))?;
        daemon.until_stopped(&mut signals, &state).await?;
        // Before leases go back: what callers have asked may need them.
        daemon.front().drain().await;
        // The goodbye may repeat a lease batch that was being sent; a repeated batch counts once.
        leases.end();
        say_goodbye(daemon.cell()).await;
        keeper.end();
        if let Err(error) = daemon.save_clients().await {
            log::warning(format!("known clients were not saved: {error}"));
        }
        log::info(format!("state directory {} released", state.path().display()));
        Ok(())
    })
}

/// Says that the policy is in force although the daemon ends before it has served anybody. Bare interfaces would be worse.
fn say_limits_stay(host: &Host, state: &StateDir) {
    let said = host.interfaces.with(|interfaces| interfaces.say_what_stays(state.path()));
    said.unwrap_or_else(log::warning);
}

/// The policy that a start goes on with.
struct Chosen {
    version: PolicyVersion,
    origin: ChangeOrigin,
    /// Sentences about damage of its record.
    damage: Vec<String>,
    /// Why the policy file could not be read, if an applied policy is in force instead.
    unread: Option<LoadError>,
}

impl Chosen {
    fn read(reader: &mut Reader, options: &Options) -> Result<Self, Failure> {
        let (record, damage) = Record::read(&options.state)?;
        damage.iter().for_each(log::error);
        let policy_text = config::read_text(&options.policy);
        let beside = policy_text.as_ref().ok().cloned();
        let (version, warnings, origin) =
            record::choose(reader, record, &options.state, &options.policy, policy_text)?;
        warnings.iter().for_each(log::warning);
        let unread = match (&origin, beside) {
            (ChangeOrigin::Applied, Some(text)) => {
                config::parse(&text, &options.policy.display().to_string()).err()
            }
            _ => None,
        };
        Ok(Self { version, origin, damage, unread })
    }
}

fn write_lists_down(host: &mut Host) {
    let gossip = host.cluster.as_ref().map(|cluster| &cluster.gossip);
    host.lists.keeper.write_all_down(&host.lists.lists, gossip);
}

/// Lets the group of readers use the control socket. If the operator did not name the group, a failure is only a warning.
fn admit(
    state: &StateDir,
    readers: Option<&Readers>,
    options: &Options,
    front_user: u32,
) -> Result<Admission, Failure> {
    let socket = state.socket();
    let cannot = |error: io::Error| {
        let name = readers.map(|readers| readers.name.as_str()).unwrap_or_default();
        format!(
            "cannot give {} to the group {name:?}: {error}; be a member of the group, or have CAP_CHOWN",
            socket.display()
        )
    };
    match Admission::open(&socket, readers.cloned(), Some(front_user)) {
        Ok(admission) => Ok(admission),
        Err(error) if options.group.is_none() && readers.is_some() => {
            log::warning(format!("{}; its members cannot ask", cannot(error)));
            Admission::open(&socket, None, Some(front_user))
                .map_err(|error| Failure::new(ExitCode::NotPermitted, cannot(error)))
        }
        Err(error) => Err(Failure::new(ExitCode::NotPermitted, cannot(error))),
    }
}

/// Starts the front process, which answers on the listeners.
async fn start_front(
    daemon: &Arc<Daemon>,
    listeners: &Listeners,
    options: &Options,
) -> Result<FrontKeeper, Failure> {
    let failed = |error| Failure::new(ExitCode::Unsupported, format!("cannot hand over listeners: {error}"));
    let (policy, id) = {
        let host = daemon.host();
        (host.policy().clone(), host.cluster.as_ref().map(|cluster| cluster.id().to_owned()))
    };
    let (orders, handed) = OrderQueues::new();
    tokio::spawn(dashboard::take_orders(Arc::clone(daemon), handed));
    let answers = DaemonAnswers::new(Arc::clone(daemon), orders, &policy, options.redis.as_ref());
    let start = FrontStart {
        user: options.user.clone(),
        hired_at: options.front.clone(),
        log: options.log.clone(),
        redis: options.redis.clone(),
        id,
        sockets: listeners.handles(&policy).map_err(failed)?,
    };
    FrontKeeper::begin(&daemon.front(), start, answers).await
}

/// Adds to the failure of a start with a kept policy how to get rid of that policy.
fn hint(failure: Failure, origin: &ChangeOrigin, options: &Options) -> Failure {
    if !matches!(origin, ChangeOrigin::Applied | ChangeOrigin::NotConfirmed(_)) {
        return failure;
    }
    let (kept, file) = (Record::path(&options.state), options.policy.display());
    let message =
        format!("{failure}; this was the policy kept in {}: without that file {file} counts", kept.display());
    Failure::new(failure.code, message)
}

/// Logs which policy is in force and why, and writes the record for the next restart.
fn settle(host: &mut Host, origin: &ChangeOrigin, options: &Options) -> Result<(), Failure> {
    let file = options.policy.display();
    match origin {
        ChangeOrigin::PolicyFile => Ok(()),
        ChangeOrigin::PolicyFileChanged => {
            log::info(format!(
                "{file} has changed since another policy was applied: the file is in force again, and the applied policy no longer"
            ));
            host.in_force.forget()
        }
        ChangeOrigin::Applied => {
            log::info(format!(
                "the applied policy stays in force; {}; SIGHUP reads it",
                host.in_force.after_restart()
            ));
            Ok(())
        }
        ChangeOrigin::NotConfirmed(unconfirmed) => {
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
