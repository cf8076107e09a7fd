//! Lists the crates in the binary, from `cargo metadata`: those that are linked, and those of the embedded kernel program.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{tool, workspace};

/// One crate.
pub(super) struct Crate {
    pub(super) name: String,
    pub(super) version: String,
    /// The licence, as SPDX writes it.
    pub(super) licence: String,
    pub(super) repository: Option<String>,
    pub(super) dir: PathBuf,
    /// SHA-256 of the crate in the registry; `None` for crates of this workspace.
    pub(super) checksum: Option<String>,
    /// Names and versions of the crates that this one uses.
    pub(super) uses: BTreeSet<(String, String)>,
}

/// A package of the workspace, and the machine that its part of the binary runs on.
const ROOTS: [(&str, &str); 3] = [
    ("ratelimit-user", "x86_64-unknown-linux-musl"),
    ("ratelimit-user", "aarch64-unknown-linux-musl"),
    ("ratelimit-ebpf", "bpfel-unknown-none"),
];

/// Returns the crates in the binary, by name and version.
pub(super) fn in_the_binary() -> Result<BTreeMap<(String, String), Crate>> {
    let lock = fs::read_to_string(workspace::root().join("Cargo.lock")).context("Cargo.lock")?;
    let checksums = checksums(&lock);
    let mut found = BTreeMap::new();
    for (root, triple) in ROOTS {
        let mut cargo = tool::cargo();
        cargo.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", triple]);
        let metadata: Value = serde_json::from_str(&tool::output(&mut cargo)?).context("cargo metadata")?;
        for (id, mut one) in reached(&metadata, root) {
            one.checksum = checksums.get(&id).cloned();
            let known = found.entry(id).or_insert_with(|| Crate { uses: BTreeSet::new(), ..copy(&one) });
            known.uses.extend(one.uses);
        }
    }
    Ok(found)
}

fn copy(one: &Crate) -> Crate {
    Crate {
        name: one.name.clone(),
        version: one.version.clone(),
        licence: one.licence.clone(),
        repository: one.repository.clone(),
        dir: one.dir.clone(),
        checksum: one.checksum.clone(),
        uses: one.uses.clone(),
    }
}

/// Returns the crates that a package needs when it runs, itself included, without those of its build and its tests.
fn reached(metadata: &Value, root: &str) -> BTreeMap<(String, String), Crate> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let by_id: BTreeMap<&str, &Value> =
        packages.filter_map(|package| Some((package["id"].as_str()?, package))).collect();
    let nodes = metadata["resolve"]["nodes"].as_array().into_iter().flatten();
    let nodes: BTreeMap<&str, &Value> = nodes.filter_map(|node| Some((node["id"].as_str()?, node))).collect();
    let mut found = BTreeMap::new();
    let mut next: Vec<&str> =
        by_id.iter().filter(|(_, package)| package["name"] == root).map(|(id, _)| *id).collect();
    while let Some(id) = next.pop() {
        let Some(package) = by_id.get(id) else { continue };
        let key = name_and_version(package);
        if found.contains_key(&key) {
            continue;
        }
        let of_run = |dep: &&Value| {
            dep["dep_kinds"].as_array().into_iter().flatten().any(|kind| kind["kind"].is_null())
        };
        let deps = nodes.get(id).and_then(|node| node["deps"].as_array()).into_iter().flatten();
        let deps: Vec<&str> = deps.filter(of_run).filter_map(|dep| dep["pkg"].as_str()).collect();
        let uses = deps.iter().filter_map(|dep| by_id.get(dep)).map(|package| name_and_version(package));
        let one = Crate {
            name: key.0.clone(),
            version: key.1.clone(),
            // Old crates write a slash between licences.
            licence: package["license"].as_str().unwrap_or("NOASSERTION").replace('/', " OR "),
            repository: package["repository"].as_str().map(str::to_owned),
            dir: PathBuf::from(package["manifest_path"].as_str().unwrap_or_default())
                .parent()
                .map(PathBuf::from)
                .unwrap_or_default(),
            checksum: None,
            uses: uses.collect(),
        };
        found.insert(key, one);
        next.extend(deps);
    }
    found
}

fn name_and_version(package: &Value) -> (String, String) {
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    (text("name"), text("version"))
}

/// Returns the checksums in the lock file, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let value = |block: &str, key: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(&format!("{key} = \"")))?;
        Some(line.trim_end_matches('"').to_owned())
    };
    let blocks = lock.split("[[package]]").skip(1);
    let one =
        |block: &str| Some(((value(block, "name")?, value(block, "version")?), value(block, "checksum")?));
    blocks.filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_builds_or_tests_need_is_not_in_the_binary() {
        let package = |name: &str| serde_json::json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0", "manifest_path": "/c/Cargo.toml" });
        let dep =
            |name: &str, kind: Value| serde_json::json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let metadata = serde_json::json!({
            "packages": [package("a"), package("b"), package("c"), package("t")],
            "resolve": { "nodes": [
                { "id": "a", "deps": [dep("b", Value::Null), dep("c", "build".into()), dep("t", "dev".into())] },
                { "id": "b", "deps": [dep("a", Value::Null)] },
            ] },
        });
        let found = reached(&metadata, "a");
        let names: Vec<&str> = found.values().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(found[&("a".to_owned(), "1.0.0".to_owned())].licence, "MIT OR Apache-2.0");
    }

    #[test]
    fn checksums_are_read_from_the_lock_file_by_name_and_version() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"ff\"\n\n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\n";
        let found = checksums(lock);
        assert_eq!(found.len(), 1);
        assert_eq!(found[&("a".to_owned(), "1.0.0".to_owned())], "ff");
    }
}
