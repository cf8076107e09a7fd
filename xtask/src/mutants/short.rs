//! The short form for `cargo xtask test`: a sample of the operators in the packet path and in the crate that it shares with the daemon.
//!
//! Both crates are small, so they compile a minute faster than the other areas, and cargo-mutants need not be built.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::fault::Fault;
use super::{Findings, Tests, Tree, operators, sample, switch_on};
use crate::test::Totals;
use crate::workspace;

/// The libraries for faults: the areas `common` and `packets`.
const LIBRARIES: [&str; 2] = ["ratelimit-common", "ratelimit-ebpf"];
/// The tests, the quickest first. The tests of promises are left out, because they take more than a minute.
const ASKED: [Tests; 2] = [Tests::of_library(LIBRARIES[0], &[]), Tests::of_library(LIBRARIES[1], &[])];
/// One in this many faults is in the sample.
const EVERY: usize = 16;
/// How many faults of the sample may go unnoticed without a reason. The sample stays the same while the code around it changes, and began with two such
/// faults: only removed tests, and new code without tests, can add to them.
const ALLOWED: usize = 3;
/// The file of faults that no test can notice, each with its reason.
const KNOWN: &str = "xtask/unnoticed_faults.txt";

/// Puts in the sample, prints the faults that no test noticed, and returns the result as one test.
pub(crate) fn run() -> Result<Totals> {
    let faults = faults()?;
    let known = known(&workspace::root().join(KNOWN))?;
    let is_known = |(name, _): &(String, &Fault)| known.contains_key(name);
    let unnoticeable: BTreeSet<&str> = sample::lasting_names(&faults)
        .into_iter()
        .zip(&faults)
        .filter(is_known)
        .map(|(_, fault)| fault.name.as_str())
        .collect();
    let mut sample = sample::one_of(EVERY, &faults);
    sample.retain(|fault| !unnoticeable.contains(fault.name.as_str()));
    let unnoticed = ask(&sample)?;
    let is_enough = unnoticed <= ALLOWED;
    if !is_enough {
        println!(
            "{unnoticed} faults of the sample are not noticed, and {ALLOWED} may be: a test that noticed them is gone"
        );
    }
    Ok(Totals::of(u64::from(is_enough), u64::from(!is_enough)))
}

/// Puts in the faults with a text in their names, and returns whether all of them are noticed.
pub(super) fn only(text: &str) -> Result<bool> {
    let named: Vec<Fault> = faults()?.into_iter().filter(|fault| fault.name.contains(text)).collect();
    if named.is_empty() {
        bail!("no operator of {} has {text:?} in its name as a fault", LIBRARIES.join(" and "));
    }
    Ok(ask(&named)? == 0)
}

/// Returns all replacements of operators in the libraries.
fn faults() -> Result<Vec<Fault>> {
    let of = |library: &&str| operators::of_library(&workspace::root(), library);
    Ok(LIBRARIES.iter().map(of).collect::<Result<Vec<_>>>()?.concat())
}

/// Runs the unit tests with faults, and prints and counts those that no test noticed.
fn ask(faults: &[Fault]) -> Result<usize> {
    let tree = Tree::copy()?;
    let board = tree.switchboard(&LIBRARIES, &ASKED, &faults.iter().collect::<Vec<_>>())?;
    let dir = workspace::target_dir().join("mutants").join("short");
    // The findings of an earlier run say nothing about today's tests.
    let _ = fs::remove_dir_all(&dir);
    let mut found = Findings::in_dir(dir)?;
    switch_on(&ASKED, &tree, faults, 1, &board, &mut found)?;
    println!("operators of {}: {}", LIBRARIES.join(" and "), found.close(faults)?);
    let unnoticed: Vec<&Fault> = faults.iter().filter(|fault| found.missed.contains(&fault.name)).collect();
    for fault in &unnoticed {
        println!("  not noticed: {}", fault.name);
        println!("    alone: cargo xtask mutants --short --only {:?}", fault.name);
    }
    if !unnoticed.is_empty() {
        println!("a fault that nobody notices wants a test, or its line with the reason in {KNOWN}");
    }
    Ok(unnoticed.len())
}

/// Reads names of faults without line and column, each with its reason.
fn known(file: &Path) -> Result<BTreeMap<String, String>> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut known = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let Some((name, reason)) = line.split_once(" -- ") else {
            bail!(
                "{}: {line:?} has no reason; write the fault, then -- and why nobody can notice it",
                file.display()
            );
        };
        known.insert(name.to_owned(), reason.to_owned());
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_that_is_known_is_one_that_the_code_still_has() {
        let root = workspace::root();
        let names = BTreeSet::from_iter(sample::lasting_names(&faults().unwrap()));
        for (name, reason) in known(&root.join(KNOWN)).unwrap() {
            assert!(names.contains(&name) && reason.len() > 20, "{name} -- {reason}");
        }
    }

    #[test]
    fn a_known_fault_without_a_reason_is_a_mistake() {
        let file = std::env::temp_dir().join(format!("xtask-known-{}", std::process::id()));
        fs::write(&file, "# why\n\na.rs: replace < with <= in f -- both are as long\n").unwrap();
        let expected = ("a.rs: replace < with <= in f".to_owned(), "both are as long".to_owned());
        assert_eq!(known(&file).unwrap().into_iter().collect::<Vec<_>>(), [expected]);
        fs::write(&file, "a.rs: replace < with <= in f\n").unwrap();
        assert!(known(&file).unwrap_err().to_string().contains("has no reason"));
        fs::remove_file(&file).unwrap();
    }
}
