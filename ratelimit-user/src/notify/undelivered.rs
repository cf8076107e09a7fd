//! Why a notification did not get through.

use serde::{Deserialize, Serialize};

/// The number of characters to which a reason from another process is cut.
const LONGEST: usize = 400;

/// Why a message has not arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undelivered {
    pub(super) why: String,
    /// Whether the receiver would refuse this message every time, so that trying again would only hold up the next message.
    pub(super) is_final: bool,
}

impl Undelivered {
    /// Makes a reason from another process fit for a log and `status`: without control characters, and at most `LONGEST` characters long.
    #[must_use]
    pub fn believed(self) -> Self {
        let why = self.why.chars().map(|one| if one.is_control() { ' ' } else { one });
        Self { why: why.take(LONGEST).collect(), ..self }
    }
}

impl From<String> for Undelivered {
    fn from(why: String) -> Self {
        Self { why, is_final: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_process_says_is_one_line_of_some_length() {
        let said = Undelivered { why: format!("no\n\u{1b}[31m{}", "ä".repeat(9_999)), is_final: true };
        let believed = said.believed();
        assert!(believed.why.starts_with("no  [31mää") && believed.is_final, "{believed:?}");
        assert_eq!(believed.why.chars().count(), LONGEST);
    }
}
