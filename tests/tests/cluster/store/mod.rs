//! The link to Redis against real servers: every way in, every refusal, and what happens to calls when servers come and go.

mod cluster;
mod deadlines;
mod entrances;
mod moves;
mod refusals;
mod sentinel;

use std::{future::Future, sync::LazyLock, time::Duration};

use ratelimit_tests::{redis::PATIENCE, running_time::RunningTime};
use ratelimit_user::{
    policy::address::StoreAddress,
    store::redis::{Call, RedisLink, Script, StoreError, Value},
};

/// Counts once per sequence number, and answers the same number with the same total.
static COUNT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "count",
        "local total = tonumber(redis.call('HGET', KEYS[1], 'total') or 0)\n\
         if redis.call('HGET', KEYS[1], 'seq') == ARGV[1] then return total end\n\
         redis.call('HSET', KEYS[1], 'seq', ARGV[1], 'total', total + 1)\n\
         return total + 1",
    )
});

/// Enough for anything that goes well, on a machine that stands still meanwhile: deadlines of the link are by the clock.
const SOON: Duration = Duration::from_secs(60);

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn address(url: &str) -> StoreAddress {
    url.parse().unwrap()
}

async fn open(url: &str) -> Result<RedisLink, StoreError> {
    RedisLink::open(&address(url), SOON).await
}

/// What an operator reads when the store cannot be opened. A machine that stands still lets a deadline pass, and then there is a longer one; the first is short, because
/// a server that does not speak TLS is known by what it does not say in half of the time.
fn refusal_to_open(url: &str) -> String {
    let timeouts = [Duration::from_secs(2), Duration::from_secs(10), SOON];
    let mut refusals = timeouts.into_iter().map(|timeout| refusal_within(url, timeout));
    let told = refusals.find(|error| !matches!(error, StoreError::TimedOut { .. }));
    told.expect("an error that is not a deadline").to_string()
}

/// Why the store cannot be opened within this time.
fn refusal_within(url: &str, timeout: Duration) -> StoreError {
    block_on(RedisLink::open(&address(url), timeout)).map(drop).unwrap_err()
}

fn count(key: &str, sequence: u64) -> Call<'static> {
    Call { script: &COUNT, keys: vec![key.into()], args: vec![sequence.to_string().into_bytes()] }
}

/// Makes one call and returns its only answer.
async fn counted(link: &mut RedisLink, key: &str, sequence: u64) -> Result<i64, StoreError> {
    let mut answers = link.run(&[count(key, sequence)], SOON).await;
    assert_eq!(answers.len(), 1);
    answers.remove(0).map(|answer| match answer {
        Value::Int(total) => total,
        other => panic!("not a total: {other:?}"),
    })
}

/// Counts until the store takes it, mending in between. The number of attempts.
async fn counted_at_last(link: &mut RedisLink, key: &str, sequence: u64, total: i64) -> u32 {
    let begun = RunningTime::now();
    for attempt in 1.. {
        match counted(link, key, sequence).await {
            Ok(found) => {
                assert_eq!(found, total, "{key} {sequence}");
                return attempt;
            }
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                assert!(
                    begun.elapsed() < PATIENCE,
                    "still, after {PATIENCE:?} in which the machine ran: {error}"
                );
                // Half of it is for Sentinels that disagree in the middle of a failover.
                let _not_yet = link.mend(SOON).await;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
    unreachable!("attempts end with a panic")
}
