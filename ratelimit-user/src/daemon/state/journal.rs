//! The journal: a file to which notes about lists are appended, each with its checksum, so that a change costs one line however many entries there are. The
//! journal is rewritten when most of its lines are out of date; the version before stays beside it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    kept::{BootClock, KeptState, Note},
    replacement, seal,
};
use crate::log;

/// The file name in the directory that outlives a reboot.
pub(in crate::daemon) const FILE: &str = "lists.journal";
/// The journal is not rewritten before this many lines have been appended.
const FEW: usize = 1_000;
/// The largest size of a journal in bytes, more than a million prefixes take.
const MAX_BYTES: u64 = 1 << 30;
/// Missing lines at the end of a file are listed up to this number, because the promised number of lines may be damaged too.
const MOST_MISSING: usize = 1_000_000;
/// The pause after a failed write, as a multiple of the time that the write took: a change of a list soon shows whether the disk works again, and the daemon does
/// not write all the time.
const RESPITE: u32 = 10;
const SHORTEST_RESPITE: Duration = Duration::from_millis(100);
const LONGEST_RESPITE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(in crate::daemon) struct Journal {
    path: PathBuf,
    /// The open journal; `None` if it cannot be appended to and has to be rewritten.
    file: Option<Arc<File>>,
    /// Lines of the last rewrite; `since` counts the lines appended after it.
    whole: usize,
    since: usize,
    rewriting: Option<Rewriting>,
    /// Whether the file is damaged, so that it must not become the version before.
    is_damaged: bool,
    problem: Option<String>,
    failed: Option<Instant>,
    /// How long the last rewrite took, whether it worked or failed.
    took: Duration,
}

/// A rewrite under way: a thread writes all notes to a new file beside the journal.
#[derive(Debug)]
struct Rewriting {
    worker: JoinHandle<(io::Result<usize>, Duration)>,
    meanwhile: Vec<u8>,
    lines: usize,
}

/// The contents of a file of notes.
#[derive(Debug, Default)]
struct JournalLines {
    notes: Vec<Note>,
    /// Numbers of lines that cannot be read.
    damaged: Vec<usize>,
    /// Whether the last line was not written to its end.
    is_torn: bool,
    /// Whether the last line is whole except for the byte that ends it.
    is_unended: bool,
}

impl Journal {
    /// Reads the journal of a directory and the state that its notes give. Nothing is written yet.
    pub(in crate::daemon) fn read(directory: &Path, clock: BootClock) -> (Self, Option<KeptState>) {
        let path = directory.join(FILE);
        let mut journal = Self {
            path,
            file: None,
            whole: 0,
            since: 0,
            rewriting: None,
            is_damaged: false,
            problem: None,
            failed: None,
            took: Duration::ZERO,
        };
        let shown = journal.path.display();
        let lines = match load(&journal.path) {
            Ok(lines) => lines,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return (journal, None),
            Err(error) => {
                log::error(format!("{shown} cannot be read: {error}"));
                JournalLines { damaged: vec![1], ..JournalLines::default() }
            }
        };
        let mut kept = KeptState::nothing(clock);
        if lines.is_torn {
            log::warning(format!(
                "the last line of {shown} was not written to its end; the change in it was never acknowledged"
            ));
        }
        if lines.is_unended {
            log::warning(format!(
                "the byte that ends the last line of {shown} is damaged or lost; the line is whole, and the change in it holds"
            ));
        }
        if let Some(first) = lines.damaged.first() {
            journal.is_damaged = true;
            let before = journal.before();
            // The version before ends where this one begins, so the whole lines of this one are applied after it.
            let instead = match load(&before) {
                Ok(older) => {
                    older.notes.into_iter().for_each(|note| kept.learn(note));
                    format!(
                        "what the file lacks is taken from {} and from the lists in the kernel",
                        before.display()
                    )
                }
                Err(_absent) => {
                    "what the file lacks is taken from the lists in the kernel, if there are any".to_owned()
                }
            };
            log::error(format!(
                "{shown} is damaged: {} of its lines cannot be read, the first is line {first}; {instead}; changes since may be lost, look at \
                 ratelimit block list and allow list; the damaged file stays as {FILE}.damaged",
                lines.damaged.len()
            ));
        }
        lines.notes.into_iter().for_each(|note| kept.learn(note));
        (journal, Some(kept))
    }

    /// Returns the path of the journal.
    pub(in crate::daemon) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends notes. They are on disk when [`Journal::file`] has been synced.
    pub(super) fn append(&mut self, notes: &[Note]) -> Result<(), String> {
        let lines = encode(notes);
        if let Some(rewriting) = &mut self.rewriting {
            rewriting.meanwhile.extend_from_slice(&lines);
            rewriting.lines += notes.len();
        }
        self.since += notes.len();
        let written = match &self.file {
            Some(file) => (&**file).write_all(&lines),
            None => return Err(self.problem.clone().unwrap_or_else(|| "it is not written yet".to_owned())),
        };
        written.map_err(|error| self.failed(&error))
    }

    /// Returns the file to sync before a caller is told that a note is on disk; `None` while the journal cannot be appended to.
    pub(in crate::daemon) fn file(&self) -> Option<Arc<File>> {
        self.file.clone()
    }

    /// Returns why notes are not on disk, if they are not.
    pub(in crate::daemon) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Notes that writing has failed, and returns the sentence about it.
    pub(in crate::daemon) fn failed(&mut self, error: &io::Error) -> String {
        let problem = format!("cannot write {}: {error}", self.path.display());
        if self.problem.is_none() {
            log::error(format!(
                "{problem}; blocks and allows hold, but a restart or reboot may lose changes"
            ));
        }
        // Half a line may have been written, so no line can be appended after it.
        self.file = None;
        self.failed = Some(Instant::now());
        self.problem = Some(problem.clone());
        problem
    }

    /// Whether a rewrite is under way, which will show whether the disk works.
    pub(in crate::daemon) fn is_rewriting(&self) -> bool {
        self.rewriting.is_some()
    }

    /// Whether the journal should be rewritten now.
    pub(super) fn is_long(&self) -> bool {
        let is_due = match (&self.file, self.failed) {
            (None, Some(at)) => {
                at.elapsed() >= (self.took * RESPITE).clamp(SHORTEST_RESPITE, LONGEST_RESPITE)
            }
            (None, None) => true,
            (Some(_), _) => self.since > self.whole.max(FEW),
        };
        is_due && self.rewriting.is_none()
    }

    /// Begins to rewrite the journal, on a thread of its own.
    pub(super) fn rewrite(&mut self, notes: Vec<Note>) {
        let target = self.beside("new");
        let work = move || {
            let began = Instant::now();
            (write(&target, &notes), began.elapsed())
        };
        let worker = thread::Builder::new().name("journal".to_owned()).spawn(work);
        match worker {
            Ok(worker) => self.rewriting = Some(Rewriting { worker, meanwhile: Vec::new(), lines: 0 }),
            Err(error) => drop(self.failed(&error)),
        }
    }

    /// Rewrites the journal at once, on this thread.
    pub(super) fn rewrite_now(&mut self, notes: &[Note]) -> Result<(), String> {
        let written = write(&self.beside("new"), notes);
        written.and_then(|whole| self.switch(&[], whole, 0)).map_err(|error| self.failed(&error))
    }

    /// Goes over to the rewritten journal, if the rewrite is done.
    pub(in crate::daemon) fn settle(&mut self) {
        let Some(Rewriting { worker, meanwhile, lines }) =
            self.rewriting.take_if(|rewriting| rewriting.worker.is_finished())
        else {
            return;
        };
        let stopped = |_| (Err(io::Error::other("the writer stopped")), Duration::ZERO);
        let (written, took) = worker.join().unwrap_or_else(stopped);
        self.took = took;
        if let Err(error) = written.and_then(|whole| self.switch(&meanwhile, whole, lines)) {
            self.failed(&error);
        }
    }

    fn switch(&mut self, meanwhile: &[u8], whole: usize, since: usize) -> io::Result<()> {
        let new = self.beside("new");
        let mut file = OpenOptions::new().append(true).custom_flags(libc::O_NOFOLLOW).open(&new)?;
        file.write_all(meanwhile)?;
        file.sync_all()?;
        if self.is_damaged {
            let _absent = fs::rename(&self.path, self.path.with_file_name(format!("{FILE}.damaged")));
        } else if self.path.exists() {
            // A hard link keeps a whole journal under its name at every moment.
            let link = self.beside("before");
            let _absent = fs::remove_file(&link);
            fs::hard_link(&self.path, &link)?;
            fs::rename(&link, self.before())?;
        }
        fs::rename(&new, &self.path)?;
        replacement::sync_directory(&self.path);
        if self.problem.take().is_some() {
            log::info(format!("{} is written again", self.path.display()));
        }
        (self.is_damaged, self.failed) = (false, None);
        (self.file, self.whole, self.since) = (Some(Arc::new(file)), whole, since);
        Ok(())
    }

    fn before(&self) -> PathBuf {
        self.path.with_file_name(format!("{FILE}.before"))
    }

    fn beside(&self, what: &str) -> PathBuf {
        self.path.with_file_name(format!(".{FILE}.{what}"))
    }
}

/// Writes notes to a new file and syncs it, and returns the number of lines.
fn write(path: &Path, notes: &[Note]) -> io::Result<usize> {
    let _absent = fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(&encode(notes))?;
    file.sync_all()?;
    Ok(notes.len())
}

fn encode(notes: &[Note]) -> Vec<u8> {
    let mut lines = Vec::new();
    for note in notes {
        // Notes consist of numbers and texts, so they can always be written as JSON.
        let text = serde_json::to_string(note).unwrap_or_default();
        lines.extend_from_slice(seal::digits(text.as_bytes()).as_bytes());
        lines.push(b' ');
        lines.extend_from_slice(text.as_bytes());
        lines.push(b'\n');
    }
    lines
}

fn load(path: &Path) -> io::Result<JournalLines> {
    let found = fs::metadata(path)?;
    if !found.is_file() || found.len() > MAX_BYTES {
        return Err(io::Error::other("it is no file of ours"));
    }
    Ok(decode(&fs::read(path)?))
}

fn decode(bytes: &[u8]) -> JournalLines {
    let mut lines = JournalLines::default();
    // Every journal begins with a note, so an empty one is damaged.
    if bytes.is_empty() {
        lines.damaged.push(1);
    }
    let mut promised = 0;
    for (at, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let is_ended = line.ends_with(b"\n");
        match (note(line), is_ended) {
            (Some(note), _) => {
                lines.is_unended |= !is_ended;
                if let Note::Begin { lines, .. } = &note {
                    promised = *lines;
                }
                lines.notes.push(note);
            }
            // A power cut can leave only the last line unfinished.
            (_, false) if at > 0 => lines.is_torn = true,
            _ => lines.damaged.push(at + 1),
        }
    }
    // Lines are missing if the file was cut off within the lines of its last rewrite.
    let found = lines.notes.len() + lines.damaged.len();
    lines.damaged.extend(found + 1..=promised.min(found + MOST_MISSING));
    lines
}

/// Whether the notes in these bytes, with checksums or without, are unchanged after they are written and read again.
pub(in crate::daemon) fn reads_what_it_writes(bytes: &[u8]) -> bool {
    let mut notes = decode(bytes).notes;
    notes.extend(bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()));
    decode(&encode(&notes)).notes == notes
}

/// Reads the note of a line. The checksum shows that the line is whole even if the byte that ends it is lost, because its change may have been acknowledged.
fn note(line: &[u8]) -> Option<Note> {
    let sealed = |line: &[u8]| {
        let (digits, text) = (line.get(..16)?, line.get(17..)?);
        (seal::digits(text).as_bytes() == digits).then(|| serde_json::from_slice(text).ok())?
    };
    let (end, all_but_end) = line.split_last()?;
    match end {
        b'\n' => sealed(all_but_end),
        _ => sealed(all_but_end).or_else(|| sealed(line)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{kept::tests::*, replacement::tests::Dir};
    use super::*;

    fn opened(dir: &Dir) -> (Journal, KeptState) {
        let (journal, kept) = Journal::read(&dir.0, clock("boot", 0));
        (journal, kept.unwrap_or_else(|| KeptState::nothing(clock("boot", 0))))
    }

    /// Makes a journal with blocks of these prefixes. Those in `then` are appended.
    fn journal(dir: &Dir, first: &[&str], then: &[&str]) -> Journal {
        let mut journal = opened(dir).0;
        journal.rewrite_now(&whole(first)).unwrap();
        then.iter().for_each(|prefix| journal.append(&[blocked(prefix)]).unwrap());
        journal
    }

    fn whole(prefixes: &[&str]) -> Vec<Note> {
        let begin = Note::Begin { boot: "boot".to_owned(), lines: prefixes.len() + 1 };
        std::iter::once(begin).chain(prefixes.iter().map(|prefix| blocked(prefix))).collect()
    }

    const FIRST: [&str; 2] = ["10.1.0.0/16", "10.2.0.0/16"];
    const THEN: [&str; 2] = ["10.3.0.0/16", "10.4.0.0/16"];
    const ALL: [&str; 4] = ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "10.4.0.0/16"];

    #[test]
    fn what_was_appended_is_read_again_and_a_line_that_was_not_finished_is_left_out() {
        let dir = Dir::new("journal");
        drop(journal(&dir, &FIRST, &THEN));
        let (_, kept) = opened(&dir);
        assert_eq!(prefixes(&kept), ALL);
        let path = dir.0.join(FILE);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 5]).unwrap();
        let (journal, kept) = opened(&dir);
        assert_eq!(prefixes(&kept), ALL[..3]);
        assert!(!journal.is_damaged, "a power cut does that");
    }

    #[test]
    fn a_last_line_that_only_lacks_its_end_counts() {
        let dir = Dir::new("journal-end");
        drop(journal(&dir, &FIRST, &THEN));
        let path = dir.0.join(FILE);
        let bytes = fs::read(&path).unwrap();
        let all_but_end = &bytes[..bytes.len() - 1];
        for bit in 0..8 {
            fs::write(&path, [all_but_end, &[b'\n' ^ 1 << bit]].concat()).unwrap();
            let (mut journal, kept) = opened(&dir);
            assert_eq!(
                (prefixes(&kept).as_slice(), journal.is_damaged),
                (ALL.map(str::to_owned).as_slice(), false),
                "{bit}"
            );
            journal.rewrite_now(&whole(&ALL)).unwrap();
            assert_eq!(prefixes(&opened(&dir).1), ALL);
        }
        fs::write(&path, all_but_end).unwrap();
        assert_eq!(prefixes(&opened(&dir).1), ALL, "a power cut just before it");
        fs::write(&path, &all_but_end[..all_but_end.len() - 1]).unwrap();
        assert_eq!(prefixes(&opened(&dir).1), ALL[..3], "and one byte sooner");
    }

    #[test]
    fn one_flipped_bit_anywhere_costs_the_appended_lines_beside_it_at_most() {
        let dir = Dir::new("journal-flipped");
        let mut journal = journal(&dir, &FIRST, &[]);
        // The version before has the same lines as the beginning of this one.
        journal.rewrite_now(&whole(&FIRST)).unwrap();
        THEN.iter().for_each(|prefix| journal.append(&[blocked(prefix)]).unwrap());
        let path = dir.0.join(FILE);
        let bytes = fs::read(&path).unwrap();
        for at in (0..bytes.len()).step_by(5) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 4;
            fs::write(&path, &flipped).unwrap();
            let found = prefixes(&opened(&dir).1);
            // A damaged end of a line damages two lines.
            let whole = if bytes[at] == b'\n' { 2 } else { 3 };
            assert!(found.len() >= whole && found[..2] == FIRST, "{at}: {found:?}");
            assert!(found.iter().all(|prefix| ALL.contains(&prefix.as_str())), "{at}: {found:?}");
        }
    }

    #[test]
    fn a_journal_that_was_cut_off_emptied_or_overwritten_is_made_up_for_by_the_version_before() {
        let dir = Dir::new("journal-cut");
        let mut journal = journal(&dir, &FIRST, &THEN);
        journal.rewrite_now(&whole(&ALL)).unwrap();
        let path = dir.0.join(FILE);
        let bytes = fs::read(&path).unwrap();
        let lines = bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::len).collect::<Vec<_>>();
        let third = lines[..3].iter().sum::<usize>();
        for broken in [&b""[..], b"garbage", b"garbage\n", &bytes[..third], &bytes[..third + 7]] {
            fs::write(&path, broken).unwrap();
            let (journal, kept) = opened(&dir);
            assert!(journal.is_damaged, "{broken:?}");
            assert_eq!(prefixes(&kept), ALL, "{broken:?}");
        }
        // A damaged journal never becomes the version before.
        let (mut journal, _) = opened(&dir);
        journal.rewrite_now(&whole(&ALL)).unwrap();
        assert_eq!(dir.names(), [FILE, "lists.journal.before", "lists.journal.damaged"]);
        fs::write(&path, b"").unwrap();
        assert_eq!(prefixes(&opened(&dir).1), ALL);
    }

    #[test]
    fn what_is_appended_while_everything_is_written_anew_is_not_lost() {
        let dir = Dir::new("journal-anew");
        let mut journal = journal(&dir, &FIRST, &[]);
        journal.rewrite(whole(&FIRST));
        THEN.iter().for_each(|prefix| journal.append(&[blocked(prefix)]).unwrap());
        assert_eq!(prefixes(&opened(&dir).1), ALL, "before");
        while journal.rewriting.is_some() {
            journal.settle();
        }
        assert_eq!(prefixes(&opened(&dir).1), ALL, "after");
        journal.append(&[Note::Prefix(ALL[0].to_owned(), Default::default())]).unwrap();
        assert_eq!(prefixes(&opened(&dir).1), ALL[1..], "and it goes on");
    }

    #[test]
    fn a_disk_that_takes_nothing_is_said_and_made_up_for_later() {
        let dir = Dir::new("journal-full");
        let mut journal = journal(&dir, &FIRST, &[]);
        journal.file = Some(Arc::new(OpenOptions::new().write(true).open("/dev/full").unwrap()));
        let error = journal.append(&[blocked(THEN[0])]).unwrap_err();
        assert!(error.contains(FILE) && error.contains("No space left"), "{error}");
        assert_eq!(journal.problem(), Some(error.as_str()));
        let since = Instant::now();
        (journal.failed, journal.took) = (Some(since), LONGEST_RESPITE);
        assert!(!journal.is_long(), "it is left alone for a while");
        (journal.failed, journal.took) = (since.checked_sub(SHORTEST_RESPITE), Duration::from_millis(3));
        assert!(journal.is_long(), "not for long if it is quick to fail");
        journal.rewrite_now(&whole(&ALL)).unwrap();
        assert_eq!(journal.problem(), None);
        assert_eq!(prefixes(&opened(&dir).1), ALL);
    }

    #[test]
    fn it_is_written_anew_when_most_of_its_lines_are_out_of_date() {
        let dir = Dir::new("journal-long");
        let mut journal = journal(&dir, &FIRST, &[]);
        for _ in 0..FEW {
            assert!(!journal.is_long());
            journal.append(&[blocked(THEN[0])]).unwrap();
        }
        journal.append(&[blocked(THEN[0])]).unwrap();
        assert!(journal.is_long());
    }
}
