//! Values of a policy file with their places, checked for their type.

use std::{borrow::Cow, ops::Range};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::problem::Problems;

/// A value and its place in the text.
pub(super) type At<T> = (T, Range<usize>);

/// Whether a key is there. An unreadable value has been reported, and must not be reported as missing too.
#[derive(Debug, Default)]
pub(super) enum KeyLookup<T> {
    #[default]
    Absent,
    Unreadable,
    Read(T),
}

impl<T> From<Option<T>> for KeyLookup<T> {
    fn from(read: Option<T>) -> Self {
        read.map_or(Self::Unreadable, Self::Read)
    }
}

/// A list of strings: every entry with its place, `None` for an entry that is not a string and has been reported.
#[derive(Debug)]
pub(super) struct Strings {
    pub(super) at: Range<usize>,
    pub(super) entries: Vec<At<Option<String>>>,
}

/// The keys and values of a table. After broken syntax the parser may pair a key with something that ends before it.
pub(super) fn entries<'v, 'i>(
    table: &'v DeTable<'i>,
    problems: &Problems<'_>,
) -> impl Iterator<Item = (&'v Spanned<Cow<'i, str>>, &'v Spanned<DeValue<'i>>)> + use<'v, 'i> {
    let broken = problems.broken();
    table.iter().filter(move |(key, value)| !broken || value.span().end > key.span().start)
}

pub(super) fn table<'v, 'i>(
    key: &str,
    value: &'v Spanned<DeValue<'i>>,
    problems: &mut Problems<'_>,
) -> Option<&'v DeTable<'i>> {
    match value.get_ref() {
        DeValue::Table(table) => Some(table),
        other => {
            problems.error(&value.span(), format!("{key} is {}; write it as a table, [{key}]", kind(other)));
            None
        }
    }
}

pub(super) fn string(
    key: &str,
    value: &Spanned<DeValue<'_>>,
    problems: &mut Problems<'_>,
) -> Option<At<String>> {
    match value.get_ref() {
        DeValue::String(text) => Some((text.to_string(), value.span())),
        other => {
            problems.error(&value.span(), format!("{key} is {}; write a string in quotes", kind(other)));
            None
        }
    }
}

pub(super) fn strings(
    key: &str,
    value: &Spanned<DeValue<'_>>,
    problems: &mut Problems<'_>,
) -> Option<Strings> {
    let DeValue::Array(items) = value.get_ref() else {
        let message = format!("{key} is {}; write a list of strings, {key} = [\"…\"]", kind(value.get_ref()));
        problems.error(&value.span(), message);
        return None;
    };
    let entry = format!("an entry of {key}");
    let read = |item| string(&entry, item, problems).map(|(text, _)| text);
    let places = items.iter().map(Spanned::span);
    let entries = items.iter().map(read).zip(places).collect();
    Some(Strings { at: value.span(), entries })
}

/// Reads one string, or a list of strings.
pub(super) fn one_or_more(
    key: &str,
    value: &Spanned<DeValue<'_>>,
    problems: &mut Problems<'_>,
) -> Vec<At<String>> {
    if !matches!(value.get_ref(), DeValue::Array(_)) {
        return string(key, value, problems).into_iter().collect();
    }
    let list = strings(key, value, problems).map_or_else(Vec::new, |list| list.entries);
    list.into_iter().filter_map(|(text, at)| Some((text?, at))).collect()
}

pub(super) fn integer(
    key: &str,
    value: &Spanned<DeValue<'_>>,
    problems: &mut Problems<'_>,
) -> Option<At<i64>> {
    let number = match value.get_ref() {
        DeValue::Integer(digits) => {
            i64::from_str_radix(&digits.as_str().replace('_', ""), digits.radix()).ok()
        }
        other => {
            problems.error(&value.span(), format!("{key} is {}; write a whole number", kind(other)));
            return None;
        }
    };
    if number.is_none() {
        let message = format!("{key} = {} is too large for any use", problems.source(&value.span()));
        problems.error(&value.span(), message);
    }
    Some((number?, value.span()))
}

pub(super) fn boolean(
    key: &str,
    value: &Spanned<DeValue<'_>>,
    problems: &mut Problems<'_>,
) -> Option<At<bool>> {
    match value.get_ref() {
        DeValue::Boolean(flag) => Some((*flag, value.span())),
        other => {
            problems.error(&value.span(), format!("{key} is {}; write true or false", kind(other)));
            None
        }
    }
}

pub(super) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
