//! Collects the licences of everything in the binary, each text once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};

use super::crates::Crate;

/// The beginnings of names of files with licences.
const NAMES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// The parts of the binary that come from no crate.
const BESIDE: &str = "Rust standard library, MIT OR Apache-2.0, https://github.com/rust-lang/rust\n\
                      musl, MIT, https://musl.libc.org (COPYRIGHT in its sources names the authors)\n";

pub(super) fn texts(crates: &BTreeMap<(String, String), Crate>) -> Result<String> {
    let mut of_text: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut all = String::from("ratelimit: licences of what is in the binary\n\n");
    all.push_str(BESIDE);
    for one in crates.values() {
        let name = format!("{} {}", one.name, one.version);
        let from = one.repository.as_deref().map(|from| format!(", {from}")).unwrap_or_default();
        writeln!(all, "{name}, {}{from}", one.licence)?;
        // The texts of this workspace's crates are in its top directory.
        let entries = fs::read_dir(&one.dir).with_context(|| format!("cannot list {}", one.dir.display()))?;
        for entry in entries {
            let entry = entry?;
            let file = entry.file_name().to_string_lossy().to_uppercase();
            if NAMES.iter().any(|start| file.starts_with(start)) && entry.path().is_file() {
                let text =
                    String::from_utf8_lossy(&fs::read(entry.path())?).replace('\r', "").trim().to_owned();
                of_text.entry(text).or_default().insert(name.clone());
            }
        }
    }
    for (text, names) in of_text {
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        write!(all, "\n{}\n{names}\n\n{text}\n", "=".repeat(80))?;
    }
    Ok(all)
}
