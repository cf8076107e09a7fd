//! Settings without `--save`: they end with the daemon, and the next daemon logs which ones are lost.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    replacement::{self, Replacement},
    version::PolicyVersion,
};
use crate::log;

/// File name in the state directory.
const FILE: &str = "unsaved.json";

/// Returns the path of the file with the unsaved settings.
pub(in crate::daemon) fn path(state: &Path) -> PathBuf {
    state.join(FILE)
}

/// Writes the unsaved settings to the file, or removes it if there are none.
pub(in crate::daemon) fn note(state: &Path, set: &[(String, String)]) -> io::Result<()> {
    let path = path(state);
    if set.is_empty() {
        return replacement::remove(&path);
    }
    Replacement::prepare(&path, &serde_json::to_vec(set)?)?.commit()
}

/// Logs the unsaved settings of the daemon before that this one does not have.
pub(in crate::daemon) fn say_lost(state: &Path, version: &PolicyVersion) {
    let path = path(state);
    let Ok(text) = fs::read(&path) else { return };
    let set: Vec<(String, String)> = serde_json::from_slice(&text).unwrap_or_default();
    lost(&set, version).iter().for_each(log::warning);
    // The file is removed, because each loss is logged once.
    let _gone = replacement::remove(&path);
}

/// Returns a sentence for each setting that has another value now.
fn lost(set: &[(String, String)], version: &PolicyVersion) -> Vec<String> {
    let now = |name: &str| version.policy().value(&version.policy().setting(name).ok()?);
    set.iter()
        .filter(|(name, value)| now(name).as_ref() != Some(value))
        .map(|(name, value)| {
            let file = version.file().display();
            let now = now(name).map_or_else(|| "gone".to_owned(), |now| format!("{now} again"));
            format!(
                "{name} had been set to {value} and not saved: it is {now}, as {file} says; with --save it stays"
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Reader;

    #[test]
    fn what_is_another_value_now_is_said_and_what_is_not_is_not() {
        let text = "[source]\nlimits = [\"10 packets/s\", \"5 syns/s\"]\n";
        let version = PolicyVersion::parse(&mut Reader::default(), Path::new("p.toml"), text).unwrap().0;
        let set = [
            ("source.packets", "30 packets/s burst 30"),
            ("source.syns", "5 syns/s burst 5"),
            ("user.x", "y"),
        ];
        let said = lost(&set.map(|(name, value)| (name.to_owned(), value.to_owned())), &version);
        assert_eq!(said.len(), 2);
        assert_eq!(
            said[0],
            "source.packets had been set to 30 packets/s burst 30 and not saved: it is 10 packets/s burst 10 again, \
             as p.toml says; with --save it stays"
        );
        assert!(said[1].starts_with("user.x had been set to y and not saved: it is gone"));
    }
}
