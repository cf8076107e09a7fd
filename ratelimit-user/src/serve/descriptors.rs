//! Room for connections: every connection is a descriptor, and systems allow a program few of them until it asks for more.

use std::iter;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for files and sockets other than connections.
const OTHERS: u64 = 1_024;
/// The limit that the kernel lets nobody exceed, unless it was told otherwise: `fs.nr_open`.
const MOST: u64 = 1 << 20;

/// Descriptors kept free for operators, scrapers, the store and files that are read now and then, however many connections there are.
const RESERVE: u64 = 256;
/// Connections that there is always room for, whatever the limit says.
const LEAST: usize = 16;

/// Descriptors for connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    /// Connections that there is room for.
    pub(super) connections: usize,
    /// The limit that was obtained.
    pub(super) limit: u64,
    /// The limit that would have been enough for all that were wanted.
    pub(super) wanted: u64,
}

/// Raises the hard limit of descriptors, so that a process without the right to exceed it can raise its limit later. Called by a process with that right.
pub(crate) fn allow_more() {
    let before = getrlimit(Resource::Nofile);
    let more = iter::successors(Some(MOST), |most| Some(most / 2));
    for maximum in more.take_while(|most| before.maximum.is_some_and(|now| *most > now)) {
        if setrlimit(Resource::Nofile, Rlimit { maximum: Some(maximum), ..before }).is_ok() {
            return;
        }
    }
}

/// Makes the limit of descriptors final: the hard limit becomes the limit of now.
pub(crate) fn settle() {
    let now = getrlimit(Resource::Nofile);
    // Cannot fail: a limit may always be lowered.
    let _cannot_fail = setrlimit(Resource::Nofile, Rlimit { maximum: now.current, ..now });
}

/// Asks for as many descriptors as these connections take, and returns how many there is room for.
pub(super) fn make_room(connections: usize) -> Budget {
    let wanted = (connections as u64).saturating_add(OTHERS).min(MOST);
    for limit in candidates(getrlimit(Resource::Nofile), wanted) {
        if setrlimit(Resource::Nofile, limit).is_ok() {
            break;
        }
    }
    // The limit counts that the kernel has now, whether or not it granted the one that was asked for.
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(MOST);
    let open = std::fs::read_dir("/proc/self/fd").map_or(OTHERS, |files| files.count() as u64);
    Budget { connections: room(limit, open).min(connections), limit, wanted }
}

/// Returns how many connections fit within a limit beside files that are open already.
fn room(limit: u64, open: u64) -> usize {
    let reserve = RESERVE.min(limit / 2);
    usize::try_from(limit.saturating_sub(open).saturating_sub(reserve)).unwrap_or(usize::MAX).max(LEAST)
}

/// Returns how many places each of several protocols has for its own, and how many they have in common. One protocol cannot take what another needs to
/// go on, and has most of the room while the others are quiet.
pub(super) fn shares(connections: usize, protocols: usize) -> (usize, usize) {
    match protocols {
        0 | 1 => (connections, 0),
        _ => {
            let own = connections / 8;
            (own, connections - own * protocols)
        }
    }
}

/// Returns limits to ask for, the best first: above the hard limit, which takes rights, then at most the hard limit.
fn candidates(before: Rlimit, wanted: u64) -> impl Iterator<Item = Rlimit> {
    let enough = before.current.is_none_or(|now| now >= wanted);
    let maximum = before.maximum.map(|most| most.max(wanted));
    let beyond = Rlimit { current: Some(wanted), maximum };
    let within = Rlimit { current: Some(before.maximum.map_or(wanted, |most| most.min(wanted))), ..before };
    [beyond, within].into_iter().filter(move |_| !enough)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(now: u64, most: u64, wanted: u64) -> Vec<(Option<u64>, Option<u64>)> {
        let before = Rlimit { current: Some(now), maximum: Some(most) };
        candidates(before, wanted).map(|limit| (limit.current, limit.maximum)).collect()
    }

    #[test]
    fn room_is_what_was_obtained_without_what_operators_need() {
        assert_eq!(room(20_000, 60), 19_684);
        assert_eq!(room(1_024, 60), 708);
        assert_eq!(room(300, 60), 90, "of a small limit half is kept");
        assert_eq!(room(64, 60), LEAST);
    }

    #[test]
    fn every_protocol_has_an_eighth_and_one_alone_has_all() {
        assert_eq!(shares(8_000, 1), (8_000, 0));
        assert_eq!(shares(8_000, 3), (1_000, 5_000));
    }

    #[test]
    fn nothing_is_asked_for_where_there_is_enough() {
        assert_eq!(asked(5_000, 9_000, 5_000), []);
    }

    #[test]
    fn more_is_asked_for_and_else_all_that_there_is() {
        assert_eq!(asked(1_024, 4_096, 20_000), [(Some(20_000), Some(20_000)), (Some(4_096), Some(4_096))]);
        assert_eq!(
            asked(1_024, 524_288, 20_000),
            [(Some(20_000), Some(524_288)), (Some(20_000), Some(524_288))]
        );
    }
}
