//! Starts the daemon: from nothing, or from the state that an earlier daemon left, to a policy in force on every interface. If that fails, no interface has a
//! program that had none. Interfaces that had one keep it, or have been given ours with the new policy.

mod layouts;
pub(super) mod listeners;
pub(super) mod progress;
pub(super) mod readers;
pub(super) mod rights;
mod undo;

use std::{fs::File, sync::Arc, time::Instant};

use self::{layouts::OtherLayouts, undo::Undo};
use super::{
    attacks::{Attacks, attack::AttackWatch},
    cluster::Cluster,
    conditions::{
        arrivals::Arrivals,
        headroom::HeadroomWatch,
        interfaces::{InterfaceCell, Interfaces},
        warnings::Conditions,
    },
    host::Host,
    in_force::{
        PolicyInForce,
        enforcer::{EnforcedPolicy, carry_debts},
        translation::TranslationWatch,
    },
    line::requests::Requests,
    lists::{ListBook, blocks, lookout::Lookout},
    options::Options,
    state::{keeping::StateKeeper, kept::KeptState, saved_clients::ClientKeeper, version::PolicyVersion},
    traffic::{Traffic, drops::Drops, trace::Trace},
};
use crate::{
    compile::{
        self, Before, HostFacts, Names,
        lists::{self, Lists},
    },
    config::Reader,
    dataplane::{
        attach::{self, Adopted, Guarded, Replaced},
        interface,
        kernel::{self, KernelMaps, Program},
        listener,
        pin::{Layout, PinDir},
        probe,
        remount::HeldMaps,
        renamed::{self, Renamed},
        sysctl::TcpSettings,
    },
    failure::Failure,
    log,
    policy::{ClusterPolicy, Policy},
    stats::history::TrafficHistory,
};

/// Everything that a start has made.
struct Started {
    enforced: EnforcedPolicy,
    program: Program,
    lists: Lists,
    guarded: Vec<Guarded>,
    names: Vec<String>,
    pins: PinDir,
    release: String,
    claim: File,
    cluster: Option<Cluster>,
}

/// Puts the policy in force on every interface, or leaves no program on an interface that had none.
pub(super) fn start(
    options: &Options,
    version: PolicyVersion,
    reader: Reader,
    keeper: StateKeeper,
) -> Result<Host, Failure> {
    probe::require_rights("loading XDP programs")?;
    probe::require_kernel(&probe::kernel_release())?;
    probe::require_bpffs(&options.pin)?;
    let pins = PinDir::new(&options.pin);
    let policy = version.policy();
    let names = interfaces(options, policy)?;
    attach::preflight(&pins, &names, options.generic)?;
    let layout = Layout::current(policy.source().table_entries());
    let claim = pins.claim()?;
    follow_renamed(&pins)?;
    let mut undo = Undo::note(&pins, layout, &claim)?;
    let kept_in = keeper.journal.path().parent().unwrap_or(&options.state).to_owned();
    let clients = ClientKeeper::new(&kept_in);
    let started =
        put_in_force(options, policy, &names, (pins, claim), layout, (&keeper.kept, &clients), &mut undo)
            .and_then(|started| started.into_host(options, version, reader, keeper, clients));
    if started.is_err() {
        undo.carry_out();
    }
    started
}

/// Gives the pins of links the names that their interfaces have now.
fn follow_renamed(pins: &PinDir) -> Result<(), Failure> {
    let renamed = Renamed::all(pins, &interface::list()?)?;
    renamed::follow(pins, &renamed)?;
    for one in renamed {
        log::info(format!("{} is called {} now, and was guarded all the time", one.before, one.now));
    }
    Ok(())
}

/// Carries out the steps that change something, in an order in which a failure of each leaves the old policy in force.
fn put_in_force(
    options: &Options,
    policy: &Policy,
    names: &[String],
    (pins, claim): (PinDir, File),
    layout: Layout,
    (kept, clients): (&KeptState, &ClientKeeper),
    undo: &mut Undo,
) -> Result<Started, Failure> {
    progress::step("loading the program: the kernel verifies it first");
    let mut others = OtherLayouts::find(&pins, layout)?;
    let (mut program, mut maps) =
        kernel::load_image(Some(&pins), layout.sources, listener::offsets(), options.image)?;
    others.carry_lists(&pins, &mut maps)?;
    let before = maps.policy();
    let saved = before.is_none().then(|| clients.read()).flatten();
    if let Some(saved) = &saved {
        saved.restore(&maps.clients());
    }
    // The filter of a program begins empty.
    maps.clients().refresh(probe::now_ns())?;
    let secret = match (&before, saved) {
        // The secret of the maps is kept: a new one would move every source to another prefilter cell, with that cell's tokens.
        (Some(policy), _) => policy.prefilter.secret,
        // Clients are remembered by hashes with the secret that was saved with them.
        (None, Some(saved)) => saved.secret,
        (None, None) => probe::random_secret()?,
    };
    let cluster = policy.clone().moved_to(options.redis.as_ref()).cluster().cloned();
    let translation = TranslationWatch::begin(policy);
    let facts = host_facts(&program, secret, cluster.as_ref(), translation.services(policy));
    let generation = before.as_ref().map_or(0, |policy| policy.generation) + 1;
    progress::step("reading the lists that are in force");
    let mut lists = maps.lists()?;
    recall_lists(&mut maps, &mut lists, kept, before.is_none())?;
    let names_before = before.as_deref().map(|in_force| Names::recovered(policy, in_force, &lists));
    let users = maps.user_sets()?;
    // A policy says from when on limits whose buckets are not known count as spent. Drivers may take seconds to attach, so the policy is
    // compiled once more after that.
    let compile = |maps: &KernelMaps, generation: u64, now_q8: u64| {
        let in_force = before.as_deref().zip(names_before.as_ref());
        let in_force =
            in_force.map(|(policy, names)| Before { policy, names, users: &users, desired: None, now_q8 });
        let mut desired = compile::desired(policy, &facts, generation, in_force);
        carry_debts(&mut desired, |user| users.get(user as usize).copied(), maps);
        desired
    };
    let mut compiled_for_q8 = probe::switch_q8();
    let mut desired = compile(&maps, generation, compiled_for_q8);
    // New interfaces come first, because attaching can fail: on maps in use they start under the old policy, on new maps
    // under the new one. Then comes the policy, and last the program of existing links, which rarely fails.
    kernel::require_room(
        &lists,
        &lists::edited(&lists, &lists::user_edits(&lists, None, &desired.user_sources)),
    )?;
    if before.is_none() {
        progress::step("writing the policy into the kernel");
        others.enforce(&mut maps, &mut lists, &desired)?;
    }
    progress::step("attaching to interfaces: drivers may take seconds for it");
    let attach = || attach::attach_new(&mut program, &pins, names, options.generic);
    let mut guarded = others.held_while(&mut maps, &mut desired, attach)?;
    if before.is_some() || others.lost_sight() {
        compiled_for_q8 = probe::switch_q8();
        desired = compile(&maps, desired.policy.generation, compiled_for_q8);
        progress::step("writing the policy into the kernel");
        others.enforce(&mut maps, &mut lists, &desired)?;
    }
    progress::step("replacing the program of interfaces that are guarded already");
    undo.links_are_switched();
    let switching = Instant::now();
    let replace = || attach::replace_all(&mut program, &pins, &guarded);
    let replaced = others.held_while(&mut maps, &mut desired, replace);
    // This happens even after a failure, because links with the new program admit nothing until then.
    others.begin(&pins, &mut maps, policy, &mut desired)?;
    let replaced = replaced?;
    tell_replaced(&replaced, names);
    if others.lost_sight() {
        let refused = switching.elapsed().as_secs_f64();
        log::info(format!(
            "what limits apply to was refused for {refused:.3} s, while programs were replaced"
        ));
    }
    guarded.extend(replaced.guarded);
    let buckets = match (others.lost_sight(), &before) {
        (true, _) => "sources start with empty buckets",
        (false, Some(_)) => "buckets kept",
        (false, None) => "buckets start anew",
    };
    others.remove(&pins)?;
    let cluster = cluster.map(|cluster| blocks::join(cluster, &options.state, kept, &lists)).transpose()?;
    announce(&guarded, buckets);
    let names = names.to_vec();
    let mut enforced = EnforcedPolicy { maps, desired, facts, translation };
    enforced.begin(compiled_for_q8);
    enforced.settle_totals();
    let release = probe::kernel_release();
    Ok(Started { enforced, program, lists, guarded, names, pins, release, claim, cluster })
}

/// Returns the facts about the host that a policy is compiled for.
fn host_facts(
    program: &Program,
    secret: [u64; 2],
    cluster: Option<&ClusterPolicy>,
    translated: Vec<String>,
) -> HostFacts {
    HostFacts {
        cpus: probe::possible_cpus(),
        tick_ns: probe::tick_ns(),
        cookies: program.cookie_problem().is_none(),
        translated,
        window_scale: TcpSettings::read().window_scale(),
        headroom: true,
        reserve: cluster.map(ClusterPolicy::reserve),
        secret,
    }
}

/// Logs the outcome for links that were there before.
fn tell_replaced(replaced: &Replaced, names: &[String]) {
    for name in &replaced.elsewhere {
        log::info(format!(
            "the link of {name} is on an interface that is not visible here; it has the new program"
        ));
    }
    for error in &replaced.unreadable {
        log::warning(format!("{error}; the program of an earlier daemon has been taken off it"));
    }
    for one in replaced.guarded.iter().filter(|one| !names.contains(&one.interface)) {
        let name = &one.interface;
        log::info(format!("{name} was guarded before and stays so; ratelimit detach --iface {name} ends it"));
    }
}

impl Started {
    /// Makes the host from everything that the start has made.
    fn into_host(
        mut self,
        options: &Options,
        version: PolicyVersion,
        reader: Reader,
        keeper: StateKeeper,
        clients: ClientKeeper,
    ) -> Result<Host, Failure> {
        let trace = match options.image.is_traced() {
            true => Some(Trace::begin(&mut self.program, &self.enforced.desired.names.services)?),
            false => None,
        };
        let layout = Layout::current(version.policy().source().table_entries());
        let held = HeldMaps::open(&self.pins, layout, self.enforced.maps.pinned_inner())?;
        let kept_in = keeper.journal.path().parent().unwrap_or(&options.state).to_owned();
        let requests = Requests::new(&version, options.redis.as_ref());
        let attacks = Attacks::open(&kept_in, version.policy(), Arc::new(requests.front.clone()))?;
        Ok(Host {
            requests,
            in_force: PolicyInForce::new(options, version, reader),
            attack: AttackWatch::new(&self.enforced.maps, attacks.is_any_ongoing())?,
            attacks,
            drops: Drops::new(self.enforced.maps.take_drops(), trace),
            traffic: Traffic::new(self.enforced.maps.take_samples()),
            history: TrafficHistory::default(),
            enforced: self.enforced,
            lists: ListBook { lists: self.lists, keeper, lookout: Lookout::new(Instant::now()) },
            conditions: Conditions {
                cookie_problem: self.program.cookie_problem().map(str::to_owned),
                listener_problem: self.program.listener_problem().map(str::to_owned),
                arrivals: Arrivals::NONE,
                release: self.release,
            },
            interfaces: InterfaceCell::new(Interfaces {
                guarded: self.guarded,
                names: self.names,
                pins: self.pins,
                program: self.program,
                generic: options.generic,
                were_pinned: true,
                said: Vec::new(),
                claim: self.claim,
                held,
            }),
            headroom: HeadroomWatch::new(&options.proc, Instant::now()),
            client_keeper: Arc::new(clients),
            cluster: self.cluster,
            started: Instant::now(),
        })
    }
}

/// Restores saved entries that the kernel's lists lack, before the first packet meets the lists.
fn recall_lists(
    maps: &mut KernelMaps,
    lists: &mut Lists,
    kept: &KeptState,
    are_new: bool,
) -> Result<(), Failure> {
    let mut edits = kept.marks(lists);
    if are_new {
        edits.extend(kept.missing(lists));
        if !edits.is_empty() {
            log::info(format!("{} prefixes are blocked or allowed again as they were before", edits.len()));
        }
    }
    let changes = lists::edited(lists, &edits);
    Ok(maps.change_lists(lists, &changes)?)
}

/// Returns the names of the interfaces to guard, each once.
fn interfaces(options: &Options, policy: &Policy) -> Result<Vec<String>, Failure> {
    let mut names: Vec<String> = Vec::new();
    let of_policy = policy.interfaces().iter().map(ToString::to_string);
    let asked = if options.interfaces.is_empty() { of_policy.collect() } else { options.interfaces.clone() };
    for name in asked {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return Err(Failure::usage(
            "no interface to guard; name one with --iface, or with interfaces = [\"eth0\"] in the policy",
        ));
    }
    Ok(names)
}

/// Logs which interfaces are protected, and in which mode.
fn announce(guarded: &[Guarded], buckets: &str) {
    for one in guarded {
        let name = &one.interface;
        let (mode, framing) = (one.mode.name(), one.framing.words());
        match one.adopted {
            Adopted::Yes => {
                tracing::info!(
                    event = "attached",
                    interface = name.as_str(),
                    mode,
                    "{name}: program replaced in place, {buckets}, {mode} mode{framing}"
                );
            }
            Adopted::No => tracing::info!(
                event = "attached",
                interface = name.as_str(),
                mode,
                "{name}: attached, {mode} mode{framing}"
            ),
        }
        if let Some(reason) = &one.not_native {
            log::warning(format!(
                "{name}: GENERIC MODE, about a tenth of the speed of native mode. Native mode is not possible: {reason}"
            ));
            log::warning(format!(
                "{name}: in generic mode the kernel may join packets before they are counted; ethtool -K {name} gro off \
                 makes limits in packets exact"
            ));
        }
    }
}
