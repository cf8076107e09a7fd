//! Logs the step that a slow start is at. The step is global, because a process starts once.

use std::{
    sync::{
        Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use crate::log;

/// A step is reported once it has taken one second.
const MOMENT: Duration = Duration::from_secs(1);
/// A step that goes on is reported again every ten seconds.
const AGAIN: Duration = Duration::from_secs(10);

static STEP: Mutex<&'static str> = Mutex::new("");

/// Reports slow steps until it is dropped.
#[derive(Debug)]
pub(in crate::daemon) struct Progress {
    _ends: mpsc::Sender<()>,
}

/// Begins a step, in words that follow "starting for N s:".
pub(in crate::daemon) fn step(words: &'static str) {
    *STEP.lock().unwrap_or_else(PoisonError::into_inner) = words;
}

/// Starts a thread that checks the step once a second, because the thread that starts the daemon may be waiting for the kernel or a disk.
pub(in crate::daemon) fn watch() -> Progress {
    let (ends, ended) = mpsc::channel();
    let look = move || {
        let (began, mut said) = (Instant::now(), None);
        while ended.recv_timeout(MOMENT) == Err(RecvTimeoutError::Timeout) {
            let (step, elapsed) = (*STEP.lock().unwrap_or_else(PoisonError::into_inner), began.elapsed());
            if is_news(said, step, elapsed) {
                log::info(format!("starting for {} s: {step}", elapsed.as_secs()));
                said = Some((step, elapsed));
            }
        }
    };
    // A start works without this thread too.
    let _silent = thread::Builder::new().name("progress".to_owned()).spawn(look);
    Progress { _ends: ends }
}

fn is_news(said: Option<(&str, Duration)>, step: &str, elapsed: Duration) -> bool {
    said.is_none_or(|(before, at)| before != step || elapsed >= at + AGAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_said_when_it_is_another_or_takes_ten_seconds_more() {
        let at = Duration::from_secs;
        assert!(is_news(None, "a", at(1)));
        assert!(!is_news(Some(("a", at(1))), "a", at(10)));
        assert!(is_news(Some(("a", at(1))), "a", at(11)));
        assert!(is_news(Some(("a", at(1))), "b", at(2)));
    }
}
