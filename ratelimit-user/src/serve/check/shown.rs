//! What callers have written, as refusals show it.

/// Quotes a value for a sentence, and cuts it if it is long.
pub(super) fn shown(text: &str) -> String {
    const SHOWN: usize = 64;
    match text.char_indices().nth(SHOWN) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", &text[..end]),
    }
}
