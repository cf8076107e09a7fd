//! The rule "a comment stands alone": a comment of an item must say something without the line below it.

use std::path::Path;

use anyhow::{Result, bail};

use crate::type_names;

/// Refuses the shortest comments that do not stand alone, in the crates of the product. Longer ones are left to readers.
pub(crate) fn check(root: &Path) -> Result<()> {
    let mut found = Vec::new();
    for (file, text) in type_names::product(root)? {
        found.extend(fragments(&text).map(|(line, comment)| format!("{file}:{line}: \"{comment}\"")));
    }
    if !found.is_empty() {
        bail!(
            "comments that are no sentence; say what the item is, with its noun and unit:\n  {}",
            found.join("\n  ")
        );
    }
    Ok(())
}

/// Returns the comments of items that are one line long and a fragment, with their line numbers.
fn fragments(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let comments: Vec<Option<&str>> =
        text.lines().map(|line| line.trim_start().strip_prefix("///")).collect();
    let is_comment =
        move |at: usize, comments: &[Option<&str>]| comments.get(at).is_some_and(Option::is_some);
    let alone = (0..comments.len())
        .filter(|at| !(is_comment(at + 1, &comments) || *at > 0 && is_comment(at - 1, &comments)));
    let alone: Vec<(usize, &str)> = alone
        .filter_map(|at| Some((at + 1, comments[at]?.trim())))
        .filter(|(_, one)| is_fragment(one))
        .collect();
    alone.into_iter()
}

/// Whether a comment is a fragment: one word, a pronoun and a noun, or a value that is not named (`Frames.`, `Its name.`, `As given.`). Help texts have no full stop.
fn is_fragment(comment: &str) -> bool {
    let Some(comment) = comment.strip_suffix('.') else { return false };
    let words: Vec<&str> = comment.split_whitespace().collect();
    matches!(words[..], [_] | ["Its" | "Their", _] | ["As", "given"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_are_found_and_sentences_and_help_are_not() {
        for (comment, fragment) in [
            ("Frames.", true),
            ("`[host]`.", true),
            ("Its name.", true),
            ("Their rules.", true),
            ("As given.", true),
            ("The name of the user.", false),
            ("Its name, or `*`.", false),
            ("Policy", false),
            ("Policy file", false),
        ] {
            assert_eq!(is_fragment(comment), fragment, "{comment}");
        }
    }

    #[test]
    fn only_comments_of_one_line_are_looked_at() {
        let text = "/// Frames.\npub a: u64,\n/// One.\n/// Two of them.\npub b: u64,\n// Plain.\n    /// Bytes.\n    c,\n";
        assert_eq!(fragments(text).collect::<Vec<_>>(), [(1, "Frames."), (7, "Bytes.")]);
    }
}
