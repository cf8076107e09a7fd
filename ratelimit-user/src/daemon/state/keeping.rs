//! Keeps the lists, and the state of gossip, for the next daemon and for the next boot.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Deserialize;

use super::{
    entries,
    journal::Journal,
    kept::{BootClock, KeptState, Note, Reboot, Saying},
    state_dir::{self, StateDir},
};
use crate::{
    clock,
    cluster::gossip::{Gossip, Numbers, Saved, WaitingEdit},
    compile::lists::{Lists, Prefix},
    daemon::options::{Keep, Options},
    dataplane::probe,
    failure::Failure,
    log, moment,
};

/// The file in the state directory in which older builds kept blocks for all hosts.
const OLDER: &str = "cluster-blocks.json";

/// The journal, and the state of gossip that was last written to it.
#[derive(Debug)]
pub(in crate::daemon) struct StateKeeper {
    pub(in crate::daemon) journal: Journal,
    boot: String,
    /// The state that the journal had when the daemon began.
    pub(in crate::daemon) kept: KeptState,
    edit: u64,
    answered: u64,
    numbers: Numbers,
    /// The file of an older build, which is removed once the journal is written.
    older: Option<PathBuf>,
    /// The lock of the directory, held so that only one daemon writes there.
    _lock: Option<File>,
}

/// The contents of the file of older builds.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Older {
    saved: OlderSaved,
    shown: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OlderSaved {
    identity: Option<String>,
    version: u64,
    hidden: Vec<(String, Option<u64>, String)>,
    forced: Vec<String>,
}

impl StateKeeper {
    /// Locks the directory, and reads its journal.
    pub(in crate::daemon) fn claim(options: &Options, state: &StateDir) -> Result<Self, Failure> {
        let (directory, lock) = match &options.keep {
            Keep::WithState => (state.path(), None),
            Keep::Named(path) => (path.as_path(), lock(path, state)?),
            Keep::Usual(path) => match lock(path, state) {
                Ok(lock) => (path.as_path(), lock),
                Err(failure) => {
                    log::warning(format!(
                        "{failure}; blocks and allows are kept in {} and may be gone after a reboot; name a directory that stays with --keep",
                        state.path().display()
                    ));
                    (state.path(), None)
                }
            },
        };
        let boot =
            fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
        let (journal, kept) = Journal::read(directory, boot_clock(&boot));
        let older = state.path().join(OLDER);
        let kept = match kept {
            Some(kept) => kept,
            None => of_older_build(&older, boot_clock(&boot)),
        };
        tell_of_reboot(kept.reboot(), &boot_clock(&boot));
        if probe::is_in_memory(directory) {
            log::warning(format!(
                "blocks and allows are kept in {}, which is in memory: they are gone after a reboot; name a directory that stays with --keep",
                directory.display()
            ));
        }
        Ok(Self {
            journal,
            boot,
            kept,
            edit: 0,
            answered: 0,
            numbers: Numbers::default(),
            older: Some(older),
            _lock: lock,
        })
    }

    /// Returns both clocks at this moment.
    fn clock(&self) -> BootClock {
        boot_clock(&self.boot)
    }

    /// Returns the file to sync before a caller is told that a change is on disk.
    pub(in crate::daemon) fn file(&self) -> Option<Arc<File>> {
        self.journal.file()
    }

    /// Adds notes about the changes of gossip since the last call.
    fn news(&mut self, gossip: &Gossip, clock: &BootClock, notes: &mut Vec<Note>) {
        notes.extend(gossip.waiting_after(self.edit).map(|waiting| waiting_note(waiting, clock)));
        let (answered, numbers) = (gossip.answered(), gossip.numbers());
        if answered > self.answered {
            notes.push(Note::Answered(answered));
        }
        if numbers != self.numbers {
            notes.push(Note::Numbers(numbers.clone()));
        }
        (self.edit, self.answered, self.numbers) = (numbers.edit, answered, numbers);
    }

    /// Writes the present entries of prefixes, and changes of gossip, into the journal. They are on disk when the journal's file is synced.
    pub(in crate::daemon) fn write_down<'p>(
        &mut self,
        lists: &Lists,
        gossip: Option<&Gossip>,
        touched: impl IntoIterator<Item = &'p Prefix>,
    ) {
        let clock = self.clock();
        let mut notes: Vec<Note> =
            touched.into_iter().map(|prefix| note(lists, gossip, prefix, &clock)).collect();
        if let Some(gossip) = gossip {
            self.news(gossip, &clock, &mut notes);
        }
        if !notes.is_empty() {
            // The journal keeps the error, and rewrites everything when the disk works again.
            let _said = self.journal.append(&notes);
        }
        // Continues a rewrite that is under way, or begins one that is due.
        self.journal.settle();
        if self.journal.is_long() {
            let notes = self.all_notes(lists, gossip);
            self.journal.rewrite(notes);
        }
    }

    /// Rewrites the journal when the daemon begins.
    pub(in crate::daemon) fn write_all_down(&mut self, lists: &Lists, gossip: Option<&Gossip>) {
        let notes = self.all_notes(lists, gossip);
        self.kept.forget_lists();
        if self.journal.rewrite_now(&notes).is_err() {
            return;
        }
        log::info(format!("blocks and allows are kept in {}", self.journal.path().display()));
        if let Some(older) = self.older.take() {
            let _absent = fs::remove_file(older);
        }
    }

    fn all_notes(&mut self, lists: &Lists, gossip: Option<&Gossip>) -> Vec<Note> {
        let clock = self.clock();
        let said = entries::blocked(lists, clock.now_ns).map(|(prefix, _)| prefix);
        let said: BTreeSet<&Prefix> = said.chain(entries::allows(lists)).collect();
        let mut notes = vec![Note::Numbers(Numbers::default())];
        notes.extend(said.into_iter().map(|prefix| note(lists, gossip, prefix, &clock)));
        // A host that is in no cluster for a while keeps its unanswered edits.
        let Saved { waiting, numbers, .. } = gossip.map_or_else(|| self.kept.saved(), Gossip::saved);
        (self.edit, self.numbers) = (numbers.edit, numbers.clone());
        self.answered = waiting.first().map_or(numbers.edit, |first| first.sequence - 1);
        notes[0] = Note::Numbers(numbers);
        notes.extend(waiting.into_iter().map(|waiting| waiting_note(waiting, &clock)));
        let lines = notes.len() + 1;
        notes.insert(0, Note::Begin { boot: clock.boot, lines });
        notes
    }
}

/// Returns the note about one prefix.
fn note(lists: &Lists, gossip: Option<&Gossip>, prefix: &Prefix, clock: &BootClock) -> Note {
    let saying = Saying::new(
        &entries::own(lists, prefix),
        gossip.and_then(|gossip| gossip.hidden(prefix)),
        gossip.and_then(|gossip| gossip.block(prefix, clock.now_ns)).map(|block| block.origin.as_str()),
        gossip.is_some_and(|gossip| gossip.is_forced(prefix)),
        clock,
    );
    Note::Prefix(prefix.to_string(), saying)
}

fn waiting_note(waiting: WaitingEdit, clock: &BootClock) -> Note {
    let until_ns = waiting.block.as_ref().and_then(|(until_ns, ..)| *until_ns);
    Note::Waiting(waiting, until_ns.map(|until_ns| clock.end(until_ns)))
}

fn boot_clock(boot: &str) -> BootClock {
    BootClock { boot: boot.to_owned(), now_ns: probe::now_ns(), unix_ms: clock::unix_ms() }
}

/// Logs the effect of a boot on blocks that end. Only the wall clock knows how long the host was down, and it may be wrong at boot.
fn tell_of_reboot(Reboot { ended, written_ms }: &Reboot, clock: &BootClock) {
    let now = moment::utc(clock.unix_ms / 1_000);
    if let Some(written_ms) = written_ms {
        log::warning(format!(
            "the clock is behind: it says {now}, and blocks were written down at {}; each lasts for what it had left then, from now on",
            moment::utc(written_ms / 1_000)
        ));
    }
    if !ended.is_empty() {
        log::info(format!(
            "{} {} ended while this host was down, by its clock, which says {now}",
            ended.len(),
            if ended.len() == 1 { "block" } else { "blocks" }
        ));
    }
}

/// Locks a directory, unless it is the state directory, which is locked already.
fn lock(path: &Path, state: &StateDir) -> Result<Option<File>, Failure> {
    let is_state = fs::canonicalize(path)
        .ok()
        .is_some_and(|path| fs::canonicalize(state.path()).is_ok_and(|state| state == path));
    if is_state {
        return Ok(None);
    }
    state_dir::lock(path, "directory for what is kept", "--keep").map(Some)
}

/// Reads the state that an older build has left.
fn of_older_build(file: &Path, clock: BootClock) -> KeptState {
    let nothing = KeptState::nothing(clock);
    let Ok(bytes) = fs::read(file) else { return nothing };
    match serde_json::from_slice::<Older>(&bytes) {
        Ok(Older { saved, shown }) => {
            let numbers = Numbers { identity: saved.identity, version: saved.version, ..Numbers::default() };
            nothing.of_older_build(saved.hidden, saved.forced, &shown, numbers)
        }
        Err(error) => {
            log::error(format!(
                "{} cannot be read ({error}): which blocks on this host's list are the cluster's is not known, and all count as this host's \
                 own; compare ratelimit block list with another host, and delete what is not",
                file.display()
            ));
            nothing
        }
    }
}
