//! A question as it is written in a query, in header fields or in JSON. A value that is given twice must be the same both times.

use std::{borrow::Cow, net::IpAddr};

use hyper::header::HeaderMap;

use super::{answer::Trouble, forwarded::CallerOrigin, shown::shown};
use crate::{
    policy::KeyPart,
    requests::{Priority, Request, asking::Asking, key::named},
};

/// The largest cost of one request: every program that reads JSON still counts it exactly.
pub(super) const MAX_COST: u64 = (1 << 53) - 1;
/// The most further parts of a key in one question.
const MAX_PARTS: usize = 16;
/// The beginning of header fields that questions are made of.
const PREFIX: &str = "x-ratelimit-";
/// How header fields that are further parts of a key go on after [`PREFIX`].
const KEY_PREFIX: &str = "key-";

/// A question that can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question<'q> {
    user: Cow<'q, str>,
    api: Cow<'q, str>,
    /// The address that the caller names. It is used only if the caller is trusted.
    pub ip: Option<IpAddr>,
    cost: u64,
    priority: Priority,
    /// Whether the question charges or peeks.
    pub asking: Asking,
    /// For a refund, how many microseconds ago the request was charged; 0 if the caller does not say.
    pub age_us: u64,
    parts: Vec<(Cow<'q, str>, Cow<'q, str>)>,
}

impl<'q> Question<'q> {
    /// Reads the question of a query and of header fields.
    pub(super) fn read(query: Option<&'q str>, headers: &'q HeaderMap) -> Result<Self, Trouble> {
        let mut draft = QuestionDraft::default();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            draft.give_parameter(decoded(name), decoded(value))?;
        }
        for (name, value) in headers {
            let Some(name) = name.as_str().strip_prefix(PREFIX) else { continue };
            draft.give_field(name, named(value.as_bytes()))?;
        }
        Ok(draft.finish()?)
    }

    /// The further parts of the key.
    pub(super) fn parts(&self) -> Vec<(&str, &str)> {
        self.parts.iter().map(|(name, value)| (&**name, &**value)).collect()
    }

    /// The question as the engine takes it.
    pub(super) fn request<'r>(
        &'r self,
        origin: CallerOrigin,
        parts: &'r [(&'r str, &'r str)],
    ) -> Request<'r> {
        let CallerOrigin { ip, vouched } = origin;
        let Self { cost, priority, .. } = *self;
        Request { user: &self.user, api: &self.api, ip, vouched, cost, priority, parts }
    }
}

#[cfg(test)]
impl<'q> Question<'q> {
    /// The question with text of its own, which borrows nothing.
    fn into_owned(self) -> Question<'static> {
        let own = |text: Cow<'q, str>| Cow::Owned(text.into_owned());
        let parts = self.parts.into_iter().map(|(name, value)| (own(name), own(value))).collect();
        Question {
            user: own(self.user),
            api: own(self.api),
            ip: self.ip,
            cost: self.cost,
            priority: self.priority,
            asking: self.asking,
            age_us: self.age_us,
            parts,
        }
    }
}

/// A question whose values are being collected.
#[derive(Debug, Default)]
pub(super) struct QuestionDraft<'q> {
    user: Option<Cow<'q, str>>,
    api: Option<Cow<'q, str>>,
    ip: Option<IpAddr>,
    cost: Option<u64>,
    priority: Option<Priority>,
    peek: Option<bool>,
    age_us: Option<u64>,
    parts: Vec<(Cow<'q, str>, Cow<'q, str>)>,
}

impl<'q> QuestionDraft<'q> {
    fn give_parameter(&mut self, name: Cow<'q, str>, value: Cow<'q, str>) -> Result<(), String> {
        match &*name {
            "peek" => self.give_peek(match &*value {
                "1" | "true" | "" => true,
                "0" | "false" => false,
                other => return Err(format!("peek {} is neither 1 nor 0", shown(other))),
            }),
            "user" | "api" | "ip" | "cost" | "priority" => self.give(&name, value),
            _ => self.give_part(name, value),
        }
    }

    fn give_field(&mut self, name: &'q str, value: Cow<'q, str>) -> Result<(), String> {
        match name {
            "user" | "api" | "ip" | "cost" | "priority" => self.give(name, value),
            _ => match name.strip_prefix(KEY_PREFIX) {
                Some(part) => self.give_part(Cow::Borrowed(part), value),
                // Other programs use this prefix, too, for fields of their answers.
                None => Ok(()),
            },
        }
    }

    /// Sets one of the values that every question may have.
    pub(super) fn give(&mut self, name: &str, value: Cow<'q, str>) -> Result<(), String> {
        match name {
            // Proxies write an empty name where they have none.
            "user" | "api" if value.is_empty() => Ok(()),
            "user" => once(&mut self.user, value, name, |user| shown(user)),
            "api" => once(&mut self.api, value, name, |api| shown(api)),
            "ip" => {
                let ip = value.parse().map_err(|_| {
                    format!("ip {} is no address; use one such as 192.0.2.1 or 2001:db8::1", shown(&value))
                })?;
                once(&mut self.ip, ip, name, IpAddr::to_string)
            }
            "cost" => once(&mut self.cost, cost(&value)?, name, u64::to_string),
            _ => {
                let priority = Priority::parse(&value).ok_or_else(|| {
                    format!("priority {} is not critical, normal or background", shown(&value))
                })?;
                once(&mut self.priority, priority, name, |priority| priority.name().to_owned())
            }
        }
    }

    /// Sets whether the question only peeks and charges nothing.
    pub(super) fn give_peek(&mut self, peek: bool) -> Result<(), String> {
        once(&mut self.peek, peek, "peek", bool::to_string)
    }

    /// Sets how long ago the request was charged that is to be given back, in milliseconds.
    pub(super) fn give_age(&mut self, text: &str) -> Result<(), String> {
        let age_ms = text.parse::<u64>().ok().filter(|age_ms| *age_ms <= MAX_COST);
        let age_ms = age_ms
            .ok_or_else(|| format!("age_ms {} is no whole number from 0 to {MAX_COST}", shown(text)))?;
        // An age beyond the store's numbers is centuries: nothing of it counts any more.
        once(&mut self.age_us, age_ms.saturating_mul(1_000).min(MAX_COST), "age_ms", u64::to_string)
    }

    /// Adds a further part of the key.
    pub(super) fn give_part(&mut self, name: Cow<'q, str>, value: Cow<'q, str>) -> Result<(), String> {
        if !KeyPart::is_further(&name) {
            return Err(format!("{} cannot be a part of a key; {}", shown(&name), KeyPart::NAMES));
        }
        if value.is_empty() {
            return Ok(());
        }
        match self.parts.iter().find(|(known, _)| *known == name) {
            Some((_, other)) if *other == value => Ok(()),
            Some((_, other)) => Err(twice(&name, &shown(other), &shown(&value))),
            None if self.parts.len() == MAX_PARTS => {
                Err(format!("{} is one part of a key too many; use at most {MAX_PARTS}", shown(&name)))
            }
            None => {
                self.parts.push((name, value));
                Ok(())
            }
        }
    }

    /// Makes the question of all values.
    pub(super) fn finish(self) -> Result<Question<'q>, String> {
        Ok(Question {
            user: self.user.unwrap_or_default(),
            api: self.api.ok_or("api is missing; name the API that the request is for")?,
            ip: self.ip,
            cost: self.cost.unwrap_or(1),
            priority: self.priority.unwrap_or_default(),
            asking: if self.peek == Some(true) { Asking::Peeking } else { Asking::Counted },
            age_us: self.age_us.unwrap_or(0),
            parts: self.parts,
        })
    }
}

/// Keeps a value. Another value for the same name is a contradiction.
fn once<T: PartialEq>(
    place: &mut Option<T>,
    value: T,
    name: &str,
    show: impl Fn(&T) -> String,
) -> Result<(), String> {
    match place {
        Some(other) if *other != value => Err(twice(name, &show(other), &show(&value))),
        _ => {
            *place = Some(value);
            Ok(())
        }
    }
}

fn twice(name: &str, one: &str, other: &str) -> String {
    format!("{name} is given twice, as {one} and as {other}; give one")
}

fn cost(text: &str) -> Result<u64, String> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|cost| digits && (1..=MAX_COST).contains(cost));
    number.ok_or_else(|| format!("cost {} is no whole number from 1 to {MAX_COST}", shown(text)))
}

/// Decodes the percent-encoding of a name or value of a query. A `%` without two digits stays as it is.
fn decoded(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return named(text.as_bytes());
    }
    let mut rest = text.as_bytes();
    let mut bytes = Vec::with_capacity(text.len());
    while let [first, behind @ ..] = rest {
        let (byte, behind) = match (first, behind) {
            (b'+', _) => (b' ', behind),
            (b'%', [high, low, further @ ..]) => match hex(*high).zip(hex(*low)) {
                Some((high, low)) => (high << 4 | low, further),
                None => (b'%', behind),
            },
            (byte, _) => (*byte, behind),
        };
        bytes.push(byte);
        rest = behind;
    }
    Cow::Owned(named(&bytes).into_owned())
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests;
