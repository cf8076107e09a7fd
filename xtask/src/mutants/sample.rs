//! Takes samples of faults: always the same ones, whatever other faults come and go.
//!
//! Whether a fault is in a sample follows from a hash of its file, its change and its function. A sample by line numbers, or of every nth fault, would
//! change with each change of the code, and the results of one day could not be compared with those of the next.

use std::collections::BTreeMap;

use super::fault::Fault;

/// Returns a sample of about one in `every` faults.
pub(super) fn one_of(every: usize, faults: &[Fault]) -> Vec<Fault> {
    let is_chosen = |(name, _): &(String, &Fault)| hash(name).is_multiple_of(every as u64);
    let names = lasting_names(faults);
    names.into_iter().zip(faults).filter(is_chosen).map(|(_, fault)| fault.clone()).collect()
}

/// Returns names of faults without line and column: file, change and function, with a number if a function has several.
pub(super) fn lasting_names(faults: &[Fault]) -> Vec<String> {
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    let name = |fault: &Fault| {
        let change = fault.name.split_once(": ").map_or(fault.name.as_str(), |(_, change)| change);
        let name = format!("{}: {change}", fault.file);
        let nth = times.entry(name.clone()).and_modify(|nth| *nth += 1).or_insert(1);
        if *nth == 1 { name } else { format!("{name}, number {nth}") }
    };
    faults.iter().map(name).collect()
}

/// Returns the FNV-1a hash of a text, with its bits mixed once more, because a remainder depends on the lowest bits.
fn hash(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

#[cfg(test)]
mod tests {
    use super::super::fault::{Kind, Place};
    use super::*;

    fn fault(function: usize, line: usize) -> Fault {
        let place = Place { line, column: 1 };
        Fault {
            name: format!("a/src/b.rs:{line}:1: replace + with - in f{function}"),
            file: "a/src/b.rs".into(),
            start: place,
            end: place,
            replacement: "-".into(),
            kind: Kind::Operator,
        }
    }

    #[test]
    fn a_sample_is_about_as_large_as_was_asked_for_and_the_same_after_other_lines_and_faults() {
        let faults: Vec<Fault> = (0..4_000).map(|n| fault(n, n)).collect();
        let chosen = one_of(10, &faults);
        assert!((340..=460).contains(&chosen.len()), "{}", chosen.len());
        let moved: Vec<Fault> = (0..4_000).filter(|n| n % 7 != 0).map(|n| fault(n, n + 3)).collect();
        let left = chosen.iter().filter(|fault| fault.start.line % 7 != 0).cloned().collect::<Vec<_>>();
        assert_eq!(lasting_names(&one_of(10, &moved)), lasting_names(&left));
        assert_eq!(one_of(1, &faults).len(), 4_000);
    }

    #[test]
    fn the_same_change_in_several_places_of_a_function_is_chosen_place_by_place() {
        let faults: Vec<Fault> = (0..4_000).map(|n| fault(1, n)).collect();
        assert!((340..=460).contains(&one_of(10, &faults).len()));
    }
}
