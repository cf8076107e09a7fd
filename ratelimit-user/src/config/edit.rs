//! Changes one value in the text of a policy file. Every other byte stays as its author left it: comments, order, white
//! space, line ends.
//!
//! The value is found by its place in the parsed file and replaced there; the file is never written from a model.

use std::ops::Range;

use ratelimit_common::limit::text::parse_rate;
use toml::{
    Spanned,
    de::{DeArray, DeTable, DeValue},
};

use crate::policy::LimitList;

/// Why an edit of a text failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The text is no TOML.
    #[error("it is not TOML")]
    NotToml,
    /// The text has no such table.
    #[error("it has no {0}")]
    NoTable(String),
}

/// The place of a key in a table, whether the table has the key or not.
struct EditPlace<'v, 'i> {
    table: &'v DeTable<'i>,
    key: &'static str,
    /// Whether the table is written in one line, in braces.
    inline: bool,
}

/// Replaces the limits of a list in the text. Limits that mean the same already keep their spelling.
pub fn set_list(text: &str, list: &LimitList, rates: &[String]) -> Result<String, EditError> {
    edit(text, |text, root| {
        let place = list_place(text, root, list)?;
        if let Some((_, value)) = place.entry()
            && let DeValue::Array(items) = value.get_ref()
        {
            return Ok(set_items(text, value, items, rates));
        }
        let rates: Vec<String> = rates.iter().map(|rate| quoted(rate)).collect();
        Ok(place.insert(text, &format!("[{}]", rates.join(", "))))
    })
}

/// Removes the list of a user's own limits from the text.
pub fn remove_list(text: &str, list: &LimitList) -> Result<String, EditError> {
    edit(text, |text, root| Ok(list_place(text, root, list)?.remove(text)))
}

/// Puts a user on another plan in the text.
pub fn set_plan(text: &str, user: &str, plan: &str) -> Result<String, EditError> {
    edit(text, |text, root| {
        let place = EditPlace { key: "plan", ..named(text, root, "user", user)? };
        let found = place.entry().map(|(_, value)| value.span());
        Ok(match found {
            Some(value) => splice(text, &value, &quoted(plan)),
            None => place.insert(text, &quoted(plan)),
        })
    })
}

fn edit(
    text: &str,
    change: impl FnOnce(&str, &DeTable<'_>) -> Result<String, EditError>,
) -> Result<String, EditError> {
    // Places are counted without the byte order mark, which stays in front.
    let (mark, text) = match text.strip_prefix('\u{feff}') {
        Some(rest) => ("\u{feff}", rest),
        None => ("", text),
    };
    let root = DeTable::parse(text).map_err(|_| EditError::NotToml)?;
    Ok(format!("{mark}{}", change(text, root.get_ref())?))
}

fn list_place<'v, 'i>(
    text: &str,
    root: &'v DeTable<'i>,
    list: &LimitList,
) -> Result<EditPlace<'v, 'i>, EditError> {
    match list {
        LimitList::Source => in_table(text, root, "[source]", "limits", &["source"]),
        LimitList::Host => in_table(text, root, "[host]", "total", &["host"]),
        LimitList::Plan(name) => {
            in_table(text, root, &format!("[plan.{name}]"), "network", &["plan", name.as_str()])
        }
        LimitList::PerSource(name) => {
            Ok(EditPlace { key: "per_source", ..named(text, root, "service", name)? })
        }
        LimitList::Total(name) => Ok(EditPlace { key: "total", ..named(text, root, "service", name)? }),
        LimitList::User(name) => Ok(EditPlace { key: "network", ..named(text, root, "user", name)? }),
    }
}

/// Finds a key of the table at a path.
fn in_table<'v, 'i>(
    text: &str,
    root: &'v DeTable<'i>,
    what: &str,
    key: &'static str,
    path: &[&str],
) -> Result<EditPlace<'v, 'i>, EditError> {
    let missing = || EditError::NoTable(what.to_owned());
    let (mut table, mut inline) = (root, false);
    for word in path {
        let (_, value) = entry(table, word).ok_or_else(missing)?;
        inline |= in_braces(text, value);
        table = as_table(value).ok_or_else(missing)?;
    }
    Ok(EditPlace { table, key, inline })
}

/// Finds an entry of an array of tables by its name.
fn named<'v, 'i>(
    text: &str,
    root: &'v DeTable<'i>,
    kind: &str,
    name: &str,
) -> Result<EditPlace<'v, 'i>, EditError> {
    let missing = || EditError::NoTable(format!("{kind} {name:?}"));
    let Some((_, DeValue::Array(items))) = entry(root, kind).map(|(key, value)| (key, value.get_ref()))
    else {
        return Err(missing());
    };
    let is_it = |item: &&Spanned<DeValue<'_>>| {
        let called = as_table(item).and_then(|table| entry(table, "name"));
        matches!(called.map(|(_, value)| value.get_ref()), Some(DeValue::String(text)) if text.as_ref() == name)
    };
    let item = items.iter().find(is_it).ok_or_else(missing)?;
    Ok(EditPlace { table: as_table(item).ok_or_else(missing)?, key: "name", inline: in_braces(text, item) })
}

type KeyEntry<'v, 'i> = (Range<usize>, &'v Spanned<DeValue<'i>>);

fn entry<'v, 'i>(table: &'v DeTable<'i>, key: &str) -> Option<KeyEntry<'v, 'i>> {
    let (name, value) = table.iter().find(|(name, _)| name.get_ref().as_ref() == key)?;
    Some((name.span(), value))
}

fn as_table<'v, 'i>(value: &'v Spanned<DeValue<'i>>) -> Option<&'v DeTable<'i>> {
    if let DeValue::Table(table) = value.get_ref() { Some(table) } else { None }
}

fn in_braces(text: &str, value: &Spanned<DeValue<'_>>) -> bool {
    text.get(value.span()).is_some_and(|source| source.starts_with('{'))
}

impl<'v, 'i> EditPlace<'v, 'i> {
    fn entry(&self) -> Option<KeyEntry<'v, 'i>> {
        entry(self.table, self.key)
    }

    /// Inserts the key in front of the first key of its table, with the indentation of that key.
    fn insert(&self, text: &str, value: &str) -> String {
        let Some(first) = self.table.iter().map(|(name, _)| name.span().start).min() else {
            return text.to_owned();
        };
        let line = text[..first].rfind('\n').map_or(0, |end| end + 1);
        let before = &text[line..first];
        let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
        // A dotted key has its path in front, which applies to the new key too.
        let new = if self.inline {
            format!("{} = {value}, ", self.key)
        } else {
            format!("{} = {value}{end}{before}", self.key)
        };
        splice(text, &(first..first), &new)
    }

    /// Removes the key, and its line if nothing else is on it.
    fn remove(&self, text: &str) -> String {
        let Some((key, value)) = self.entry() else { return text.to_owned() };
        let mut place = key.start..value.span().end;
        if self.inline {
            place.end = behind_comma(text, place.end);
        }
        splice(text, &with_space_around(text, place), "")
    }
}

fn set_items(text: &str, list: &Spanned<DeValue<'_>>, items: &DeArray<'_>, rates: &[String]) -> String {
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    for (item, rate) in items.iter().zip(rates) {
        if !says_the_same(item.get_ref(), rate) {
            edits.push((item.span(), quoted(rate)));
        }
    }
    for item in items.iter().skip(rates.len()) {
        let place = item.span().start..behind_comma(text, item.span().end);
        edits.push((with_space_around(text, place), String::new()));
    }
    let more: Vec<String> = rates.iter().skip(items.len()).map(|rate| quoted(rate)).collect();
    if !more.is_empty() {
        let (at, comma) = match items.iter().last() {
            Some(last) => (last.span().end, ", "),
            None => (list.span().start + 1, ""),
        };
        edits.push((at..at, format!("{comma}{}", more.join(", "))));
    }
    // Edits are applied from the end of the text, so that earlier places stay valid.
    edits.sort_by_key(|(place, _)| std::cmp::Reverse(place.start));
    edits.iter().fold(text.to_owned(), |text, (place, value)| splice(&text, place, value))
}

fn says_the_same(item: &DeValue<'_>, rate: &str) -> bool {
    let DeValue::String(written) = item else { return false };
    matches!((parse_rate(written), parse_rate(rate)), (Ok(written), Ok(rate)) if written == rate)
}

/// The position behind the next comma, if one follows.
fn behind_comma(text: &str, end: usize) -> usize {
    let rest = text.get(end..).unwrap_or_default();
    let blank = rest.len() - rest.trim_start().len();
    if rest.get(blank..).is_some_and(|rest| rest.starts_with(',')) { end + blank + 1 } else { end }
}

/// Extends a place to whole lines if nothing else is on them, and otherwise by the blanks in front of it.
fn with_space_around(text: &str, place: Range<usize>) -> Range<usize> {
    let (before, after) = (&text[..place.start], &text[place.end..]);
    let line = before.rfind('\n').map_or(0, |end| end + 1);
    let rest = after.find('\n').map_or(after.len(), |end| end + 1);
    let blank = |text: &str| text.chars().all(char::is_whitespace);
    if blank(&before[line..]) && blank(&after[..rest]) {
        return line..place.end + rest;
    }
    before.trim_end_matches([' ', '\t']).len()..place.end
}

/// The text in quotes, with escapes: names of plans can have any characters.
fn quoted(text: &str) -> String {
    let escape = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04X}", c as u32),
        c => c.to_string(),
    };
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

fn splice(text: &str, place: &Range<usize>, value: &str) -> String {
    let (before, after) = (text.get(..place.start), text.get(place.end..));
    format!("{}{value}{}", before.unwrap_or_default(), after.unwrap_or_default())
}

#[cfg(test)]
mod tests;
