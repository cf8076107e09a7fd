//! The express lane's switches, and its copy of the policy.
//!
//! The lane refuses packets of sources that the limiter refused a moment ago, without a look at the lists or the map of the policy. So the lane
//! is closed while either changes:
//!
//! - The policy: the lane is closed, and the new policy is put in force, for which the kernel waits until every packet under way is done; then
//!   the copy is written, and the lane opens again. A daemon that is killed in between leaves the lane closed, and the limiter does everything.
//! - A list: the lane is closed to a family before a change that lets a source pass, until the negative entries from before the change have
//!   ended. A new block, and the removal of a block that has run out, let no source pass, so a feed of blocks leaves the lane open. Until the
//!   negative entries from before a block have ended, a packet may be counted under the limit that refused its source before.
//! - An entry of a list must hold for a whole source: with an entry for a single IPv6 address and sources of 64 bits, the lane is closed to
//!   IPv6.

use std::{
    thread,
    time::{Duration, Instant},
};

use aya::maps::{Array, MapData};
use ratelimit_common::{
    abi::{
        self, ListEntry, Switches,
        list::ALLOWED,
        switches::{NEVER_NS, lane_opens_ns},
        user::NO_USER,
    },
    limit::{
        gcra,
        prefilter::{CELL_BIT_WORDS, LONGEST_NEGATIVE_ENTRY_Q8, NEGATIVE_PERIOD},
    },
};

use crate::{
    compile::lists::{Change, Lists},
    dataplane::{DataplaneError, probe},
};

/// The state of the lane in the daemon.
pub(super) struct LaneKeeper {
    switches: Array<MapData, Switches>,
    copy: Array<MapData, abi::Policy>,
    tracked: Array<MapData, [u64; CELL_BIT_WORDS]>,
    lengths: ListedLengths,
    /// Leading bits of an IPv4 and of an IPv6 address that make a source under the policy in force; `None` if no policy is known.
    source_bits: Option<[u32; 2]>,
    /// When the lane was last closed for a change of policy.
    closed_at: Option<Instant>,
}

/// The least time between two changes of policy: the names of negative entries repeat after `NEGATIVE_PERIOD` changes, and by then all entries under the first
/// name must have ended.
const BETWEEN_CHANGES: Duration =
    Duration::from_nanos((LONGEST_NEGATIVE_ENTRY_Q8 >> gcra::TIME_FRAC_BITS) / NEGATIVE_PERIOD + 1);

impl LaneKeeper {
    pub(super) fn new(
        switches: Array<MapData, Switches>,
        copy: Array<MapData, abi::Policy>,
        tracked: Array<MapData, [u64; CELL_BIT_WORDS]>,
    ) -> Self {
        let lengths = ListedLengths::default();
        Self { switches, copy, tracked, lengths, source_bits: None, closed_at: None }
    }

    /// Closes the lane for a change of policy. Waits until [`BETWEEN_CHANGES`] has passed since the last change.
    pub(super) fn close(&mut self) -> Result<(), DataplaneError> {
        if let Some(closed_at) = self.closed_at {
            thread::sleep(BETWEEN_CHANGES.saturating_sub(closed_at.elapsed()));
        }
        self.closed_at = Some(Instant::now());
        let now = self.read()?;
        self.write(Switches { express: 0, ..now })
    }

    /// Opens the lane under the policy in force, if that policy can have one. The lane must be closed, or its copy must already be of this
    /// policy.
    pub(super) fn open(&mut self, policy: &abi::Policy) -> Result<(), DataplaneError> {
        let bits = source_bits(policy);
        self.source_bits = Some(bits);
        let now = self.read()?;
        let opens = |family: usize| match now.lane_from_ns[family] {
            _ if now.listed[family] != 0 && !self.lengths.within(family, bits[family]) => NEVER_NS,
            NEVER_NS => lane_opens_ns(probe::now_ns()),
            from => from,
        };
        let now = Switches { lane_from_ns: [opens(0), opens(1)], ..now };
        if now.express == 0 && policy.serves_lane() {
            let mut copy = Box::new(*policy);
            copy.leave_lenient_to_limiter();
            self.copy
                .set(0, copy.as_ref(), 0)
                .map_err(DataplaneError::map("copy the policy for the express lane"))?;
            if policy.source.set.tracked_until_q8 != 0 {
                // Any cell may have sources that were entered before the policy had a prefilter, and the lane looks only at the bits of cells.
                self.tracked
                    .set(0, [u64::MAX; CELL_BIT_WORDS], 0)
                    .map_err(DataplaneError::map("have all cells of the prefilter looked at"))?;
            }
            return self.write(Switches { express: 1, totals: u32::from(policy.weighs_alike()), ..now });
        }
        self.write(now)
    }

    /// Called before lists change. Packets look at lists that get entries from now on. The lane is closed to a family in which a change may let a
    /// source pass, or in which an entry is for a part of a source.
    pub(super) fn lists_change(&mut self, lists: &Lists, changes: &[Change]) -> Result<(), DataplaneError> {
        let mut now = self.read()?;
        let now_ns = probe::now_ns();
        for (family, v4) in [true, false].into_iter().enumerate() {
            let changed = || changes.iter().filter(move |change| change.prefix().is_v4() == v4);
            let coming = changed().any(|change| matches!(change, Change::Set(..)));
            now.listed[family] = u32::from(super::lists::has_family(lists, v4) || coming);
            let source_bits = self.source_bits.map_or(0, |bits| bits[family]);
            if changed().any(|change| {
                u32::from(change.prefix().len()) > source_bits || lets_pass(lists, change, now_ns)
            }) {
                now.lane_from_ns[family] = NEVER_NS;
            }
        }
        self.write(now)
    }

    /// Called before a failed change is undone: closes the lane, because blocks that have refused packets already are removed again.
    pub(super) fn lists_undone(&mut self) -> Result<(), DataplaneError> {
        let now = self.read()?;
        self.write(Switches { lane_from_ns: [NEVER_NS; 2], ..now })
    }

    /// Called after a change of lists, carried out or undone. `lists` is the kernel's state.
    pub(super) fn lists_changed(&mut self, lists: &Lists) -> Result<(), DataplaneError> {
        self.lengths.count(lists);
        let mut now = self.read()?;
        for (family, v4) in [true, false].into_iter().enumerate() {
            now.listed[family] = u32::from(super::lists::has_family(lists, v4));
            let uniform = self.source_bits.is_some_and(|bits| self.lengths.within(family, bits[family]));
            if now.lane_from_ns[family] == NEVER_NS && uniform {
                now.lane_from_ns[family] = lane_opens_ns(probe::now_ns());
            } else if !uniform {
                now.lane_from_ns[family] = NEVER_NS;
            }
        }
        self.write(now)
    }

    /// Updates the count of entries by length for changes that are about to be carried out in `lists`.
    pub(super) fn lists_carry_out(&mut self, lists: &Lists, changes: &[Change]) {
        self.lengths.carry_out(lists, changes);
    }

    /// Returns when the lane opens to IPv4 and to IPv6, in nanoseconds of the kernel's monotonic clock; `None` for a family to which it is closed.
    pub(super) fn opens_ns(&self) -> Result<[Option<u64>; 2], DataplaneError> {
        let now = self.read()?;
        Ok(now.opens_ns.map(|from| (from != NEVER_NS).then_some(from)))
    }

    fn read(&self) -> Result<Switches, DataplaneError> {
        self.switches.get(&0, 0).map_err(DataplaneError::map("read the switches"))
    }

    fn write(&mut self, switches: Switches) -> Result<(), DataplaneError> {
        let switches = switches.opening();
        for switches in [switches.opening_no_earlier(&self.read()?), switches] {
            self.switches.set(0, switches, 0).map_err(DataplaneError::map("write the switches"))?;
        }
        Ok(())
    }
}

/// Whether a change of lists may let a source pass that was refused a moment ago. A change of its user may, because users have limits of their own.
fn lets_pass(lists: &Lists, change: &Change, now_ns: u64) -> bool {
    let before = lists.get(change.prefix());
    let ran_out = |entry: &ListEntry| entry.own_blocked_until_ns <= now_ns;
    match (change, before) {
        // The entries of the prefixes around it still hold for the new prefix.
        (Change::Set(_, entry), None) => entry.own_allowed == ALLOWED || entry.own_user != NO_USER,
        (Change::Set(_, entry), Some(before)) => {
            let allowed = entry.allowed == ALLOWED && before.allowed != ALLOWED;
            let shorter =
                entry.blocked_until_ns < before.blocked_until_ns && now_ns < before.blocked_until_ns;
            allowed || shorter || entry.user != before.user
        }
        (Change::Remove(_), Some(before)) => {
            before.own_allowed == ALLOWED || before.own_user != NO_USER || !ran_out(before)
        }
        (Change::Remove(_), None) => false,
    }
}

fn source_bits(policy: &abi::Policy) -> [u32; 2] {
    let source = &policy.source;
    let v4 = abi::SourceKey { hi: 0, lo: source.v4_mask }.octets();
    let v4 = v4[12..].iter().map(|octet| octet.count_ones()).sum();
    [v4, source.v6_mask_hi.count_ones() + source.v6_mask_lo.count_ones()]
}

/// The number of listed prefixes, by family and length.
#[derive(Debug)]
struct ListedLengths {
    counts: [[u32; 129]; 2],
    /// The number of listed prefixes of both families; `None` if they were never counted.
    total: Option<usize>,
}

impl Default for ListedLengths {
    fn default() -> Self {
        Self { counts: [[0; 129]; 2], total: None }
    }
}

impl ListedLengths {
    /// Whether no listed prefix of a family is longer than `bits`. False if the prefixes were never counted, unless `bits` is a whole address.
    fn within(&self, family: usize, bits: u32) -> bool {
        let longest = if family == 0 { 32 } else { 128 };
        bits >= longest
            || (self.total.is_some() && self.counts[family][bits as usize + 1..].iter().all(|n| *n == 0))
    }

    /// Updates the counts for changes that are about to be carried out in `lists`.
    fn carry_out(&mut self, lists: &Lists, changes: &[Change]) {
        let Some(total) = &mut self.total else { return };
        for change in changes {
            let prefix = change.prefix();
            let count = &mut self.counts[usize::from(!prefix.is_v4())][usize::from(prefix.len())];
            match (change, lists.contains_key(prefix)) {
                (Change::Set(..), false) => (*count, *total) = (count.saturating_add(1), *total + 1),
                (Change::Remove(_), true) => {
                    (*count, *total) = (count.saturating_sub(1), total.saturating_sub(1));
                }
                _ => {}
            }
        }
    }

    /// Counts the prefixes of `lists`, unless the counts are up to date.
    fn count(&mut self, lists: &Lists) {
        if self.total == Some(lists.len()) {
            return;
        }
        self.counts = [[0; 129]; 2];
        for prefix in lists.keys() {
            self.counts[usize::from(!prefix.is_v4())][usize::from(prefix.len())] += 1;
        }
        self.total = Some(lists.len());
    }
}

#[cfg(test)]
mod tests {
    use ratelimit_common::abi::ListEntry;

    use super::*;

    fn set(prefix: &str) -> Change {
        Change::Set(prefix.parse().unwrap(), ListEntry::EMPTY)
    }

    #[test]
    fn only_a_change_that_may_let_somebody_pass_closes_the_lane() {
        const NOW: u64 = 1_000;
        let [blocked, ran_out, allowed] = [
            ListEntry { own_blocked_until_ns: NOW + 1, ..ListEntry::EMPTY },
            ListEntry { own_blocked_until_ns: NOW, ..ListEntry::EMPTY },
            ListEntry { own_allowed: ALLOWED, ..ListEntry::EMPTY },
        ];
        let of_user = ListEntry { own_user: 7, ..ListEntry::EMPTY };
        let longer = ListEntry { own_blocked_until_ns: NOW + 2, ..blocked };
        // Each case has the entry before, the entry after, and whether a source may pass.
        let cases = [
            (None, Some(blocked), false),
            (None, Some(allowed), true),
            (None, Some(of_user), true),
            (Some(blocked), Some(longer), false),
            (Some(longer), Some(blocked), true),
            (Some(ran_out), Some(blocked), false),
            (Some(blocked), Some(allowed), true),
            (Some(allowed), Some(blocked), false),
            (Some(blocked), Some(ListEntry { own_user: 7, ..blocked }), true),
            (Some(blocked), None, true),
            (Some(ran_out), None, false),
            (Some(allowed), None, true),
            (Some(of_user), None, true),
            (Some(ListEntry { own_allowed: ALLOWED, ..ran_out }), None, true),
        ];
        for (before, after, expected) in cases {
            let prefix = "192.0.2.1/32".parse().unwrap();
            let lists_of = |entry: Option<ListEntry>| {
                crate::compile::lists::effective(entry.map(|entry| (prefix, entry)).into_iter().collect())
            };
            let change = match lists_of(after).get(&prefix) {
                Some(entry) => Change::Set(prefix, *entry),
                None => Change::Remove(prefix),
            };
            assert_eq!(lets_pass(&lists_of(before), &change, NOW), expected, "{before:?} -> {after:?}");
        }
    }

    #[test]
    fn lengths_are_counted_once_and_then_followed() {
        let mut lists = Lists::new();
        let mut lengths = ListedLengths::default();
        assert!(lengths.within(0, 32) && lengths.within(1, 128), "nothing is longer than an address");
        assert!(!lengths.within(0, 24) && !lengths.within(1, 64), "not counted yet");
        lengths.count(&lists);
        assert!(lengths.within(0, 24) && lengths.within(1, 64));
        let long = [set("192.0.2.0/25"), set("2001:db8::/64"), set("2001:db8::1/128")];
        for change in long {
            let changes = [change];
            lengths.carry_out(&lists, &changes);
            crate::compile::lists::carry_out(&mut lists, &changes);
        }
        assert!(!lengths.within(0, 24) && lengths.within(0, 25) && !lengths.within(1, 64));
        for gone in ["192.0.2.0/25", "2001:db8::1/128", "2001:db8::2/128"] {
            let changes = [Change::Remove(gone.parse().unwrap())];
            lengths.carry_out(&lists, &changes);
            crate::compile::lists::carry_out(&mut lists, &changes);
        }
        assert!(lengths.within(0, 24) && lengths.within(1, 64) && !lengths.within(1, 63));
    }
}
