//! The maps of the loaded program, and writing a policy into them.

mod counters;
mod destinations;
mod lane;
mod leases;
mod lists;
mod program;
mod services;
mod totals;
mod users;

use std::{fmt, sync::Arc};

use aya::{
    Ebpf,
    maps::{Array, ArrayOfMaps, HashMap, LpmTrie, Map, MapData, MapError, PerCpuArray, RingBuf},
};
use ratelimit_common::abi::{
    self, Bucket, Counter, EntryKey, Event, Lease, LimitSet, ListEntry, PrefixKey, PrefixLevelCell, Share,
    Spent, SynState, TotalState, WindowState,
    destination::DestinationKey,
    list::{ListAddrV4, ListAddrV6},
    names,
    user::MAX_USERS,
};

use self::lane::LaneKeeper;
pub use self::{
    counters::Meters,
    lists::require_room,
    program::{Program, load, load_image},
    users::UserTable,
};
pub(super) use self::{
    counters::{read_counts, read_event, read_known_packets},
    lists::read_lists,
};
use super::{
    DataplaneError,
    clients::ClientMemory,
    drops::DropRing,
    inner_maps::{InnerMaps, PinnedInnerMaps},
    pin::{Layout, PinDir},
    samples::Samples,
    table::SourceTable,
};
use crate::{
    compile::{self, Desired, lists::Lists},
    stats::known_packets::KnownPackets,
};

/// The maps that the program and the daemon share.
pub struct KernelMaps {
    pub(super) table: Arc<SourceTable>,
    counters: PerCpuArray<MapData, Counter>,
    meters: Meters,
    events: PerCpuArray<MapData, u64>,
    drops: Option<DropRing>,
    samples: Option<Samples>,
    lane: LaneKeeper,
    pub(super) lists_v4: LpmTrie<MapData, ListAddrV4, ListEntry>,
    pub(super) lists_v6: LpmTrie<MapData, ListAddrV6, ListEntry>,
    pinned_inner: PinnedInnerMaps,
    policy: InnerMaps<abi::Policy>,
    pub(super) users: Array<MapData, Bucket>,
    pub(super) user_limits: InnerMaps<LimitSet>,
    destinations: ArrayOfMaps<MapData, LpmTrie<MapData, DestinationKey, u32>>,
    pub(super) prefixes: HashMap<MapData, PrefixKey, u64>,
    pub(super) prefix_levels: Array<MapData, PrefixLevelCell>,
    pub(super) fair: Array<MapData, u64>,
    pub(super) totals: Array<MapData, TotalState>,
    pub(super) clients: Arc<ClientMemory>,
    pub(super) shares: PerCpuArray<MapData, Share>,
    pub(super) syns: Array<MapData, SynState>,
    pub(super) allowances: PerCpuArray<MapData, u64>,
    pub(super) windows: HashMap<MapData, EntryKey, WindowState>,
    pub(super) kept_windows: HashMap<MapData, EntryKey, WindowState>,
    pub(super) user_windows: Array<MapData, WindowState>,
    leases: Array<MapData, Lease>,
    spent: Array<MapData, Spent>,
}

/// Takes a map of the object by its name.
fn take_map<T>(ebpf: &mut Ebpf, name: &str) -> Result<T, DataplaneError>
where
    T: TryFrom<Map, Error = MapError>,
{
    let map = ebpf
        .take_map(name)
        .ok_or_else(|| DataplaneError::Load { reason: format!("the object has no map {name}") })?;
    T::try_from(map).map_err(DataplaneError::map(format!("open map {name}")))
}

/// Takes the map that holds a variable of the object, by the variable's name.
fn take_variable(ebpf: &mut Ebpf, name: &str) -> Result<MapData, DataplaneError> {
    match ebpf.take_map(name) {
        Some(Map::Array(map)) => Ok(map),
        _ => Err(DataplaneError::Load { reason: format!("the object has no variable {name}") }),
    }
}

impl KernelMaps {
    fn take(ebpf: &mut Ebpf, pins: Option<(&PinDir, Layout)>) -> Result<Self, DataplaneError> {
        use take_map as one;
        let (buckets, cells) = (one(ebpf, names::BUCKETS)?, one(ebpf, names::CELLS)?);
        let negative = take_variable(ebpf, names::NEGATIVE)?;
        let counters = one(ebpf, names::COUNTERS)?;
        let events = one(ebpf, names::EVENTS)?;
        let pinned_inner = PinnedInnerMaps::default();
        Ok(Self {
            table: Arc::new(SourceTable::new(buckets, cells, negative, one(ebpf, names::MARKS)?)),
            meters: Meters::new(&counters, &events)?,
            counters,
            events,
            drops: Some(DropRing::new(one::<RingBuf<MapData>>(ebpf, names::DROPS)?)),
            samples: Some(Samples::new(one(ebpf, names::SAMPLES)?, one(ebpf, names::SAMPLING)?)),
            lane: LaneKeeper::new(
                one(ebpf, names::SWITCHES)?,
                one(ebpf, names::EXPRESS)?,
                one(ebpf, names::TRACKED)?,
            ),
            lists_v4: one(ebpf, names::LISTS_V4)?,
            lists_v6: one(ebpf, names::LISTS_V6)?,
            policy: InnerMaps::open(
                one(ebpf, names::POLICY)?,
                (names::POLICY, &names::POLICY_PINS),
                pins,
                &pinned_inner,
            )?,
            users: one(ebpf, names::USERS)?,
            user_limits: InnerMaps::open(
                one(ebpf, names::USER_LIMITS)?,
                (names::USER_LIMITS, &names::USER_LIMITS_PINS),
                pins,
                &pinned_inner,
            )?,
            pinned_inner,
            destinations: one(ebpf, names::DESTINATIONS)?,
            prefixes: one(ebpf, names::PREFIXES)?,
            prefix_levels: one(ebpf, names::RUNGS)?,
            fair: one(ebpf, names::FAIR)?,
            totals: one(ebpf, names::TOTALS)?,
            clients: Arc::new(ClientMemory::new(
                take_variable(ebpf, names::CLIENTS)?,
                one(ebpf, names::CLAIMED)?,
                take_variable(ebpf, names::CLIENT_FILTER)?,
            )?),
            shares: one(ebpf, names::SHARES)?,
            syns: one(ebpf, names::SYNS)?,
            allowances: one(ebpf, names::ALLOWANCES)?,
            windows: one(ebpf, names::WINDOWS)?,
            kept_windows: one(ebpf, names::KEPT_WINDOWS)?,
            user_windows: one(ebpf, names::USER_WINDOWS)?,
            leases: one(ebpf, names::LEASES)?,
            spent: one(ebpf, names::SPENT)?,
        })
    }

    /// The memory of known clients.
    pub fn clients(&self) -> Arc<ClientMemory> {
        Arc::clone(&self.clients)
    }

    /// Puts a policy and the prefixes of its users in force, or changes nothing. `before` is the desired state whose users the lists have, if it
    /// is known. Returns how many entries of the lists were written.
    ///
    /// Prefixes are written first, because they can fail for want of room. Until the policy follows, an address of a new user has the limits of
    /// any other source.
    pub fn enforce(
        &mut self,
        lists: &mut Lists,
        before: Option<&Desired>,
        desired: &Desired,
    ) -> Result<usize, DataplaneError> {
        let changes = compile::lists::edited(
            lists,
            &compile::lists::user_edits(
                lists,
                before.map(|before| before.user_sources.as_slice()),
                &desired.user_sources,
            ),
        );
        let undo = compile::lists::reversed(lists, &changes);
        self.change_lists(lists, &changes)?;
        if let Err(error) = self.set_policy(desired) {
            self.change_lists(lists, &undo)?;
            return Err(error);
        }
        Ok(changes.len())
    }

    /// Puts a policy in force, atomically between two packets.
    pub fn set_policy(&mut self, desired: &Desired) -> Result<(), DataplaneError> {
        if !desired.keeps_tables && !desired.users.is_empty() {
            let mut table = Array::<MapData, LimitSet>::create(MAX_USERS as u32, 0)
                .map_err(DataplaneError::map("make a map for the limits of users"))?;
            for (index, set) in &desired.users {
                table.set(*index, set, 0).map_err(DataplaneError::map("write the limits of users"))?;
            }
            self.user_limits.set(desired.policy.tables, table)?;
        }
        self.begin_windows(&desired.new_user_windows)?;
        if !desired.keeps_tables {
            self.write_destinations(desired)?;
        }
        for index in &desired.new_users {
            self.refill_user(*index)?;
        }
        if desired.keeps_policy {
            self.meters.follow(&desired.names.services);
            // A daemon that was killed during a change may have left the lane closed.
            return self.lane.open(&desired.policy);
        }
        let mut inner = Array::<MapData, abi::Policy>::create(1, 0)
            .map_err(DataplaneError::map("make a map for the policy"))?;
        inner.set(0, desired.policy.as_ref(), 0).map_err(DataplaneError::map("write the policy"))?;
        let held_q8 = self.held(&desired.changed_totals)?;
        // The shares are emptied before the policy changes, so that a failure changes nothing.
        self.empty_shares(&desired.changed_totals)?;
        // The lane is still open here, because searching a full table takes half a second.
        self.begin_services(&desired.new_services)?;
        self.empty_counters(&desired.new_services, &desired.names.services)?;
        let before = if desired.changed_totals.is_empty() { None } else { self.policy() };
        self.lane.close()?;
        let carried = before.as_ref().map_or(Ok(()), |before| self.carry_totals(before, desired, &held_q8));
        if let Err(error) = carried.and_then(|()| self.policy.set(0, inner)) {
            if let Some(in_force) = self.policy() {
                let _written = self.end_overdrafts(&in_force, &in_force, &desired.changed_totals);
                let _opened = self.lane.open(&in_force);
            }
            return Err(error);
        }
        self.meters.follow(&desired.names.services);
        // The shares are emptied again for tokens that CPUs took in between. This happens twice, because a CPU may write back a share that it has
        // just read: it is done within a microsecond, and each pass takes longer. Errors are ignored, because the first pass could write the shares.
        for _ in 0..2 {
            let _written = self.empty_shares(&desired.changed_totals);
        }
        let before = before.as_deref().unwrap_or(&desired.policy);
        let _written = self.end_overdrafts(before, &desired.policy, &desired.changed_totals);
        // An error is ignored, because the policy is in force: a lane that stays closed only costs speed.
        let _opened = self.lane.open(&desired.policy);
        Ok(())
    }

    /// Returns the collection of pinned inner maps, which stays up to date.
    pub fn pinned_inner(&self) -> PinnedInnerMaps {
        self.pinned_inner.clone()
    }

    /// Returns the policy in force; `None` before the first.
    pub fn policy(&self) -> Option<Box<abi::Policy>> {
        self.policy.get(0)?.get(&0, 0).ok().map(Box::new)
    }

    /// Returns when the express lane opens to IPv4 and to IPv6, in nanoseconds of the kernel's monotonic clock; `None` for a family to which it is closed.
    pub fn lane_opens_ns(&self) -> Result<[Option<u64>; 2], DataplaneError> {
        self.lane.opens_ns()
    }

    /// Returns how often an event happened, summed over all CPUs.
    pub fn event(&self, event: Event) -> Result<u64, DataplaneError> {
        read_event(&self.events, event)
    }

    /// Returns the packets of known clients that came while a total was spent.
    pub fn known_packets(&self) -> Result<KnownPackets, DataplaneError> {
        read_known_packets(&self.events)
    }

    /// Returns the ring of drop events, to the first caller only: there is one reader.
    pub fn take_drops(&mut self) -> Option<DropRing> {
        self.drops.take()
    }

    /// Returns the samples of frames, to the first caller only: there is one reader.
    pub fn take_samples(&mut self) -> Option<Samples> {
        self.samples.take()
    }

    /// Returns the table of sources.
    pub fn table(&self) -> Arc<SourceTable> {
        Arc::clone(&self.table)
    }
}

// aya's arrays by CPU have no Debug of their own.
impl fmt::Debug for KernelMaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Maps").field("table", &self.table).finish_non_exhaustive()
    }
}
