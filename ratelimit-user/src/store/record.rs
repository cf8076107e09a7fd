//! The record that the store keeps of one key: where it is, and how the script is asked about it.
//!
//! `scripts/record.lua` counts packets and requests alike. The record has the states of the key's limits and the sums over all hosts; what each host
//! holds is a row of its own, and an order says which row has to be looked at next. So a call costs the same for any number of hosts. All of that is
//! one key of the store, which a slot of a Redis Cluster that moves has or has not.

use std::sync::LazyLock;

use super::{
    ask::{Ask, CountedLimit},
    exchange::Entry,
    redis::{Call, Script, Value},
};
use crate::meter::Meter;

/// The number of the form of records, which stands behind the name that all keys begin with. Builds that write another form have another number, and the
/// oldest have none: two builds of different forms that share a store count apart.
pub const FORM: &str = "3";

pub(super) static RECORD: LazyLock<Script> =
    LazyLock::new(|| Script::new("record", include_str!("scripts/record.lua")).with_spare_key());

/// Forgets a record: the next question finds nothing used.
static RESET: LazyLock<Script> =
    LazyLock::new(|| Script::new("reset", include_str!("scripts/reset.lua")).with_spare_key());

/// Milliseconds for which the store remembers a reset that it has carried out. A reset that is sent again after that forgets once more.
const RESET_KNOWN_MS: &str = "3600000";

/// Makes the call that forgets the record of a key.
pub fn reset(key: &str) -> Call<'static> {
    Call { script: &RESET, keys: vec![key.into()], args: Vec::new() }
}

/// Makes the call that forgets the record of a key once for each number, however often it is sent: its answer may have been lost.
pub fn reset_once(key: &str, number: u64) -> Call<'static> {
    let mut call = reset(key);
    call.keys.push(beside(key, &format!("reset{number:016x}")).into_bytes());
    call.args.push(RESET_KNOWN_MS.into());
    call
}

/// Returns another key that is in the slot of a key. No key has a word before its hash tag, so the other key is never that of another record.
fn beside(key: &str, word: &str) -> String {
    match key.find('{') {
        Some(tag) => format!("{}{word}:{}", &key[..tag], &key[tag..]),
        None => format!("{word}:{{{key}}}"),
    }
}

/// Packs a question for the script: one argument for each key, because a dozen would be parsed and turned into numbers one by one.
pub(super) fn packed(limits: &[CountedLimit], ask: &Ask, now_us: u64) -> Vec<u8> {
    let Ask { lease, life_us, spend, reserved, patience_us, refund, age_us, peek } = *ask;
    let Entry { sequence, used, held, wanted } = lease;
    let asked =
        [sequence, used, held, wanted, life_us, spend, reserved, patience_us, refund, age_us, peek.into()];
    let of_limit = |limit: &CountedLimit| {
        let [kind, a, b, c] = limit.meter.script(now_us);
        let [d, e] = match &limit.meter {
            Meter::Soft(soft) => [soft.own().amount(), soft.own().capacity()],
            _ => [limit.margin, limit.held_back],
        };
        [kind, a, b, c, limit.queue.into(), d, e]
    };
    let limits = limits.iter().flat_map(of_limit);
    doubles(asked.into_iter().chain(limits))
}

/// Packs numbers as the script unpacks them.
pub(super) fn doubles(numbers: impl Iterator<Item = u64>) -> Vec<u8> {
    numbers.flat_map(|number| (number as f64).to_le_bytes()).collect()
}

/// Returns the whole number of an answer; `None` if the answer is something else.
pub(super) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::slot;

    #[test]
    fn the_mark_of_a_reset_is_in_the_slot_of_its_record() {
        assert_eq!(reset_once("rl:3:{acme}:api:x", 10).keys[1], b"rl:3:reset000000000000000a:{acme}:api:x");
        for key in ["rl:3:{acme}:x", "plain"] {
            let keys = reset_once(key, 1).keys;
            assert!(keys[0] == key.as_bytes() && slot(&keys[1]) == slot(key.as_bytes()), "{keys:?}");
        }
    }
}
