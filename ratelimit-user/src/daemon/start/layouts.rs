//! Moves from maps of another layout to our own, without a gap and without admitting a burst twice.
//!
//! The old maps stay in force until the links run the new program. Only the kernel knows when that is: it switches a link while the daemon waits
//! for it, within a millisecond or, on a busy machine, within a minute and a half. So the new maps are **held** until every link has been
//! switched: they admit no packet that a limit applies to. A thread renews the hold for as long as the switch takes. Then the counts of windows
//! are copied, because no program counts in the old ones any more, and everything else begins spent at that moment.
//!
//! | layout | lists | buckets of sources | users, totals, prefixes, leases | windows |
//! |---|---|---|---|---|
//! | another size of the table | the same maps | begin spent | the same maps | copied |
//! | another build | copied | begin spent | users and totals start with empty buckets | copied |
//!
//! "Begin spent" costs an honest sender its burst once, and never admits more. Buckets are not copied: the meaning of a bucket of another build is
//! not known, and buckets are charged until the last moment, so that a copy would be out of date.

use std::{
    borrow::Cow,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use ratelimit_common::limit::gcra;

use crate::{
    compile::{
        Desired, Names,
        lists::{self, Lists},
    },
    dataplane::{
        DataplaneError,
        former::Former,
        kernel::KernelMaps,
        pin::{Layout, PinDir},
        probe,
    },
    log,
    policy::{Policy, User},
};

/// How long new maps are held if nobody renews the hold, because the daemon was killed: buckets begin spent when this time has passed. It is
/// less than `gcra::SOON_Q8`, the most that a moment may lie ahead, by the time that writing a policy takes.
const HELD_NS: u64 = 60_000_000_000;
/// How often the hold is renewed while links are being switched: five renewals in a row may fail before the time has passed.
const RENEWED_EVERY: Duration = Duration::from_nanos(HELD_NS / 6);

/// The layouts other than ours that have maps pinned.
#[derive(Debug)]
pub(super) struct OtherLayouts {
    layouts: Vec<Layout>,
    /// Whether we share all maps with the layout that was in force, except those of the table of sources.
    shared: bool,
    lists: Lists,
}

impl OtherLayouts {
    /// Finds the other layouts. If only the size of the table differs, the maps are shared.
    pub(in crate::daemon) fn find(pins: &PinDir, ours: Layout) -> Result<Self, DataplaneError> {
        let all = pins.layouts()?;
        let is_new = !all.contains(&ours);
        let layouts: Vec<Layout> = all.into_iter().filter(|layout| *layout != ours).collect();
        // If there are several, one was in force and the others are left over, but it is not known which.
        let shared = match layouts[..] {
            [one] if is_new && Former::new(pins, one).is_of_this_build() => {
                Former::new(pins, one).share(ours)?;
                true
            }
            _ => false,
        };
        Ok(Self { layouts, shared, lists: Lists::new() })
    }

    /// Copies the lists of the other layouts into ours. Entries that our lists have already are kept.
    pub(super) fn carry_lists(&mut self, pins: &PinDir, maps: &mut KernelMaps) -> Result<(), DataplaneError> {
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
            log::info(format!(
                "maps of another layout found ({layout}): {kept}; every source starts with empty buckets"
            ));
        }
        Ok(())
    }

    /// Whether there are buckets of another layout, whose spent tokens are not known here.
    pub(super) fn lost_sight(&self) -> bool {
        !self.layouts.is_empty()
    }

    /// Makes everything begin spent whose buckets cannot be taken over.
    fn spend(&self, desired: &mut Desired, now_q8: u64) {
        desired.sources_begin_spent(now_q8);
        if !self.shared {
            desired.users_begin_spent(now_q8);
        }
    }

    /// Returns the desired state for held maps: limits whose buckets are not known admit nothing until every link has the new program.
    fn held<'d>(&self, desired: &'d Desired, now_ns: u64) -> Cow<'d, Desired> {
        if !self.lost_sight() {
            return Cow::Borrowed(desired);
        }
        let mut held = desired.clone();
        self.spend(&mut held, gcra::time_q8(now_ns + HELD_NS));
        held.windows_admit_nothing();
        Cow::Owned(held)
    }

    /// Returns the desired state once every link has the new program: limits whose buckets are not known begin spent now. It has a new generation,
    /// because a CPU may have noted for how long the held policy refuses.
    fn begun(&self, desired: &Desired, now_ns: u64) -> Desired {
        let mut begun = desired.clone();
        self.spend(&mut begun, gcra::time_q8(now_ns));
        begun.policy.generation += 1;
        begun
    }

    /// Puts a policy in force before links are switched, and holds it.
    pub(in crate::daemon) fn enforce(
        &self,
        maps: &mut KernelMaps,
        lists: &mut Lists,
        desired: &Desired,
    ) -> Result<(), DataplaneError> {
        let now_ns = probe::now_ns();
        maps.enforce(lists, None, &self.held(desired, now_ns))?;
        if self.lost_sight() && !self.shared {
            maps.spend_totals(desired, gcra::time_q8(now_ns + HELD_NS))?;
        }
        Ok(())
    }

    /// Does work that may take the kernel long, and keeps the new maps held meanwhile.
    pub(super) fn held_while<R>(
        &self,
        maps: &mut KernelMaps,
        desired: &mut Desired,
        work: impl FnOnce() -> R,
    ) -> R {
        if !self.lost_sight() {
            return work();
        }
        let renew = || {
            // The generation changes, because a CPU may have noted until when the policy before refuses.
            desired.policy.generation += 1;
            if let Err(error) = self.hold(maps, desired) {
                log::error(format!("{error}: limits may admit a burst twice when the program is replaced"));
            }
        };
        again_while(RENEWED_EVERY, renew, work)
    }

    /// Renews the hold of maps that have the policy already.
    fn hold(&self, maps: &mut KernelMaps, desired: &Desired) -> Result<(), DataplaneError> {
        let now_ns = probe::now_ns();
        let mut held = self.held(desired, now_ns).into_owned();
        held.all_have_begun();
        maps.set_policy(&held)?;
        if self.shared { Ok(()) } else { maps.spend_totals(desired, gcra::time_q8(now_ns + HELD_NS)) }
    }

    /// Ends the hold when every link has the new program. `desired` becomes the state in force from then on.
    pub(in crate::daemon) fn begin(
        &self,
        pins: &PinDir,
        maps: &mut KernelMaps,
        policy: &Policy,
        desired: &mut Desired,
    ) -> Result<(), DataplaneError> {
        if !self.lost_sight() {
            return Ok(());
        }
        for layout in &self.layouts {
            // An error must not stop here: a policy that stays held refuses everything.
            if let Err(error) = self.carry_windows(&Former::new(pins, *layout), maps, policy, desired) {
                log::warning(format!("{error}: some windows begin afresh"));
            }
        }
        *desired = self.begun(desired, probe::now_ns());
        desired.all_have_begun();
        let changed_totals = if self.shared { vec![] } else { desired.with_totals() };
        maps.set_policy(&Desired { changed_totals, ..desired.clone() })
    }

    /// Copies the counts of windows from the maps of another layout.
    fn carry_windows(
        &self,
        former: &Former<'_>,
        maps: &mut KernelMaps,
        policy: &Policy,
        desired: &Desired,
    ) -> Result<(), DataplaneError> {
        former.copy_windows(maps, desired)?;
        if self.shared {
            return Ok(());
        }
        former.copy_user_windows(maps, &self.moves(policy, desired), desired, probe::now_ns())
    }

    /// Returns the place that each user had, found by its prefixes, and the place that it has now.
    fn moves(&self, policy: &Policy, desired: &Desired) -> Vec<(u32, u32)> {
        let had = Names::users_by_prefixes(policy, &self.lists);
        let names = policy.users().iter().map(User::name);
        names.filter_map(|name| Some((had.of(name)? as u32, desired.names.users.of(name)? as u32))).collect()
    }

    /// Unpins the other layouts: no link runs a program any more that reads their maps.
    pub(in crate::daemon) fn remove(self, pins: &PinDir) -> Result<(), DataplaneError> {
        self.layouts.into_iter().try_for_each(|layout| pins.remove_maps(layout))
    }
}

/// Calls `again` at intervals for as long as `work` takes.
fn again_while<R>(every: Duration, mut again: impl FnMut() + Send, work: impl FnOnce() -> R) -> R {
    let (working, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let renew = move || {
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                again();
            }
        };
        if let Err(error) = thread::Builder::new().name("held".to_owned()).spawn_scoped(scope, renew) {
            log::warning(format!("cannot start a thread while the program is replaced: {error}"));
        }
        let done = work();
        drop(working);
        done
    })
}

#[cfg(test)]
mod tests {
    use ratelimit_common::abi::LimitSet;

    use super::*;
    use crate::{compile, config, replay::FACTS};

    const SECOND: u64 = 1_000_000_000;
    const NOW: u64 = 1_000 * SECOND;
    const POLICY: &str = "[source]\nlimits = [\"100 packets/s burst 200\", \"9 packets/min fixed-window\"]\n\
        [[service]]\nname = \"dns\"\nmatch = { protocol = \"udp\", ports = [53] }\n\
        per_source = [\"50 packets/s burst 100\"]\ntotal = [\"500 packets/s burst 500\"]\n\
        [[user]]\nname = \"acme\"\nsources = [\"192.0.2.0/24\"]\nnetwork = [\"300 packets/s burst 300\"]\n";

    fn others(shared: bool) -> OtherLayouts {
        OtherLayouts { layouts: vec![Layout { abi: 1, sources: 1_024 }], shared, lists: Lists::new() }
    }

    fn desired() -> Desired {
        compile::desired(&config::parse(POLICY, "p.toml").unwrap().policy, &FACTS, 1, None)
    }

    /// Returns what a sender owes at a moment under each limit of sources and users, in percent of the tolerance.
    fn owed(desired: &Desired, now_ns: u64) -> Vec<u64> {
        let sets = [&desired.policy.source.set, &desired.policy.services[0].per_source];
        let sets = sets.into_iter().chain(desired.users.iter().map(|(_, set)| set));
        let percent = |set: &LimitSet| {
            let tolerance_q8 = set.longest_tolerance_q8;
            (gcra::owed_q8(set, tolerance_q8, gcra::time_q8(now_ns)) * 100).div_ceil(tolerance_q8)
        };
        sets.map(percent).collect()
    }

    #[test]
    fn however_long_links_take_to_be_switched_everything_begins_spent_when_they_are() {
        let desired = desired();
        for took_ns in [0, SECOND / 2, 3 * SECOND, 32 * SECOND, HELD_NS] {
            let switched_ns = NOW + took_ns;
            let others = others(false);
            let held = others.held(&desired, NOW);
            assert_eq!(owed(&held, switched_ns), [100; 3], "nothing before, after {took_ns} ns");
            let begun = others.begun(&desired, switched_ns);
            assert_eq!(owed(&begun, switched_ns), [100; 3], "all of it at that moment");
            assert_eq!(owed(&begun, switched_ns + SECOND / 2), [75, 75, 50], "less half a second later");
            assert_eq!(owed(&begun, switched_ns + 2 * SECOND), [0; 3]);
            assert_ne!(begun.policy.generation, held.policy.generation, "what a CPU noted is over");
        }
    }

    #[test]
    fn maps_are_held_anew_for_as_long_as_links_take_and_no_longer() {
        let (renewed, renewals) = mpsc::channel();
        let mut count = 0;
        let again = || {
            count += 1;
            renewed.send(()).unwrap();
        };
        // The switch takes until the third renewal, however long that is.
        let switch = || (0..3).for_each(|_| renewals.recv().unwrap());
        again_while(Duration::from_millis(1), again, switch);
        assert!(count >= 3);
        let late = renewals.try_iter().count();
        assert_eq!(late, count - 3, "none after its end");
        again_while(Duration::from_secs(3_600), || unreachable!("it was over at once"), || ());
        assert!(RENEWED_EVERY.as_nanos() < u128::from(HELD_NS / 2), "one renewal may fail");
    }

    #[test]
    fn windows_admit_nothing_while_maps_are_held_and_their_limit_from_then_on() {
        let (desired, limits) = (desired(), |one: &Desired| one.policy.windows.map(|one| one.window.limit));
        assert_eq!(limits(&desired).iter().sum::<u64>(), 9);
        for shared in [true, false] {
            assert_eq!(limits(&others(shared).held(&desired, NOW)).iter().sum::<u64>(), 0);
            assert_eq!(limits(&others(shared).begun(&desired, NOW)), limits(&desired));
        }
    }

    #[test]
    fn users_are_held_only_if_their_buckets_are_others_and_nothing_is_without_another_layout() {
        let desired = desired();
        assert_eq!(owed(&others(true).held(&desired, NOW), NOW), [100, 100, 0]);
        let none = OtherLayouts { layouts: vec![], shared: false, lists: Lists::new() };
        assert_eq!(*none.held(&desired, NOW), desired);
    }

    #[test]
    fn what_a_daemon_that_was_killed_holds_begins_spent_by_itself() {
        let desired = desired();
        let held = others(false).held(&desired, NOW);
        assert_eq!(owed(&held, NOW + HELD_NS), [100; 3]);
        assert_eq!(owed(&held, NOW + HELD_NS + 2 * SECOND), [0; 3]);
    }
}
