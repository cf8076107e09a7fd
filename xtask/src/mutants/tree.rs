//! A copy of the workspace into which faults are put and from which test programs are built. The checkout itself is never changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Tests;
use super::fault::Fault;
use super::switch::{self, Switched};
use crate::{tool, workspace};

/// The name of the script that calls the compiler so that a number can be read in a `const fn`, which needs an intrinsic function.
const COMPILER: &str = "compiler";

pub(super) struct Tree {
    root: PathBuf,
}

/// The result of a build.
pub(super) enum Build {
    /// The test programs, in the order that they were asked for.
    Programs(Vec<PathBuf>),
    /// The errors of the compiler.
    Complaints(Vec<Complaint>),
}

/// An error of the compiler.
pub(super) struct Complaint {
    /// The files and lines that the error points at.
    spans: Vec<(String, usize, usize)>,
    text: String,
}

/// Programs with faults that can be switched on, and the faults that are in none of them.
pub(super) struct Switchboard {
    pub(super) programs: Vec<PathBuf>,
    /// Faults that can be switched on, by their number.
    pub(super) switched: BTreeSet<usize>,
    /// Faults that do not compile beside the others.
    pub(super) refused: BTreeSet<usize>,
}

impl Tree {
    /// Copies the files that people write, as they are now.
    pub(super) fn copy() -> Result<Self> {
        let (from, root) = (workspace::root(), workspace::target_dir().join("mutants").join("tree"));
        let mut wanted = BTreeSet::new();
        for file in workspace::files(&from)?.into_iter().chain(packaged(&from)?) {
            let below = file.strip_prefix(&from).unwrap_or(&file).to_owned();
            renew(&file, &root.join(&below))?;
            wanted.insert(below);
        }
        for config in ["config.toml", "mutants.toml"] {
            renew(&from.join(".cargo").join(config), &root.join(".cargo").join(config))?;
        }
        let tree = Self { root };
        let compiler = tree.root.with_file_name(COMPILER);
        renew_text("#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec \"$@\"\n", &compiler)?;
        fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("cannot make {} a program", compiler.display()))?;
        for stale in walk(&tree.root)? {
            let below = stale.strip_prefix(&tree.root).unwrap_or(&stale);
            if !wanted.contains(below) && !below.starts_with(".cargo") {
                fs::remove_file(&stale).with_context(|| format!("cannot remove {}", stale.display()))?;
            }
        }
        Ok(tree)
    }

    pub(super) fn package(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Builds programs with as many faults of these packages as can be switched on. The number of a fault is its place in the list, from 1.
    pub(super) fn switchboard(
        &self,
        packages: &[&str],
        asked: &[Tests],
        faults: &[&Fault],
    ) -> Result<Switchboard> {
        let mut refused: BTreeSet<usize> = BTreeSet::new();
        loop {
            let numbered = (1..).zip(faults.iter().copied());
            let mut by_file: BTreeMap<&str, Vec<(usize, &Fault)>> = BTreeMap::new();
            for (number, fault) in numbered.filter(|(number, _)| !refused.contains(number)) {
                by_file.entry(&fault.file).or_default().push((number, fault));
            }
            let mut written: BTreeMap<&str, Switched> = BTreeMap::new();
            let mut left = BTreeSet::new();
            for (file, faults) in &by_file {
                let switched = switch::switched(&self.original(file)?, faults)
                    .with_context(|| format!("cannot put faults into {file}"))?;
                left.extend(switched.left.iter().copied());
                self.write(file, &switched.text)?;
                written.insert(file, switched);
            }
            let libs: Vec<String> = packages.iter().map(|package| format!("{package}/src/lib.rs")).collect();
            for lib in &libs {
                let text = match written.get(lib.as_str()) {
                    Some(switched) => switched.text.clone(),
                    None => self.original(lib)?,
                };
                self.write(lib, &[switch::ALLOWED, &text, switch::SWITCH].concat())?;
            }
            let built = self.build(asked);
            let files: Vec<&str> = by_file.keys().copied().chain(libs.iter().map(String::as_str)).collect();
            match built? {
                Build::Programs(programs) => {
                    let switched = (1..=faults.len())
                        .filter(|number| !refused.contains(number) && !left.contains(number))
                        .collect();
                    self.restore(&files)?;
                    return Ok(Switchboard { programs, switched, refused });
                }
                Build::Complaints(complaints) => {
                    let guilty: BTreeSet<usize> =
                        complaints.iter().flat_map(|complaint| complaint.guilty(&written)).collect();
                    println!("  {} faults do not compile beside the others", guilty.len());
                    // The names of a long list are not printed.
                    for number in guilty.iter().filter(|_| guilty.len() < 10) {
                        println!("    {}", faults[number - 1].name);
                    }
                    if guilty.is_empty() {
                        let texts: Vec<&str> = complaints.iter().map(|c| c.text.as_str()).collect();
                        bail!(
                            "the faults do not compile, and no single one is to blame:\n{}",
                            texts.join("\n")
                        );
                    }
                    refused.extend(guilty);
                    self.restore(&files)?;
                }
            }
        }
    }

    /// Builds a program with one fault that is always on.
    pub(super) fn alone(&self, asked: &Tests, fault: &Fault) -> Result<Build> {
        let text = fault.put_into(&self.original(&fault.file)?);
        let text = text.with_context(|| format!("{} is not in its file", fault.name))?;
        self.write(&fault.file, &text)?;
        let built = self.build(std::slice::from_ref(asked));
        self.restore(&[&fault.file])?;
        built
    }

    fn original(&self, file: &str) -> Result<String> {
        let path = workspace::root().join(file);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.root.join(file);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    fn restore(&self, files: &[&str]) -> Result<()> {
        files.iter().try_for_each(|file| self.write(file, &self.original(file)?))
    }

    /// Builds the test programs.
    fn build(&self, asked: &[Tests]) -> Result<Build> {
        let mut programs = Vec::new();
        for tests in asked {
            match self.build_program(tests)? {
                Ok(program) => programs.push(program),
                Err(complaints) => return Ok(Build::Complaints(complaints)),
            }
        }
        Ok(Build::Programs(programs))
    }

    fn build_program(&self, tests: &Tests) -> Result<Result<PathBuf, Vec<Complaint>>> {
        let mut cargo = self.cargo();
        cargo.args(["test", "--no-run", "--package", tests.package, "--message-format", "json"]);
        let done = cargo
            .args(tests.program)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .context("cannot start cargo")?;
        let messages = String::from_utf8_lossy(&done.stdout);
        let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut complaints = Vec::new();
        let mut program = None;
        for message in messages {
            match message["reason"].as_str() {
                Some("compiler-message") => complaints.extend(complaint(&message["message"])),
                Some("compiler-artifact") => {
                    program = message["executable"].as_str().map(PathBuf::from).or(program);
                }
                _ => {}
            }
        }
        match program {
            Some(program) if done.status.success() => {
                // The program is copied, because the next build would overwrite it.
                let kept =
                    workspace::target_dir().join("mutants").join(program.file_name().unwrap_or_default());
                // A test that did not end may still run the copy of an earlier build, and a running file cannot be written.
                let _absent = fs::remove_file(&kept);
                fs::copy(&program, &kept).with_context(|| format!("cannot copy {}", program.display()))?;
                Ok(Ok(kept))
            }
            _ if complaints.is_empty() => {
                bail!("the tests of {} cannot be built, and the compiler does not say why", tests.package)
            }
            _ => Ok(Err(complaints)),
        }
    }

    fn cargo(&self) -> Command {
        let mut cargo = tool::command("nice");
        cargo.args(["-n", "10", "cargo"]).current_dir(&self.root);
        // Dependencies are shared with all other builds. Debug information is left out, because nobody reads backtraces of a fault, and compilation is
        // incremental, because crates are compiled anew for each build.
        cargo.env("CARGO_TARGET_DIR", workspace::target_dir());
        cargo.envs([("CARGO_PROFILE_DEV_DEBUG", "0"), ("CARGO_INCREMENTAL", "1")]);
        // The wrapper is for the crates of the workspace alone: build scripts of others read the variable for all crates, and would compile everything anew.
        cargo.env("RUSTC_WORKSPACE_WRAPPER", self.root.with_file_name(COMPILER));
        cargo
    }
}

/// Returns an error of the compiler with every place that it points at; `None` if the message is no error.
fn complaint(message: &Value) -> Option<Complaint> {
    if message["level"] != "error" || message["spans"].as_array().is_none_or(Vec::is_empty) {
        return None;
    }
    let place = |span: &Value| {
        let line = |name: &str| Some(span[name].as_u64()? as usize);
        Some((span["file_name"].as_str()?.to_owned(), line("line_start")?, line("line_end")?))
    };
    let of = |message: &Value| -> Vec<_> {
        message["spans"].as_array().into_iter().flatten().filter_map(place).collect()
    };
    let mut spans = of(message);
    spans.extend(message["children"].as_array().into_iter().flatten().flat_map(of));
    Some(Complaint { spans, text: message["rendered"].as_str().unwrap_or_default().to_owned() })
}

impl Complaint {
    /// Returns the faults whose own lines the error points at.
    fn guilty(&self, written: &BTreeMap<&str, Switched>) -> Vec<usize> {
        let mut guilty = Vec::new();
        for (file, from, to) in &self.spans {
            let Some((_, switched)) =
                written.iter().find(|(name, _)| name.ends_with(file.as_str()) || file.ends_with(**name))
            else {
                continue;
            };
            let is_within = |lines: &std::ops::Range<usize>| lines.contains(from) && lines.contains(to);
            let own = switched.lines.iter().filter(|(_, lines)| is_within(lines));
            guilty.extend(own.map(|(number, _)| *number));
        }
        guilty
    }
}

/// Lists the units, manual pages and policies that code includes.
fn packaged(root: &Path) -> Result<Vec<PathBuf>> {
    walk(&root.join("packaging"))
}

fn walk(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// Copies a file if it differs from the copy: an unchanged file is not compiled again.
fn renew(from: &Path, to: &Path) -> Result<()> {
    renew_text(fs::read(from).with_context(|| format!("cannot read {}", from.display()))?, to)
}

fn renew_text(text: impl AsRef<[u8]>, to: &Path) -> Result<()> {
    if fs::read(to).is_ok_and(|there| there == text.as_ref()) {
        return Ok(());
    }
    if let Some(dir) = to.parent() {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))
}
