//! The meaning of lists of request limits, wherever they stand, and of time zones.

use std::ops::Range;

use ratelimit_common::limit::{manner::Manner, text::request::parse_request};

use super::{
    lists::inside,
    problem::Problems,
    value::{At, Strings},
};
use crate::policy::{MAX_REQUEST_LIMITS, RequestLimit};

/// What holds for the limits of a list that say nothing of it themselves.
#[derive(Clone, Copy, Debug)]
pub(super) struct LimitTerms<'t> {
    /// How the limits are counted; `None` if the policy has a word there that means nothing, so that the limits cannot be judged.
    pub(super) manner: Option<Manner>,
    /// The time zone whose days and months the limits have.
    pub(super) zone: Option<&'t str>,
}

impl<'t> LimitTerms<'t> {
    /// The terms of a list whose table says nothing.
    pub(super) fn plain(zone: Option<&'t str>) -> Self {
        Self { manner: Some(Manner::PLAIN), zone }
    }
}

/// The limits of a list that make sense.
pub(super) fn read(list: &Strings, terms: LimitTerms<'_>, problems: &mut Problems<'_>) -> Vec<RequestLimit> {
    if let Some((_, first_too_many)) = list.entries.get(MAX_REQUEST_LIMITS) {
        let count = list.entries.len();
        problems.error(
            first_too_many,
            format!("{count} limits are more than a list can have; use at most {MAX_REQUEST_LIMITS}"),
        );
    }
    let entries = list.entries.iter().filter_map(|(text, at)| Some((text.as_deref()?, at)));
    entries.filter_map(|(text, at)| limit(text, at, terms, problems)).collect()
}

fn limit(
    text: &str,
    at: &Range<usize>,
    terms: LimitTerms<'_>,
    problems: &mut Problems<'_>,
) -> Option<RequestLimit> {
    let rate = match parse_request(text, terms.manner.unwrap_or(Manner::PLAIN)) {
        Ok(rate) => rate,
        Err(error) => {
            let place = inside(error.text(), error.offset(), at, problems);
            problems.error(&place, error);
            return None;
        }
    };
    terms.manner?;
    let limit = RequestLimit::new(rate, terms.zone);
    limit.map_err(|error| problems.error(at, format!("limit {:?}: {error}", text.trim()))).ok()
}

/// A time zone by its name. One that is not known is reported, and still counts as given.
pub(super) fn zone<'t>(written: Option<&'t At<String>>, problems: &mut Problems<'_>) -> Option<&'t str> {
    let (name, at) = written?;
    if jiff::tz::TimeZone::get(name).is_err() {
        let message = if jiff::tz::db().is_definitively_empty() {
            format!("time_zone = {name:?} cannot be looked up: this system has no time zones; install tzdata")
        } else {
            format!("time_zone = {name:?} is not known; use a name such as \"Europe/Berlin\" or \"UTC\"")
        };
        problems.error(at, message);
    }
    Some(name)
}
