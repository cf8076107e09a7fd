//! Questions about requests, as calls of a script, and the answers.

use super::{
    ask::{Ask, CountedLimit, Told},
    lease_batch::in_calls,
    record::{RECORD, number, packed},
    redis::{Call, StoreError, Value},
};
use crate::meter::NEVER_US;

/// The most records in one call, so that the server is never busy with one call for long.
pub const LINES: usize = 250;

/// Numbers in the answer to one question.
const TOLD: usize = 10;

/// One key, and what is asked about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// The name of the key in the store.
    pub key: String,
    /// The limits that are counted under the key.
    pub limits: Vec<CountedLimit>,
    /// The question about the key.
    pub ask: Ask,
}

/// Makes the calls for inquiries. Each call comes with the indices of its inquiries. `now_us` selects the day or month of limits with a calendar.
pub fn calls(
    host: &str,
    recent_us: u64,
    inquiries: &[&Inquiry],
    is_cluster: bool,
    now_us: u64,
) -> Vec<(Vec<usize>, Call<'static>)> {
    let call = |places: Vec<usize>| {
        let call = call(host, recent_us, places.iter().map(|at| inquiries[*at]), now_us);
        (places, call)
    };
    in_calls(inquiries.len(), is_cluster, LINES).map(call).collect()
}

fn call<'i>(
    host: &str,
    recent_us: u64,
    inquiries: impl ExactSizeIterator<Item = &'i Inquiry>,
    now_us: u64,
) -> Call<'static> {
    let mut keys = Vec::with_capacity(inquiries.len());
    // The 0 says that a store that has forgotten these records begins anew.
    let numbers = [recent_us, 0, inquiries.len() as u64].map(|number| number.to_string().into_bytes());
    let mut args = vec![host.as_bytes().to_vec()];
    args.extend(numbers);
    for Inquiry { key, limits, ask } in inquiries {
        keys.push(key.clone().into_bytes());
        args.push(packed(limits, ask, now_us));
    }
    Call { script: &RECORD, keys, args }
}

/// Reads the answers to `inquiries` questions from the answer to a call.
pub fn answers(answer: &Value, inquiries: usize) -> Result<Vec<Told>, StoreError> {
    let nonsense = || StoreError::Nonsense {
        at: "the store".into(),
        why: format!("the record script answered {answer:?}"),
    };
    let Value::Array(numbers) = answer else { return Err(nonsense()) };
    let told = |of: &[Value]| {
        let never = of[1] == Value::Int(-1);
        Some(Told {
            spent: number(&of[0])? == 1,
            wait_us: if never { NEVER_US } else { number(&of[1])? },
            granted: number(&of[2])?,
            free: number(&of[3])?,
            nearest: number(&of[4])? as usize,
            more_us: number(&of[5])?,
            violated: number(&of[6])?,
            above: number(&of[7])? == 1,
            holds: number(&of[8])?,
            heard: number(&of[9])?,
        })
    };
    let all: Option<Vec<Told>> = numbers.chunks_exact(TOLD).map(told).collect();
    all.filter(|all| all.len() == inquiries && numbers.len() == TOLD * inquiries).ok_or_else(nonsense)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::{Meter, RequestBucket};

    #[test]
    fn an_answer_of_another_shape_is_refused() {
        let good = Value::Array([1, 0, 7, 9, 2, 5, 0, 1, 7, 3].map(Value::Int).to_vec());
        let told = Told {
            spent: true,
            wait_us: 0,
            granted: 7,
            free: 9,
            nearest: 2,
            more_us: 5,
            violated: 0,
            above: true,
            holds: 7,
            heard: 3,
        };
        assert_eq!(answers(&good, 1).unwrap(), [told]);
        let never = Value::Array([0, -1, 0, 0, 0, 0, 3, 0, 0, 0].map(Value::Int).to_vec());
        assert_eq!(answers(&never, 1).unwrap()[0].wait_us, NEVER_US);
        for bad in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array([1, 0, 7, 9, 2, 5, 0, 1, 7].map(Value::Int).to_vec()),
            Value::Array([1, 0, -7, 9, 2, 5, 0, 1, 7, 3].map(Value::Int).to_vec()),
            Value::Array([1, 0, 7, 9, 2, 5, 0, 1, 7, 3, 1].map(Value::Int).to_vec()),
        ] {
            assert!(answers(&bad, 1).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_call_of_a_cluster_has_one_record_and_none_is_too_long() {
        let limits = vec![CountedLimit::plain(Meter::Bucket(RequestBucket::new(1, 1, 1)))];
        let inquiry = |n| Inquiry { key: format!("k{n}"), limits: limits.clone(), ask: Ask::default() };
        let all: Vec<Inquiry> = (0..600).map(inquiry).collect();
        let all: Vec<&Inquiry> = all.iter().collect();
        for (places, call) in calls("h", 1, &all, true, 0) {
            assert_eq!(
                (places.len(), call.keys.len()),
                (1, 1),
                "a slot that moves may have one key and not another"
            );
        }
        let alone = calls("h", 1, &all, false, 0);
        assert_eq!(alone.iter().map(|(places, _)| places.len()).collect::<Vec<_>>(), [250, 250, 100]);
    }
}
