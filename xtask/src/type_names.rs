//! The rule "a type name is used once": with two types of one name a reader has to look which of them is meant.
//!
//! `type_names.txt` lists the names that several types of the product still have, and how many. The list may only get shorter.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// Names that are used more than once.
const KNOWN: &str = include_str!("../type_names.txt");
const FILE: &str = "xtask/type_names.txt";

/// Crates of the product.
const CRATES: [&str; 3] = ["ratelimit-common/src/", "ratelimit-ebpf/src/", "ratelimit-user/src/"];

/// The text after which a file has only types of unit tests.
const TESTS: &str = "#[cfg(test)]\nmod tests {";

/// Refuses a second type with one name, and a list with more names than there are.
pub(crate) fn check(root: &Path) -> Result<()> {
    let problems = problems(&known(KNOWN)?, &used(root)?);
    if !problems.is_empty() {
        bail!("names of types:\n  {}", problems.join("\n  "));
    }
    Ok(())
}

/// Returns how often each name may be used.
fn known(text: &str) -> Result<BTreeMap<&str, usize>> {
    text.lines().filter(|line| !line.starts_with('#')).map(row).collect()
}

fn row(line: &str) -> Result<(&str, usize)> {
    let (name, times) =
        line.split_once(' ').with_context(|| format!("{FILE}: {line:?} is no name and number"))?;
    Ok((name, times.parse().with_context(|| format!("{FILE}: {line:?} has no number"))?))
}

/// Returns the files in which each name is defined.
fn used(root: &Path) -> Result<BTreeMap<String, Vec<String>>> {
    let mut used: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (file, text) in product(root)? {
        for name in text.lines().filter_map(defined) {
            used.entry(name.to_owned()).or_default().push(file.clone());
        }
    }
    Ok(used)
}

/// Returns the files of the product's crates, each with its text up to its unit tests.
pub(crate) fn product(root: &Path) -> Result<Vec<(String, String)>> {
    let mut product = Vec::new();
    for path in workspace::files(root)? {
        let file = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        let is_of_tests =
            file.contains("/tests/") || file.contains("/testbed/") || file.ends_with("/tests.rs");
        if is_of_tests || !file.ends_with(".rs") || !CRATES.iter().any(|of_crate| file.starts_with(of_crate))
        {
            continue;
        }
        let mut text = fs::read_to_string(&path).with_context(|| format!("cannot read {file}"))?;
        text.truncate(text.find(TESTS).unwrap_or(text.len()));
        product.push((file, text));
    }
    Ok(product)
}

/// Returns the name of the type that a line defines.
fn defined(line: &str) -> Option<&str> {
    let words = line.trim_start();
    let words = match words.strip_prefix("pub") {
        Some(rest) => {
            rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(rest, |(_, rest)| rest)
        }
        None => words,
    };
    let (kind, rest) = words.trim_start().split_once(' ')?;
    // An associated type is indented and belongs to its trait's implementation, so it does not count.
    let defines =
        ["struct", "enum", "trait", "union"].contains(&kind) || (kind == "type" && !line.starts_with(' '));
    let name = rest.split(|c: char| !c.is_ascii_alphanumeric()).next()?;
    (defines && name.starts_with(|c: char| c.is_ascii_uppercase())).then_some(name)
}

fn problems(known: &BTreeMap<&str, usize>, used: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, files) in used {
        let (times, may) = (files.len(), known.get(name.as_str()).copied().unwrap_or(1));
        if times > may {
            problems.push(format!("{name} is the name of {times} types, of {may} at most: {}; give the new one a name that says what it is", files.join(", ")));
        }
    }
    for (name, may) in known {
        let times = used.get(*name).map_or(0, Vec::len);
        if times < *may {
            problems.push(match times {
                0 | 1 => format!("{name} is used once or not at all: take it out of {FILE}"),
                _ => format!(
                    "{name} is the name of {times} types by now: write {times} instead of {may} into {FILE}"
                ),
            });
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_however_they_are_written_and_nothing_else_is() {
        for (line, name) in [
            ("struct Plan {", Some("Plan")),
            ("    pub(super) enum Kind<'a> {", Some("Kind")),
            ("pub(in crate::daemon) trait Rows: Sized {", Some("Rows")),
            ("pub struct Share: 64 {", Some("Share")),
            ("type Word = u64;", Some("Word")),
            ("    type Word = u64;", None),
            ("/// struct Plan", None),
            ("let struct_name = 1;", None),
            ("impl Plan {", None),
        ] {
            assert_eq!(defined(line), name, "{line}");
        }
    }

    #[test]
    fn a_name_more_and_a_name_fewer_than_the_list_has_are_both_said() {
        let used = |names: &[(&str, usize)]| -> BTreeMap<String, Vec<String>> {
            names.iter().map(|(name, times)| ((*name).to_owned(), vec!["f.rs".to_owned(); *times])).collect()
        };
        let known = known("# Names\nKind 3\nPlan 2\n").unwrap();
        assert!(problems(&known, &used(&[("Kind", 3), ("Plan", 2), ("Once", 1)])).is_empty());
        let said = problems(&known, &used(&[("Kind", 2), ("Plan", 1), ("New", 2)]));
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].starts_with("New is the name of 2 types, of 1 at most"), "{said:?}");
        assert!(said[1].contains("write 2 instead of 3") && said[2].contains("take it out"), "{said:?}");
    }
}
