//! A text that identifies this machine, so that two machines with one host name are not taken for one.

use std::{fs, path::Path};

use crate::{daemon::state::replacement::Replacement, dataplane::probe, failure::Failure, log};

/// File name in the state directory.
const FILE: &str = "cluster-owner";
/// Length of the text, in hexadecimal digits.
const LENGTH: usize = 32;

/// Returns the text that only this machine has. It is made when it is first needed, and stays when the daemon starts again.
pub(in crate::daemon) fn owner(state: &Path) -> Result<String, Failure> {
    let path = state.join(FILE);
    if let Some(known) = fs::read_to_string(&path).ok().and_then(|text| read(&text)) {
        return Ok(known);
    }
    let [one, other] = probe::random_secret()?;
    let made = format!("{one:016x}{other:016x}");
    if let Err(error) = Replacement::prepare(&path, made.as_bytes()).and_then(Replacement::commit) {
        // The next daemon will have another text, and the store may refuse its name for a few seconds.
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
