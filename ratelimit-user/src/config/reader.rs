//! Reading one policy after another. What a text has in common with the one before is not read again.

use std::sync::Arc;

use super::{
    LoadError, Loaded, document,
    pieces::{self, Piece},
    problem::Problems,
    resolve,
};
use crate::policy::{Chunk, Users};

/// What editors on other systems put in front; positions are counted without it.
pub(super) const MARK: char = '\u{feff}';

/// Reads policies.
#[derive(Debug, Default)]
pub struct Reader {
    last: Option<Last>,
}

/// The text that was read last.
#[derive(Debug)]
struct Last {
    text: Arc<str>,
    pieces: Vec<Piece>,
    users: Users,
}

/// Prefixes that are not in the text that is parsed, and what is known about them.
#[derive(Debug, Default)]
pub(super) struct Aside {
    /// Where in the text, and which.
    pub(super) runs: Vec<(usize, Vec<Chunk>)>,
    /// Users that were checked before.
    pub(super) before: Users,
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
        let read = parse_rest(text, &pieces, before);
        let loaded = match read {
            Some(loaded) => loaded,
            None => parse_whole(text, name)?,
        };
        self.last = Some(Last { text: Arc::clone(text), pieces, users: loaded.policy.users().clone() });
        Ok(loaded)
    }
}

/// The policy, if there is nothing to say about it: whatever has to be said has a place in the whole text.
fn parse_rest(text: &str, pieces: &[Piece], before: Users) -> Option<Loaded> {
    let mut rest = String::new();
    let mut runs: Vec<(usize, Vec<Chunk>)> = Vec::new();
    for piece in pieces {
        match (&piece.run, runs.last_mut()) {
            (None, _) => rest.push_str(&text[piece.at.clone()]),
            (Some(run), Some((at, chunks))) if *at == rest.len() => chunks.push(run.clone()),
            (Some(run), _) => runs.push((rest.len(), vec![run.clone()])),
        }
    }
    // A string of several lines could have anything in it.
    if runs.is_empty() || rest.contains("\"\"\"") || rest.contains("'''") {
        return None;
    }
    let mut problems = Problems::new("", &rest);
    let document = document::read(&rest, &mut problems);
    let policy = resolve::resolve(&document, &Aside { runs, before }, &mut problems);
    problems.finish(policy).ok().filter(|loaded| loaded.warnings.is_empty())
}

/// Without any shortcut.
pub(super) fn parse_whole(text: &str, name: &str) -> Result<Loaded, LoadError> {
    let mut problems = Problems::new(name, text);
    let document = document::read(text, &mut problems);
    let policy = resolve::resolve(&document, &Aside::default(), &mut problems);
    problems.finish(policy)
}
