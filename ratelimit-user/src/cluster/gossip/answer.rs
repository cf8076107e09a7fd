//! The answer of the gossip script. It is not trusted: every part is checked.

use crate::{
    cluster::blocks::{RecordChange, RecordFate},
    store::redis::{StoreError, Value},
};

/// The script's verdict on the call itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallStanding {
    /// The store has carried out the edits of this call.
    Current,
    /// A newer call of this daemon came before.
    Late,
    /// A daemon that began later has called under this name.
    Superseded,
    /// Another machine has this name, and was there first.
    Taken,
    /// The store knows as many hosts as it can.
    Crowded,
}

#[derive(Clone, Debug)]
pub(super) struct GossipAnswer {
    /// The store's clock, in milliseconds.
    pub(super) now_ms: u64,
    pub(super) identity: String,
    /// The store's memory is whole up to this version; it may have lost later changes that were made before it took its identity.
    pub(super) base: u64,
    pub(super) version: u64,
    /// Whether the changes are the first of a listing of all records.
    pub(super) begins: bool,
    /// The version up to which changes have been told.
    pub(super) upto: u64,
    pub(super) more: bool,
    pub(super) standing: CallStanding,
    /// The newest daemon that the store has heard under this name.
    pub(super) incarnation: u64,
    /// The last edit of this host that was carried out or refused.
    pub(super) edit: u64,
    pub(super) refused: Vec<(u64, String)>,
    pub(super) changes: Vec<RecordChange>,
    /// The hosts: name, milliseconds since the store heard the host, facts.
    pub(super) hosts: Vec<(String, u64, String)>,
}

impl GossipAnswer {
    pub(super) fn read(answer: &Value) -> Result<Self, StoreError> {
        read(answer).ok_or_else(|| {
            let shown: String = format!("{answer:?}").chars().take(200).collect();
            StoreError::Nonsense {
                at: "the store".into(),
                why: format!("the gossip script answered {shown}"),
            }
        })
    }
}

fn read(answer: &Value) -> Option<GossipAnswer> {
    let Value::Array(parts) = answer else { return None };
    let [
        now,
        identity,
        base,
        version,
        begins,
        upto,
        more,
        standing,
        incarnation,
        edit,
        refused,
        changes,
        hosts,
    ] = parts.as_slice()
    else {
        return None;
    };
    Some(GossipAnswer {
        now_ms: number(now)?,
        identity: text(identity)?,
        base: number(base)?,
        version: number(version)?,
        begins: flag(begins)?,
        upto: number(upto)?,
        more: flag(more)?,
        standing: match text(standing)?.as_str() {
            "current" => CallStanding::Current,
            "late" => CallStanding::Late,
            "superseded" => CallStanding::Superseded,
            "taken" => CallStanding::Taken,
            "crowded" => CallStanding::Crowded,
            _ => return None,
        },
        incarnation: number(incarnation)?,
        edit: number(edit)?,
        refused: rows(refused, |[sequence, why]| Some((number(sequence)?, text(why)?)))?,
        changes: rows(changes, change)?,
        hosts: rows(hosts, |[name, ago, facts]| Some((text(name)?, number(ago)?, text(facts)?)))?,
    })
}

fn change([prefix, version, fate, left, reason, origin]: &[Value; 6]) -> Option<RecordChange> {
    let fate = match (fate, left) {
        (Value::Int(1), Value::Int(-1)) => RecordFate::Holds { left_ms: None },
        (Value::Int(1), left) => RecordFate::Holds { left_ms: Some(number(left)?) },
        (Value::Int(0), _) => RecordFate::Removed,
        (Value::Int(2), _) => RecordFate::RanOut,
        _ => return None,
    };
    let (prefix, reason, origin) = (text(prefix)?, text(reason)?, text(origin)?);
    Some(RecordChange { prefix, version: number(version)?, fate, reason, origin })
}

/// Reads a flat list as rows of `N` values each.
fn rows<T, const N: usize>(list: &Value, read: impl Fn(&[Value; N]) -> Option<T>) -> Option<Vec<T>> {
    let Value::Array(values) = list else { return None };
    let (rows, []) = values.as_chunks::<N>() else { return None };
    rows.iter().map(read).collect()
}

fn number(value: &Value) -> Option<u64> {
    let Value::Int(number) = value else { return None };
    u64::try_from(*number).ok()
}

fn flag(value: &Value) -> Option<bool> {
    number(value).filter(|number| *number < 2).map(|number| number == 1)
}

/// Reads a text. Invalid UTF-8 is replaced rather than refused, so that one bad text does not void the whole answer; later checks find it.
fn text(value: &Value) -> Option<String> {
    let Value::BulkString(bytes) = value else { return None };
    Some(String::from_utf8_lossy(bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn good() -> Vec<Value> {
        let change = ["203.0.113.0/24", "", "", "", "flood", "web1"].map(word);
        let mut change = Vec::from(change);
        (change[1], change[2], change[3]) = (Value::Int(3), Value::Int(1), Value::Int(60_000));
        vec![
            Value::Int(1_700_000_000_000),
            word("abc-1"),
            Value::Int(0),
            Value::Int(3),
            Value::Int(1),
            Value::Int(3),
            Value::Int(0),
            word("current"),
            Value::Int(7),
            Value::Int(1),
            Value::Array(vec![Value::Int(1), word("no")]),
            Value::Array(change),
            Value::Array(vec![word("web1"), Value::Int(5), word("{}")]),
        ]
    }

    #[test]
    fn an_answer_has_every_part_in_its_place() {
        let answer = GossipAnswer::read(&Value::Array(good())).unwrap();
        assert_eq!((answer.identity.as_str(), answer.base, answer.version, answer.upto), ("abc-1", 0, 3, 3));
        assert_eq!(
            (answer.begins, answer.more, answer.standing, answer.edit),
            (true, false, CallStanding::Current, 1)
        );
        assert_eq!(answer.refused, [(1, "no".to_owned())]);
        assert_eq!(answer.hosts, [("web1".to_owned(), 5, "{}".to_owned())]);
        let [change] = answer.changes.as_slice() else { panic!("{answer:?}") };
        assert_eq!((change.prefix.as_str(), change.version), ("203.0.113.0/24", 3));
        assert_eq!(change.fate, RecordFate::Holds { left_ms: Some(60_000) });
    }

    #[test]
    fn an_answer_of_another_shape_is_refused_whatever_is_wrong() {
        for place in 0..good().len() {
            for wrong in [Value::Nil, Value::Int(-1), word("?"), Value::Array(vec![Value::Nil])] {
                // The identity is any text.
                if place == 1 && wrong == word("?") {
                    continue;
                }
                let mut parts = good();
                parts[place] = wrong.clone();
                assert!(GossipAnswer::read(&Value::Array(parts)).is_err(), "{place} {wrong:?}");
            }
            let mut short = good();
            short.remove(place);
            assert!(GossipAnswer::read(&Value::Array(short)).is_err(), "without {place}");
        }
        assert!(GossipAnswer::read(&Value::Nil).is_err());
    }
}
