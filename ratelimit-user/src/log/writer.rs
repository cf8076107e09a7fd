//! Collects the events of this program and writes them.

use std::{env, io};

use tracing::{
    Event, Level, Metadata, Subscriber,
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
    subscriber::Interest,
};

use super::{LogFormat, entry::LogEntry, journal::SystemJournal, stderr::PatientStream};
use crate::{clock, moment};

/// The prefix of the targets of this program's events. Libraries have events for every frame and connection, which are left out.
const OURS: &str = "ratelimit";

/// Writes events to standard error, or to the journal.
pub(super) struct LogWriter {
    format: LogFormat,
    level: Level,
    journal: Option<SystemJournal>,
    stream: PatientStream,
}

impl LogWriter {
    pub(super) fn new(format: LogFormat, level: Level) -> Self {
        let stream = env::var("JOURNAL_STREAM").ok();
        let journal = SystemJournal::behind_stderr(stream.as_deref()).filter(|_| format == LogFormat::Human);
        Self { format, level, journal, stream: PatientStream::default() }
    }

    fn wants(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with(OURS) && *metadata.level() <= self.level
    }

    fn text(&self, entry: &LogEntry) -> String {
        match (self.format, &self.journal) {
            (LogFormat::Json, _) => entry.json(&now()),
            (LogFormat::Human, Some(_)) => entry.prioritised(),
            (LogFormat::Human, None) => entry.human(Some(&now())),
        }
    }
}

impl Subscriber for LogWriter {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.wants(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.wants(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::from_level(self.level))
    }

    fn event(&self, event: &Event<'_>) {
        let entry = LogEntry::of(event);
        // If the journal is stuck, the entry is lost: standard error leads to the journal too, and would block the daemon.
        let is_done =
            |sent: io::Result<()>| !sent.is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock);
        let taken = self.journal.as_ref().is_some_and(|journal| is_done(journal.send(&entry.native())));
        if !taken {
            let lost = |lost: u64| {
                let message = format!("{lost} lines of the log are lost: standard error was not read");
                self.text(&LogEntry::warning(message))
            };
            self.stream.write(&mut io::stderr().lock(), &self.text(&entry), lost);
        }
    }

    // Spans are never enabled, so this is never used.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn now() -> String {
    moment::utc_ms(clock::unix_ms())
}
