//! Room for connections: every one of them is a descriptor, and systems allow a program few of them until it asks for more.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files and sockets that are none of the connections.
const OTHERS: u64 = 1_024;
/// What the kernel allows nobody to go beyond, unless it was told otherwise: `fs.nr_open`.
const MOST: u64 = 1 << 20;

/// Asks for as many descriptors as these connections take, and takes what there is.
pub(super) fn make_room(connections: usize) {
    let wanted = (connections as u64).saturating_add(OTHERS).min(MOST);
    let before = getrlimit(Resource::Nofile);
    for limit in candidates(before, wanted) {
        if setrlimit(Resource::Nofile, limit).is_ok() {
            return;
        }
    }
}

/// Limits to ask for, the best first: beyond what we may have, which takes rights, then all that we may have.
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
