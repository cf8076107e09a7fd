//! The host under guard: its policy, lists and interfaces, and every change to them.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use ratelimit_common::{
    abi::{self, Event, ListEntry, Reason, list},
    limit::text,
};

use super::log;
use crate::{
    compile::{
        self, HostFacts,
        lists::{self, Lists, Prefix},
    },
    config,
    dataplane::{
        attach::{self, GenericMode, Guarded, Presence},
        kernel::{Maps, Program},
        pin::PinDir,
        probe,
        sysctl::TcpSettings,
        table::SourceTable,
    },
    failure::{ExitCode, Failure},
    policy::Policy,
    serve::protocol::{Block, InterfaceStatus, LimitInfo, Reply, Request, Status},
    stats::{
        Snapshot,
        posture::{Pressure, Watch},
    },
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
    /// What generic mode is answered with.
    pub generic: GenericMode,
}

/// The running host.
#[derive(Debug)]
pub(super) struct Host {
    policy_path: PathBuf,
    policy: Policy,
    /// Whether `limit set` changed it.
    changed: bool,
    generation: u64,
    facts: HostFacts,
    maps: Maps,
    lists: Lists,
    guarded: Vec<Guarded>,
    pins: PinDir,
    cookie_problem: Option<String>,
    release: String,
    started: Instant,
    watch: Watch,
    last_second: Pressure,
    seen: Seen,
    /// Kept to guard an interface again that comes back.
    program: Program,
    generic: GenericMode,
    /// Held, not read: nobody else may work with these pins.
    _claim: File,
}

/// Everything that starting has made.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) generation: u64,
    pub(super) facts: HostFacts,
    pub(super) program: Program,
    pub(super) maps: Maps,
    pub(super) guarded: Vec<Guarded>,
    pub(super) pins: PinDir,
    pub(super) release: String,
    pub(super) claim: File,
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
    pub(super) fn new(options: &Options, policy: Policy, started: Started) -> Result<Self, Failure> {
        let lists = started.maps.lists()?;
        let mut host = Self {
            policy_path: options.policy.clone(),
            policy,
            changed: false,
            generation: started.generation,
            facts: started.facts,
            maps: started.maps,
            lists,
            guarded: started.guarded,
            pins: started.pins,
            cookie_problem: started.program.cookie_problem().map(str::to_owned),
            release: started.release,
            started: Instant::now(),
            watch: Watch::default(),
            last_second: Pressure::default(),
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
        &self.policy
    }

    /// What is really on each guarded interface.
    pub(super) fn interfaces(&self) -> Vec<InterfaceStatus> {
        self.guarded.iter().map(|one| interface_status(&self.pins, one)).collect()
    }

    /// Looks whether our program is still on every interface, and puts it back where it can. Called once a second.
    pub(super) fn guard(&mut self) {
        for one in &mut self.guarded {
            let now = attach::presence(&self.pins, &one.interface).unwrap_or(Presence::Missing);
            let name = &one.interface;
            match now {
                Presence::Ours(_) => one.lost = false,
                Presence::Free => {
                    log::warning(format!("{name}: our program is gone; attaching it again"));
                    match attach::attach(&mut self.program, &self.pins, name, self.generic) {
                        Ok(again) => *one = again,
                        Err(error) if !one.lost => {
                            log::error(format!("{name} is NOT PROTECTED: {error}"));
                            one.lost = true;
                        }
                        Err(_) => {}
                    }
                }
                Presence::Missing | Presence::Foreign(_) if one.lost => {}
                Presence::Missing => {
                    log::error(format!("{name} is gone; it will be guarded again when it comes back"));
                    one.lost = true;
                }
                Presence::Foreign(_) => {
                    log::error(format!(
                        "{name} is NOT PROTECTED: another program has taken the place of ours"
                    ));
                    one.lost = true;
                }
            }
        }
    }

    /// The pin directory.
    pub(super) fn pin_root(&self) -> &Path {
        self.pins.root()
    }

    /// The table of sources, to be read without holding up anything else.
    pub(super) fn table(&self) -> Arc<SourceTable> {
        self.maps.table()
    }

    /// Reads the policy file again. A broken file changes nothing.
    pub(super) fn reload(&mut self) -> Result<(), Failure> {
        let loaded = config::load(&self.policy_path)?;
        for warning in &loaded.warnings {
            log::warning(warning);
        }
        let next = loaded.policy;
        if next.source().table_entries() != self.policy.source().table_entries() {
            log::warning("source.table_entries changed: takes effect at the next start");
        }
        if next.listen() != self.policy.listen() {
            log::warning("[listen] changed: takes effect at the next start");
        }
        if next.interfaces() != self.policy.interfaces() {
            log::warning("interfaces changed: takes effect at the next start");
        }
        self.put_in_force(next)?;
        self.changed = false;
        Ok(())
    }

    fn put_in_force(&mut self, policy: Policy) -> Result<(), Failure> {
        self.facts.window_scale = TcpSettings::read().window_scale();
        let generation = self.generation + 1;
        let before = self.maps.policy();
        self.maps.set_policy(&compile::desired(&policy, &self.facts, generation, before.as_ref()))?;
        self.generation = generation;
        self.policy = policy;
        Ok(())
    }

    /// What keeps SYN cookies from working as they should, as sentences with the remedy.
    pub(super) fn cookie_warnings(&self) -> Vec<String> {
        if !self.policy.services().iter().any(|service| service.syn_cookies().is_some()) {
            return Vec::new();
        }
        cookie_warnings(self.cookie_problem.as_deref(), &TcpSettings::read())
    }

    /// Carries out one request that needs no look at the table.
    pub(super) fn answer(&mut self, request: Request) -> Result<Reply, Failure> {
        let now_ns = probe::now_ns();
        match request {
            Request::Status => Ok(Reply::Status(Box::new(self.status()))),
            Request::Stats => Ok(Reply::Stats(self.snapshot()?)),
            Request::BlockAdd { prefix, for_ns, reason } => {
                self.block(&prefix, for_ns, reason.as_deref(), now_ns)
            }
            Request::BlockDel { prefix } => self.unblock(&prefix, now_ns),
            Request::BlockList => Ok(Reply::Blocks(self.blocks(now_ns))),
            Request::AllowAdd { prefix } => self.allow(&prefix),
            Request::AllowDel { prefix } => self.disallow(&prefix),
            Request::AllowList => {
                let allowed = self.lists.iter().filter(|(_, entry)| entry.own_allowed == list::ALLOWED);
                Ok(Reply::Allows(allowed.map(|(prefix, _)| prefix.to_string()).collect()))
            }
            Request::LimitList => Ok(Reply::Limits(self.limits())),
            Request::LimitGet { name } => self.limit(&name),
            Request::LimitSet { name, rate } => self.set_limit(&name, &rate),
            Request::Detach { interface } => self.detach(interface.as_deref()),
        }
    }

    /// The status, with the table still to be filled in by whoever reads it.
    pub(super) fn status(&self) -> Status {
        let now_ns = probe::now_ns();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            abi: abi::ABI_VERSION,
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs(),
            kernel: self.release.clone(),
            interfaces: self.guarded.iter().map(|one| interface_status(&self.pins, one)).collect(),
            policy: self.policy_path.display().to_string(),
            policy_generation: self.generation,
            policy_changed: self.changed,
            table_entries: 0,
            table_capacity: 0,
            hot_cells: 0,
            promotions: 0,
            promotions_per_second: self.last_second.promoted,
            evictions: 0,
            posture: self.watch.posture().name().to_owned(),
            posture_changes: self.watch.changes(),
            blocked_prefixes: self.blocks(now_ns).len() as u64,
            allowed_prefixes: self.lists.values().filter(|e| e.own_allowed == list::ALLOWED).count() as u64,
            pin: self.pins.root().display().to_string(),
            warnings: self.cookie_warnings(),
        }
    }

    /// The counters now.
    pub(super) fn snapshot(&self) -> Result<Snapshot, Failure> {
        Ok(Snapshot::new(&self.maps.counters()?))
    }

    /// Sources that were ever entered into the table.
    pub(super) fn promotions(&self) -> Result<u64, Failure> {
        Ok(self.maps.event(Event::Promoted)?)
    }

    /// Looks at what the last second brought. Called once a second.
    pub(super) fn observe(&mut self) -> Result<(), Failure> {
        let now = self.look()?;
        let before = std::mem::replace(&mut self.seen, now);
        self.last_second = Pressure {
            promoted: now.promoted - before.promoted,
            refused_newcomers: now.refused_newcomers - before.refused_newcomers,
            over_total: now.over_total - before.over_total,
            budget: u64::from(self.policy.gate().new_sources_per_cpu()) * u64::from(self.facts.cpus),
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
        // Options promised under settings that have changed since would be read wrongly.
        if self.facts.window_scale != TcpSettings::read().window_scale() {
            self.put_in_force(self.policy.clone())?;
        }
        Ok(())
    }

    fn look(&self) -> Result<Seen, Failure> {
        let snapshot = self.snapshot()?;
        Ok(Seen {
            promoted: self.promotions()?,
            refused_newcomers: snapshot.packets(Reason::NewSourceBudget),
            over_total: snapshot.packets(Reason::ServiceTotal),
        })
    }

    /// Forgets blocks that have run out. The kernel stopped honouring them by itself; this frees their room.
    pub(super) fn sweep(&mut self, now_ns: u64) -> Result<(), Failure> {
        let ran_out = |entry: &ListEntry| (1..=now_ns).contains(&entry.own_blocked_until_ns);
        if !self.lists.values().any(ran_out) {
            return Ok(());
        }
        let mut wanted = self.lists.clone();
        for entry in wanted.values_mut().filter(|entry| ran_out(entry)) {
            clear_block(entry);
        }
        self.change_lists(wanted)
    }

    fn block(
        &mut self,
        prefix: &str,
        for_ns: Option<u64>,
        reason: Option<&str>,
        now_ns: u64,
    ) -> Result<Reply, Failure> {
        let prefix = parse_prefix(prefix)?;
        let reason = reason.unwrap_or_default();
        if reason.len() > list::REASON_LEN {
            return Err(Failure::usage(format!(
                "reason is {} bytes long; use at most {}",
                reason.len(),
                list::REASON_LEN
            )));
        }
        if reason.contains(char::is_control) {
            return Err(Failure::usage(format!(
                "reason {reason:?} has control characters in it; use plain text"
            )));
        }
        let mut wanted = self.lists.clone();
        let entry = wanted.entry(prefix).or_insert(ListEntry::EMPTY);
        clear_block(entry);
        entry.own_blocked_until_ns = for_ns.map_or(list::FOREVER_NS, |ns| now_ns.saturating_add(ns));
        entry.reason_len = reason.len() as u64;
        entry.reason[..reason.len()].copy_from_slice(reason.as_bytes());
        self.change_lists(wanted)?;
        let until = for_ns
            .map_or_else(|| "until removed".to_owned(), |ns| format!("for {} s", ns.div_ceil(1_000_000_000)));
        let allowed = self.lists.get(&prefix).is_some_and(|entry| entry.allowed == list::ALLOWED);
        let note = match (allowed, prefix.len()) {
            (true, _) => "; it is on the allow list too, which wins",
            (false, 0) => "; that is everybody, your own connection included, unless it is on the allow list",
            (false, _) => "",
        };
        Ok(Reply::Done(format!("blocked {prefix} {until}{note}")))
    }

    fn unblock(&mut self, prefix: &str, now_ns: u64) -> Result<Reply, Failure> {
        let prefix = parse_prefix(prefix)?;
        let mut wanted = self.lists.clone();
        match wanted.get_mut(&prefix) {
            Some(entry) if entry.own_blocked_until_ns > now_ns => clear_block(entry),
            _ => return Err(not_listed(&prefix, "block")),
        }
        self.change_lists(wanted)?;
        let still = self
            .lists
            .iter()
            .find(|(other, entry)| other.covers(&prefix) && entry.own_blocked_until_ns > now_ns);
        Ok(Reply::Done(match still {
            Some((wider, _)) => format!("removed {prefix} from the block list; {wider} still blocks it"),
            None => format!("removed {prefix} from the block list"),
        }))
    }

    fn allow(&mut self, prefix: &str) -> Result<Reply, Failure> {
        let prefix = parse_prefix(prefix)?;
        let mut wanted = self.lists.clone();
        wanted.entry(prefix).or_insert(ListEntry::EMPTY).own_allowed = list::ALLOWED;
        self.change_lists(wanted)?;
        Ok(Reply::Done(format!("{prefix} is neither blocked nor limited from now on")))
    }

    fn disallow(&mut self, prefix: &str) -> Result<Reply, Failure> {
        let prefix = parse_prefix(prefix)?;
        let mut wanted = self.lists.clone();
        match wanted.get_mut(&prefix) {
            Some(entry) if entry.own_allowed == list::ALLOWED => entry.own_allowed = 0,
            _ => return Err(not_listed(&prefix, "allow")),
        }
        self.change_lists(wanted)?;
        Ok(Reply::Done(format!("removed {prefix} from the allow list")))
    }

    /// Writes the difference to the kernel, then remembers it.
    fn change_lists(&mut self, wanted: Lists) -> Result<(), Failure> {
        let wanted = lists::effective(wanted);
        self.maps.change_lists(&self.lists, &wanted)?;
        self.lists = wanted;
        Ok(())
    }

    fn blocks(&self, now_ns: u64) -> Vec<Block> {
        let live = self.lists.iter().filter(|(_, entry)| entry.own_blocked_until_ns > now_ns);
        live.map(|(prefix, entry)| Block {
            prefix: prefix.to_string(),
            seconds_left: (entry.own_blocked_until_ns != list::FOREVER_NS)
                .then(|| (entry.own_blocked_until_ns - now_ns).div_ceil(1_000_000_000)),
            reason: reason_text(entry),
        })
        .collect()
    }

    fn limits(&self) -> Vec<LimitInfo> {
        let named = self.policy.source().limits().iter();
        named
            .map(|named| LimitInfo {
                name: named.name().to_owned(),
                rate: named.rate().to_string(),
                meter: named.rate().meter.name().to_owned(),
                amount: named.rate().amount,
                period: named.rate().period.name().to_owned(),
                burst: named.rate().burst,
            })
            .collect()
    }

    fn limit(&self, name: &str) -> Result<Reply, Failure> {
        let all = self.limits();
        let known: Vec<_> = all.iter().map(|limit| limit.name.clone()).collect();
        match all.into_iter().find(|limit| limit.name == name) {
            Some(limit) => Ok(Reply::Limits(vec![limit])),
            None => {
                Err(Failure::usage(format!("no limit is called {name:?}; there is {}", known.join(", "))))
            }
        }
    }

    fn set_limit(&mut self, name: &str, rate: &str) -> Result<Reply, Failure> {
        let rate =
            text::parse_rate(rate).map_err(|error| Failure::usage(format!("limit {name:?}: {error}")))?;
        let next = self.policy.with_limit(name, rate).map_err(Failure::usage)?;
        self.put_in_force(next)?;
        self.changed = true;
        log::info(format!("limit {name} set to {rate}; the policy file is unchanged"));
        Ok(Reply::Done(format!("{name} is {rate} from now on, until the policy is read again")))
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
            self.guarded.retain(|guarded| guarded.interface != *name);
            log::warning(format!("detached from {name}: it is not protected any more"));
        }
        Ok(Reply::Done(format!("detached from {}; the daemon still runs", names.join(", "))))
    }
}

fn cookie_warnings(problem: Option<&str>, settings: &TcpSettings) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(problem) = problem {
        warnings.push(format!("SYN cookies are off, SYN limits still hold: {problem}"));
    } else if settings.syncookies != 2 {
        warnings.push(format!(
            "SYN cookies are off, SYN limits still hold: net.ipv4.tcp_syncookies is {}, and only at 2 does the kernel \
             take cookies that were sent for it; sysctl -w net.ipv4.tcp_syncookies=2",
            settings.syncookies
        ));
    } else if settings.window_scale().is_none() {
        warnings.push(
            "connections made by SYN cookie will have neither window scaling nor SACK, which makes fast ones slower; \
             sysctl -w net.ipv4.tcp_timestamps=2 (with tcp_window_scaling and tcp_sack at 1) keeps both"
                .to_owned(),
        );
    }
    warnings
}

fn interface_status(pins: &PinDir, guarded: &Guarded) -> InterfaceStatus {
    let (mode, note) = match attach::presence(pins, &guarded.interface) {
        Ok(Presence::Ours(attached)) => {
            let reason = guarded.not_native.as_ref();
            (attached.mode.name(), reason.map(|reason| format!("native mode is not possible: {reason}")))
        }
        Ok(Presence::Foreign(_)) => {
            ("foreign", Some("another program has taken the place of ours".to_owned()))
        }
        Ok(Presence::Free) => ("detached", Some("our program is gone".to_owned())),
        Ok(Presence::Missing) => ("detached", Some("the interface is gone".to_owned())),
        Err(error) => ("detached", Some(error.to_string())),
    };
    InterfaceStatus { name: guarded.interface.clone(), mode: mode.to_owned(), note }
}

fn parse_prefix(text: &str) -> Result<Prefix, Failure> {
    text.parse().map_err(Failure::usage)
}

fn not_listed(prefix: &Prefix, which: &str) -> Failure {
    Failure::new(ExitCode::Found, format!("{prefix} is not on the {which} list; nothing was changed"))
}

fn clear_block(entry: &mut ListEntry) {
    entry.own_blocked_until_ns = 0;
    entry.reason_len = 0;
    entry.reason = [0; list::REASON_LEN];
}

fn reason_text(entry: &ListEntry) -> Option<String> {
    let bytes = entry.reason.get(..entry.reason_len as usize)?;
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes).into_owned())
}
