//! One entry of the log, and the formats that it is written in. Pure.

use std::fmt::{self, Write as _};

use serde_json::{Map, Value};
use tracing::{
    Event, Level,
    field::{Field, Visit},
};

use crate::policy::address::without_passwords;

/// A sentence with its fields.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LogEntry {
    pub(super) level: Level,
    pub(super) message: String,
    pub(super) fields: Map<String, Value>,
}

impl LogEntry {
    pub(super) fn of(event: &Event<'_>) -> Self {
        let mut entry = Self { level: *event.metadata().level(), message: String::new(), fields: Map::new() };
        event.record(&mut entry);
        entry.message = without_passwords(&entry.message);
        entry
    }

    /// A warning about the log itself.
    pub(super) fn warning(message: String) -> Self {
        Self { level: Level::WARN, message, fields: Map::new() }
    }

    /// The entry for people. `at` is `None` if the reader adds the time. Every line of a longer message begins as the first one does.
    pub(super) fn human(&self, at: Option<&str>) -> String {
        let time = at.map_or_else(String::new, |at| format!("{at} "));
        format!("{time}ratelimit: {}{}\n", self.word(), self.message)
    }

    /// The entry for programs: one line of JSON.
    pub(super) fn json(&self, at: &str) -> String {
        let mut object = Map::new();
        object.insert("at".to_owned(), at.into());
        object.insert("level".to_owned(), level_name(self.level).into());
        object.insert("message".to_owned(), self.message.clone().into());
        // Fields of an event cannot replace the fields that every entry has.
        self.fields.iter().for_each(|(name, value)| {
            object.entry(name.as_str()).or_insert_with(|| value.clone());
        });
        format!("{}\n", Value::Object(object))
    }

    /// The entry for the journal's stream, which reads a priority in front of each line.
    pub(super) fn prioritised(&self) -> String {
        let mut text = String::new();
        for line in self.human(None).lines() {
            let _written = writeln!(text, "<{}>{line}", priority(self.level));
        }
        text
    }

    /// The entry in the journal's own protocol: fields in capital letters, one per line; values with line ends have their length in front.
    pub(super) fn native(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        field(&mut bytes, "PRIORITY", &priority(self.level).to_string());
        field(&mut bytes, "SYSLOG_IDENTIFIER", "ratelimit");
        field(&mut bytes, "MESSAGE", &format!("{}{}", self.word(), self.message));
        for (name, value) in &self.fields {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            field(&mut bytes, &format!("RATELIMIT_{}", name.to_ascii_uppercase()), &text);
        }
        bytes
    }

    fn word(&self) -> &'static str {
        match self.level {
            Level::ERROR => "error: ",
            Level::WARN => "warning: ",
            _ => "",
        }
    }

    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        self.fields.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for LogEntry {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.add(field, without_passwords(&text));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.add(field, without_passwords(value));
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warning",
        Level::INFO => "info",
        _ => "debug",
    }
}

/// The syslog number of a level.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

fn field(bytes: &mut Vec<u8>, name: &str, value: &str) {
    bytes.extend(name.as_bytes());
    if value.contains('\n') {
        bytes.push(b'\n');
        bytes.extend((value.len() as u64).to_le_bytes());
    } else {
        bytes.push(b'=');
    }
    bytes.extend(value.as_bytes());
    bytes.push(b'\n');
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::{
        Metadata, Subscriber,
        span::{Attributes, Id, Record},
    };

    use super::*;

    /// A subscriber that keeps all entries.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<LogEntry>>>);

    impl Subscriber for Kept {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn event(&self, event: &Event<'_>) {
            self.0.lock().unwrap().push(LogEntry::of(event));
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn an_event_has_its_sentence_and_its_fields_and_no_password_in_either() {
        let kept = Kept::default();
        tracing::subscriber::with_default(kept.clone(), || {
            let (store, none) = ("redis://ann:hunter2@10.0.0.5", None::<u64>);
            tracing::warn!(event = "store", up = false, %store, text = store, seconds = none, count = 7_u64, "{store} is gone");
            crate::log::info("a sentence");
        });
        let entries = kept.0.lock().unwrap();
        assert_eq!(
            (entries[0].level, entries[0].message.as_str()),
            (Level::WARN, "redis://***@10.0.0.5 is gone")
        );
        let expected = serde_json::json!({ "event": "store", "up": false, "count": 7, "store": "redis://***@10.0.0.5", "text": "redis://***@10.0.0.5" });
        assert_eq!(Value::Object(entries[0].fields.clone()), expected);
        assert_eq!((entries[1].level, entries[1].message.as_str()), (Level::INFO, "a sentence"));
    }

    fn entry(level: Level, message: &str) -> LogEntry {
        let fields = Map::from_iter([
            ("event".to_owned(), "block".into()),
            ("packets".to_owned(), 7.into()),
            ("level".to_owned(), "forged".into()),
        ]);
        LogEntry { level, message: message.to_owned(), fields }
    }

    #[test]
    fn people_read_the_sentence_with_the_time_in_front_unless_the_journal_has_it() {
        let entry = entry(Level::WARN, "headroom lost");
        assert_eq!(
            entry.human(Some("2026-11-16T12:00:00.000Z")),
            "2026-11-16T12:00:00.000Z ratelimit: warning: headroom lost\n"
        );
        assert_eq!(entry.human(None), "ratelimit: warning: headroom lost\n");
        assert_eq!(self::entry(Level::INFO, "a\nb").prioritised(), "<6>ratelimit: a\n<6>b\n");
        assert_eq!(self::entry(Level::ERROR, "x").prioritised(), "<3>ratelimit: error: x\n");
    }

    #[test]
    fn programs_get_one_object_a_line_whose_own_fields_nothing_replaces() {
        let line = entry(Level::WARN, "two\nlines \"quoted\"").json("2026-11-16T12:00:00.000Z");
        assert_eq!(line.lines().count(), 1, "{line}");
        let object: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(object["message"], "two\nlines \"quoted\"");
        assert_eq!(
            (&object["level"], &object["event"], &object["packets"]),
            (&"warning".into(), &"block".into(), &7.into())
        );
    }

    #[test]
    fn the_journal_gets_each_field_and_no_value_can_pretend_to_be_another_field() {
        let native = entry(Level::INFO, "blocked").native();
        let text = String::from_utf8_lossy(&native);
        for line in [
            "PRIORITY=6",
            "SYSLOG_IDENTIFIER=ratelimit",
            "MESSAGE=blocked",
            "RATELIMIT_EVENT=block",
            "RATELIMIT_PACKETS=7",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in {text}");
        }
        let native = entry(Level::INFO, "x\nPRIORITY=0").native();
        let length = [b"MESSAGE\n".as_slice(), &12_u64.to_le_bytes(), b"x\nPRIORITY=0\n"].concat();
        assert!(native.windows(length.len()).any(|part| part == length), "{native:?}");
    }
}
