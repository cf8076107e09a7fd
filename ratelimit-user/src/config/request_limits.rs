//! The meaning of lists of request limits, in any table, and of time zones.

use std::ops::Range;

use ratelimit_common::limit::{manner::Manner, text::request::parse_request};

use super::{
    lists::inside,
    problem::Problems,
    value::{At, Strings},
};
use crate::policy::{MAX_REQUEST_LIMITS, RequestLimit};

/// Terms of a list of limits that apply unless a limit has its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct LimitTerms<'t> {
    /// The manner of the limits; `None` if the table's manner is invalid, so that the limits cannot be checked.
    pub(super) manner: Option<Manner>,
    /// The time zone of the limits' days and months.
    pub(super) zone: Option<&'t str>,
}

impl<'t> LimitTerms<'t> {
    /// The terms of a list whose table names no manner.
    pub(super) fn plain(zone: Option<&'t str>) -> Self {
        Self { manner: Some(Manner::PLAIN), zone }
    }
}

/// The valid limits of a list; the others are reported.
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

/// A time zone by its name. An unknown zone is reported, and still counts as given.
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
