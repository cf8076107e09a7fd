//! Moving from maps of another layout to our own: without a gap, and without giving anything twice.
//!
//! The old maps stay in force until the links run the new program.
//!
//! | layout | lists | buckets of sources | users, totals, prefixes, leases | windows |
//! |---|---|---|---|---|
//! | another size of the table | the same maps | begin spent | the same maps | copied |
//! | another build | copied | begin spent | users and totals begin spent | copied |
//!
//! "Begin spent" costs an honest sender its burst once, and never admits more: what a bucket of another build means is not known, and
//! buckets are charged until the last moment, so that a copy of them would be behind.

use ratelimit_common::limit::gcra;

use super::log;
use crate::{
    compile::{
        Desired, Names,
        lists::{self, Lists},
    },
    dataplane::{
        DataplaneError,
        former::Former,
        kernel::Maps,
        pin::{Layout, PinDir},
        probe,
    },
    policy::{Policy, User},
};

/// Links are given another program within this time: each takes about a millisecond. Totals begin spent when it has passed.
const LINKS_SWITCHED_NS: u64 = 200_000_000;

/// Layouts beside ours that have maps pinned.
#[derive(Debug)]
pub(super) struct Others {
    layouts: Vec<Layout>,
    /// Whether all but the tables of sources are the maps that were in force.
    shared: bool,
    lists: Lists,
}

impl Others {
    /// Looks for them. Maps that differ from ours only in the size of the table are shared with us.
    pub(super) fn find(pins: &PinDir, ours: Layout) -> Result<Self, DataplaneError> {
        let all = pins.layouts()?;
        let is_new = !all.contains(&ours);
        let layouts: Vec<Layout> = all.into_iter().filter(|layout| *layout != ours).collect();
        // Of several, one was in force and the others are left over: which, nobody knows.
        let shared = match layouts[..] {
            [one] if is_new && Former::new(pins, one).is_of_this_build() => {
                Former::new(pins, one).share(ours)?;
                true
            }
            _ => false,
        };
        Ok(Self { layouts, shared, lists: Lists::new() })
    }

    /// Copies their lists into ours. Entries that ours has already are kept.
    pub(super) fn carry_lists(&mut self, pins: &PinDir, maps: &mut Maps) -> Result<(), DataplaneError> {
        for layout in &self.layouts {
            let mut lists = maps.lists()?;
            let before = lists.len();
            let mut carried = Former::new(pins, *layout).lists().unwrap_or_else(|error| {
                log::warning(format!("{error}: its blocks and allows come from the disk alone"));
                Lists::new()
            });
            self.lists.extend(carried.iter().map(|(prefix, entry)| (*prefix, *entry)));
            carried.retain(|prefix, _| !lists.contains_key(prefix));
            let changes = lists::edited(&lists, &carried);
            maps.change_lists(&mut lists, &changes)?;
            let kept = if self.shared {
                "lists, users and totals are kept".to_owned()
            } else {
                format!("{} listed prefixes carried over, users and totals begin spent", lists.len() - before)
            };
            log::info(format!("maps of another layout found ({layout}): {kept}; every source begins spent"));
        }
        Ok(())
    }

    /// Whether something was spent that is not known any more.
    pub(super) fn lost_sight(&self) -> bool {
        !self.layouts.is_empty()
    }

    /// Has everything begin spent whose buckets cannot be gone on with.
    pub(super) fn spend(&self, desired: &mut Desired, now_q8: u64) {
        if !self.lost_sight() {
            return;
        }
        desired.sources_begin_spent(now_q8);
        if !self.shared {
            desired.users_begin_spent(now_q8);
        }
    }

    /// Fills in what the new maps do not know yet, before links have programs that read them: totals that are spent, and what was used of windows.
    pub(super) fn carry_spent(
        &self,
        pins: &PinDir,
        maps: &mut Maps,
        policy: &Policy,
        desired: &Desired,
    ) -> Result<(), DataplaneError> {
        for layout in &self.layouts {
            let former = Former::new(pins, *layout);
            former.copy_windows(maps)?;
            if !self.shared {
                former.copy_user_windows(maps, &self.moves(policy, desired))?;
            }
        }
        if self.lost_sight() && !self.shared {
            maps.spend_totals(desired, gcra::time_q8(probe::now_ns() + LINKS_SWITCHED_NS))?;
        }
        Ok(())
    }

    /// Says once more since when everything counts as spent, now that every link has the new program: the policy that is in force
    /// had to say a moment that was still to come, and until then admits nothing.
    pub(super) fn set_clock(&self, maps: &mut Maps, desired: &mut Desired) -> Result<(), DataplaneError> {
        if !self.lost_sight() {
            return Ok(());
        }
        self.spend(desired, gcra::time_q8(probe::now_ns()));
        let (new_users, new_user_windows, changed_totals) = (vec![], vec![], vec![]);
        maps.set_policy(&Desired { new_users, new_user_windows, changed_totals, ..desired.clone() })
    }

    /// Which place each user had, by its prefixes, and which it has.
    fn moves(&self, policy: &Policy, desired: &Desired) -> Vec<(u32, u32)> {
        let had = Names::users_by_prefixes(policy, &self.lists);
        let names = policy.users().iter().map(User::name);
        names.filter_map(|name| Some((had.of(name)? as u32, desired.names.users.of(name)? as u32))).collect()
    }

    /// Unpins them: no link runs a program any more that reads them.
    pub(super) fn remove(self, pins: &PinDir) -> Result<(), DataplaneError> {
        self.layouts.into_iter().try_for_each(|layout| pins.remove_maps(layout))
    }
}
