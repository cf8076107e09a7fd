//! `ratelimit man`: pages that `man` shows.

use std::{fs, process::Command};

use ratelimit_tests::{
    answer::{assert_refused, stdout},
    bpffs::Scratch,
    netns::run,
};

use super::ratelimit;

#[test]
fn there_is_a_page_for_every_verb_and_a_checker_of_pages_finds_nothing() {
    let scratch = Scratch::new();
    let directory = scratch.dir().join("share/man1");
    let done = ratelimit(&["man", directory.to_str().unwrap()]);
    assert_eq!(done.status.code(), Some(0));
    let pages: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(stdout(&done).starts_with(&format!("{} manual pages", pages.len())), "{}", stdout(&done));
    assert!(!directory.join("ratelimit-front.1").exists(), "what the help does not list has no page");
    assert!(pages.len() >= 40, "{pages:?}");
    let page = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
    assert!(page("ratelimit-block-add.1").contains("Why the prefix is blocked"));
    assert!(page("ratelimit.1").contains("Exit codes: 0 done"));
    // Warnings are about empty lines that the library writes, and about the build in the place of a date.
    let checked = Command::new("mandoc").args(["-T", "lint", "-W", "error"]).args(&pages).output().unwrap();
    assert_eq!(stdout(&checked), "");
    let shown = run(Command::new("mandoc").args(["-T", "ascii"]).arg(directory.join("ratelimit-run.1")));
    for words in ["ratelimit run", concat!(env!("CARGO_PKG_VERSION"), "+")] {
        let shown = stdout(&shown);
        assert!(shown.contains(words), "{words}: {shown}");
    }
}

#[test]
fn pages_that_cannot_be_written_are_no_success() {
    let scratch = Scratch::new();
    let file = scratch.dir().join("file");
    fs::write(&file, "").unwrap();
    for bad in [file.join("man1"), file, "/proc/man1".into()] {
        let refused = ratelimit(&["man", bad.to_str().unwrap()]);
        assert_refused(
            &refused,
            2,
            &["cannot write manual pages into", bad.to_str().unwrap(), "name a directory"],
        );
    }
}
