//! Keeps reports of attacks on disk: one sealed file for each, in `attacks` below the directory that outlives a reboot, and one file for what is usual. A thread of
//! its own writes them, so that a slow disk holds up nothing else.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use serde::de::DeserializeOwned;

use super::{
    replacement::{self, Replacement},
    seal::Seal,
};
use crate::{
    attacks::{AttackReport, UsualLoads},
    log,
};

/// The folder for reports in the directory that outlives a reboot.
const FOLDER: &str = "attacks";
/// The file in that folder for what is usual.
const USUAL: &str = "usual.json";
/// The number of reports that are kept.
pub(in crate::daemon) const KEPT: usize = 200;
/// The largest size of a file in bytes, more than a report takes.
const MAX_BYTES: u64 = 256 * 1024;
/// The largest size of the file for what is usual in bytes, more than 512 targets take.
const MAX_USUAL_BYTES: u64 = 4 * 1024 * 1024;
/// The pause before writing to a disk is tried again after a failure.
const PATIENCE: Duration = Duration::from_secs(10);

/// The reports on disk, and those that are about to be written.
#[derive(Debug)]
pub(in crate::daemon) struct AttackRecords {
    table: Arc<WritingTable>,
}

/// The work of the thread, shared with the daemon.
#[derive(Debug)]
struct WritingTable {
    folder: PathBuf,
    work: Mutex<Work>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Work {
    /// The newest text of each file that waits, by its name; `None` if the file is to be removed. At most 2 x [`KEPT`] wait.
    waiting: BTreeMap<String, Option<Vec<u8>>>,
    is_writing: bool,
    /// Whether the thread is to end, because the daemon has dropped the records.
    is_over: bool,
    problem: Option<String>,
}

impl AttackRecords {
    /// Reads the reports on disk, and the number of the next attack. Files that cannot be read are set aside.
    pub(in crate::daemon) fn open(directory: &Path) -> (Self, BTreeMap<u64, AttackReport>, u64) {
        let folder = directory.join(FOLDER);
        let (reports, last) = read_all(&folder);
        let table = Arc::new(WritingTable { folder, work: Mutex::default(), changed: Condvar::new() });
        let writer = Arc::clone(&table);
        let started =
            thread::Builder::new().name("attack-records".to_owned()).spawn(move || writer.write_until_over());
        if let Err(error) = started {
            table.work().problem = Some(format!("cannot start a thread: {error}"));
        }
        (Self { table }, reports, last + 1)
    }

    /// Queues a report to be written.
    pub(in crate::daemon) fn keep(&self, report: &AttackReport) {
        // A report consists of numbers and texts, so it can always be written as JSON.
        let text = serde_json::to_vec(report).unwrap_or_default();
        self.table.take_in(name(report.summary.number), Some(text));
    }

    /// Reads what was usual. If that cannot be read, it is learned anew.
    pub(in crate::daemon) fn usual(&self) -> UsualLoads {
        let path = self.table.folder.join(USUAL);
        if !path.exists() {
            return UsualLoads::default();
        }
        let usual = bytes_of(&path, MAX_USUAL_BYTES).and_then(|bytes| opened(&bytes));
        usual.unwrap_or_else(|why: String| {
            log::error(format!("{} cannot be read: {why}; what is usual is learned anew", path.display()));
            UsualLoads::default()
        })
    }

    /// Queues what is usual to be written.
    pub(in crate::daemon) fn keep_usual(&self, usual: &UsualLoads) {
        self.table.take_in(USUAL.to_owned(), Some(serde_json::to_vec(usual).unwrap_or_default()));
    }

    /// Queues the file of a report to be removed.
    pub(in crate::daemon) fn remove(&self, number: u64) {
        self.table.take_in(name(number), None);
    }

    /// Returns why reports are not on disk, if they are not.
    pub(in crate::daemon) fn problem(&self) -> Option<String> {
        self.table.work().problem.clone()
    }

    /// Waits until everything is on disk, for at most `longest`.
    pub(in crate::daemon) fn settle(&self, longest: Duration) {
        let deadline = Instant::now() + longest;
        let mut work = self.table.work();
        while (!work.waiting.is_empty() || work.is_writing) && Instant::now() < deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            work = self.table.changed.wait_timeout(work, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for AttackRecords {
    fn drop(&mut self) {
        self.table.work().is_over = true;
        self.table.changed.notify_all();
    }
}

impl WritingTable {
    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_in(&self, name: String, text: Option<Vec<u8>>) {
        let mut work = self.work();
        work.waiting.insert(name, text);
        // If the disk fails for days, the queue must not fill the memory.
        if work.waiting.len() > 2 * KEPT {
            work.waiting.pop_first();
        }
        drop(work);
        self.changed.notify_all();
    }

    fn write_until_over(&self) {
        loop {
            let mut work = self.work();
            while work.waiting.is_empty() && !work.is_over {
                work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
            }
            if work.is_over {
                return;
            }
            let todo = std::mem::take(&mut work.waiting);
            work.is_writing = true;
            drop(work);
            let mut failed = None;
            for (name, text) in todo {
                if let Err(error) = self.write(&name, text.as_deref()) {
                    // A text that was queued meanwhile is newer and stays.
                    self.work().waiting.entry(name).or_insert(text);
                    failed = Some(error);
                }
            }
            self.settled(failed.as_ref());
            if failed.is_some() {
                let work = self.work();
                let _over = self.changed.wait_timeout_while(work, PATIENCE, |work| !work.is_over);
            }
        }
    }

    fn settled(&self, failed: Option<&io::Error>) {
        let mut work = self.work();
        work.is_writing = false;
        let folder = self.folder.display();
        match (failed, &work.problem) {
            (Some(error), before) => {
                let problem = format!("cannot write {folder}: {error}");
                if before.is_none() {
                    log::error(format!("{problem}; reports of attacks may be lost by a restart"));
                }
                work.problem = Some(problem);
            }
            (None, Some(_)) => {
                log::info(format!("{folder} is written again"));
                work.problem = None;
            }
            (None, None) => {}
        }
        drop(work);
        self.changed.notify_all();
    }

    fn write(&self, name: &str, text: Option<&[u8]>) -> io::Result<()> {
        let path = self.folder.join(name);
        match text {
            None => replacement::remove(&path),
            Some(text) => {
                DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
                Replacement::prepare(&path, &sealed(text)?)?.commit()
            }
        }
    }
}

/// Returns the name of the file of a report.
fn name(number: u64) -> String {
    format!("{number:08}.json")
}

/// Returns the content of a file: a line with the seal, and the text.
fn sealed(text: &[u8]) -> io::Result<Vec<u8>> {
    let mut content = serde_json::to_vec(&Seal::of(text))?;
    content.push(b'\n');
    content.extend_from_slice(text);
    Ok(content)
}

fn read_all(folder: &Path) -> (BTreeMap<u64, AttackReport>, u64) {
    let (mut reports, mut last) = (BTreeMap::new(), 0);
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    for name in names.filter_map(|entry| entry.file_name().into_string().ok()) {
        // Files that were set aside count too, because their numbers must not be given again.
        let Some(number) = name.split('.').next().and_then(|digits| digits.parse::<u64>().ok()) else {
            continue;
        };
        last = last.max(number);
        if !name.ends_with(".json") {
            continue;
        }
        let path = folder.join(&name);
        match read(&path, number) {
            Ok(report) => drop(reports.insert(number, report)),
            Err(why) => {
                let aside = path.with_extension("damaged");
                let moved = match fs::rename(&path, &aside) {
                    Ok(()) => format!("it stays as {}", aside.display()),
                    Err(error) => format!("it cannot be set aside: {error}"),
                };
                log::error(format!(
                    "{} cannot be read: {why}; the report of attack {number} is lost, {moved}",
                    path.display()
                ));
            }
        }
    }
    (reports, last)
}

fn read(path: &Path, number: u64) -> Result<AttackReport, String> {
    let report: AttackReport = opened(&bytes_of(path, MAX_BYTES)?)?;
    match report.summary.number == number {
        true => Ok(report),
        false => Err(format!("it is of attack {}", report.summary.number)),
    }
}

/// Returns the bytes of a file of at most `most` bytes.
fn bytes_of(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    let found = fs::metadata(path).map_err(|error| error.to_string())?;
    if !found.is_file() || found.len() > most {
        return Err("it is no file of ours".to_owned());
    }
    fs::read(path).map_err(|error| error.to_string())
}

/// Returns the content in the bytes of a file, if they are whole.
pub(in crate::daemon) fn opened<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or("it has no first line")?;
    let seal: Seal = serde_json::from_slice(&bytes[..end]).map_err(|_| "its first line is damaged")?;
    let text = &bytes[end + 1..];
    seal.check(text)?;
    serde_json::from_slice(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::replacement::tests::Dir;
    use super::*;
    use crate::attacks::tests::report;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn reports_are_read_again_and_numbers_go_on_also_after_damage() {
        let dir = Dir::new("attacks");
        let (records, reports, next) = AttackRecords::open(&dir.0);
        assert!(reports.is_empty() && next == 1);
        (1..=3).for_each(|number| records.keep(&report(number)));
        records.settle(LONG);
        assert_eq!(records.problem(), None);
        let (_, reports, next) = AttackRecords::open(&dir.0);
        assert_eq!((reports.keys().copied().collect::<Vec<_>>(), next), (vec![1, 2, 3], 4));
        assert_eq!(reports[&2], report(2));
        let damaged = dir.0.join(FOLDER).join(name(3));
        let mut bytes = fs::read(&damaged).unwrap();
        for at in (0..bytes.len()).step_by(97) {
            bytes[at] ^= 1;
            fs::write(&damaged, &bytes).unwrap();
            assert!(read(&damaged, 3).is_err(), "{at}");
            bytes[at] ^= 1;
        }
        fs::write(&damaged, &bytes[..bytes.len() - 1]).unwrap();
        let (records, reports, next) = AttackRecords::open(&dir.0);
        assert_eq!((reports.len(), next), (2, 4), "the number of a lost report is not given again");
        assert!(!damaged.exists() && damaged.with_extension("damaged").exists());
        records.remove(1);
        records.settle(LONG);
        let (_, reports, next) = AttackRecords::open(&dir.0);
        assert_eq!((reports.keys().copied().collect::<Vec<_>>(), next), (vec![2], 4));
    }

    #[test]
    fn what_is_usual_outlives_the_daemon_but_not_damage() {
        let dir = Dir::new("attacks-usual");
        let text = |usual: &UsualLoads| serde_json::to_string(usual).unwrap();
        let mut usual = UsualLoads::default();
        (0..20).for_each(|service| usual.see_for_a_minute(&format!("s{service}"), 30_000));
        let (records, ..) = AttackRecords::open(&dir.0);
        assert_eq!(text(&records.usual()), "[]");
        records.keep_usual(&usual);
        records.settle(LONG);
        let read: UsualLoads = serde_json::from_str(&text(&usual)).unwrap();
        assert_eq!(text(&records.usual()), text(&read));
        let (_, reports, next) = AttackRecords::open(&dir.0);
        assert!(reports.is_empty() && next == 1, "it is no report");
        fs::write(dir.0.join(FOLDER).join(USUAL), b"damaged").unwrap();
        assert_eq!(text(&records.usual()), "[]");
    }

    #[test]
    fn a_disk_that_takes_nothing_is_said_and_holds_up_nobody() {
        let dir = Dir::new("attacks-full");
        // A file is in the place of the folder, so not even root can write below it.
        fs::write(dir.0.join(FOLDER), b"").unwrap();
        let (records, ..) = AttackRecords::open(&dir.0);
        let begun = Instant::now();
        (1..=1_000).for_each(|number| records.keep(&report(number)));
        assert!(begun.elapsed() < Duration::from_secs(5));
        while records.problem().is_none() {
            thread::yield_now();
        }
        assert!(records.problem().unwrap().starts_with("cannot write "));
        assert!(records.table.work().waiting.len() <= 2 * KEPT);
    }
}
