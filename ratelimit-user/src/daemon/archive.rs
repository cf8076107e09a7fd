//! The texts of a record. A long one is in a file of its own, written once: the record then says how the text differs from that file, so
//! that a change of one line is written down in a few bytes, however long the policy is.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{
    log,
    replacement::{self, Replacement},
};
use crate::{config, overlap::overlap};

/// Texts up to this length, and edits, are in the record itself.
const SHORT: usize = 64 * 1024;
/// What the names of files start with.
const NAME: &str = "policy-text-";

/// A text as the record has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Stored {
    /// Here it is.
    Here(String),
    /// The text of a file in the same directory, with `cut` bytes at a place replaced.
    Edited {
        /// The name of the file.
        base: String,
        at: usize,
        cut: usize,
        put: String,
    },
}

/// The files of one state directory that are known to be there.
#[derive(Debug)]
pub(super) struct Archive {
    state: PathBuf,
    bases: Vec<(String, Arc<str>)>,
}

impl Archive {
    /// The archive of a state directory. What an earlier daemon has left there counts as unknown.
    pub(super) fn new(state: &Path) -> Self {
        Self { state: state.to_owned(), bases: Vec::new() }
    }

    /// Stores a text: when this returns, what it is an edit of is on disk.
    pub(super) fn store(&mut self, text: &Arc<str>) -> io::Result<Stored> {
        if text.len() <= SHORT {
            return Ok(Stored::Here(text.to_string()));
        }
        if let Some(edited) = self.bases.iter().find_map(|(base, of)| edit(base, of, text)) {
            return Ok(edited);
        }
        let number = 1 + self.numbers()?.into_iter().max().unwrap_or(0);
        let base = format!("{NAME}{number}");
        Replacement::prepare(&self.state.join(&base), text.as_bytes())?.commit()?;
        self.bases.push((base.clone(), Arc::clone(text)));
        Ok(Stored::Edited { base, at: 0, cut: 0, put: String::new() })
    }

    /// Removes every file that is not the base of one of these. What does not go is in nobody's way.
    pub(super) fn tidy(&mut self, used: &[&Stored]) {
        if let Err(error) = self.remove_others(used) {
            log::warning(format!(
                "texts in {} that nobody needs any more stay: {error}",
                self.state.display()
            ));
        }
    }

    fn remove_others(&mut self, used: &[&Stored]) -> io::Result<()> {
        let is_used = |name: &str| {
            used.iter().any(|stored| matches!(stored, Stored::Edited { base, .. } if base == name))
        };
        self.bases.retain(|(name, _)| is_used(name));
        for name in self.numbers()?.into_iter().map(|number| format!("{NAME}{number}")) {
            if !is_used(&name) {
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
    /// The text.
    pub(super) fn read(self, state: &Path) -> io::Result<String> {
        let (base, at, cut, put) = match self {
            Self::Here(text) => return Ok(text),
            Self::Edited { base, at, cut, put } => (base, at, cut, put),
        };
        let unlike = || io::Error::other(format!("{base} is not the file that it was written with"));
        // Nothing but a file of ours, whatever the record says.
        if base.strip_prefix(NAME).is_none_or(|number| number.parse::<u64>().is_err()) {
            return Err(io::Error::other(format!("{base:?} is no name of a text")));
        }
        let mut text = String::new();
        File::open(state.join(&base))?.take(config::MAX_BYTES + 1).read_to_string(&mut text)?;
        let end = at.checked_add(cut).ok_or_else(unlike)?;
        if text.get(at..end).is_none() {
            return Err(unlike());
        }
        text.replace_range(at..end, &put);
        Ok(text)
    }
}

/// A text as an edit of another, if that is short.
fn edit(base: &str, of: &str, text: &str) -> Option<Stored> {
    let (head, tail) = overlap(of, text);
    let put = &text[head..text.len() - tail];
    let cut = of.len() - tail - head;
    (put.len() <= SHORT).then(|| Stored::Edited { base: base.to_owned(), at: head, cut, put: put.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::replacement::tests::Dir;

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
        assert_eq!(dir.names(), ["policy-text-1"], "the second is an edit of the first");
        let Stored::Edited { put, .. } = &stored[1] else { panic!("{stored:?}") };
        assert!(put.len() < 100, "{put}");
        for (stored, text) in stored.into_iter().zip([first, second]) {
            assert_eq!(stored.read(&dir.0).unwrap(), *text);
        }
    }

    #[test]
    fn what_is_not_used_any_more_goes_and_names_are_not_used_twice() {
        let dir = Dir::new("archive-tidy");
        let mut archive = Archive::new(&dir.0);
        let stored = archive.store(&long("a")).unwrap();
        // A text that has nothing to do with it.
        let other: Arc<str> = "x".repeat(SHORT * 3).into();
        let another = archive.store(&other).unwrap();
        assert_eq!(dir.names(), ["policy-text-1", "policy-text-2"]);
        archive.tidy(&[&another]);
        assert_eq!(dir.names(), ["policy-text-2"]);
        assert!(stored.read(&dir.0).is_err());
        let next = Archive::new(&dir.0).store(&other).unwrap();
        assert_eq!(
            dir.names(),
            ["policy-text-2", "policy-text-3"],
            "a new daemon does not touch what it has not written"
        );
        assert_eq!(next.read(&dir.0).unwrap(), *other);
        archive.tidy(&[]);
        assert_eq!(dir.names(), [""; 0]);
    }

    #[test]
    fn an_edit_of_another_file_or_beyond_its_end_is_refused() {
        let dir = Dir::new("archive-refused");
        fs::write(dir.0.join("policy-text-1"), "äb").unwrap();
        fs::write(dir.0.join("secret"), "äb").unwrap();
        let read = |base: &str, at: usize, cut: usize| {
            Stored::Edited { base: base.to_owned(), at, cut, put: "c".to_owned() }.read(&dir.0)
        };
        assert_eq!(read("policy-text-1", 2, 1).unwrap(), "äc");
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
