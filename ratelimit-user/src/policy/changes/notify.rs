//! Attacks and who is told of them, in words. Of an address only the server is shown: its path is often a secret.

use super::{Fields, followed};
use crate::policy::{AttackPolicy, NONE, Notifier, NotifyWay, Occasion};

pub(super) fn of_attacks(attacks: &AttackPolicy) -> Fields {
    followed([
        ("begin", format!("{} packets/s", attacks.begin())),
        ("begin_requests", format!("{}/s", attacks.begin_requests())),
        ("end_after", format!("{} s", attacks.end_after_ms() as f64 / 1e3)),
    ])
}

pub(super) fn of_notifier(notifier: &Notifier) -> Fields {
    let on = notifier.on.iter().copied().map(Occasion::name).collect::<Vec<_>>().join(", ");
    let file = |file: &Option<std::path::PathBuf>| {
        file.as_ref().map_or_else(|| NONE.to_owned(), |file| file.display().to_string())
    };
    match &notifier.way {
        NotifyWay::Webhook { url, secret_file, ca_file } => followed([
            ("on", on),
            // Another path is another address: a mark of it, from which it cannot be told.
            ("webhook", format!("{url} ({:08x})", mark(&url.path))),
            ("secret_file", file(secret_file)),
            ("ca_file", file(ca_file)),
        ]),
        NotifyWay::Command(words) => followed([("on", on), ("command", words.join(" "))]),
    }
}

fn mark(path: &str) -> u32 {
    use std::hash::Hasher as _;
    let mut hasher = siphasher::sip::SipHasher13::new_with_keys(0, 0);
    hasher.write(path.as_bytes());
    hasher.finish() as u32
}
