//! Questions in JSON. A question that makes no sense does not affect the questions after it.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Number, Value};

use super::{
    question::{MAX_COST, Question, QuestionDraft},
    shown::shown,
};
use crate::requests::key::named;

/// The most questions in one body.
pub(super) const MAX_QUESTIONS: usize = 1_000;

/// The questions of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestBody {
    /// One question, or why it is no question.
    One(Element),
    /// Any number of questions. An element that is no question says why.
    Many(Vec<Element>),
}

/// A question, or why it is none.
pub(super) type Element = Result<Question<'static>, String>;

impl RequestBody {
    /// Reads a body.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(text)
            .map_err(|error| format!("the body is no JSON object or array of objects: {error}"))
    }
}

impl<'de> Deserialize<'de> for RequestBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BodyVisitor)
    }
}

struct BodyVisitor;

impl<'de> Visitor<'de> for BodyVisitor {
    type Value = RequestBody;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a question, or an array of at most {MAX_QUESTIONS}")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RequestBody, A::Error> {
        question(map).map(RequestBody::One)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<RequestBody, A::Error> {
        let mut all = Vec::new();
        while let Some(element) = list.next_element_seed(ElementSeed)? {
            if all.len() == MAX_QUESTIONS {
                return Err(A::Error::custom(format!(
                    "more than {MAX_QUESTIONS} questions; ask again for the rest"
                )));
            }
            all.push(element);
        }
        Ok(RequestBody::Many(all))
    }
}

struct ElementSeed;

impl<'de> DeserializeSeed<'de> for ElementSeed {
    type Value = Element;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Element, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ElementSeed {
    type Value = Element;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a question")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Element, A::Error> {
        question(map)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Element, A::Error> {
        while list.next_element::<serde::de::IgnoredAny>()?.is_some() {}
        Ok(Err(none("an array")))
    }

    fn visit_str<E>(self, _: &str) -> Result<Element, E> {
        Ok(Err(none("a string")))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Element, E> {
        Ok(Err(none("a number")))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Element, E> {
        Ok(Err(none("a number")))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Element, E> {
        Ok(Err(none("a number")))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Element, E> {
        Ok(Err(none("a boolean")))
    }

    fn visit_unit<E>(self) -> Result<Element, E> {
        Ok(Err(none("null")))
    }
}

fn none(what: &str) -> String {
    format!("{what} is no question; use an object such as {{\"user\": \"ann\", \"api\": \"search\"}}")
}

/// Reads one object to its end, also if it is no question.
fn question<'de, A: MapAccess<'de>>(mut map: A) -> Result<Element, A::Error> {
    let mut draft = QuestionDraft::default();
    let mut wrong = None;
    while let Some((name, value)) = map.next_entry::<String, Value>()? {
        if wrong.is_none() {
            wrong = give(&mut draft, &name, value).err();
        }
    }
    Ok(wrong.map_or_else(|| draft.finish(), Err))
}

fn give(draft: &mut QuestionDraft<'static>, name: &str, value: Value) -> Result<(), String> {
    match (name, value) {
        ("user" | "api" | "ip" | "priority", Value::String(text)) => draft.give(name, owned(&text)),
        ("cost", Value::Number(number)) => draft.give(name, Cow::Owned(plain(&number))),
        ("peek", Value::Bool(peek)) => draft.give_peek(peek),
        ("age_ms", Value::Number(number)) => draft.give_age(&plain(&number)),
        ("key", Value::Object(parts)) => parts.into_iter().try_for_each(|(part, value)| match value {
            Value::String(text) => draft.give_part(Cow::Owned(part), owned(&text)),
            other => Err(format!("key {} is {}; use a string", shown(&part), kind(&other))),
        }),
        ("user" | "api" | "ip" | "priority", other) => Err(wrong(name, &other, "a string")),
        ("cost", other) => Err(wrong(name, &other, "a number")),
        ("age_ms", other) => Err(wrong(name, &other, "a number")),
        ("peek", other) => Err(wrong(name, &other, "true or false")),
        ("key", other) => Err(wrong(name, &other, "an object of strings")),
        (other, _) => Err(format!(
            "field {} is not known; there are user, api, ip, cost, priority, peek, age_ms and key",
            shown(other)
        )),
    }
}

fn owned(text: &str) -> Cow<'static, str> {
    Cow::Owned(named(text.as_bytes()).into_owned())
}

/// Writes a number as people do: in JSON, 3.0 and 3 are equal.
fn plain(number: &Number) -> String {
    match number.as_f64() {
        Some(whole) if number.is_f64() && whole.fract() == 0.0 && whole.abs() <= MAX_COST as f64 => {
            format!("{whole:.0}")
        }
        _ => number.to_string(),
    }
}

fn wrong(name: &str, value: &Value, right: &str) -> String {
    format!("{name} is {}; use {right}", kind(value))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
