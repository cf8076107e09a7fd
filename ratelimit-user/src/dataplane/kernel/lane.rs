//! The express lane's switches, and its copy of the policy.
//!
//! The lane refuses what the limiter has refused a moment ago without asking the lists or the map of the policy. So it is closed while either
//! changes:
//!
//! - The policy: closed, then the new policy is put in force, for which the kernel waits until every packet under way is done; then the copy
//!   is written, and the lane opens again. A daemon that is killed in between leaves it closed, and the limiter does everything.
//! - A list: closed to the family from before the change until whatever the limiter remembered before it is over.
//! - What a list says of an address must hold for everything that the policy takes for one source with it: with an entry for a single IPv6
//!   address and sources of 64 bits, the lane is closed to IPv6.

use std::{
    thread,
    time::{Duration, Instant},
};

use aya::maps::{Array, MapData};
use ratelimit_common::{
    abi::{
        self, Switches,
        switches::{NEVER_NS, lane_opens_ns},
    },
    limit::{
        gcra,
        prefilter::{LONGEST_NEGATIVE_ENTRY_Q8, NEGATIVE_PERIOD},
    },
};

use crate::{
    compile::lists::{Change, Lists},
    dataplane::{DataplaneError, probe},
};

/// The lane as the daemon knows it.
pub(super) struct LaneKeeper {
    switches: Array<MapData, Switches>,
    copy: Array<MapData, abi::Policy>,
    lengths: ListedLengths,
    /// Leading bits of an IPv4 address, and of an IPv6 address, that the policy in force takes for one source. `None`: no policy is known.
    source_bits: Option<[u32; 2]>,
    /// When the lane was last closed for a change of policy.
    closed_at: Option<Instant>,
}

/// What lies between two changes of policy at least: names of negative entries repeat after so many, and by then all of the first must be over.
const BETWEEN_CHANGES: Duration =
    Duration::from_nanos((LONGEST_NEGATIVE_ENTRY_Q8 >> gcra::TIME_FRAC_BITS) / NEGATIVE_PERIOD + 1);

impl LaneKeeper {
    pub(super) fn new(switches: Array<MapData, Switches>, copy: Array<MapData, abi::Policy>) -> Self {
        Self { switches, copy, lengths: ListedLengths::default(), source_bits: None, closed_at: None }
    }

    /// Closes the lane for a change of policy, two milliseconds after the last one at the earliest.
    pub(super) fn close(&mut self) -> Result<(), DataplaneError> {
        if let Some(closed_at) = self.closed_at {
            thread::sleep(BETWEEN_CHANGES.saturating_sub(closed_at.elapsed()));
        }
        self.closed_at = Some(Instant::now());
        let now = self.read()?;
        self.write(Switches { express: 0, ..now })
    }

    /// Opens the lane under the policy that is in force now, if that policy can have one. The lane must be closed, or the policy be
    /// the one that the lane has.
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
            return self.write(Switches { express: 1, totals: u32::from(policy.weighs_alike()), ..now });
        }
        self.write(now)
    }

    /// Before lists change: those that get entries are asked from now on, and the lane is closed to families that change.
    pub(super) fn lists_change(&mut self, lists: &Lists, changes: &[Change]) -> Result<(), DataplaneError> {
        let mut now = self.read()?;
        for (family, v4) in [true, false].into_iter().enumerate() {
            let changed = || changes.iter().filter(move |change| change.prefix().is_v4() == v4);
            let coming = changed().any(|change| matches!(change, Change::Set(..)));
            now.listed[family] = u32::from(super::has_family(lists, v4) || coming);
            if changed().next().is_some() {
                now.lane_from_ns[family] = NEVER_NS;
            }
        }
        self.write(now)
    }

    /// After lists have changed, or could not be. `lists` is what the kernel has.
    pub(super) fn lists_changed(&mut self, lists: &Lists) -> Result<(), DataplaneError> {
        self.lengths.count(lists);
        let mut now = self.read()?;
        for (family, v4) in [true, false].into_iter().enumerate() {
            now.listed[family] = u32::from(super::has_family(lists, v4));
            let uniform = self.source_bits.is_some_and(|bits| self.lengths.within(family, bits[family]));
            if now.lane_from_ns[family] == NEVER_NS && uniform {
                now.lane_from_ns[family] = lane_opens_ns(probe::now_ns());
            } else if !uniform {
                now.lane_from_ns[family] = NEVER_NS;
            }
        }
        self.write(now)
    }

    /// Keeps the count of entries by length.
    pub(super) fn lists_carry_out(&mut self, lists: &Lists, changes: &[Change]) {
        self.lengths.carry_out(lists, changes);
    }

    /// From when on the lane is open to IPv4, and to IPv6, in the kernel's monotonic time.
    pub(super) fn opens_ns(&self) -> Result<[Option<u64>; 2], DataplaneError> {
        let now = self.read()?;
        Ok(now.lane_from_ns.map(|from| (now.express != 0 && from != NEVER_NS).then_some(from)))
    }

    fn read(&self) -> Result<Switches, DataplaneError> {
        self.switches.get(&0, 0).map_err(DataplaneError::map("read the switches"))
    }

    fn write(&mut self, switches: Switches) -> Result<(), DataplaneError> {
        self.switches.set(0, switches, 0).map_err(DataplaneError::map("write the switches"))
    }
}

fn source_bits(policy: &abi::Policy) -> [u32; 2] {
    let source = &policy.source;
    let v4 = abi::SourceKey { hi: 0, lo: source.v4_mask }.octets();
    let v4 = v4[12..].iter().map(|octet| octet.count_ones()).sum();
    [v4, source.v6_mask_hi.count_ones() + source.v6_mask_lo.count_ones()]
}

/// How many listed prefixes of each family have each length.
#[derive(Debug)]
struct ListedLengths {
    counts: [[u32; 129]; 2],
    /// Of both families. `None`: never counted.
    total: Option<usize>,
}

impl Default for ListedLengths {
    fn default() -> Self {
        Self { counts: [[0; 129]; 2], total: None }
    }
}

impl ListedLengths {
    /// Whether no listed prefix of a family is longer than so many bits. Not if that is not known.
    fn within(&self, family: usize, bits: u32) -> bool {
        let longest = if family == 0 { 32 } else { 128 };
        bits >= longest
            || (self.total.is_some() && self.counts[family][bits as usize + 1..].iter().all(|n| *n == 0))
    }

    /// Follows changes that are about to be carried out in `lists`.
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

    /// Counts them, unless they have been.
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
