//! Quotes text from outside in our sentences: escaped and cut to a readable length.

use core::fmt::{self, Write as _};

/// Characters of a quoted text that are shown.
const SHOWN: usize = 48;

pub(super) struct Quoted<'a>(pub(super) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars().take(SHOWN) {
            // Control characters and quotes are escaped: the sentence may be written to a terminal.
            write!(f, "{}", c.escape_debug())?;
        }
        if self.0.chars().nth(SHOWN).is_some() {
            f.write_str("...")?;
        }
        f.write_char('"')
    }
}
