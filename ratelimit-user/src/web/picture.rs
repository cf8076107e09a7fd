//! Everything that the page shows at one moment, as one event of its stream.

use bytes::Bytes;
use serde::Serialize;

use super::decisions::DecisionRates;
use crate::{
    attacks::AttackSummary, build::BUILD, clock, cluster::members::Member, control::protocol::Status, moment,
};

/// The most hosts of a cluster in a picture.
pub const MAX_HOSTS: usize = 64;
/// The most attacks in a picture.
pub const MAX_ATTACKS: usize = 20;
/// The version of the format of pictures. The page compares builds instead, and asks to be reloaded if the daemon is of another build.
const VERSION: u32 = 1;

/// What the dashboard shows of one moment.
#[derive(Debug, Serialize)]
pub struct Picture<'p, P> {
    /// The name of the host.
    pub host: &'p str,
    /// Rates of packets; absent where no interface is guarded, and in the first second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<P>,
    /// The status of the daemon; absent where no interface is guarded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<&'p Status>,
    /// The hosts of the cluster, if there is one.
    pub hosts: &'p [Member],
    /// Attacks, newest first; absent where no interface is guarded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attacks: Option<&'p [AttackSummary]>,
    /// The rates of decisions about requests.
    pub decisions: &'p DecisionRates,
    /// Seconds since the start.
    pub uptime_seconds: u64,
    /// What does not work as the policy wants it, as sentences.
    pub warnings: &'p [String],
}

#[derive(Serialize)]
struct Dated<'p, P> {
    version: u32,
    at: String,
    unix_ms: u64,
    build: &'static str,
    #[serde(flatten)]
    picture: &'p Picture<'p, P>,
}

impl<P: Serialize> Picture<'_, P> {
    /// Writes the picture as an event of a stream; `None` if it cannot be written as JSON.
    pub fn event(&self) -> Option<Bytes> {
        let unix_ms = clock::unix_ms();
        let at = moment::utc_ms(unix_ms);
        event("picture", &Dated { version: VERSION, at, unix_ms, build: BUILD, picture: self })
    }
}

/// Writes an event of a stream. Its JSON has no line breaks, so the data is one line.
pub fn event(name: &str, data: &impl Serialize) -> Option<Bytes> {
    let mut text = format!("event: {name}\ndata: ").into_bytes();
    serde_json::to_writer(&mut text, data).ok()?;
    text.extend_from_slice(b"\n\n");
    Some(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_one_event_whatever_stands_in_it() {
        let warnings = ["a line\nbreak".to_owned()];
        let decisions = DecisionRates::default();
        let picture = Picture::<()> {
            host: "edge-7",
            packets: None,
            status: None,
            hosts: &[],
            attacks: None,
            decisions: &decisions,
            uptime_seconds: 7,
            warnings: &warnings,
        };
        let event = picture.event().unwrap();
        let text = std::str::from_utf8(&event).unwrap();
        let lines: Vec<&str> = text.split('\n').collect();
        assert_eq!((lines.len(), lines[0], lines[2], lines[3]), (4, "event: picture", "", ""), "{text}");
        let data: serde_json::Value = serde_json::from_str(lines[1].strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!((&data["version"], &data["uptime_seconds"]), (&1.into(), &7.into()));
        assert_eq!(data["host"], "edge-7");
        assert_eq!(data["warnings"][0], "a line\nbreak");
        assert!(data.get("packets").is_none() && data.get("status").is_none(), "{data}");
    }
}
