//! The rule of directions: folders of `ratelimit-user`, and those within its `daemon`, import only folders below them, and files import each
//! other in circles only if `docs/architecture.md` says why.
//!
//! The pictures of the folders and the table of the circles are in that page, so that readers and this check use the same ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::imports::{self, Imports};

const PAGE: &str = "docs/architecture.md";

/// The crate whose folders are drawn.
const DRAWN: &str = "ratelimit-user";

/// A picture of folders, each above those that it imports.
struct Picture {
    /// The line of the page above the picture.
    heading: &'static str,
    /// The folder that is drawn, relative to `src` of the crate.
    of: &'static str,
    /// The file of the crate that repeats the picture for readers of the code, relative to `src`.
    again: &'static str,
}

const PICTURES: [Picture; 2] = [
    Picture { heading: "## The folders of ratelimit-user\n", of: "", again: "lib.rs" },
    Picture { heading: "### The folders of the daemon\n", of: "daemon/", again: "daemon/mod.rs" },
];

/// The first line of the table of circles.
const CIRCLES: &str = "| files that know each other | why |";

/// The crates of the product.
const CRATES: [&str; 3] = ["ratelimit-common", "ratelimit-ebpf", "ratelimit-user"];

/// Files of which each imports every other, directly or through others.
type Circle = BTreeSet<String>;

/// Refuses imports upwards, and circles that the page does not explain.
pub(crate) fn check(root: &Path) -> Result<()> {
    let page = fs::read_to_string(root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let mut circles = BTreeSet::new();
    let mut problems = Vec::new();
    for name in CRATES {
        let imports = imports::of_crate(&root.join(name).join("src"), &name.replace('-', "_"))?;
        circles
            .extend(circles_of(&between_modules(&imports)).into_iter().map(|circle| in_crate(name, &circle)));
        if name == DRAWN {
            for picture in &PICTURES {
                problems.extend(against_the_order(&within(&imports, picture.of), &picture.rows(&page)?));
                let again = format!("{DRAWN}/src/{}", picture.again);
                let code = fs::read_to_string(root.join(&again))?;
                let missing = picture.missing_lines(&page, &code)?;
                problems
                    .extend(missing.map(|line| format!("{again} lacks this line of the picture: {line}")));
            }
        }
    }
    problems.extend(unexplained(&circles, &explained(&page)));
    if !problems.is_empty() {
        bail!("{PAGE} and the code differ:\n  {}", problems.join("\n  "));
    }
    Ok(())
}

fn in_crate(name: &str, circle: &Circle) -> Circle {
    circle.iter().map(|file| format!("{name}/src/{file}")).collect()
}

impl Picture {
    /// Returns the lines of the picture.
    fn lines<'p>(&self, page: &'p str) -> Result<impl Iterator<Item = &'p str> + use<'p>> {
        let (_, below) =
            page.split_once(self.heading).with_context(|| format!("{PAGE} has no {:?}", self.heading))?;
        let lines = below.lines().skip_while(|line| !line.starts_with("    "));
        Ok(lines.take_while(|line| line.starts_with("    ")).map(str::trim))
    }

    /// Returns the rows of folder names from the top down. Folders in one row do not import each other.
    fn rows<'p>(&self, page: &'p str) -> Result<Vec<Vec<&'p str>>> {
        Ok(self.lines(page)?.map(names).collect())
    }

    /// Returns the lines of the picture that the documentation of the code lacks.
    fn missing_lines<'p>(&self, page: &'p str, code: &str) -> Result<impl Iterator<Item = &'p str>> {
        let lacks = |line: &&str| !code.lines().any(|one| one.strip_prefix("//! ") == Some(line));
        Ok(self.lines(page)?.filter(lacks).collect::<Vec<_>>().into_iter())
    }
}

/// Returns the imports among the files below a folder, relative to that folder.
fn within(imports: &Imports, folder: &str) -> Imports {
    let below = |file: &String| file.strip_prefix(folder).map(str::to_owned);
    let rows = imports.iter().filter_map(|(file, imported)| Some((below(file)?, imported)));
    rows.map(|(file, imported)| (file, imported.iter().filter_map(below).collect())).collect()
}

/// Returns the folder names of a row. Names are separated by two spaces or more; a description, also set apart, has single spaces in it.
fn names(row: &str) -> Vec<&str> {
    row.split("  ")
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .take_while(|part| !part.contains(' '))
        .collect()
}

/// Returns the folder of a file: `daemon` for `daemon/host.rs`, `clock` for `clock.rs`.
fn folder(file: &str) -> &str {
    file.split_once('/').map_or(file.trim_end_matches(".rs"), |(folder, _)| folder)
}

fn against_the_order(imports: &Imports, rows: &[Vec<&str>]) -> Vec<String> {
    let row_of: BTreeMap<&str, usize> =
        rows.iter().zip(0..).flat_map(|(names, row)| names.iter().map(move |name| (*name, row))).collect();
    let is_code = |folder: &&str| !["lib", "main", "mod"].contains(folder);
    let folders: BTreeSet<&str> = imports.keys().map(|file| folder(file)).filter(is_code).collect();
    let mut problems: Vec<String> = folders
        .iter()
        .filter(|folder| !row_of.contains_key(*folder))
        .map(|folder| format!("{folder} is not in the picture of the folders"))
        .collect();
    problems.extend(
        row_of
            .keys()
            .filter(|name| !folders.contains(*name))
            .map(|name| format!("{name} is in the picture, and there is no such folder")),
    );
    for (file, imported) in imports {
        for other in imported {
            let (from, to) = (folder(file), folder(other));
            if from != to && is_code(&from) && row_of.get(from) >= row_of.get(to) && row_of.contains_key(to) {
                problems.push(format!("{file} imports {other}, and {to} is not below {from} in the picture"));
            }
        }
    }
    problems
}

/// Returns the imports without those between a module and the files below it, such as `x.rs` and `x/y.rs`, which are one module in several files.
fn between_modules(imports: &Imports) -> Imports {
    let stem = |file: &str| {
        file.trim_end_matches(".rs").trim_end_matches("mod").trim_end_matches('/').to_owned() + "/"
    };
    let is_within = |file: &str, other: &str| stem(file).starts_with(&stem(other));
    let apart = |file: &str, other: &str| !is_within(file, other) && !is_within(other, file);
    let others = |file: &str, imported: &BTreeSet<String>| {
        imported.iter().filter(|other| apart(file, other)).cloned().collect()
    };
    imports.iter().map(|(file, imported)| (file.clone(), others(file, imported))).collect()
}

fn circles_of(imports: &Imports) -> BTreeSet<Circle> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        imports.keys().map(|file| (file, reached_from(file, imports))).collect();
    imports
        .keys()
        .filter(|file| reached[file].contains(file))
        .map(|file| {
            reached[file]
                .iter()
                .filter(|other| reached[*other].contains(file))
                .map(|other| (*other).clone())
                .collect()
        })
        .collect()
}

/// Returns every file that a file imports, directly or through others.
fn reached_from<'a>(file: &String, imports: &'a Imports) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&String> = imports[file].iter().collect();
    while let Some(other) = next.pop() {
        if reached.insert(other) {
            next.extend(imports.get(other).into_iter().flatten());
        }
    }
    reached
}

/// Returns the circles of the table: the files in code quotes of each row.
fn explained(page: &str) -> BTreeSet<Circle> {
    let rows =
        page.lines().skip_while(|line| *line != CIRCLES).skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let files = row.split('|').nth(1).unwrap_or_default();
        files.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    })
    .collect()
}

fn unexplained(found: &BTreeSet<Circle>, explained: &BTreeSet<Circle>) -> Vec<String> {
    let told = |circle: &Circle| circle.iter().cloned().collect::<Vec<_>>().join(", ");
    let new = found.difference(explained).map(|circle| {
        format!("files that know each other, without a sentence that says why: {}", told(circle))
    });
    let gone = explained.difference(found).map(|circle| format!("no circle any more: {}", told(circle)));
    new.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use crate::workspace;

    use super::*;

    const PICTURE: &str = "## The folders of ratelimit-user\nText.\n\n    cli   tui     verbs; a terminal\n    policy        wishes of one\n\nMore.\n\n### The folders of the daemon\n\n    run     from start to stop\n    host    one host\n";

    fn imports(rows: &[(&str, &[&str])]) -> Imports {
        let set = |files: &[&str]| files.iter().map(|file| (*file).to_owned()).collect();
        rows.iter().map(|(file, others)| ((*file).to_owned(), set(others))).collect()
    }

    #[test]
    fn a_folder_may_import_those_below_it_and_no_other() {
        let [crate_wide, _] = &PICTURES;
        let rows = crate_wide.rows(PICTURE).unwrap();
        assert_eq!(rows, [vec!["cli", "tui"], vec!["policy"]]);
        let down = imports(&[
            ("cli/a.rs", &["policy/b.rs", "cli/c.rs"]),
            ("tui.rs", &["policy/b.rs"]),
            ("policy/b.rs", &[]),
        ]);
        assert!(against_the_order(&down, &rows).is_empty());
        let wrong = imports(&[("cli/a.rs", &["tui.rs"]), ("policy/b.rs", &["cli/a.rs"]), ("new.rs", &[])]);
        let said = against_the_order(&wrong, &rows);
        assert_eq!(
            said,
            [
                "new is not in the picture of the folders",
                "tui is in the picture, and there is no such folder",
                "cli/a.rs imports tui.rs, and tui is not below cli in the picture",
                "policy/b.rs imports cli/a.rs, and cli is not below policy in the picture",
            ]
        );
    }

    #[test]
    fn folders_of_the_daemon_have_a_picture_of_their_own() {
        let [_, daemon] = &PICTURES;
        let rows = daemon.rows(PICTURE).unwrap();
        assert_eq!(rows, [["run"], ["host"]]);
        let code = imports(&[
            ("cli/a.rs", &["daemon/run.rs"]),
            ("daemon/mod.rs", &["daemon/run.rs"]),
            ("daemon/run.rs", &["daemon/host/b.rs", "policy/c.rs"]),
            ("daemon/host/b.rs", &[]),
        ]);
        assert!(against_the_order(&within(&code, daemon.of), &rows).is_empty());
        let wrong = imports(&[("daemon/run.rs", &[]), ("daemon/host/b.rs", &["daemon/run.rs"])]);
        let said = against_the_order(&within(&wrong, daemon.of), &rows);
        assert_eq!(said, ["host/b.rs imports run.rs, and run is not below host in the picture"]);
        let lacking: Vec<&str> =
            daemon.missing_lines(PICTURE, "//! run     from start to stop\n").unwrap().collect();
        assert_eq!(lacking, ["host    one host"]);
    }

    #[test]
    fn circles_are_found_unless_they_are_within_one_module() {
        let code = imports(&[
            ("a/mod.rs", &["a/x.rs"]),
            ("a/x.rs", &["a/mod.rs", "a/y.rs"]),
            ("a/y.rs", &["a/z.rs"]),
            ("a/z.rs", &["a/x.rs"]),
            ("b.rs", &["a/x.rs", "b/c.rs"]),
            ("b/c.rs", &["b.rs"]),
        ]);
        let circle: Circle = ["a/x.rs", "a/y.rs", "a/z.rs"].map(str::to_owned).into();
        let found = circles_of(&between_modules(&code));
        assert_eq!(found, BTreeSet::from([circle.clone()]));
        let page = format!(
            "{CIRCLES}\n|---|---|\n| `a/x.rs`, `a/y.rs`, `a/z.rs` | They are one thing. |\n\n`b.rs`\n"
        );
        assert!(unexplained(&found, &explained(&page)).is_empty());
        assert_eq!(unexplained(&found, &BTreeSet::new()).len(), 1);
        assert_eq!(
            unexplained(&BTreeSet::new(), &explained(&page)),
            ["no circle any more: a/x.rs, a/y.rs, a/z.rs"]
        );
    }

    #[test]
    fn the_page_and_the_code_agree() {
        check(&workspace::root()).unwrap();
    }
}
