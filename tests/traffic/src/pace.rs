//! When to send the next packet. By elapsed time, not by a sleep per packet: an oversleep is caught up, so the average
//! is exact, and a suite can offer precisely ten times a limit.

use std::thread;
use std::time::{Duration, Instant};

/// Short enough that catching up after it makes no burst worth speaking of.
const NAP: Duration = Duration::from_micros(200);
/// Without a pace, how many sends go between two looks at the clock.
const BATCH: u64 = 64;

/// What a try to send came to.
pub(crate) enum Sent {
    Yes,
    /// A full queue, a filter, a refusing peer: nothing has left, another try is due.
    Refused,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) sent: u64,
    pub(crate) refused: u64,
    pub(crate) took: Duration,
}

impl Tally {
    pub(crate) fn print(&self) {
        let Self { sent, refused, took } = self;
        println!(r#"{{"sent":{sent},"refused":{refused},"seconds":{:.6}}}"#, took.as_secs_f64());
    }
}

/// Calls `send` for as long as it lasts; at `per_sec` if given, in which case exactly `per_sec * lasts` are sent unless
/// the machine cannot keep up.
pub(crate) fn send_for<E>(
    lasts: Duration,
    per_sec: Option<u64>,
    mut send: impl FnMut() -> Result<Sent, E>,
) -> Result<Tally, E> {
    let (mut sent, mut refused) = (0, 0);
    let start = Instant::now();
    loop {
        let elapsed = start.elapsed();
        let goal = match per_sec {
            Some(rate) => due(elapsed.min(lasts), rate),
            None => sent + BATCH,
        };
        while sent < goal {
            match send()? {
                Sent::Yes => sent += 1,
                Sent::Refused => {
                    refused += 1;
                    // Whoever has to drain the queue may need this processor.
                    thread::yield_now();
                    break;
                }
            }
        }
        if elapsed >= lasts {
            return Ok(Tally { sent, refused, took: start.elapsed() });
        }
        if per_sec.is_some() {
            thread::sleep(NAP);
        }
    }
}

/// How many packets must have left after this time. In nanoseconds and 128 bits: exact for any rate and time.
fn due(elapsed: Duration, per_sec: u64) -> u64 {
    u64::try_from(elapsed.as_nanos() * u128::from(per_sec) / 1_000_000_000).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn what_is_due_grows_with_time_and_does_not_overflow() {
        assert_eq!(due(Duration::from_millis(1), 20_000), 20);
        assert_eq!(due(Duration::from_nanos(49_999), 20_000), 0);
        assert_eq!(due(Duration::from_secs(86_400 * 365), 100_000_000), 3_153_600_000_000_000);
    }

    #[test]
    fn a_paced_sender_sends_exactly_the_product_of_rate_and_time() {
        for per_sec in [1000, 20_000, 123_457] {
            let lasts = Duration::from_millis(50);
            let tally = send_for::<Infallible>(lasts, Some(per_sec), || Ok(Sent::Yes)).unwrap();
            assert_eq!((tally.sent, tally.refused), (per_sec * 50 / 1000, 0));
            assert!(tally.took >= lasts);
        }
    }

    #[test]
    fn refused_packets_are_tried_again_and_not_counted_as_sent() {
        let mut tries = 0;
        let tally = send_for::<Infallible>(Duration::from_millis(20), Some(1000), || {
            tries += 1;
            Ok(if tries % 2 == 0 { Sent::Yes } else { Sent::Refused })
        });
        let Tally { sent, refused, .. } = tally.unwrap();
        assert_eq!(sent + refused, tries);
        assert!(sent > 0 && sent <= 20, "{sent}");
    }

    #[test]
    fn without_a_pace_the_sender_stops_when_time_is_up() {
        let lasts = Duration::from_millis(10);
        let tally = send_for::<Infallible>(lasts, None, || Ok(Sent::Yes)).unwrap();
        assert!(tally.sent > 0 && tally.took >= lasts);
    }

    #[test]
    fn an_error_ends_the_sending() {
        let mut left = 3;
        let stopped = send_for(Duration::from_secs(60), None, || {
            left -= 1;
            if left == 0 { Err("broken") } else { Ok(Sent::Yes) }
        });
        assert_eq!(stopped.unwrap_err(), "broken");
    }
}
