//! Writes to standard error without waiting for its reader.

use std::{
    io::Write,
    os::fd::AsFd,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

/// Bytes that a pipe takes without blocking when it is ready to be written to.
const AT_ONCE: usize = 4_096;
/// How long the rest of a longer line may wait.
const REST_WAITS: Duration = Duration::from_millis(100);

/// Writes lines while somebody reads them. The pipe is the queue; lines that do not fit are counted.
#[derive(Debug, Default)]
pub(super) struct PatientStream {
    lost: AtomicU64,
}

impl PatientStream {
    /// Writes a line, or drops it at once. After dropped lines, `said` gives a line about their number first.
    pub(super) fn write(&self, out: &mut (impl Write + AsFd), line: &str, said: impl Fn(u64) -> String) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        let is_heard = lost == 0 || put(out, &said(lost));
        let is_written = is_heard && put(out, line);
        if !is_written {
            // Dropped lines that could not be reported stay counted.
            let before = if is_heard { 0 } else { lost };
            self.lost.fetch_add(before + 1, Ordering::Relaxed);
        }
    }
}

/// Whether a line was written completely.
fn put(out: &mut (impl Write + AsFd), line: &str) -> bool {
    let mut patience = Duration::ZERO;
    for part in line.as_bytes().chunks(AT_ONCE) {
        // Not blocking, so that protection continues when nobody reads the log.
        if !has_room(out, patience) || out.write_all(part).is_err() {
            return false;
        }
        patience = REST_WAITS;
    }
    true
}

fn has_room(out: &impl AsFd, patience: Duration) -> bool {
    let wait = Timespec { tv_sec: 0, tv_nsec: patience.subsec_nanos().into() };
    let mut waiting = [PollFd::new(out, PollFlags::OUT)];
    match poll(&mut waiting, Some(&wait)) {
        Ok(ready) => ready > 0,
        // An output that cannot be polled is written to without polling.
        Err(error) => error != Errno::INTR,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::Read as _,
        os::fd::OwnedFd,
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn a_reader_that_is_stuck_holds_up_nobody_and_hears_how_much_it_missed() {
        let (reader, writer) = std::io::pipe().unwrap();
        let (mut reader, mut writer) = (File::from(OwnedFd::from(reader)), File::from(OwnedFd::from(writer)));
        let (stream, said) = (PatientStream::default(), |lost: u64| format!("{lost} lost\n"));
        let line = "x".repeat(1_000) + "\n";
        let begun = Instant::now();
        // A pipe holds 64 KiB, so about half of these lines do not fit.
        (0..130).for_each(|_| stream.write(&mut writer, &line, said));
        assert!(begun.elapsed() < Duration::from_secs(5), "nobody waited");
        let lost = stream.lost.load(Ordering::Relaxed);
        assert!((1..130).contains(&lost), "{lost}");
        let mut read = vec![0; 40_000];
        reader.read_exact(&mut read).unwrap();
        stream.write(&mut writer, "back\n", said);
        drop(writer);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert!(rest.ends_with(&format!("\n{lost} lost\nback\n")), "{}", &rest[rest.len() - 60..]);
    }
}
