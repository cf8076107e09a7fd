//! Lists of limits and of prefixes, in any table.

use std::ops::Range;

use ratelimit_common::limit::{rate::Rate, text::parse_limit};

use super::{
    problem::Problems,
    value::{At, Strings},
};
use crate::policy::Prefix;

/// The rates of a list that can be parsed, each with its place.
pub(super) fn rates(limits: &Strings, problems: &mut Problems<'_>) -> Vec<At<Rate>> {
    let mut rates = Vec::new();
    for (text, at) in &limits.entries {
        match text.as_deref().map(parse_limit) {
            None => {}
            Some(Ok((rate, _))) => rates.push((rate, at.clone())),
            Some(Err(error)) => {
                let place = inside(error.text(), error.offset(), at, problems);
                problems.error(&place, error);
            }
        }
    }
    rates
}

/// The prefixes of a list, if all of them can be parsed.
pub(super) fn prefixes(list: &Strings, problems: &mut Problems<'_>) -> Option<Vec<Prefix>> {
    let mut prefixes = Vec::new();
    for (text, at) in &list.entries {
        match text.as_ref().map(|text| text.parse::<Prefix>()) {
            None => {}
            Some(Ok(prefix)) => prefixes.push(prefix),
            Some(Err(error)) => problems.error(at, error),
        }
    }
    (prefixes.len() == list.entries.len()).then_some(prefixes)
}

/// The place in the file of a piece of a string: exact, unless escapes make the string differ from its source.
pub(super) fn inside(text: &str, offset: usize, at: &Range<usize>, problems: &Problems<'_>) -> Range<usize> {
    let source = problems.source(at);
    let verbatim = |quotes: &usize| source.get(*quotes..).is_some_and(|rest| rest.starts_with(text));
    match [1, 3].iter().find(|quotes| verbatim(quotes)) {
        Some(quotes) if offset > 0 => at.start + quotes + offset..at.end,
        _ => at.clone(),
    }
}
