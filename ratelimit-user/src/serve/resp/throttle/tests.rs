use proptest::prelude::*;

use super::*;
use crate::{config, meter::RequestBucket, requests::Engine, serve::resp::reply::RespVersion};

/// A time to begin at, in microseconds since 1970.
const START_US: u64 = 1_800_000_000_000_000;

/// One engine and a clock that the test moves.
struct Bench {
    engine: Engine,
}

impl Bench {
    fn new() -> Self {
        let policy = config::parse("[source]\nlimits = [\"1 packets/s\"]", "p.toml").unwrap().policy;
        Self { engine: Engine::new(&policy, START_US) }
    }

    fn ask(&self, dialect: Dialect, line: &str, after_us: u64) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let mut out = Vec::new();
        let mut reply = RespReply::new(&mut out, RespVersion::Two);
        match question(dialect, &words) {
            Ok((key, terms)) => {
                let take = |bucket: &RequestBucket, quantity| {
                    self.engine.throttle(key, bucket, quantity, START_US + after_us)
                };
                say(&terms.answer(take), dialect, &mut reply);
            }
            Err(problem) => reply.error(format_args!("{problem}")),
        }
        let text = String::from_utf8(out).unwrap();
        text.trim_start_matches("*5").split("\r\n:").collect::<Vec<_>>().join(" ").trim().to_owned()
    }

    fn cell(&self, line: &str, after_us: u64) -> String {
        self.ask(Dialect::Cell, line, after_us)
    }
}

/// redis-cell's arithmetic: a theoretical arrival time, in nanoseconds.
#[derive(Default)]
struct Model {
    tat_ns: Option<i128>,
}

impl Model {
    /// Returns the five integers of the answer.
    fn ask(&mut self, burst: i64, count: i64, period: i64, quantity: i64, now_us: u64) -> [i64; 5] {
        let now = i128::from(now_us) * 1_000;
        let interval = (period as f64 * 1e9 / count as f64) as i64 as i128;
        let tolerance = interval * i128::from(burst + 1);
        let increment = interval * i128::from(quantity);
        // Redis forgets a key when its time has come.
        let tat = self.tat_ns.filter(|tat| *tat > now).unwrap_or(now);
        let new_tat = tat.max(now) + increment;
        let diff = now - (new_tat - tolerance);
        let limited = diff < 0;
        let mut retry = -1_000_000_000;
        let ttl = if limited {
            if increment <= tolerance {
                retry = -diff;
            }
            tat - now
        } else {
            self.tat_ns = Some(new_tat);
            new_tat - now
        };
        let next = tolerance - ttl;
        let remaining = if next > -interval { (next / 1_000) / (interval / 1_000) } else { 0 };
        let seconds = |ns: i128| (ns / 1_000_000_000) as i64 + i64::from(ns / 1_000_000 % 1_000 > 0);
        [limited.into(), burst + 1, remaining as i64, seconds(retry), seconds(ttl)]
    }
}

#[test]
fn redis_cells_own_cases_come_out_as_they_do_there() {
    let bench = Bench::new();
    // Milliseconds, quantity; limited, limit, remaining, retry after, reset after. Of 1 a second, 5 at once.
    let cases = [
        (0, 6, "1 5 5 -1 0"),
        (0, 1, "0 5 4 -1 1"),
        (0, 1, "0 5 3 -1 2"),
        (0, 1, "0 5 2 -1 3"),
        (0, 1, "0 5 1 -1 4"),
        (0, 1, "0 5 0 -1 5"),
        (0, 1, "1 5 0 1 5"),
        (3_000, 1, "0 5 2 -1 3"),
        (3_100, 1, "0 5 1 -1 4"),
        (4_000, 1, "0 5 1 -1 4"),
        (8_000, 1, "0 5 4 -1 1"),
        (9_500, 1, "0 5 4 -1 1"),
        (9_500, 0, "0 5 4 -1 1"),
        (9_500, 2, "0 5 2 -1 3"),
        (9_500, 5, "1 5 2 3 3"),
    ];
    for (nth, (ms, quantity, expected)) in cases.into_iter().enumerate() {
        assert_eq!(bench.cell(&format!("foo 4 1 1 {quantity}"), ms * 1_000), expected, "case {nth}");
    }
    // redis-cell's test over the wire: one in two seconds, none in advance.
    assert_eq!(bench.cell("user123 0 1 2 1", 0), "0 1 0 -1 2");
    assert_eq!(bench.cell("user123 0 1 2 1", 0), "1 1 0 2 2");
    assert_eq!(bench.cell("user123 0 1 2 1", 2_000_000), "0 1 0 -1 2");
}

#[test]
fn the_edges_are_redis_cells() {
    let bench = Bench::new();
    let cases = [
        // The readme's example, with a quantity and without.
        ("a 15 30 60 1", "0 16 15 -1 2"),
        ("b 15 30 60", "0 16 15 -1 2"),
        // No unit at once, and less than none.
        ("c -1 1 1 1", "1 0 0 -1 0"),
        ("c -1 1 1 0", "0 0 0 -1 0"),
        ("c -5 1 1 0", "1 -4 0 -1 0"),
        // A quantity that never fits.
        ("d 4 1 1 9223372036854775807", "1 5 5 -1 0"),
        // A rate of one in a nanosecond, and one in a day.
        ("e 0 1000000000 1 1", "0 1 0 -1 0"),
        ("f 9 1 86400 10", "0 10 0 -1 864000"),
        // Whole numbers as Rust reads them.
        ("g +15 030 60 1", "0 16 15 -1 2"),
    ];
    for (line, expected) in cases {
        assert_eq!(bench.cell(line, 0), expected, "{line}");
    }
}

#[test]
fn what_is_no_limit_is_refused_with_a_sentence() {
    let bench = Bench::new();
    let usage = "-Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]";
    let cases = [
        ("a", usage),
        ("a 1 1", usage),
        ("a 1 1 1 1 1", usage),
        ("a x 1 1", "-Couldn't parse as integer: x"),
        ("a 1 1.5 1", "-Couldn't parse as integer: 1.5"),
        ("a 1 1 9223372036854775808", "-Couldn't parse as integer: 9223372036854775808"),
        ("a 1 1 1 ", "-Couldn't parse as integer:"),
        ("a 1 0 1", "-Zero rates are not supported"),
        ("a 1 1 0", "-Zero rates are not supported"),
        ("a 1 1000000001 1", "-Zero rates are not supported"),
        ("a 1 -1 1", "-negative rates are not supported: count -1, period 1"),
        ("a 1 1 1 -1", "-negative quantities are not supported: -1"),
        (
            "a 9223372036854775807 1 1",
            "-a burst of 9223372036854775807 takes more than 292 years to come back; use a smaller one or a higher rate",
        ),
    ];
    for (line, expected) in cases {
        assert_eq!(bench.cell(line, 0), expected, "{line}");
    }
    assert_eq!(bench.engine.usage().keys, 0, "and nothing is counted");
}

#[test]
fn throttlecrabs_answers_have_its_order() {
    let bench = Bench::new();
    let crab = |line: &str, us| bench.ask(Dialect::Crab, line, us);
    // Allowed, limit, remaining, reset after, retry after.
    assert_eq!(crab("a 2 1 10", 0), "1 2 1 10 0");
    assert_eq!(crab("a 2 1 10 1", 0), "1 2 0 20 0");
    assert_eq!(crab("a 2 1 10", 4_500_000), "0 2 0 16 6");
    assert_eq!(crab("a 2 1 10 0", 4_500_000), "1 2 0 16 0");
    assert_eq!(crab("a 2 1 10 3", 4_500_000), "0 2 0 16 -1");
    assert_eq!(crab("a 0 1 10", 0), "-Rate limit check failed: invalid rate limit parameters");
    assert_eq!(crab("a 1 1 10 -1", 0), "-Rate limit check failed: negative quantity: -1");
    assert_eq!(crab("a 1 x 10", 0), "-invalid count_per_period");
    assert_eq!(crab("a", 0), "-wrong number of arguments for 'throttle' command");
}

#[test]
fn seconds_are_rounded_up_from_a_millisecond_on() {
    let cases = [(0, 0), (999, 0), (1_000, 1), (999_999, 1), (1_000_000, 1), (1_000_999, 1), (1_001_000, 2)];
    for (us, expected) in cases {
        assert_eq!(seconds(us), expected, "{us}");
    }
}

#[test]
fn numbers_are_read_as_rust_reads_them() {
    for text in [
        "0",
        "-0",
        "+7",
        "-9223372036854775808",
        "9223372036854775807",
        "9223372036854775808",
        "",
        "-",
        "1_0",
        " 1",
        "0x1",
    ] {
        assert_eq!(integer(text.as_bytes()), text.parse().ok(), "{text:?}");
    }
}

proptest! {
    /// Also if the numbers change from one question to the next: the debt of a key is a time.
    #[test]
    fn random_sequences_are_answered_as_redis_cells_arithmetic_says(
        terms in prop::collection::vec((0_i64..20, 1_i64..50, 1_i64..100), 1..3),
        steps in prop::collection::vec((0_u64..20_000_000, 0_i64..12, any::<bool>()), 1..60),
    ) {
        // Rates whose interval is whole microseconds, which is what redis-cell divides by to say what is left.
        let terms: Vec<_> = terms.into_iter().map(|(burst, count, n)| (burst, count, count * n)).collect();
        let bench = Bench::new();
        let mut model = Model::default();
        let mut now_us = 0;
        for (pause_us, quantity, other) in steps {
            now_us += if pause_us % 3 == 0 { 0 } else { pause_us };
            let (burst, count, period) = terms[usize::from(other) % terms.len()];
            let line = format!("k {burst} {count} {period} {quantity}");
            let expected = model.ask(burst, count, period, quantity, START_US + now_us).map(|n| n.to_string()).join(" ");
            prop_assert_eq!(bench.cell(&line, now_us), expected, "{} at {}", line, now_us);
        }
    }

    #[test]
    fn no_numbers_panic(burst: i64, count: i64, period: i64, quantity: i64, us in 0_u64..1_000_000_000) {
        let bench = Bench::new();
        for dialect in [Dialect::Cell, Dialect::Crab] {
            for burst in [burst, burst % 100] {
                for (count, period) in [(count, period), (count % 1_000, period % 1_000)] {
                    let _either = bench.ask(dialect, &format!("k {burst} {count} {period} {quantity}"), us);
                    let _either = bench.ask(dialect, &format!("k {burst} {count} {period} {}", quantity % 10), us);
                }
            }
        }
    }
}
