//! The host under guard: its interfaces, its counters, and who answers which request.
//!
//! Lists, limits, changes of policy and the status are in files of their own.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use ratelimit_common::abi::{Event, Reason};

use super::{
    archive::Archive,
    arrivals::Arrivals,
    caller::By,
    change::Apply,
    cluster::Cluster,
    drops::Drops,
    headroom::HeadroomWatch,
    keeping::Keeper,
    lists::{Order, Scope},
    log,
    trace::Trace,
    version::Version,
    waiting::Waiting,
};
use crate::{
    compile::{Desired, HostFacts, Places, lists::Lists},
    config::Reader,
    control::{
        protocol::{Operator, Reply, Request},
        server::Caller,
    },
    dataplane::{
        attach::{self, GenericMode, Guarded},
        kernel::{Maps, Meters, Program},
        pin::PinDir,
        probe,
        table::SourceTable,
        trace::Image,
    },
    failure::{ExitCode, Failure},
    policy::{Policy, address::StoreAddress},
    requests::decision_service::DecisionService,
    stats::posture::{Pressure, Watch},
    store::worker::Store,
};

/// What the operator asked for on the command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// The policy file.
    pub policy: PathBuf,
    /// Interfaces; those of the policy when empty.
    pub interfaces: Vec<String>,
    /// The state directory.
    pub state: PathBuf,
    /// The pin directory.
    pub pin: PathBuf,
    /// The kernel's process file system.
    pub proc: PathBuf,
    /// The store that hosts share, instead of the policy's.
    pub redis: Option<StoreAddress>,
    /// What generic mode is answered with.
    pub generic: GenericMode,
    /// Where blocks and allows are kept.
    pub keep: Keep,
    /// The kernel program.
    pub image: Image,
}

/// A directory that outlives a reboot.
#[derive(Clone, Debug)]
pub enum Keep {
    /// The operator names it.
    Named(PathBuf),
    /// The usual one; the state directory if it cannot be used.
    Usual(PathBuf),
    /// The state directory, which the operator has named.
    WithState,
}

/// The running host.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) policy_path: PathBuf,
    /// The state directory.
    pub(super) state: PathBuf,
    /// The policy in force.
    pub(super) version: Version,
    /// The one before the last change.
    pub(super) previous: Option<Version>,
    /// The one that comes back unless somebody confirms.
    pub(super) waiting: Option<Waiting>,
    /// What was wrong with the policy file when it was last to be read again, if it was not read then.
    pub(super) unread: Option<String>,
    /// What the maps hold of the policy. A change writes what differs from it.
    pub(super) desired: Desired,
    pub(super) facts: HostFacts,
    pub(super) maps: Maps,
    /// What the tries hold.
    pub(super) lists: Lists,
    /// What the next daemon, and the next boot, know of the lists.
    pub(super) keeper: Keeper,
    /// The texts that are written down.
    pub(super) archive: Archive,
    /// Reads policies, quickly if they are much like the one before.
    pub(super) reader: Reader,
    pub(super) drops: Drops,
    pub(super) guarded: Vec<Guarded>,
    /// Names of interfaces that are to be guarded as soon as there are some.
    pub(super) names: Vec<String>,
    /// Whether what the next daemon would find was there at the last look.
    pub(super) were_pinned: bool,
    /// Where nobody is answered, as the operator has been told.
    pub(super) said: Vec<String>,
    pub(super) pins: PinDir,
    pub(super) cookie_problem: Option<String>,
    pub(super) listener_problem: Option<String>,
    /// Whether clients that come by cookie get past the host's firewall.
    pub(super) arrivals: Arrivals,
    pub(super) release: String,
    pub(super) started: Instant,
    pub(super) watch: Watch,
    pub(super) last_second: Pressure,
    pub(super) headroom: HeadroomWatch,
    /// This host's part in the cluster, if it is in one.
    pub(super) cluster: Option<Cluster>,
    /// Where questions about requests are answered.
    pub(super) decisions: Arc<DecisionService>,
    /// What was set and not saved, as it was last written down.
    pub(super) unsaved: Vec<(String, String)>,
    /// The store of the command line, if it names one.
    pub(super) redis: Option<StoreAddress>,
    seen: Seen,
    /// Kept to guard an interface again that comes back.
    pub(super) program: Program,
    pub(super) generic: GenericMode,
    /// Held, not read: nobody else may work with these pins.
    _claim: File,
}

/// Everything that starting has made.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) desired: Desired,
    pub(super) facts: HostFacts,
    pub(super) program: Program,
    pub(super) maps: Maps,
    pub(super) lists: Lists,
    pub(super) guarded: Vec<Guarded>,
    pub(super) names: Vec<String>,
    pub(super) pins: PinDir,
    pub(super) release: String,
    pub(super) claim: File,
    pub(super) cluster: Option<Cluster>,
}

/// Counts at the last look, to tell what one second brought.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    promoted: u64,
    refused_newcomers: u64,
    over_total: u64,
}

impl Host {
    /// A host whose policy has just been put in force.
    pub(super) fn new(
        options: &Options,
        version: Version,
        reader: Reader,
        mut started: Started,
        keeper: Keeper,
    ) -> Result<Self, Failure> {
        let mut drops = Drops::new(started.maps.take_drops());
        if options.image.is_traced() {
            drops.trace = Some(Trace::begin(&mut started.program, &started.desired.names.services)?);
        }
        let policy = version.policy().clone().moved_to(options.redis.as_ref());
        let store = Store::of(&policy, started.cluster.as_ref().map(Cluster::id));
        let store = store.map_err(|error| {
            Failure::new(ExitCode::Unsupported, format!("cannot start a thread: {error}"))
        })?;
        let decisions = Arc::new(DecisionService::with(&policy, store));
        let mut host = Self {
            policy_path: options.policy.clone(),
            state: options.state.clone(),
            version,
            previous: None,
            unsaved: Vec::new(),
            waiting: None,
            unread: None,
            desired: started.desired,
            facts: started.facts,
            maps: started.maps,
            lists: started.lists,
            keeper,
            archive: Archive::new(&options.state),
            reader,
            drops,
            guarded: started.guarded,
            names: started.names,
            were_pinned: true,
            said: Vec::new(),
            pins: started.pins,
            cookie_problem: started.program.cookie_problem().map(str::to_owned),
            listener_problem: started.program.listener_problem().map(str::to_owned),
            arrivals: Arrivals::NONE,
            release: started.release,
            started: Instant::now(),
            watch: Watch::default(),
            last_second: Pressure::default(),
            headroom: HeadroomWatch::new(&options.proc, Instant::now()),
            cluster: started.cluster,
            decisions,
            redis: options.redis.clone(),
            seen: Seen::default(),
            program: started.program,
            generic: options.generic,
            _claim: started.claim,
        };
        host.seen = host.look()?;
        Ok(host)
    }

    /// The policy.
    pub(super) fn policy(&self) -> &Policy {
        self.version.policy()
    }

    /// The pin directory.
    pub(super) fn pin_root(&self) -> &Path {
        self.pins.root()
    }

    /// The table of sources, to be read without holding up anything else.
    pub(super) fn table(&self) -> Arc<SourceTable> {
        self.maps.table()
    }

    /// Carries out one request that needs no look at the table.
    pub(super) fn answer(&mut self, request: Request, caller: Caller) -> Result<Reply, Failure> {
        let now_ns = probe::now_ns();
        let by = |operator| By { caller, operator };
        match request {
            Request::Status => Ok(Reply::Status(Box::new(self.status()))),
            Request::Stats => Err(Failure::usage("counters are read apart from the host")),
            Request::Explain { address, service } => {
                self.take_in_drops();
                self.explain(address, service.as_deref())
            }
            Request::Watch { .. } => {
                Err(Failure::usage("what is watched is told line by line, on a connection of its own"))
            }
            Request::BlockAdd { prefix, for_ns, reason, cluster, operator } => {
                let order = Order { operator: &operator, by: &by(Some(&operator)), now_ns };
                self.block(&prefix, for_ns, reason.as_deref(), Scope::of(cluster), &order)
            }
            Request::BlockDel { prefix, cluster } => {
                let order = Order { operator: &Operator::default(), by: &by(None), now_ns };
                self.unblock(&prefix, Scope::of(cluster), &order)
            }
            Request::Test(_) => Err(Failure::usage("a test is answered apart from the host")),
            Request::Cluster => self.members(now_ns),
            Request::BlockList => Ok(Reply::Blocks(self.blocks(now_ns))),
            Request::AllowAdd { prefix } => {
                self.allow(&prefix, &Order { operator: &Operator::default(), by: &by(None), now_ns })
            }
            Request::AllowDel { prefix, operator } => {
                self.disallow(&prefix, &Order { operator: &operator, by: &by(Some(&operator)), now_ns })
            }
            Request::AllowList => Ok(Reply::Allows(self.allows().map(ToString::to_string).collect())),
            Request::LimitList => Ok(Reply::Limits(self.limits())),
            Request::LimitGet { name } => self.limit(&name),
            Request::LimitSet { name, rate, save, operator } => {
                self.set_limit(&name, rate, save, &operator, &by(Some(&operator)))
            }
            Request::UserList => Ok(Reply::Users(self.users())),
            Request::UserGet { name } => self.user(&name, now_ns),
            Request::UserSet { user, operator } => self.set_user(&user, &operator, &by(Some(&operator))),
            Request::UserReset { name } => self.reset_user(&name, &by(None)),
            Request::Diff { file, text, .. } => self.diff(&file, text),
            Request::Apply { file, text, confirm_ns, operator, .. } => {
                self.apply(Apply { file, text, confirm_ns }, &operator, &by(Some(&operator)))
            }
            Request::Confirm => self.confirm(&by(None)),
            Request::Rollback => self.rollback(&by(None)),
            Request::Detach { interface } => self.detach(interface.as_deref()),
        }
    }

    /// The counters, to be read without holding up anything else, and the services that they are of.
    pub(super) fn meters(&self) -> (Meters, Places) {
        (self.maps.meters(), self.desired.names.services.clone())
    }

    /// Sources that were ever entered into the table.
    pub(super) fn promotions(&self) -> Result<u64, Failure> {
        Ok(self.maps.event(Event::Promoted)?)
    }

    /// Prefixes that ever got a bucket of their own.
    pub(super) fn prefix_promotions(&self) -> Result<u64, Failure> {
        Ok(self.maps.event(Event::PrefixPromoted)?)
    }

    /// Looks at what the last second brought. Called once a second.
    pub(super) fn observe(&mut self) -> Result<(), Failure> {
        let now = self.look()?;
        let before = std::mem::replace(&mut self.seen, now);
        self.last_second = Pressure {
            promoted: now.promoted - before.promoted,
            refused_newcomers: now.refused_newcomers - before.refused_newcomers,
            over_total: now.over_total - before.over_total,
            budget: u64::from(self.version.policy().gate().new_sources_per_cpu())
                * u64::from(self.facts.cpus),
        };
        let next = self.watch.after(&self.last_second);
        if next.posture() != self.watch.posture() {
            log::warning(format!(
                "posture {} -> {}: in the last second {} new sources, {} packets of others refused, {} over a total",
                self.watch.posture().name(),
                next.posture().name(),
                self.last_second.promoted,
                self.last_second.refused_newcomers,
                self.last_second.over_total
            ));
        }
        self.watch = next;
        self.follow_arrivals()
    }

    fn look(&self) -> Result<Seen, Failure> {
        // Every second, so only what is needed: all counters of 256 services are 13 000 reads.
        Ok(Seen {
            promoted: self.promotions()?,
            refused_newcomers: self.maps.packets(Reason::NewSourceBudget)?,
            over_total: self.maps.packets(Reason::ServiceTotal)? + self.maps.packets(Reason::HostTotal)?,
        })
    }

    fn detach(&mut self, name: Option<&str>) -> Result<Reply, Failure> {
        let names: Vec<String> = match name {
            None => self.guarded.iter().map(|guarded| guarded.interface.clone()).collect(),
            Some(name) if self.guarded.iter().any(|guarded| guarded.interface == name) => {
                vec![name.to_owned()]
            }
            Some(name) => {
                return Err(Failure::usage(format!("interface {name:?} is not guarded by this daemon")));
            }
        };
        if names.is_empty() {
            return Err(Failure::new(ExitCode::Found, "no interface is guarded; nothing to detach"));
        }
        for name in &names {
            attach::detach(&self.pins, name)?;
            for one in self.guarded.iter().filter(|guarded| guarded.interface == *name) {
                let _never_said = self.maps.set_silent(one.index, false);
            }
            self.guarded.retain(|guarded| guarded.interface != *name);
            self.names.retain(|wanted| wanted != name);
            log::warning(format!("detached from {name}: it is not protected any more"));
        }
        Ok(Reply::Done(format!("detached from {}; the daemon still runs", names.join(", "))))
    }
}
