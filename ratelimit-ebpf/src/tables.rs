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

/// Why a source could not be given a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertError {
    /// Another CPU was first. Its bucket is there to be used.
    Exists,
    /// The table has no room.
    Full,
}

/// A program that another one ends in. The numbers are places in the map of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Successor {
    /// The program that answers a SYN. The source of the SYN has been charged for it.
    Answer = 0,
    /// The program that judges any other segment, from the start.
    Prove = 1,
    /// The program that lets a refused packet pass as less important.
    Mark = 2,
    /// The program that tells the sender of a packet that it was refused.
    Reject = 3,
}

/// What needs the packet as the kernel knows it: the way to other programs, and functions of their own that look at the packet again.
pub trait Relay {
    /// Whether packets that came in here can be answered, see [`Successor::Answer`]. A constant of each program.
    fn answers(&self) -> bool;
    /// Hands the packet over to another program. Returns only if there is no such program.
    fn hand_over(&self, to: Successor, context: TailCallContext);
    /// The service of a packet whose port is shared, see [`at_destination`](crate::service::at_destination). A function of its own in
    /// the kernel: few packets need it, and it reads the packet once more rather than have the others keep what it needs.
    fn service_at(&self, frame: &Frame<'_>, table: u32, class: u32) -> u32;
    /// What becomes of a frame without a source that would pass, see [`link::judge`](crate::link::judge). A function of its own too, and where
    /// the interface is known that it came in by.
    fn judge_link(&self, frame: &Frame<'_>, policy: &Policy, passes: Reason) -> Reason;
}

/// What the next program need not find out again.
#[derive(Clone, Copy, Debug)]
pub struct TailCallContext {
    /// The reason that holds if the next program has nothing better.
    pub otherwise: Reason,
    /// The service, as the table of ports has it.
    pub service: u32,
    /// The user, as the lists have it.
    pub user: u16,
}

/// What one CPU does for anybody who asks, as far as its budget goes. The numbers are places in the map of budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum CpuBudget {
    /// Enter a source or a prefix into its table.
    Newcomers = 0,
    /// Look for the socket of a segment.
    Proofs = 1,
    /// Tell the sender of a packet that it was refused.
    Rejections = 2,
    /// Tell the daemon of a refused packet.
    Reports = 3,
}

/// The words that each CPU keeps for the express lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneWord {
    /// Until when the CPU looks for refusals in the lane, in the time of the coarse clock.
    OpenUntil = 0,
    /// Under which policy, and for packets of which service, the CPU has met a spent total: see [`noted`](crate::limit::noted).
    SpentName = 1,
    /// Until when the total of `SpentName` has nothing for sources without state.
    SpentUntil = 2,
    /// The reason that says which total `SpentName` is about.
    SpentReason = 3,
    /// Until when the CPU looks at what is known of prefixes: it has met one that was used up or squeezed its sources.
    CrowdedUntil = 4,
    /// What `SpentName` says, of a total that was spent for sources with an entry.
    TrackedSpentName = 5,
    /// Until when the total of `TrackedSpentName` has nothing for sources with an entry.
    TrackedSpentUntil = 6,
    /// The reason that says which total `TrackedSpentName` is about.
    TrackedSpentReason = 7,
    /// Under which policy, and for packets of which service, the CPU has met a prefix that refused a source: see
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
}

impl LaneWord {
    /// How many words there are.
    pub const COUNT: usize = 16;
}

/// What the express lane goes by.
#[derive(Clone, Copy, Debug)]
pub struct Lane<'p> {
    /// A copy of the policy in force, see [`Policy::leave_lenient_to_limiter`]. This policy is not on trial, and has a prefilter.
    pub policy: &'p Policy,
}

/// What the packet path asks of the world.
pub trait Tables {
    /// A handle to one word that several CPUs share.
    type Word: Copy;
    /// A handle to one source's words.
    type Bucket: Copy;
    /// A handle to one cell of the prefilter.
    type Cell: Copy;
    /// A handle to one cell of prefix aggregation.
    type PrefixLevelCell: Copy;
    /// A handle to what a source or user has used of a window.
    type Window: Copy;
    /// A handle to what this CPU has taken from the totals of a service.
    type Share: Copy;

    /// The kernel's monotonic clock. The coarse one is asked once per packet, the precise one where that decides.
    fn now_ns(&self, clock: Clock) -> u64;
    /// [`prefilter::next_step`] of the moment, by the coarse clock.
    fn next_step(&self, now_q8: u64) -> u64 {
        prefilter::next_step(now_q8)
    }
    /// The policy in force.
    fn policy(&self) -> Option<&Policy>;
    /// What the express lane goes by for packets of a family; `None` while it is closed to them.
    fn express(&self, family: Family, now_ns: u64) -> Option<Lane<'_>>;
    /// Whether some source of the family is on a list. While the express lane is open, what a list says of a source it says of all that the policy takes
    /// for one with it.
    fn is_listed(&self, family: Family) -> bool;
    /// Whether, under the policy of the open express lane, one packet of a source weighs as much as any other, so that what a total refuses
    /// now no other limit refuses a moment later.
    fn weighs_alike(&self) -> bool;
    /// A word that this CPU keeps for the express lane.
    fn lane_word(&self, word: LaneWord) -> Option<Self::Word>;
    /// The service of the longest prefix around a destination, in one of the tables.
    fn destined(&self, table: u32, key: &DestinationKey) -> Option<u32>;
    /// The longest listed prefix around an address.
    fn listed(&self, address: Address) -> Option<&ListEntry>;

    /// The bucket of a source, if it has one.
    fn bucket(&self, key: &EntryKey) -> Option<Self::Bucket>;
    /// One word of a bucket.
    fn bucket_word(&self, bucket: Self::Bucket, index: usize) -> Self::Word;
    /// Until when the source of a bucket counts as proven.
    fn proven_until(&self, bucket: Self::Bucket) -> Self::Word;
    /// Gives a source its first bucket; never overwrites one.
    fn insert(&self, key: &EntryKey, bucket: &Bucket) -> Result<(), InsertError>;
    /// The buckets of a user.
    fn user(&self, index: u32) -> Option<Self::Bucket>;
    /// The limits of a user, in one of the tables.
    fn user_limits(&self, table: u32, index: u32) -> Option<&LimitSet>;
    /// What may be spent of a user's limit, by [`lease_place`](ratelimit_common::abi::lease::lease_place).
    fn lease(&self, place: u32) -> Option<Lease>;
    /// What has been spent of it.
    fn lease_used(&self, place: u32) -> Option<Self::Word>;
    /// What was asked for beyond it.
    fn lease_unmet(&self, place: u32) -> Option<Self::Word>;
    /// What a source has used of a window, if there is anything.
    fn window(&self, key: &EntryKey) -> Option<Self::Window>;
    /// Gives a source a fresh window; never overwrites one.
    fn insert_window(&self, key: &EntryKey) -> Result<(), InsertError>;
    /// What a source has used of a window that it has been over, if there is anything.
    fn kept_window(&self, key: &EntryKey) -> Option<Self::Window>;
    /// Moves a window to those that newcomers cannot displace.
    fn keep_window(&self, key: &EntryKey, state: Self::Window);
    /// What a user has used of a window.
    fn user_window(&self, index: u32) -> Option<Self::Window>;
    /// One word of a window, below the number of sub-windows.
    fn window_word(&self, state: Self::Window, slot: usize) -> Self::Word;

    /// The bucket of one of this CPU's budgets.
    fn budget(&self, budget: CpuBudget) -> Option<Self::Word>;

    /// Until when a cell of the prefilter is tracked, as a time word.
    fn tracked_until(&self, cell: u32) -> u64;
    /// Has a cell tracked until a moment, or a little longer.
    fn track_until(&self, cell: u32, until_q8: u64);
    /// What may be known of a cell: [`TRACKED_BIT`](prefilter::TRACKED_BIT) and [`REMEMBERED_BIT`](prefilter::REMEMBERED_BIT).
    fn cell_bits(&self, cell: u32) -> u64;
    /// Whether a cell may be tracked: `false` only if it is not. This costs less than [`tracked_until`](Self::tracked_until).
    #[inline(always)]
    fn may_be_tracked(&self, cell: u32) -> bool {
        self.cell_bits(cell) & prefilter::TRACKED_BIT != 0
    }
    /// Has [`cell_bits`](Self::cell_bits) know that a source of a cell has a negative entry or is proven.
    fn something_remembered(&self, _cell: u32) {}
    /// Has [`cell_bits`](Self::cell_bits) know that no source of a cell was found to have a negative entry or to be proven. Whoever calls this looks once
    /// more: another CPU may have written something since.
    fn nothing_remembered(&self, _cell: u32) {}
    /// Has [`may_be_tracked`](Self::may_be_tracked) know that a cell was found not to be tracked.
    fn no_longer_tracked(&self, _cell: u32, _now_q8: u64) {}
    /// Until when some source of a cell is proven, see [`fair::proven_mark`](ratelimit_common::limit::fair::proven_mark).
    fn proven_mark(&self, cell: u32) -> u8;
    /// Has [`proven_mark`](Self::proven_mark) know that a source of a cell is proven.
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
    /// The negative entry of a prefix of the cell that is used up.
    fn prefix_level_negative_entry(&self, cell: Self::PrefixLevelCell) -> Self::Word;
    /// The prefix of the cell that squeezes its sources, and how hard.
    fn prefix_level_squeezed(&self, cell: Self::PrefixLevelCell) -> Self::Word;
    /// Until when the cell is tracked.
    fn prefix_level_tracked_until(&self, cell: Self::PrefixLevelCell) -> Self::Word;
    /// The bucket of a prefix, if it has one.
    fn prefix(&self, key: &PrefixKey) -> Option<Self::Word>;
    /// Gives a prefix its first bucket; never overwrites one.
    fn insert_prefix(&self, key: &PrefixKey, tat_q8: u64) -> Result<(), InsertError>;

    /// What the sources of a cell of the prefilter have had beyond their fair shares.
    fn fair_share(&self, cell: u32) -> Option<Self::Word>;
    /// Which source of a cell of the prefilter was last asked for a connection.
    fn asked(&self, cell: u32) -> Option<Self::Word>;

    /// The shared bucket of a limit of a service's total, or of the host's.
    fn total(&self, service: u32, index: usize) -> Option<Self::Word>;
    /// What this CPU has taken from the totals of a service, or of the host.
    fn share(&self, service: u32) -> Option<Self::Share>;
    /// What is left in one place of what this CPU has taken.
    fn share_pool(&self, share: Self::Share, place: usize) -> Self::Word;
    /// Until when one place of what this CPU has taken gets no more.
    fn share_refused_until(&self, share: Self::Share, place: usize) -> Self::Word;

    /// What an interface has handed on of frames without a source: its bucket.
    fn link(&self, interface: u32) -> Option<Self::Word>;
    /// A neighbour: whose place it is, and its bucket.
    fn link_cell(&self, index: u32) -> Option<(Self::Word, Self::Word)>;

    /// The bucket of a service's SYNs.
    fn syn_meter(&self, service: u32) -> Option<Self::Word>;
    /// Until when a service's SYNs are answered with cookies.
    fn cookies_until(&self, service: u32) -> Option<Self::Word>;

    /// Reads a word.
    fn load(&self, word: Self::Word) -> u64;
    /// Writes a word, whatever is in it.
    fn store(&self, word: Self::Word, new: u64);
    /// Adds to a word.
    fn add(&self, word: Self::Word, amount: u64);
    /// Stores `new` if the word is still `seen`, and says whether it did.
    fn compare_exchange(&self, word: Self::Word, seen: u64, new: u64) -> bool;

    /// Until when this CPU does not tell the daemon again of the sources of a slot.
    fn quiet_until(&self, slot: u32) -> Option<Self::Word>;
    /// Tells the daemon of a refused packet, and returns whether there was room.
    fn tell(&self, event: DropEvent) -> bool;

    /// Counts an event.
    fn note(&self, event: Event);
    /// Counts one frame in one of the counters.
    fn count(&self, slot: u32, len: u64);
}
