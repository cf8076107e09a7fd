//! The connections of a listener, in the order in which they lose their places. Pure, except for closing connections: time is an argument.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use super::{Common, Guest, MAX_UNFINISHED, PlaceRules};

/// How long a new connection waits if every connection has a request in progress.
const ALL_BUSY: Duration = Duration::from_millis(50);

/// While unproven connections hold less than one part in this many of what they may, a new connection takes over the place of the proven connection that is idle longest.
const FEW: usize = 8;

/// When a place is freed for its memory, this many connections at most are checked for one that is not being answered, so that the time is bounded.
const LOOKED_AT: usize = 64;

/// The order in which connections lose their places: unproven ones first, then by how long they are idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CrowdRank {
    pub(super) is_proven: bool,
    pub(super) since_ms: u64,
    pub(super) id: u64,
}

/// The answer to a new connection.
#[derive(Debug)]
pub(super) enum Room {
    /// A free place.
    Free(Arc<Guest>),
    /// A place that another connection has lost.
    Made(Arc<Guest>),
    /// There is no place. The new connection may try again after this time.
    After(Duration),
}

#[derive(Debug)]
struct CrowdMember {
    guest: Arc<Guest>,
    rank: CrowdRank,
    /// When the connection's unfinished request must be complete, in milliseconds, and its bytes so far.
    unfinished: Option<(u64, usize)>,
}

/// All connections of one listener, in the order in which they lose their places.
#[derive(Debug)]
pub(super) struct Crowd {
    rules: PlaceRules,
    common: Option<Arc<Common>>,
    borrowed: usize,
    next: u64,
    members: HashMap<u64, CrowdMember>,
    /// Connections by their rank when last seen. A rank only moves back, so a first connection whose rank has not changed is really first.
    order: BTreeSet<CrowdRank>,
    /// How many connections in the order are unproven.
    unproven: usize,
    /// When unfinished requests must be complete, in milliseconds, and the connections' numbers.
    unfinished: BTreeSet<(u64, u64)>,
    /// Bytes of all unfinished requests.
    bytes: usize,
}

impl Crowd {
    pub(super) fn new(rules: PlaceRules, common: Option<Arc<Common>>) -> Self {
        Self {
            rules,
            common,
            borrowed: 0,
            next: 0,
            members: HashMap::new(),
            order: BTreeSet::new(),
            unproven: 0,
            unfinished: BTreeSet::new(),
            bytes: 0,
        }
    }

    /// Admits a new connection, if there is a place or another connection can lose its own.
    pub(super) fn admit(&mut self, now_ms: u64, newcomer: impl FnOnce(u64) -> Arc<Guest>) -> Room {
        if self.unproven < self.rules.unproven && self.is_granted() {
            return Room::Free(self.enter(newcomer));
        }
        let Some(mut first) = self.first(now_ms) else { return Room::After(ALL_BUSY) };
        let age = |rank: &CrowdRank| Duration::from_millis(now_ms.saturating_sub(rank.since_ms));
        // If few connections are unproven, a new one does not wait for their grace time: otherwise new connections would come in one by one.
        if !first.is_proven
            && age(&first) < self.rules.grace
            && self.unproven < self.rules.unproven.div_ceil(FEW)
            && let Some(idle) = self.longest_idle(now_ms).filter(|idle| age(idle) >= self.rules.grace)
        {
            first = idle;
        }
        let age = age(&first);
        if age < self.rules.grace {
            return Room::After(self.rules.grace - age);
        }
        if self.dismiss(first.id) && self.is_granted() {
            return Room::Made(self.enter(newcomer));
        }
        // The connection has just begun to be answered, or another protocol has taken the place that it had borrowed.
        Room::After(ALL_BUSY)
    }

    /// Takes a free place; false if there is none.
    fn is_granted(&mut self) -> bool {
        if self.members.len() - self.borrowed < self.rules.own {
            return true;
        }
        let borrowed = self.common.as_ref().is_some_and(|common| common.is_taken());
        self.borrowed += usize::from(borrowed);
        borrowed
    }

    fn enter(&mut self, newcomer: impl FnOnce(u64) -> Arc<Guest>) -> Arc<Guest> {
        self.next += 1;
        let guest = newcomer(self.next);
        let rank = CrowdRank { is_proven: false, since_ms: guest.entered_ms, id: guest.id };
        self.order.insert(rank);
        self.unproven += 1;
        self.members.insert(guest.id, CrowdMember { guest: Arc::clone(&guest), rank, unfinished: None });
        guest
    }

    /// The connection that loses its place first.
    fn first(&mut self, now_ms: u64) -> Option<CrowdRank> {
        let seen = *self.order.first()?;
        if seen.is_proven { self.longest_idle(now_ms) } else { Some(seen) }
    }

    /// The proven connection that has been idle longest.
    fn longest_idle(&mut self, now_ms: u64) -> Option<CrowdRank> {
        let known = CrowdRank { is_proven: true, since_ms: 0, id: 0 };
        loop {
            let seen = *self.order.range(known..).next()?;
            // A rank is never later than now: a connection that was seen now is not checked again.
            let rank = self.members.get(&seen.id)?.guest.rank(now_ms).max(seen);
            if rank == seen {
                return Some(seen);
            }
            self.place(rank);
        }
    }

    /// Moves a connection to its rank in the order.
    fn place(&mut self, rank: CrowdRank) {
        let Some(member) = self.members.get_mut(&rank.id) else { return };
        self.order.remove(&member.rank);
        self.order.insert(rank);
        self.unproven -= usize::from(!member.rank.is_proven && rank.is_proven);
        member.rank = rank;
    }

    /// Marks a connection as proven: it has shown a token or asked something.
    pub(super) fn knows(&mut self, id: u64, now_ms: u64) {
        self.place(CrowdRank { is_proven: true, since_ms: now_ms, id });
    }

    /// Removes a connection, which may be gone already.
    pub(super) fn remove(&mut self, id: u64) {
        let Some(member) = self.members.remove(&id) else { return };
        self.order.remove(&member.rank);
        self.unproven -= usize::from(!member.rank.is_proven);
        self.forget(id, member.unfinished);
        if self.borrowed > 0
            && let Some(common) = &self.common
        {
            self.borrowed -= 1;
            common.give_back();
        }
    }

    /// Notes that a connection has sent `bytes` of an unfinished request, and when the rest is due; without `due_ms` the old time stays.
    pub(super) fn holds(&mut self, id: u64, bytes: usize, due_ms: Option<u64>) {
        let Some(member) = self.members.get_mut(&id) else { return };
        let before = member.unfinished.take();
        let due_ms = due_ms.or(before.map(|(due_ms, _)| due_ms)).unwrap_or(0);
        member.unfinished = (bytes > 0).then_some((due_ms, bytes));
        self.forget(id, before);
        if bytes > 0 {
            self.unfinished.insert((due_ms, id));
            self.bytes += bytes;
        }
        // The connection with the oldest due time is closed: an honest one would have sent the rest of its request long ago.
        while self.bytes > MAX_UNFINISHED && self.is_relieved() {}
    }

    /// Closes one connection for the memory that it holds, if any holds some. If the connections with the oldest due times are all being
    /// answered, the first of them is closed nevertheless: a stream that stays open for ever would keep everything behind it in memory.
    fn is_relieved(&mut self) -> bool {
        let oldest: Vec<u64> = self.unfinished.iter().take(LOOKED_AT).map(|(_, id)| *id).collect();
        if oldest.iter().any(|id| self.dismiss(*id)) {
            return true;
        }
        let Some(first) = oldest.first().copied() else { return false };
        if let Some(member) = self.members.get(&first) {
            member.guest.cut_off();
        }
        self.remove(first);
        true
    }

    fn forget(&mut self, id: u64, unfinished: Option<(u64, usize)>) {
        if let Some((due_ms, bytes)) = unfinished {
            self.unfinished.remove(&(due_ms, id));
            self.bytes -= bytes;
        }
    }

    /// Closes a connection and takes its place, unless it is being answered.
    fn dismiss(&mut self, id: u64) -> bool {
        let gone = self.members.get(&id).is_some_and(|member| member.guest.is_let_go());
        if gone {
            self.remove(id);
        }
        gone
    }

    /// Closes all connections that are not being answered.
    pub(super) fn evict_idle(&mut self) {
        for id in self.members.keys().copied().collect::<Vec<_>>() {
            self.dismiss(id);
        }
    }

    /// Closes all connections whose time is up.
    pub(super) fn let_go(&mut self, now_ms: u64) {
        let is_over =
            |since_ms: u64, time: Duration| Duration::from_millis(now_ms.saturating_sub(since_ms)) >= time;
        // A connection that is being answered keeps its place; connections behind it in the order are still closed.
        let overdue = self.unfinished.iter().take_while(|(due_ms, _)| now_ms >= *due_ms);
        for id in overdue.map(|(_, id)| *id).collect::<Vec<_>>() {
            self.dismiss(id);
        }
        while let Some(first) = self.order.first().copied()
            && !first.is_proven
            && is_over(first.since_ms, self.rules.first)
            && self.dismiss(first.id)
        {}
        while let Some(idle) = self.longest_idle(now_ms)
            && is_over(idle.since_ms, self.rules.idle)
            && self.dismiss(idle.id)
        {}
    }
}

#[cfg(test)]
impl Crowd {
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.members.len(), self.order.len());
        self.members.len()
    }

    pub(super) fn bytes(&self) -> usize {
        assert_eq!(self.unfinished.is_empty(), self.bytes == 0);
        self.bytes
    }
}
