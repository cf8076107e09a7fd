//! The meaning of `ladder`.

use super::{document::LadderWord, problem::Problems, value::Strings};
use crate::policy::{LadderFamily, LadderPolicy, Rung, SourcePolicy};

/// The ladder, if it makes sense. A family that is not mentioned keeps its default.
pub(super) fn resolve(
    word: &LadderWord,
    source: &SourcePolicy,
    problems: &mut Problems<'_>,
) -> Option<LadderPolicy> {
    let default = LadderPolicy::default_for(source.ipv4_prefix(), source.ipv6_prefix());
    match word {
        LadderWord::Switch(false) => Some(LadderPolicy::OFF),
        LadderWord::Absent | LadderWord::Switch(true) => Some(default),
        LadderWord::Rungs { ipv4, ipv6 } => {
            let ladder = family(default, LadderFamily::V4, ipv4.as_ref(), source.ipv4_prefix(), problems)?;
            family(ladder, LadderFamily::V6, ipv6.as_ref(), source.ipv6_prefix(), problems)
        }
    }
}

fn family(
    ladder: LadderPolicy,
    family: LadderFamily,
    texts: Option<&Strings>,
    source: u8,
    problems: &mut Problems<'_>,
) -> Option<LadderPolicy> {
    let Some(texts) = texts else { return Some(ladder) };
    let mut rungs = Vec::new();
    for (text, at) in &texts.entries {
        match text.as_ref()?.parse::<Rung>() {
            Ok(rung) => rungs.push(rung),
            Err(error) => problems.error(at, error),
        }
    }
    if rungs.len() != texts.entries.len() {
        return None;
    }
    ladder.with(family, rungs, source).map_err(|error| problems.error(&texts.at, error)).ok()
}
