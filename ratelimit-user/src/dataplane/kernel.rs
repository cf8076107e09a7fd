//! The loaded program and its maps.

mod destinations;
mod lane;
mod leases;
mod totals;
mod users;

use std::{collections::BTreeSet, fmt, sync::Arc};

use aya::{
    Ebpf, EbpfError, EbpfLoader,
    maps::{
        Array, ArrayOfMaps, HashMap, LpmTrie, Map, MapData, MapError, PerCpuArray, ProgramArray, RingBuf,
        lpm_trie::Key,
    },
    programs::{ProgramError, Xdp},
};
use ratelimit_common::abi::{
    self, Bucket, Counter, EntryKey, Event, FairCell, Lease, LimitSet, ListEntry, PrefixKey, PrefixLevelCell,
    Reason, Share, Spent, SynState, TotalState, Verdict, WindowState,
    counter::{Fate, slot},
    destination::DestinationKey,
    list::{self, ListAddrV4, ListAddrV6},
    listener::{self, Offsets},
    names,
    user::MAX_USERS,
};

use self::lane::LaneKeeper;
pub use self::users::UserTable;
use super::{
    DataplaneError,
    drops::DropRing,
    error::whole_chain,
    framing::Framing,
    kept::KeptVariables,
    listener::{Unreadable, offsets},
    pin::{Layout, PinDir},
    samples::Samples,
    table::SourceTable,
    trace::{Image, TracedVerdict, VerdictLog},
    trie,
};
use crate::compile::{
    Desired,
    lists::{self, Change, Lists, Prefix, TrieKey},
};

/// A verified program, not attached to anything by itself.
pub struct Program {
    ebpf: Ebpf,
    /// Size of the table, for the error that there is no memory.
    sources: u32,
    jumps: ProgramArray<MapData>,
    jumps_ip: ProgramArray<MapData>,
    /// Interfaces by which nobody is answered.
    silent: HashMap<MapData, u32, u32>,
    /// Whether the program for IP links is in the kernel. Most hosts never need it.
    has_ip: bool,
    cookie_problem: Option<String>,
    listener_problem: Option<String>,
}

/// The maps that the program and the daemon share.
pub struct KernelMaps {
    pub(super) table: Arc<SourceTable>,
    counters: Arc<PerCpuArray<MapData, Counter>>,
    events: PerCpuArray<MapData, u64>,
    drops: Option<DropRing>,
    samples: Option<Samples>,
    lane: LaneKeeper,
    pub(super) lists_v4: LpmTrie<MapData, ListAddrV4, ListEntry>,
    pub(super) lists_v6: LpmTrie<MapData, ListAddrV6, ListEntry>,
    policy: ArrayOfMaps<MapData, Array<MapData, abi::Policy>>,
    pub(super) users: Array<MapData, Bucket>,
    pub(super) user_limits: ArrayOfMaps<MapData, Array<MapData, LimitSet>>,
    destinations: ArrayOfMaps<MapData, LpmTrie<MapData, DestinationKey, u32>>,
    pub(super) prefixes: HashMap<MapData, PrefixKey, u64>,
    pub(super) prefix_levels: Array<MapData, PrefixLevelCell>,
    pub(super) fair: Array<MapData, FairCell>,
    pub(super) totals: Array<MapData, TotalState>,
    pub(super) shares: PerCpuArray<MapData, Share>,
    pub(super) syns: Array<MapData, SynState>,
    pub(super) allowances: PerCpuArray<MapData, u64>,
    pub(super) windows: HashMap<MapData, EntryKey, WindowState>,
    pub(super) kept_windows: HashMap<MapData, EntryKey, WindowState>,
    pub(super) user_windows: Array<MapData, WindowState>,
    leases: Array<MapData, Lease>,
    spent: Array<MapData, Spent>,
    /// Services whose counters may have moved, as the table of ports has them; 0 is none.
    counted: BTreeSet<u32>,
}

/// One counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// 0, or one more than the index of a service.
    pub service: u32,
    /// Why.
    pub reason: Reason,
    /// What became of them.
    pub fate: Fate,
    /// How many.
    pub counter: Counter,
}

/// Sources that can have windows at once, in a table for so many: windows take twice the room of buckets, and few limits are counted so.
fn windowed_sources(sources: u32) -> u32 {
    (sources / 4).max(MIN_WINDOWED_SOURCES)
}

const MIN_WINDOWED_SOURCES: u32 = 1_024;

/// Attempts to load the program; each failed one met a signal.
const LOAD_ATTEMPTS: u32 = 20;

/// Loads the program. With a pin directory, maps pinned there are adopted and new ones are pinned.
pub fn load(pins: Option<&PinDir>, sources: u32) -> Result<(Program, KernelMaps), DataplaneError> {
    load_image(pins, sources, offsets(), Image::PLAIN)
}

/// Loads one of the builds of the program, which is told where this kernel keeps what listeners ask for, or why that is not known.
pub fn load_image(
    pins: Option<&PinDir>,
    sources: u32,
    offsets: Result<Offsets, Unreadable>,
    image: Image,
) -> Result<(Program, KernelMaps), DataplaneError> {
    let (mut program, mut maps) =
        load_reading(pins, sources, offsets.as_ref().unwrap_or(&listener::UNKNOWN), image)?;
    let mut problem = offsets.err();
    if problem.is_none()
        && let Some(refused) = program.cookie_problem.take()
    {
        // Once more, for a kernel that minds only that listeners are read. With another reason it says the same again.
        problem = Some(Unreadable::Refused(refused));
        (program, maps) = load_reading(pins, sources, &listener::UNKNOWN, image)?;
    }
    program.listener_problem = problem.map(|problem| problem.to_string());
    Ok((program, maps))
}

/// One attempt.
fn load_reading(
    pins: Option<&PinDir>,
    sources: u32,
    offsets: &Offsets,
    image: Image,
) -> Result<(Program, KernelMaps), DataplaneError> {
    let level = image.level.map(|level| level as u8);
    let layout = Layout::current(sources);
    let kept = pins.map(|pins| KeptVariables::read(pins, layout)).transpose()?.flatten();
    let mut loader = EbpfLoader::new();
    loader.override_global(listener::LISTENER, offsets, true);
    if let Some(level) = &level {
        loader.override_global(aya_log::LEVEL, level, true);
    }
    loader.map_max_entries(names::BUCKETS, sources);
    loader.map_max_entries(names::WINDOWS, windowed_sources(sources));
    loader.map_max_entries(names::KEPT_WINDOWS, windowed_sources(sources) / 2);
    if let Some(pins) = pins {
        pins.create(layout)?;
        for name in names::MAPS {
            loader.map_pin_path(name, pins.map(layout, name));
        }
    }
    if let Some(kept) = &kept {
        kept.hand_to(&mut loader);
    }
    let mut ebpf = loader.load(image.object).map_err(|error| load_error(&error, sources))?;
    let maps = KernelMaps::take(&mut ebpf)?;
    let mut program = Program {
        sources,
        jumps: take_map(&mut ebpf, names::JUMPS)?,
        jumps_ip: take_map(&mut ebpf, names::JUMPS_IP)?,
        silent: take_map(&mut ebpf, names::SILENT)?,
        ebpf,
        has_ip: false,
        cookie_problem: None,
        listener_problem: None,
    };
    verify(program.xdp()?, sources)?;
    let successors: Vec<(u32, &str)> = (0..).zip(names::SUCCESSORS).collect();
    let (cookies, others) = successors.split_at(names::COOKIE_PROGRAMS);
    program.load_successors(Framing::Ethernet, others)?;
    // A kernel that does not take these still gets everything else.
    let cookies = program.load_successors(Framing::Ethernet, cookies);
    program.cookie_problem = cookies.err().map(|error| error.to_string());
    Ok((program, maps))
}

/// Loads the program into the kernel. The verifier gives up with EAGAIN when a signal is pending, and takes long enough to
/// meet one; the signal is dealt with in between.
fn verify(xdp: &mut Xdp, sources: u32) -> Result<(), DataplaneError> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        match xdp.load() {
            Ok(()) => return Ok(()),
            Err(ProgramError::LoadError { io_error, .. })
                if io_error.raw_os_error() == Some(libc::EAGAIN) && attempts < LOAD_ATTEMPTS => {}
            Err(ProgramError::LoadError { io_error, .. })
                if io_error.raw_os_error() == Some(libc::ENOMEM) =>
            {
                return Err(DataplaneError::NoMemory { sources });
            }
            Err(error) => return Err(verifier_error(&error)),
        }
    }
}

impl Program {
    /// The program for Ethernet.
    pub fn xdp(&mut self) -> Result<&mut Xdp, DataplaneError> {
        self.one(names::PROGRAM)
    }

    /// The program for interfaces of this kind. The one for IP links is loaded when it is first asked for.
    pub fn for_framing(&mut self, framing: Framing) -> Result<&mut Xdp, DataplaneError> {
        if framing == Framing::Ethernet {
            return self.xdp();
        }
        if !self.has_ip {
            let sources = self.sources;
            verify(self.one(names::PROGRAM_IP)?, sources)?;
            let [prove, mark] = names::SUCCESSORS_IP;
            self.load_successors(framing, &[mark])?;
            // As above: where this fails, those for Ethernet failed too, and the daemon has said so.
            let _said = self.load_successors(framing, &[prove]);
            self.has_ip = true;
        }
        self.one(names::PROGRAM_IP)
    }

    /// Has packets that come in by an interface answered, or not.
    pub fn set_silent(&mut self, index: u32, silent: bool) -> Result<(), DataplaneError> {
        let done = if silent {
            self.silent.insert(index, 1, 0)
        } else {
            match self.silent.remove(&index) {
                Err(MapError::KeyNotFound) => Ok(()),
                done => done,
            }
        };
        done.map_err(DataplaneError::map("say where nobody is answered"))
    }

    /// Why this kernel does not have those for cookies.
    pub fn cookie_problem(&self) -> Option<&str> {
        self.cookie_problem.as_deref()
    }

    /// Why those for cookies do not know what a listener asks for.
    pub fn listener_problem(&self) -> Option<&str> {
        self.listener_problem.as_deref()
    }

    /// The log of a traced program, which hands each verdict to `told`.
    pub fn verdicts<F: Fn(TracedVerdict) + Send + Sync>(
        &mut self,
        told: F,
    ) -> Result<VerdictLog<F>, DataplaneError> {
        VerdictLog::new(&mut self.ebpf, told)
    }

    /// One program by name.
    pub fn one(&mut self, name: &str) -> Result<&mut Xdp, DataplaneError> {
        let missing = || DataplaneError::Load { reason: format!("the object has no program {name}") };
        let program = self.ebpf.program_mut(name).ok_or_else(missing)?;
        program.try_into().map_err(|error: ProgramError| verifier_error(&error))
    }

    fn load_successors(
        &mut self,
        framing: Framing,
        successors: &[(u32, &'static str)],
    ) -> Result<(), DataplaneError> {
        for (place, name) in successors {
            let sources = self.sources;
            verify(self.one(name)?, sources)?;
            let fd = self.one(name)?.fd().and_then(|fd| Ok(fd.try_clone()?));
            let fd = fd.map_err(|error| verifier_error(&error))?;
            let jumps = match framing {
                Framing::Ethernet => &mut self.jumps,
                Framing::Ip => &mut self.jumps_ip,
            };
            jumps
                .set(*place, &fd, 0)
                .map_err(DataplaneError::map("put the programs in place that this one jumps to"))?;
        }
        Ok(())
    }
}

/// A map of the object by name.
fn take_map<T>(ebpf: &mut Ebpf, name: &str) -> Result<T, DataplaneError>
where
    T: TryFrom<Map, Error = MapError>,
{
    let map = ebpf
        .take_map(name)
        .ok_or_else(|| DataplaneError::Load { reason: format!("the object has no map {name}") })?;
    T::try_from(map).map_err(DataplaneError::map(format!("open map {name}")))
}

/// A variable of the object by name, whatever it is.
fn take_variable(ebpf: &mut Ebpf, name: &str) -> Result<MapData, DataplaneError> {
    match ebpf.take_map(name) {
        Some(Map::Array(map)) => Ok(map),
        _ => Err(DataplaneError::Load { reason: format!("the object has no variable {name}") }),
    }
}

impl KernelMaps {
    fn take(ebpf: &mut Ebpf) -> Result<Self, DataplaneError> {
        use take_map as one;
        let (buckets, cells) = (one(ebpf, names::BUCKETS)?, one(ebpf, names::CELLS)?);
        let negative = take_variable(ebpf, names::NEGATIVE)?;
        Ok(Self {
            table: Arc::new(SourceTable::new(buckets, cells, negative, one(ebpf, names::MARKS)?)),
            counters: Arc::new(one(ebpf, names::COUNTERS)?),
            events: one(ebpf, names::EVENTS)?,
            drops: Some(DropRing::new(one::<RingBuf<MapData>>(ebpf, names::DROPS)?)),
            samples: Some(Samples::new(one(ebpf, names::SAMPLES)?, one(ebpf, names::SAMPLING)?)),
            lane: LaneKeeper::new(
                one(ebpf, names::SWITCHES)?,
                one(ebpf, names::EXPRESS)?,
                one(ebpf, names::TRACKED)?,
            ),
            lists_v4: one(ebpf, names::LISTS_V4)?,
            lists_v6: one(ebpf, names::LISTS_V6)?,
            policy: one(ebpf, names::POLICY)?,
            users: one(ebpf, names::USERS)?,
            user_limits: one(ebpf, names::USER_LIMITS)?,
            destinations: one(ebpf, names::DESTINATIONS)?,
            prefixes: one(ebpf, names::PREFIXES)?,
            prefix_levels: one(ebpf, names::RUNGS)?,
            fair: one(ebpf, names::FAIR)?,
            totals: one(ebpf, names::TOTALS)?,
            shares: one(ebpf, names::SHARES)?,
            syns: one(ebpf, names::SYNS)?,
            allowances: one(ebpf, names::ALLOWANCES)?,
            windows: one(ebpf, names::WINDOWS)?,
            kept_windows: one(ebpf, names::KEPT_WINDOWS)?,
            user_windows: one(ebpf, names::USER_WINDOWS)?,
            leases: one(ebpf, names::LEASES)?,
            spent: one(ebpf, names::SPENT)?,
            counted: BTreeSet::from([0]),
        })
    }

    /// Puts a policy and the prefixes of its users in force, or nothing. `before` is what the lists have of users, if that is known. Says
    /// how many entries of the lists were written.
    ///
    /// Prefixes first, because that is what can fail, for want of room. An address that is a new user's already is held to what every source
    /// is held to until the policy is there.
    pub fn enforce(
        &mut self,
        lists: &mut Lists,
        before: Option<&Desired>,
        desired: &Desired,
    ) -> Result<usize, DataplaneError> {
        let changes = lists::edited(lists, &lists::user_edits(lists, before, desired));
        let undo = lists::reversed(lists, &changes);
        self.change_lists(lists, &changes)?;
        if let Err(error) = self.set_policy(desired) {
            self.change_lists(lists, &undo)?;
            return Err(error);
        }
        Ok(changes.len())
    }

    /// Puts a policy in force: from one packet to the next, with nothing in between.
    pub fn set_policy(&mut self, desired: &Desired) -> Result<(), DataplaneError> {
        if !desired.keeps_tables && !desired.users.is_empty() {
            let mut table = Array::<MapData, LimitSet>::create(MAX_USERS as u32, 0)
                .map_err(DataplaneError::map("make a map for the limits of users"))?;
            for (index, set) in &desired.users {
                table.set(*index, set, 0).map_err(DataplaneError::map("write the limits of users"))?;
            }
            self.user_limits
                .set(desired.policy.tables, &table, 0)
                .map_err(DataplaneError::map("put the limits of users in place"))?;
        }
        self.begin_windows(&desired.new_user_windows)?;
        if !desired.keeps_tables {
            self.write_destinations(desired)?;
        }
        for index in &desired.new_users {
            self.refill_user(*index)?;
        }
        for (index, _) in desired.names.services.iter() {
            self.counted.insert(index as u32 + 1);
        }
        if desired.keeps_policy {
            // A daemon that was killed on the way to it may have left the lane closed.
            return self.lane.open(&desired.policy);
        }
        let mut inner = Array::<MapData, abi::Policy>::create(1, 0)
            .map_err(DataplaneError::map("make a map for the policy"))?;
        inner.set(0, desired.policy.as_ref(), 0).map_err(DataplaneError::map("write the policy"))?;
        // Before, so that a failure changes nothing.
        self.empty_shares(&desired.changed_totals)?;
        self.lane.close()?;
        self.policy.set(0, &inner, 0).map_err(DataplaneError::map("put the policy in force"))?;
        // After, for what was taken in between. Twice, because a CPU that is at it puts back what it has read: it is done within a
        // microsecond, and each of these takes longer. The first one has shown that they can be written.
        for _ in 0..2 {
            let _written = self.empty_shares(&desired.changed_totals);
        }
        let _written = self.end_overdrafts(desired);
        // The policy is in force, whatever comes of this: a lane that stays closed costs speed and nothing else.
        let _opened = self.lane.open(&desired.policy);
        Ok(())
    }

    /// The policy in force; `None` before the first.
    pub fn policy(&self) -> Option<Box<abi::Policy>> {
        self.policy.get(&0, 0).ok()?.get(&0, 0).ok().map(Box::new)
    }

    /// The block list and the allow list, as the kernel has them.
    pub fn lists(&self) -> Result<Lists, DataplaneError> {
        read_lists(&self.lists_v4, &self.lists_v6)
    }

    /// Carries out changes of the lists, all or none. `lists` is what the kernel has, before and after.
    pub fn change_lists(&mut self, lists: &mut Lists, changes: &[Change]) -> Result<(), DataplaneError> {
        require_room(lists, changes)?;
        // The program skips a list that has no entries. Switched on before the first one comes, off after the last has gone.
        self.lane.lists_change(lists, changes)?;
        if let Err(error) = self.write_lists(changes) {
            // Half a change could let somebody in. What can be undone is: entries are removed and put back, and
            // neither needs more room than there was.
            self.lane.lists_undone()?;
            self.write_lists(&lists::changes(&self.lists()?, lists))?;
            self.lane.lists_changed(lists)?;
            return Err(error);
        }
        self.lane.lists_carry_out(lists, changes);
        lists::carry_out(lists, changes);
        self.lane.lists_changed(lists)
    }

    /// Writes in the order of the changes; the families have nothing to do with each other.
    fn write_lists(&mut self, changes: &[Change]) -> Result<(), DataplaneError> {
        let (mut sets_v4, mut sets_v6, mut gone_v4, mut gone_v6) = (vec![], vec![], vec![], vec![]);
        for change in changes {
            match change {
                Change::Set(prefix, entry) => match prefix.trie_key() {
                    TrieKey::V4(len, data) => sets_v4.push((Key::new(len, data), *entry)),
                    TrieKey::V6(len, data) => sets_v6.push((Key::new(len, data), *entry)),
                },
                Change::Remove(prefix) => match prefix.trie_key() {
                    TrieKey::V4(len, data) => gone_v4.push(Key::new(len, data)),
                    TrieKey::V6(len, data) => gone_v6.push(Key::new(len, data)),
                },
            }
        }
        trie::write(&mut self.lists_v4, &sets_v4, &gone_v4).map_err(|error| list_error("IPv4", error))?;
        trie::write(&mut self.lists_v6, &sets_v6, &gone_v6).map_err(|error| list_error("IPv6", error))
    }

    /// From when on the express lane is open to IPv4, and to IPv6, in the kernel's monotonic time; `None` where it is closed.
    pub fn lane_opens_ns(&self) -> Result<[Option<u64>; 2], DataplaneError> {
        self.lane.opens_ns()
    }

    /// Every counter that may have moved, all CPUs added up: those of packets for no service, then those of each service that there
    /// was since this was loaded.
    pub fn counts(&self) -> Result<Vec<Count>, DataplaneError> {
        read_counts(&self.counters, self.counted.iter().copied())
    }

    /// The counters, to be read without holding up anything else: thousands of system calls where there are many services.
    pub fn meters(&self) -> Meters {
        Meters { counters: Arc::clone(&self.counters), services: self.counted.iter().copied().collect() }
    }

    /// Frames and bytes by reason, all services and CPUs added up, without what had another fate than the reason's own.
    pub fn counters(&self) -> Result<Vec<(Reason, Counter)>, DataplaneError> {
        let mut sums: Vec<(Reason, Counter)> =
            Reason::ALL.iter().map(|reason| (*reason, Counter { packets: 0, bytes: 0 })).collect();
        for count in self.counts()?.iter().filter(|count| count.fate == Fate::Decided) {
            let (_, sum) = &mut sums[count.reason as usize];
            sum.packets = sum.packets.wrapping_add(count.counter.packets);
            sum.bytes = sum.bytes.wrapping_add(count.counter.bytes);
        }
        Ok(sums)
    }

    /// Frames that ended with a reason, all services and CPUs added up, without what had another fate than the reason's own.
    pub fn packets(&self, reason: Reason) -> Result<u64, DataplaneError> {
        self.counted
            .iter()
            .map(|service| Ok(self.counter(slot(*service, reason, Fate::Decided))?.packets))
            .sum()
    }

    fn counter(&self, slot: u32) -> Result<Counter, DataplaneError> {
        read_counter(&self.counters, slot)
    }

    /// How often an event happened, all CPUs added up.
    pub fn event(&self, event: Event) -> Result<u64, DataplaneError> {
        let per_cpu = self.events.get(&(event as u32), 0).map_err(DataplaneError::map("read the events"))?;
        Ok(per_cpu.iter().sum())
    }

    /// What the program tells of refused packets, for the first who asks: there is one reader.
    pub fn take_drops(&mut self) -> Option<DropRing> {
        self.drops.take()
    }

    /// Samples of frames, for the first who asks: there is one reader.
    pub fn take_samples(&mut self) -> Option<Samples> {
        self.samples.take()
    }

    /// The table of sources.
    pub fn table(&self) -> Arc<SourceTable> {
        Arc::clone(&self.table)
    }
}

// aya's arrays of programs, and those by CPU, have no Debug of their own.
impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("ebpf", &self.ebpf).finish_non_exhaustive()
    }
}

impl fmt::Debug for KernelMaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Maps").field("table", &self.table).finish_non_exhaustive()
    }
}

/// The block list and the allow list, as these maps have them.
pub(super) fn read_lists(
    v4: &LpmTrie<MapData, ListAddrV4, ListEntry>,
    v6: &LpmTrie<MapData, ListAddrV6, ListEntry>,
) -> Result<Lists, DataplaneError> {
    let mut lists = Lists::new();
    trie::read(v4, ([0; 8], ListEntry::EMPTY), |len, data, entry| {
        lists.insert(Prefix::from_v4_key(len, data), entry);
    })
    .map_err(DataplaneError::map("read the IPv4 list"))?;
    trie::read(v6, ([0; 16], ListEntry::EMPTY), |len, data, entry| {
        lists.insert(Prefix::from_v6_key(len, data), entry);
    })
    .map_err(DataplaneError::map("read the IPv6 list"))?;
    Ok(lists)
}

/// The counters of some services.
pub struct Meters {
    counters: Arc<PerCpuArray<MapData, Counter>>,
    services: Vec<u32>,
}

impl Meters {
    /// Every counter, all CPUs added up.
    pub fn counts(&self) -> Result<Vec<Count>, DataplaneError> {
        read_counts(&self.counters, self.services.iter().copied())
    }
}

// aya's arrays by CPU have no Debug of their own.
impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meters").field("services", &self.services).finish_non_exhaustive()
    }
}

/// Every counter of these services, all CPUs added up. Service 0 is packets for none.
pub(super) fn read_counts(
    counters: &PerCpuArray<MapData, Counter>,
    services: impl Iterator<Item = u32>,
) -> Result<Vec<Count>, DataplaneError> {
    let mut counts = Vec::new();
    for service in services {
        for reason in Reason::ALL.iter().copied() {
            // Other fates are for what would be dropped.
            let dropped = reason.verdict() == Verdict::Drop;
            for fate in Fate::ALL.into_iter().filter(|fate| dropped || *fate == Fate::Decided) {
                let counter = read_counter(counters, slot(service, reason, fate))?;
                counts.push(Count { service, reason, fate, counter });
            }
        }
    }
    Ok(counts)
}

fn read_counter(counters: &PerCpuArray<MapData, Counter>, slot: u32) -> Result<Counter, DataplaneError> {
    let per_cpu = counters.get(&slot, 0).map_err(DataplaneError::map("read the counters"))?;
    Ok(per_cpu.iter().fold(Counter { packets: 0, bytes: 0 }, |sum, one| Counter {
        packets: sum.packets.wrapping_add(one.packets),
        bytes: sum.bytes.wrapping_add(one.bytes),
    }))
}

/// What does not fit is refused before anything is written.
pub fn require_room(lists: &Lists, changes: &[Change]) -> Result<(), DataplaneError> {
    let room = list::MAX_LISTED as usize;
    // Both families together fit into one: nothing has to be counted.
    if lists.len() + changes.len() <= room {
        return Ok(());
    }
    for (family, v4) in [("IPv4", true), ("IPv6", false)] {
        if lists::peak(lists, changes, v4) > room {
            return Err(DataplaneError::ListFull { family, max: list::MAX_LISTED });
        }
    }
    Ok(())
}

/// In order, IPv4 comes first.
fn has_family(lists: &Lists, v4: bool) -> bool {
    let outermost = if v4 { lists.first_key_value() } else { lists.last_key_value() };
    outermost.is_some_and(|(prefix, _)| prefix.is_v4() == v4)
}

fn list_error(family: &'static str, source: MapError) -> DataplaneError {
    match source {
        MapError::SyscallError(e) if e.io_error.raw_os_error() == Some(libc::ENOSPC) => {
            DataplaneError::ListFull { family, max: list::MAX_LISTED }
        }
        source => DataplaneError::Map { action: format!("change the {family} list"), source },
    }
}

fn load_error(error: &EbpfError, sources: u32) -> DataplaneError {
    if let EbpfError::MapError(MapError::CreateError { name, io_error }) = error {
        match io_error.raw_os_error() {
            Some(libc::EPERM) => {
                return DataplaneError::NotPermitted { action: format!("to make map {name}") };
            }
            Some(libc::ENOMEM | libc::E2BIG) => return DataplaneError::NoMemory { sources },
            _ => {}
        }
    }
    DataplaneError::Load { reason: whole_chain(error) }
}

/// A verifier log is thousands of lines; the last one before its statistics says what is wrong.
fn verifier_error(error: &ProgramError) -> DataplaneError {
    if let ProgramError::LoadError { io_error, verifier_log } = error {
        if io_error.raw_os_error() == Some(libc::EPERM) {
            return DataplaneError::NotPermitted { action: "to load the program".into() };
        }
        let log = verifier_log.to_string();
        let line = log
            .lines()
            .rfind(|line| !line.is_empty() && !line.starts_with("processed ") && !is_statistic(line));
        let reason = format!("the verifier refused it ({io_error}): {}", line.unwrap_or("it gave no reason"));
        return DataplaneError::Load { reason };
    }
    DataplaneError::Load { reason: whole_chain(error) }
}

fn is_statistic(line: &str) -> bool {
    line.starts_with("verification time") || line.starts_with("stack depth")
}
