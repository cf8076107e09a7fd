//! What this host says about its leases, as calls of a script, and the answers.
//!
//! A key has the user's name as its hash tag, so everything of one user is in one slot of a Redis Cluster. One call has one record there; elsewhere it
//! has as many as are good for the server, which does nothing else meanwhile.

use std::sync::LazyLock;

pub use super::record::reset;
use super::{
    exchange::{Entry, Grant, Line, Others, Timing},
    record::{FORM, RECORD, doubles, number},
    redis::{Call, StoreError, Value, slot},
};

/// The most records in one call: 15 ms of the server's time at best, 20 to 40 on a busy machine, in which it serves nobody else.
const LINES: usize = 1_000;

/// Deals records to calls of at most `most` records. In a Redis Cluster each record has a call of its own: while a slot moves, one record of it may be
/// here and another there, and a call is refused whose keys are not together.
pub(crate) fn in_calls(records: usize, is_cluster: bool, most: usize) -> impl Iterator<Item = Vec<usize>> {
    let size = if is_cluster { 1 } else { most };
    (0..records).step_by(size).map(move |first| (first..records.min(first + size)).collect())
}

/// Makes the keys of one cluster of hosts, so that they are spread over slots.
#[derive(Clone, Debug)]
pub struct Keys {
    name: String,
}

impl Keys {
    /// Keys of the cluster of this name.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned() }
    }

    /// The key of the store record of one limit of a user.
    pub fn record(&self, user: &str, limit: &str) -> String {
        format!("{}:{FORM}:{{{}}}:{limit}", self.name, tag(user))
    }

    /// Returns the limit and the user that a record is of, for people.
    pub fn limit_of(&self, record: &str) -> String {
        let rest = record.strip_prefix(&self.name).unwrap_or(record);
        let rest = rest.strip_prefix(':').and_then(|rest| rest.strip_prefix(FORM)).unwrap_or(rest);
        let parts = rest.strip_prefix(":{").and_then(|rest| rest.split_once("}:"));
        parts.map_or_else(|| record.to_owned(), |(user, limit)| format!("{limit} of user {user}"))
    }

    /// The key of a part of the gossip. No user's key begins like this, and all gossip is in one slot.
    pub(crate) fn gossip(&self, part: &str) -> String {
        format!("{}:gossip:{{gossip}}:{part}", self.name)
    }

    /// The key that keeps since when the server of a slot has known everything.
    fn since(&self, slot_of: Option<u16>) -> String {
        match slot_of {
            None => format!("{}:{FORM}:since", self.name),
            Some(slot_of) => format!("{}:{FORM}:since:{{{}}}", self.name, tag_in(slot_of)),
        }
    }
}

/// Writes a user's name as a hash tag: braces would end the tag.
fn tag(user: &str) -> String {
    let mut tag = String::with_capacity(user.len());
    for c in user.chars() {
        match c {
            '{' | '}' | '%' => tag.push_str(&format!("%{:02x}", c as u32)),
            other => tag.push(other),
        }
    }
    tag
}

/// Returns a number whose slot is `wanted`.
fn tag_in(wanted: u16) -> u32 {
    static TAGS: LazyLock<Vec<u32>> = LazyLock::new(|| {
        let (mut tags, mut missing) = (vec![u32::MAX; 16_384], 16_384);
        for number in 0_u32.. {
            let place = &mut tags[usize::from(slot(number.to_string().as_bytes()))];
            if *place == u32::MAX {
                *place = number;
                missing -= 1;
                if missing == 0 {
                    break;
                }
            }
        }
        tags
    });
    TAGS[usize::from(wanted) % 16_384]
}

/// Makes the calls of a lease batch. Each call comes with the indices of its lines.
pub fn calls(
    keys: &Keys,
    host: &str,
    timing: &Timing,
    lines: &[Line],
    is_cluster: bool,
) -> Vec<(Vec<usize>, Call<'static>)> {
    let call = |places: Vec<usize>| {
        let slot_of = is_cluster.then(|| slot(lines[places[0]].key.as_bytes()));
        let call = call(keys.since(slot_of), host, timing, places.iter().map(|at| &lines[*at]));
        (places, call)
    };
    in_calls(lines.len(), is_cluster, LINES).map(call).collect()
}

fn call<'l>(
    since: String,
    host: &str,
    timing: &Timing,
    lines: impl ExactSizeIterator<Item = &'l Line>,
) -> Call<'static> {
    let mut keys = Vec::with_capacity(lines.len() + 1);
    let mut args = vec![host.as_bytes().to_vec()];
    // The longest life of a lease says that what a store has forgotten of these records counts as spent.
    let numbers = [timing.recent_us, timing.longest_us(), lines.len() as u64];
    args.extend(numbers.map(|number| number.to_string().into_bytes()));
    for Line { key, terms, entry } in lines {
        let Entry { sequence, used, held, wanted } = *entry;
        let life_us = timing.lifetime_us;
        let limit = [terms.amount(), terms.period_us(), terms.burst()];
        keys.push(key.clone().into_bytes());
        args.push(doubles([sequence, used, held, wanted, life_us].into_iter().chain(limit)));
    }
    keys.push(since.into_bytes());
    Call { script: &RECORD, keys, args }
}

/// Numbers in the answer to one line: units, lifetime, what others say, hosts.
const NUMBERS: usize = 4;

/// Reads the grants for `lines` lines from the answer to a call.
pub fn grants(answer: &Value, lines: usize) -> Result<Vec<Grant>, StoreError> {
    let nonsense = || StoreError::Nonsense {
        at: "the store".into(),
        why: format!("the record script answered {answer:?}"),
    };
    let Value::Array(numbers) = answer else { return Err(nonsense()) };
    let grants: Option<Vec<Grant>> = numbers
        .chunks_exact(NUMBERS)
        .map(|row| {
            let others = match row[2] {
                Value::Int(0) => Others::Agree,
                Value::Int(1) => Others::SayLess,
                Value::Int(2) => Others::SayMore,
                _ => return None,
            };
            let [units, lifetime_us, hosts] = [&row[0], &row[1], &row[3]].map(number);
            Some(Grant { units: units?, lifetime_us: lifetime_us?, others, hosts: hosts? })
        })
        .collect();
    grants.filter(|grants| grants.len() == lines && numbers.len() == NUMBERS * lines).ok_or_else(nonsense)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Reserve;
    use crate::policy::terms::Terms;
    use ratelimit_common::limit::text::parse_rate;

    fn line(user: &str) -> Line {
        let terms = Terms::of(&parse_rate("10/s").unwrap(), Reserve::new(0, 1)).unwrap();
        let entry = Entry { sequence: 1, used: 2, held: 3, wanted: 4 };
        Line { key: Keys::new("rl").record(user, "packets"), terms, entry }
    }

    #[test]
    fn everything_of_one_user_has_one_hash_tag_whatever_its_name() {
        let keys = Keys::new("rl");
        assert_eq!(keys.record("acme", "packets"), "rl:3:{acme}:packets");
        assert_eq!(keys.limit_of("rl:3:{acme}:packets"), "packets of user acme");
        assert_eq!(keys.limit_of("something"), "something");
        for name in ["a}b", "{", "a{b}c", "%7d", "ä ö"] {
            let (packets, bytes) = (keys.record(name, "packets"), keys.record(name, "bytes"));
            assert_eq!(slot(packets.as_bytes()), slot(bytes.as_bytes()), "{name}");
            assert_eq!(packets.matches('}').count(), 1, "{packets}");
        }
        assert_ne!(keys.record("a}b", "x"), keys.record("a%7db", "x"), "different names, different keys");
    }

    #[test]
    fn every_line_is_in_one_call_whose_keys_share_a_slot() {
        let lines: Vec<Line> = (0..3_000).map(|n| line(&format!("user{n}"))).collect();
        let timing = Timing { lifetime_us: 1, margin_us: 1, recent_us: 1 };
        let mut seen = vec![0; lines.len()];
        for (places, call) in calls(&Keys::new("rl"), "h", &timing, &lines, true) {
            let slots: Vec<u16> = call.keys.iter().map(|key| slot(key)).collect();
            assert!(slots.iter().all(|other| *other == slots[0]), "{slots:?}");
            places.iter().for_each(|at| seen[*at] += 1);
        }
        assert!(seen.iter().all(|count| *count == 1));
        let alone = calls(&Keys::new("rl"), "h", &timing, &lines, false);
        assert_eq!(alone.iter().map(|(places, _)| places.len()).collect::<Vec<_>>(), [1_000; 3]);
    }

    #[test]
    fn an_answer_of_another_shape_is_refused() {
        let numbers = |numbers: &[i64]| Value::Array(numbers.iter().copied().map(Value::Int).collect());
        let good = numbers(&[5, 7, 1, 9]);
        assert_eq!(
            grants(&good, 1).unwrap(),
            [Grant { units: 5, lifetime_us: 7, others: Others::SayLess, hosts: 9 }]
        );
        for bad in [
            Value::Nil,
            Value::Int(1),
            Value::Array(vec![]),
            numbers(&[5]),
            numbers(&[5, 7, 0]),
            numbers(&[-5, 7, 0, 1]),
            numbers(&[5, 7, 3, 1]),
            numbers(&[5, 7, 0, -1]),
            numbers(&[5, 7, 0, 1, 7]),
            Value::Array(vec![Value::Nil, Value::Int(7), Value::Int(0), Value::Int(1)]),
        ] {
            assert!(grants(&bad, 1).is_err(), "{bad:?}");
        }
    }
}
