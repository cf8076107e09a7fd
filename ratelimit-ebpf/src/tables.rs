//! The seam between the packet path and its maps: BPF maps in the kernel, hash maps in tests.

use ratelimit_common::{
    abi::{
        Bucket, Clock, DropEvent, EntryKey, Event, Lease, LimitSet, ListEntry, Policy, PrefixKey, Reason,
        destination::DestinationKey,
    },
    limit::prefilter,
};

use crate::{
    frame::Frame,
    packet::{Address, Family},
};

/// Why an entry could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertError {
    /// Another CPU was first. Its entry can be used.
    Exists,
    /// The table has no room.
    Full,
}

/// A program that another one tail-calls. The numbers are indices in the tail-call map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Successor {
    /// The program that answers a SYN. The source has been charged for the SYN.
    Answer = 0,
    /// The program that judges any other segment, from the start.
    Prove = 1,
    /// The program that marks a refused packet and lets it pass.
    Mark = 2,
    /// The program that tells the sender of a packet that it was refused.
    Reject = 3,
}

/// Operations that need the kernel's view of the packet: tail calls, and functions of their own that read the packet again.
pub trait Relay {
    /// Whether replies can be sent on this kind of link, see [`Successor::Answer`]. A constant of each program.
    fn answers(&self) -> bool;
    /// Tail-calls another program. Returns only if there is no such program.
    fn hand_over(&self, to: Successor, context: TailCallContext);
    /// The service of a packet whose port is shared, see [`at_destination`](crate::service::at_destination). A function of its own in
    /// the kernel: few packets need it, and reading the packet again is cheaper than keeping its destination for all.
    fn service_at(&self, frame: &Frame<'_>, table: u32, class: u32) -> u32;
    /// The reason of a frame without a source that would pass, see [`link::judge`](crate::link::judge). A function of its own too; it also knows
    /// the interface that the frame came in by.
    fn judge_link(&self, frame: &Frame<'_>, policy: &Policy, passes: Reason) -> Reason;
}

/// The tail-call context: what the next program need not find out again.
#[derive(Clone, Copy, Debug)]
pub struct TailCallContext {
    /// The reason of the packet unless the next program finds another.
    pub otherwise: Reason,
    /// The number of the service, as in the table of ports.
    pub service: u32,
    /// The number of the user, as in the lists.
    pub user: u16,
}

/// Per-CPU budgets. The numbers are indices in the map of budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum CpuBudget {
    /// Entries of new sources and prefixes.
    Newcomers = 0,
    /// Lookups of the socket of a segment.
    Proofs = 1,
    /// Rejections, which tell the sender of a packet that it was refused.
    Rejections = 2,
    /// Drop events for the daemon.
    Reports = 3,
    /// Packets from which the memory of known clients learns, one by one.
    Lessons = 4,
    /// Answers to queries that a spent total refuses.
    Challenges = 5,
}

/// The words that each CPU keeps for the express lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneWord {
    /// Until when the CPU tries the express lane, in nanoseconds of the coarse clock.
    OpenUntil = 0,
    /// The policy and the service for whose packets the CPU has met a spent total: see [`noted`](crate::limit::noted).
    SpentName = 1,
    /// Until when the total of `SpentName` has nothing left for untracked sources.
    SpentUntil = 2,
    /// The reason of that refusal, which tells which total `SpentName` is about.
    SpentReason = 3,
    /// Until when the CPU checks for crowded prefixes: it has met one that was used up or squeezed its sources.
    CrowdedUntil = 4,
    /// The policy and the service for whose packets a total was spent for sources with an entry.
    TrackedSpentName = 5,
    /// Until when the total of `TrackedSpentName` has nothing left for sources with an entry.
    TrackedSpentUntil = 6,
    /// The reason of that refusal, which tells which total `TrackedSpentName` is about.
    TrackedSpentReason = 7,
    /// The policy and the service for whose packets the CPU has met a prefix that refused a source: see
    /// [`note_level`](crate::limit::note_level).
    CrowdedName = 8,
    /// The mask of the aggregation level of the prefix of `CrowdedName`.
    CrowdedMask = 9,
    /// The first cell of the aggregation level of the prefix of `CrowdedName`.
    CrowdedCells = 10,
    /// The first word of the source of a packet that the CPU has refused and noted down: see `express::noted_refusal`.
    RefusedSource = 11,
    /// The second word of the source of the noted packet.
    RefusedSourceEnd = 12,
    /// The reading of the coarse clock at which the CPU refused the noted packet.
    RefusedAt = 13,
    /// The policy under which the CPU refused the noted packet, and the packet's family, protocol and port.
    RefusedPacket = 14,
    /// The counter of the noted packet.
    RefusedCounter = 15,
    /// Until when nothing is learned about known clients: a total was spent a moment ago.
    ScarceUntil = 16,
    /// The state of a generator of random numbers.
    Random = 17,
}

impl LaneWord {
    /// How many words each CPU has.
    pub const COUNT: usize = 18;
}

/// The express lane's view of the policy.
#[derive(Clone, Copy, Debug)]
pub struct Lane<'p> {
    /// A copy of the policy in force, see [`Policy::leave_lenient_to_limiter`]. This policy is not on trial, and has a prefilter.
    pub policy: &'p Policy,
}

/// The state that the packet path reads and writes.
pub trait Tables {
    /// A handle to one word that several CPUs share.
    type Word: Copy;
    /// A handle to one source's words.
    type Bucket: Copy;
    /// A handle to one cell of the prefilter.
    type Cell: Copy;
    /// A handle to one cell of prefix aggregation.
    type PrefixLevelCell: Copy;
    /// A handle to the state of one window of a source or user.
    type Window: Copy;
    /// A handle to what this CPU holds of the totals of a service.
    type Share: Copy;
    /// A handle to one set of known clients.
    type Clients: Copy;

    /// The kernel's monotonic clock in nanoseconds. The coarse clock is read once per packet, the precise one only if the policy needs it.
    fn now_ns(&self, clock: Clock) -> u64;
    /// [`prefilter::next_step`] of a time word, by the coarse clock.
    fn next_step(&self, now_q8: u64) -> u64 {
        prefilter::next_step(now_q8)
    }
    /// The policy in force.
    fn policy(&self) -> Option<&Policy>;
    /// The express lane's view of the policy for packets of a family; `None` while the lane is closed to them.
    fn express(&self, family: Family, now_ns: u64) -> Option<Lane<'_>>;
    /// Whether the list of the family has entries. While the express lane is open, an entry for one address applies to all addresses of its
    /// source.
    fn is_listed(&self, family: Family) -> bool;
    /// Whether, under the policy of the open express lane, all packets of a source have the same charge, so that a packet that a total refuses
    /// now is not refused by another limit a moment later.
    fn weighs_alike(&self) -> bool;
    /// A word that this CPU keeps for the express lane.
    fn lane_word(&self, word: LaneWord) -> Option<Self::Word>;
    /// The service of the longest prefix around a destination, in one of the tables.
    fn destined(&self, table: u32, key: &DestinationKey) -> Option<u32>;
    /// The longest listed prefix around an address.
    fn listed(&self, address: Address) -> Option<&ListEntry>;

    /// The entry of a source, if it has one.
    fn bucket(&self, key: &EntryKey) -> Option<Self::Bucket>;
    /// One word of an entry.
    fn bucket_word(&self, bucket: Self::Bucket, index: usize) -> Self::Word;
    /// The word with the time until which the source of an entry counts as proven.
    fn proven_until(&self, bucket: Self::Bucket) -> Self::Word;
    /// Makes the entry of a source; never overwrites one.
    fn insert(&self, key: &EntryKey, bucket: &Bucket) -> Result<(), InsertError>;
    /// The buckets of a user.
    fn user(&self, index: u32) -> Option<Self::Bucket>;
    /// The limits of a user, in one of the tables.
    fn user_limits(&self, table: u32, index: u32) -> Option<&LimitSet>;
    /// The lease of a user's limit, by [`lease_place`](ratelimit_common::abi::lease::lease_place).
    fn lease(&self, place: u32) -> Option<Lease>;
    /// The word with the units that were spent of a lease.
    fn lease_used(&self, place: u32) -> Option<Self::Word>;
    /// The word with the units that were needed beyond a lease.
    fn lease_unmet(&self, place: u32) -> Option<Self::Word>;
    /// The state of a window of a source, if it has one.
    fn window(&self, key: &EntryKey) -> Option<Self::Window>;
    /// Makes an unused window for a source; never overwrites one.
    fn insert_window(&self, key: &EntryKey) -> Result<(), InsertError>;
    /// The state of a window that has refused its source, if it has one.
    fn kept_window(&self, key: &EntryKey) -> Option<Self::Window>;
    /// Moves a window to the table that new sources cannot displace it from.
    fn keep_window(&self, key: &EntryKey, state: Self::Window);
    /// The state of a window of a user.
    fn user_window(&self, index: u32) -> Option<Self::Window>;
    /// One word of a window; `slot` is below the number of sub-windows.
    fn window_word(&self, state: Self::Window, slot: usize) -> Self::Word;

    /// The bucket of one of this CPU's budgets.
    fn budget(&self, budget: CpuBudget) -> Option<Self::Word>;

    /// Until when a cell of the prefilter is tracked, as a time word.
    fn tracked_until(&self, cell: u32) -> u64;
    /// Marks a cell as tracked until a time word, or a little longer.
    fn track_until(&self, cell: u32, until_q8: u64);
    /// The bits of a cell: [`TRACKED_BIT`](prefilter::TRACKED_BIT) and [`REMEMBERED_BIT`](prefilter::REMEMBERED_BIT).
    fn cell_bits(&self, cell: u32) -> u64;
    /// Whether a cell may be tracked: `false` only if it is not. This costs less than [`tracked_until`](Self::tracked_until).
    #[inline(always)]
    fn may_be_tracked(&self, cell: u32) -> bool {
        self.cell_bits(cell) & prefilter::TRACKED_BIT != 0
    }
    /// Sets the [`REMEMBERED_BIT`](prefilter::REMEMBERED_BIT) of a cell, one of whose sources has a negative entry or is proven.
    fn something_remembered(&self, _cell: u32) {}
    /// Clears the [`REMEMBERED_BIT`](prefilter::REMEMBERED_BIT) of a cell, none of whose sources was found to have a negative entry or to be proven. Callers check
    /// again afterwards: another CPU may have written something since.
    fn nothing_remembered(&self, _cell: u32) {}
    /// Clears the [`TRACKED_BIT`](prefilter::TRACKED_BIT) of a cell that was found not to be tracked.
    fn no_longer_tracked(&self, _cell: u32, _now_q8: u64) {}
    /// The mark of a cell that has a proven source, see [`fair::proven_mark`](ratelimit_common::limit::fair::proven_mark).
    fn proven_mark(&self, cell: u32) -> u8;
    /// Marks a cell as one with a source that is proven from now on.
    fn mark_proven(&self, cell: u32, now_q8: u64);
    /// A cell of the prefilter.
    fn cell(&self, index: u32) -> Option<Self::Cell>;
    /// The bucket of a cell of the prefilter.
    fn cell_tat(&self, cell: Self::Cell) -> Self::Word;
    /// One of the negative entries of all cells, by its [place](prefilter::negative_place).
    fn negative_entry(&self, place: u32) -> Option<Self::Word>;

    /// A cell of prefix aggregation.
    fn prefix_level_cell(&self, index: u32) -> Option<Self::PrefixLevelCell>;
    /// The bucket of a cell of prefix aggregation.
    fn prefix_level_tat(&self, cell: Self::PrefixLevelCell) -> Self::Word;
    /// The word with a negative entry, for a prefix of the cell that is used up.
    fn prefix_level_negative_entry(&self, cell: Self::PrefixLevelCell) -> Self::Word;
    /// The word with the note about a prefix of the cell that squeezes its sources.
    fn prefix_level_squeezed(&self, cell: Self::PrefixLevelCell) -> Self::Word;
    /// The word with the time until which the cell is tracked.
    fn prefix_level_tracked_until(&self, cell: Self::PrefixLevelCell) -> Self::Word;
    /// The bucket of a tracked prefix, if it has one.
    fn prefix(&self, key: &PrefixKey) -> Option<Self::Word>;
    /// Makes the entry of a prefix; never overwrites one.
    fn insert_prefix(&self, key: &PrefixKey, tat_q8: u64) -> Result<(), InsertError>;

    /// The word with the debt of the sources of a prefilter cell beyond their fair shares.
    fn fair_share(&self, cell: u32) -> Option<Self::Word>;
    /// The word with the mark of the source of a prefilter cell that was last asked for a connection.
    fn asked(&self, cell: u32) -> Option<Self::Word>;

    /// The bucket of challenges to the networks of a cell.
    fn challenged(&self, cell: u32) -> Option<Self::Word>;

    /// A set of known clients.
    fn clients(&self, set: u32) -> Option<Self::Clients>;
    /// The word of one client of a set; `way` is below [`WAYS`](ratelimit_common::limit::clients::WAYS).
    fn client(&self, set: Self::Clients, way: usize) -> Self::Word;
    /// What the clients of a set have claimed, by the same ways.
    fn claimed(&self, set: u32) -> Option<Self::Clients>;
    /// A word of the filter in front of known clients.
    fn client_filter(&self, index: u32) -> Option<Self::Word>;

    /// The word with the time until which known clients want the reserve of a total.
    fn wanted_until(&self, service: u32) -> Option<Self::Word>;
    /// The bucket of the reserve of a limit of a total, of which known clients have a part before others.
    fn reserve(&self, service: u32, index: usize) -> Option<Self::Word>;
    /// The shared bucket of a limit of a service's total, or of the host's.
    fn total(&self, service: u32, index: usize) -> Option<Self::Word>;
    /// What this CPU holds of the totals of a service, or of the host.
    fn share(&self, service: u32) -> Option<Self::Share>;
    /// The word with what this CPU holds at a place of a share.
    fn share_pool(&self, share: Self::Share, place: usize) -> Self::Word;
    /// The word with the time until which a place of a share gets no more.
    fn share_refused_until(&self, share: Self::Share, place: usize) -> Self::Word;

    /// The shared bucket of an interface's cap on frames without a source.
    fn link(&self, interface: u32) -> Option<Self::Word>;
    /// The cell of a neighbour: the word with its owner, and its bucket.
    fn link_cell(&self, index: u32) -> Option<(Self::Word, Self::Word)>;

    /// The bucket of a service's SYNs.
    fn syn_meter(&self, service: u32) -> Option<Self::Word>;
    /// The word with the time until which a service's SYNs are answered with cookies.
    fn cookies_until(&self, service: u32) -> Option<Self::Word>;

    /// Reads a word.
    fn load(&self, word: Self::Word) -> u64;
    /// Writes a word without comparing.
    fn store(&self, word: Self::Word, new: u64);
    /// Adds to a word.
    fn add(&self, word: Self::Word, amount: u64);
    /// Stores `new` if the word is still `seen`, and returns whether it did.
    fn compare_exchange(&self, word: Self::Word, seen: u64, new: u64) -> bool;

    /// The word with the time until which this CPU does not report the sources of a slot again.
    fn quiet_until(&self, slot: u32) -> Option<Self::Word>;
    /// Sends the daemon a drop event, and returns whether there was room.
    fn tell(&self, event: DropEvent) -> bool;

    /// Counts an event.
    fn note(&self, event: Event);
    /// Counts one frame in one of the counters.
    fn count(&self, slot: u32, len: u64);
}
