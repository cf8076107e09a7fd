//! Which machine this is, whatever it is called: two of one name must not be taken for one.

use std::{fs, path::Path};

use crate::{daemon::state::replacement::Replacement, dataplane::probe, failure::Failure, log};

/// File name in the state directory.
const FILE: &str = "cluster-owner";
/// Length of the name, in hexadecimal digits.
const LENGTH: usize = 32;

/// A text that no other machine has and that stays when the daemon starts again: made when it is first needed.
pub(in crate::daemon) fn owner(state: &Path) -> Result<String, Failure> {
    let path = state.join(FILE);
    if let Some(known) = fs::read_to_string(&path).ok().and_then(|text| read(&text)) {
        return Ok(known);
    }
    let [one, other] = probe::random_secret()?;
    let made = format!("{one:016x}{other:016x}");
    if let Err(error) = Replacement::prepare(&path, made.as_bytes()).and_then(Replacement::commit) {
        // The next daemon then has another, and its name may be taken for a few seconds.
        log::warning(format!("cannot write {FILE}: {error}"));
    }
    Ok(made)
}

fn read(text: &str) -> Option<String> {
    let text = text.trim();
    let is_ours = text.len() == LENGTH && text.bytes().all(|letter| letter.is_ascii_hexdigit());
    is_ours.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_was_not_written_here_is_made_anew() {
        let good = "0123456789abcdef0123456789abcdef";
        assert_eq!(read(&format!("{good}\n")).as_deref(), Some(good));
        for bad in [
            "",
            "0123",
            "g123456789abcdef0123456789abcdef",
            "0123456789abcdef 123456789abcdef",
            &good.repeat(2),
        ] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
