//! The archive of the texts of a record. A long text is in a file of its own, written once: the record then has only the difference from that
//! file, so that a change of one line takes a few bytes on disk, however long the policy is. The record also has the length and the hash of
//! the file, and the file has a copy: one of the two may be damaged.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{
    replacement::{self, Replacement},
    seal::Seal,
};
use crate::{config, log, overlap::overlap};

/// Texts up to this number of bytes, and edits, are in the record itself.
const SHORT: usize = 64 * 1024;
/// The beginning of the names of files with texts.
const NAME: &str = "policy-text-";

/// A text in the form that the record has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(in crate::daemon) enum Stored {
    /// The text itself.
    Here(String),
    /// The text of a file in the same directory, with `cut` bytes at a place replaced.
    Edited {
        /// The name of the file.
        base: String,
        at: usize,
        cut: usize,
        put: String,
        /// The seal of the file. Older builds did not write it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seal: Option<Seal>,
    },
}

/// The files with texts that this daemon has written into one state directory.
#[derive(Debug)]
pub(in crate::daemon) struct Archive {
    state: PathBuf,
    bases: Vec<Base>,
}

/// A file with a text, which edits refer to.
#[derive(Debug)]
struct Base {
    name: String,
    text: Arc<str>,
    seal: Seal,
}

impl Archive {
    /// Makes the archive of a state directory. Files of an earlier daemon are not used as bases of edits.
    pub(in crate::daemon) fn new(state: &Path) -> Self {
        Self { state: state.to_owned(), bases: Vec::new() }
    }

    /// Stores a text. When this returns, the file that it is an edit of is on disk.
    pub(in crate::daemon) fn store(&mut self, text: &Arc<str>) -> io::Result<Stored> {
        if text.len() <= SHORT {
            return Ok(Stored::Here(text.to_string()));
        }
        if let Some(edited) = self.bases.iter().find_map(|base| edit(base, text)) {
            return Ok(edited);
        }
        let number = 1 + self.numbers()?.into_iter().max().unwrap_or(0);
        let name = format!("{NAME}{number}");
        for file in [name.clone(), copy_of(&name)] {
            Replacement::prepare(&self.state.join(file), text.as_bytes())?.commit()?;
        }
        let seal = Seal::of(text.as_bytes());
        self.bases.push(Base { name: name.clone(), text: Arc::clone(text), seal: seal.clone() });
        Ok(Stored::Edited { base: name, at: 0, cut: 0, put: String::new(), seal: Some(seal) })
    }

    /// Removes every file that is not the base of one of these texts. A file that cannot be removed does no harm.
    pub(super) fn tidy(&mut self, used: &[&Stored]) {
        if let Err(error) = self.remove_others(used) {
            log::warning(format!("old policy texts in {} cannot be removed: {error}", self.state.display()));
        }
    }

    fn remove_others(&mut self, used: &[&Stored]) -> io::Result<()> {
        let is_used = |name: &str| {
            used.iter().any(|stored| matches!(stored, Stored::Edited { base, .. } if base == name))
        };
        self.bases.retain(|base| is_used(&base.name));
        for name in self.numbers()?.into_iter().map(|number| format!("{NAME}{number}")) {
            if !is_used(&name) {
                replacement::remove(&self.state.join(copy_of(&name)))?;
                replacement::remove(&self.state.join(name))?;
            }
        }
        Ok(())
    }

    fn numbers(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.state)? {
            let name = entry?.file_name();
            numbers.extend(name.to_str().and_then(|name| name.strip_prefix(NAME)?.parse::<u64>().ok()));
        }
        Ok(numbers)
    }
}

impl Stored {
    /// Reads the text. Returns it with a sentence if its file is damaged and the copy was used, or an error that names the file.
    pub(in crate::daemon) fn read(self, state: &Path) -> Result<(String, Option<String>), String> {
        let (base, at, cut, put, seal) = match self {
            Self::Here(text) => return Ok((text, None)),
            Self::Edited { base, at, cut, put, seal } => (base, at, cut, put, seal),
        };
        // Only files of the archive are read, whatever name the record has.
        if base.strip_prefix(NAME).is_none_or(|number| number.parse::<u64>().is_err()) {
            return Err(format!("{base:?} is no name of a text"));
        }
        let file = state.join(&base);
        let (mut text, wrong) = match sealed(&file, seal.as_ref()) {
            Ok(text) => (text, None),
            Err(wrong) => {
                let copy = state.join(copy_of(&base));
                // Without a seal it is not known whether the copy has this text.
                let text =
                    seal.as_ref().and_then(|seal| sealed(&copy, Some(seal)).ok()).ok_or(wrong.clone())?;
                (text, Some(format!("{wrong}; its copy {} is whole and is used", copy.display())))
            }
        };
        let end = at.checked_add(cut).filter(|end| text.get(at..*end).is_some());
        let end =
            end.ok_or_else(|| format!("{} is not the file that it was written with", file.display()))?;
        text.replace_range(at..end, &put);
        Ok((text, wrong))
    }
}

/// Reads a file if it is what was written; otherwise returns an error that names the file.
fn sealed(file: &Path, seal: Option<&Seal>) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = File::open(file).and_then(|open| open.take(config::MAX_BYTES + 1).read_to_end(&mut bytes));
    let wrong = |why: String| format!("{} is damaged: {why}", file.display());
    read.map_err(|error| wrong(error.to_string()))?;
    seal.map_or(Ok(()), |seal| seal.check(&bytes)).map_err(wrong)?;
    String::from_utf8(bytes).map_err(|error| wrong(error.to_string()))
}

fn copy_of(name: &str) -> String {
    format!("{name}.copy")
}

/// Returns a text as an edit of another one, if the edit is short.
fn edit(base: &Base, text: &str) -> Option<Stored> {
    let (head, tail) = overlap(&base.text, text);
    let put = &text[head..text.len() - tail];
    let cut = base.text.len() - tail - head;
    (put.len() <= SHORT).then(|| Stored::Edited {
        base: base.name.clone(),
        at: head,
        cut,
        put: put.to_owned(),
        seal: Some(base.seal.clone()),
    })
}

#[cfg(test)]
mod tests {
    use super::super::replacement::tests::Dir;
    use super::*;

    fn with_copies(names: &[&str]) -> Vec<String> {
        names.iter().flat_map(|name| [(*name).to_owned(), copy_of(name)]).collect()
    }

    #[test]
    fn a_text_that_is_damaged_is_taken_from_its_copy_and_never_read_as_it_is() {
        let dir = Dir::new("archive-damaged");
        let text = long("whole");
        let stored = Archive::new(&dir.0).store(&text).unwrap();
        let [file, copy] = ["policy-text-1", "policy-text-1.copy"].map(|name| dir.0.join(name));
        let mut flipped = text.to_string().into_bytes();
        flipped[5] = b'9';
        for damaged in [&text.as_bytes()[..text.len() / 2], b"", &flipped] {
            fs::write(&file, damaged).unwrap();
            let (read, wrong) = stored.clone().read(&dir.0).unwrap();
            assert_eq!(read, *text);
            assert!(
                wrong.as_ref().is_some_and(|wrong| wrong.contains("policy-text-1 is damaged")),
                "{wrong:?}"
            );
        }
        fs::remove_file(&file).unwrap();
        assert_eq!(stored.clone().read(&dir.0).unwrap().0, *text);
        fs::write(&file, &text.as_bytes()[..text.len() / 2]).unwrap();
        fs::write(&copy, &flipped).unwrap();
        let why = stored.read(&dir.0).unwrap_err();
        assert!(why.contains("policy-text-1 is damaged: it has") && why.contains("were written"), "{why}");
    }

    fn long(line: &str) -> Arc<str> {
        let lines: String = (0..10_000).map(|i| format!("line {i}, ö\n")).collect();
        lines.replace("line 5000,", line).into()
    }

    #[test]
    fn a_short_text_is_in_the_record_and_a_long_one_is_written_once() {
        let dir = Dir::new("archive");
        let mut archive = Archive::new(&dir.0);
        let short: Arc<str> = "short".into();
        assert_eq!(archive.store(&short).unwrap(), Stored::Here("short".to_owned()));
        let (first, second) = (long("first"), long("second, longer ö"));
        let stored = [archive.store(&first).unwrap(), archive.store(&second).unwrap()];
        assert_eq!(
            dir.names(),
            ["policy-text-1", "policy-text-1.copy"],
            "the second is an edit of the first"
        );
        let Stored::Edited { put, .. } = &stored[1] else { panic!("{stored:?}") };
        assert!(put.len() < 100, "{put}");
        for (stored, text) in stored.into_iter().zip([first, second]) {
            assert_eq!(stored.read(&dir.0).unwrap(), (text.to_string(), None));
        }
    }

    #[test]
    fn what_is_not_used_any_more_goes_and_names_are_not_used_twice() {
        let dir = Dir::new("archive-tidy");
        let mut archive = Archive::new(&dir.0);
        let stored = archive.store(&long("a")).unwrap();
        // This text has nothing in common with the first one.
        let other: Arc<str> = "x".repeat(SHORT * 3).into();
        let another = archive.store(&other).unwrap();
        assert_eq!(dir.names(), with_copies(&["policy-text-1", "policy-text-2"]));
        archive.tidy(&[&another]);
        assert_eq!(dir.names(), with_copies(&["policy-text-2"]));
        assert!(stored.read(&dir.0).is_err());
        let next = Archive::new(&dir.0).store(&other).unwrap();
        assert_eq!(
            dir.names(),
            with_copies(&["policy-text-2", "policy-text-3"]),
            "a new daemon does not touch what it has not written"
        );
        assert_eq!(next.read(&dir.0).unwrap(), (other.to_string(), None));
        archive.tidy(&[]);
        assert_eq!(dir.names(), [""; 0]);
    }

    #[test]
    fn an_edit_of_another_file_or_beyond_its_end_is_refused() {
        let dir = Dir::new("archive-refused");
        fs::write(dir.0.join("policy-text-1"), "äb").unwrap();
        fs::write(dir.0.join("secret"), "äb").unwrap();
        let read = |base: &str, at: usize, cut: usize| {
            Stored::Edited { base: base.to_owned(), at, cut, put: "c".to_owned(), seal: None }.read(&dir.0)
        };
        assert_eq!(read("policy-text-1", 2, 1).unwrap(), ("äc".to_owned(), None), "as older builds wrote it");
        for (base, at, cut) in [
            ("policy-text-1", 1, 1),
            ("policy-text-1", 2, 2),
            ("policy-text-1", usize::MAX, 1),
            ("policy-text-2", 0, 0),
            ("secret", 0, 0),
            ("policy-text-../secret", 0, 0),
        ] {
            assert!(read(base, at, cut).is_err(), "{base} {at} {cut}");
        }
    }
}
