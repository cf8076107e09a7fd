//! Reads one version of a policy after another. Text that two versions share is not read again.

use std::sync::Arc;

use super::{
    document,
    loaded::{LoadError, Loaded},
    pieces::{self, Aside, TextPiece},
    problem::Problems,
    resolve, warnings,
};
use crate::policy::{Chunk, ShadowOrder, Users};

/// The byte order mark that some editors put in front; positions are counted without it.
pub(super) const MARK: char = '\u{feff}';

/// Reads policy texts, and remembers the last one.
#[derive(Debug, Default)]
pub struct Reader {
    last: Option<LastRead>,
}

/// The text that was read last.
#[derive(Debug)]
struct LastRead {
    text: Arc<str>,
    pieces: Vec<TextPiece>,
    users: Users,
    order: ShadowOrder,
    /// Whether every prefix of the users changes something, so that none needs a warning.
    silent: bool,
}

impl Reader {
    /// Checks the text of a policy file; `name` is for messages.
    pub fn parse(&mut self, text: &Arc<str>, name: &str) -> Result<Loaded, LoadError> {
        if let Some(rest) = text.strip_prefix(MARK) {
            return parse_whole(rest, name);
        }
        let pieces = match &self.last {
            Some(last) => pieces::cut_again(text, &last.text, &last.pieces),
            None => pieces::cut(text),
        };
        let before = self.last.as_ref().map_or_else(Users::default, |last| last.users.clone());
        let read = parse_rest(text, name, &pieces, &before);
        if read.is_none() && !pieces.iter().any(|piece| piece.run.is_some()) {
            // The text is short, or has no plain lists: nothing is worth remembering.
            return parse_whole(text, name);
        }
        let mut loaded = match read {
            Some(loaded) => loaded,
            None => parse_whole(text, name)?,
        };
        let users = loaded.policy.users().clone();
        let (mut order, mut silent) =
            self.last.take().map_or_else(|| (ShadowOrder::default(), true), |last| (last.order, last.silent));
        if order.follow(&before, &users) {
            silent = order.shadows().is_empty();
        }
        // Warnings about prefixes need places in the whole text, so the whole text is parsed.
        if !silent {
            loaded.warnings = parse_whole(text, name)?.warnings;
        }
        self.last = Some(LastRead { text: Arc::clone(text), pieces, users, order, silent });
        Ok(loaded)
    }
}

/// The policy of a text without its runs; `None` if something is wrong, which a parse of the whole text then reports.
fn parse_rest(text: &str, name: &str, pieces: &[TextPiece], before: &Users) -> Option<Loaded> {
    let mut rest = String::new();
    // Where each piece of the rest starts: in the rest, and in the whole text.
    let mut starts: Vec<(usize, usize)> = Vec::new();
    let mut runs: Vec<(usize, Vec<Chunk>)> = Vec::new();
    for piece in pieces {
        match (&piece.run, runs.last_mut()) {
            (None, _) => {
                starts.push((rest.len(), piece.at.start));
                rest.push_str(&text[piece.at.clone()]);
            }
            (Some(run), Some((at, chunks))) if *at == rest.len() => chunks.push(run.clone()),
            (Some(run), _) => runs.push((rest.len(), vec![run.clone()])),
        }
    }
    // A multi-line string could contain lines that look like a run.
    if runs.is_empty() || rest.contains("\"\"\"") || rest.contains("'''") {
        return None;
    }
    let mut problems = Problems::new(name, &rest, &document::HOMES);
    let document = document::read(&rest, &mut problems);
    let policy = resolve::resolve(&document, &Aside { runs, before: before.clone() }, &mut problems)?;
    warnings::warn(&document, &policy, &mut problems);
    let in_whole = |at: usize| {
        let piece = starts.partition_point(|(start, _)| *start <= at).checked_sub(1);
        piece.map_or(at, |piece| starts[piece].1 + at - starts[piece].0)
    };
    problems.moved(text, in_whole).finish(Some(policy)).ok()
}

/// Parses the whole text without shortcuts.
pub(super) fn parse_whole(text: &str, name: &str) -> Result<Loaded, LoadError> {
    let mut problems = Problems::new(name, text, &document::HOMES);
    let document = document::read(text, &mut problems);
    let policy = resolve::resolve(&document, &Aside::default(), &mut problems);
    if let Some(policy) = &policy {
        warnings::warn(&document, policy, &mut problems);
        warnings::warn_of_prefixes(&document, policy, &mut problems);
    }
    problems.finish(policy)
}
