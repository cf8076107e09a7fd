//! Tables of texts and what becomes of them, and the two properties: no input panics, and what `Display`
//! writes is read back as the same rate.

use std::format;
use std::string::{String, ToString as _};

use proptest::prelude::*;

use super::*;
use crate::limit::manner::Manner;
use crate::limit::rate::{Period, RateError};

fn rate(meter: Meter, amount: u64, period: Period, burst: u64) -> Rate {
    Rate { meter, amount, period, burst, manner: Manner::PLAIN, units: Rate::UNTYPED }
}

#[test]
fn every_documented_form_means_what_it_says() {
    use Meter::{Bytes, Packets, Syns};
    use Period::{Day, Hour, Minute, Second};
    for (text, expected) in [
        ("15/s", rate(Packets, 15, Second, 15)),
        ("500/hour", rate(Packets, 500, Hour, 500)),
        ("1000 packets/s", rate(Packets, 1000, Second, 1000)),
        ("40 Mbit/s", rate(Bytes, 5_000_000, Second, 5_000_000)),
        ("2 MB/s", rate(Bytes, 2_000_000, Second, 2_000_000)),
        ("100 syns/s", rate(Syns, 100, Second, 100)),
        ("5000 packets/s burst 10000", rate(Packets, 5000, Second, 10_000)),
        ("2 MB/s burst 200000", rate(Bytes, 2_000_000, Second, 200_000)),
        ("2.5 MB/s burst 256 KiB", rate(Bytes, 2_500_000, Second, 262_144)),
        ("1_000 packets/s", rate(Packets, 1000, Second, 1000)),
        ("10k packets/s", rate(Packets, 10_000, Second, 10_000)),
        ("1.5M packets/s burst 20k", rate(Packets, 1_500_000, Second, 20_000)),
        ("10 k syns/min burst 1k syns", rate(Syns, 10_000, Minute, 1000)),
        ("1000pkts/sec", rate(Packets, 1000, Second, 1000)),
        ("1 pkt/second", rate(Packets, 1, Second, 1)),
        ("1 packet/minute burst 3 pkts", rate(Packets, 1, Minute, 3)),
        ("7 syn/h", rate(Syns, 7, Hour, 7)),
        ("7/d", rate(Packets, 7, Day, 7)),
        ("7/day burst 2 packets", rate(Packets, 7, Day, 2)),
        ("  3 / min  burst  4 ", rate(Packets, 3, Minute, 4)),
        ("5000 B/s", rate(Bytes, 5000, Second, 65_536)),
        ("1 byte/s burst 9 kB", rate(Bytes, 1, Second, 9000)),
        ("9 bytes/s burst 9 KB", rate(Bytes, 9, Second, 9000)),
        ("1 GB/min", rate(Bytes, 1_000_000_000, Minute, 1_000_000_000)),
        ("1 KiB/s burst 1 MiB", rate(Bytes, 1024, Second, 1 << 20)),
        ("0.5 GiB/hour", rate(Bytes, 1 << 29, Hour, 1 << 29)),
        ("16 bit/s burst 1 Mbit", rate(Bytes, 2, Second, 125_000)),
        ("1.6 kbit/s burst 1 Gbit", rate(Bytes, 200, Second, 125_000_000)),
    ] {
        assert_eq!(parse_rate(text), Ok(expected), "{text}");
    }
}

#[test]
fn every_mistake_is_named_with_its_piece_and_what_would_be_right() {
    let known_units = "is not known; use packets, syns, fragments, bytes, kB, MB, GB, KiB, MiB, GiB, bit, kbit, Mbit or Gbit";
    let example = "write it like \"1000 packets/s burst 2000\"";
    for (text, piece, sentence) in [
        ("", "", format!("limit is empty; {example}")),
        ("  ", "  ", format!("limit is empty; {example}")),
        ("packets/s", "packets", format!("\"packets\" stands where a number belongs; {example}")),
        ("/s", "", format!("\"\" stands where a number belongs; {example}")),
        ("-5/s", "-5", "\"-5\" is not a number; use one like 1000, 1_000 or 2.5".into()),
        ("1,000 packets/s", "1,000", "\"1,000\" is not a number; use one like 1000, 1_000 or 2.5".into()),
        ("1__0/s", "1__0", "\"1__0\" is not a number; use one like 1000, 1_000 or 2.5".into()),
        ("_1/s", "_1", "\"_1\" is not a number; use one like 1000, 1_000 or 2.5".into()),
        (".5 MB/s", ".5", "\".5\" is not a number; use one like 1000, 1_000 or 2.5".into()),
        ("1.2.3 MB/s", "1.2.3", "\"1.2.3\" is not a number; use one like 1000, 1_000 or 2.5".into()),
        ("5./s", "5.", "\"5.\" is not a number; use one like 1000, 1_000 or 2.5".into()),
        (
            "18446744073709551616/s",
            "18446744073709551616",
            "\"18446744073709551616\" is more than 64 bits can count; use a smaller number".into(),
        ),
        (
            // 2^128 + 5 would be read as 5 if the digits wrapped around.
            "340282366920938463463374607431768211461/s",
            "340282366920938463463374607431768211461",
            "\"340282366920938463463374607431768211461\" is more than 64 bits can count; use a smaller number".into(),
        ),
        (
            "99999999999999999999 GB/s",
            "99999999999999999999 GB",
            "\"99999999999999999999 GB\" is more than 64 bits can count; use a smaller number".into(),
        ),
        (
            "0.5 packets/s",
            "0.5 packets",
            "\"0.5 packets\" is not a whole number of packets; use a longer period".into(),
        ),
        (
            "100 bit/s",
            "100 bit",
            "\"100 bit\" is not a whole number of bytes; use one that is, bits by the eight".into(),
        ),
        (
            "10M/s",
            "10M",
            "\"10M\" has no unit; say packets, syns, or a unit such as \"MB\" or \"Mbit\"".into(),
        ),
        (
            "10k bytes/s",
            "k",
            "\"k\" goes with packets and syns; for bytes use \"kB\", \"MB\", \"KiB\" or \"MiB\"".into(),
        ),
        ("5 mb/s", "mb", "unit \"mb\" is ambiguous; use \"MB\" for bytes or \"Mbit\" for bits".into()),
        ("5 Mb/s", "Mb", "unit \"Mb\" is ambiguous; use \"MB\" for bytes or \"Mbit\" for bits".into()),
        ("5 mB/s", "mB", "unit \"mB\" is ambiguous; use \"MB\" for bytes or \"Mbit\" for bits".into()),
        ("5kb/s", "kb", "unit \"kb\" is ambiguous; use \"kB\" for bytes or \"kbit\" for bits".into()),
        ("5 b/s", "b", "unit \"b\" is ambiguous; use \"B\" for bytes or \"bit\" for bits".into()),
        ("5 Mib/s", "Mib", "unit \"Mib\" is ambiguous; use \"MiB\" for bytes or \"Mbit\" for bits".into()),
        ("5 mbit/s", "mbit", "unit \"mbit\" is not known; use \"Mbit\"".into()),
        ("5 Kbit/s", "Kbit", "unit \"Kbit\" is not known; use \"kbit\"".into()),
        ("5 Packets/s", "Packets", "unit \"Packets\" is not known; use \"packets\"".into()),
        ("5K packets/s", "K", "unit \"K\" is not known; use \"k\"".into()),
        ("100 Mbps", "Mbps", "unit \"Mbps\" is not known; use \"Mbit/s\"".into()),
        ("100 pps", "pps", "unit \"pps\" is not known; use \"packets/s\"".into()),
        ("5 apples/s", "apples", format!("unit \"apples\" {known_units}")),
        ("5k M packets/s", "M", format!("unit \"M\" {known_units}")),
        ("1000 packets", "1000 packets", format!("\"1000 packets\" has no period; {example}")),
        ("1000 packets/", "1000 packets/", format!("\"1000 packets/\" has no period; {example}")),
        (
            "1000 packets per second",
            "per second",
            "\"per second\" is not understood here; write the limit like \"1000 packets/s burst 2000\""
                .into(),
        ),
        ("5/fortnight", "fortnight", "period \"fortnight\" is not known; use s, min, hour or day".into()),
        ("5/m", "m", "period \"m\" is not known; use s, min, hour or day".into()),
        ("5/S", "S", "period \"S\" is not known; use s, min, hour or day".into()),
        (
            "1000 packets/s 5 MB/s",
            "5 MB/s",
            "\"5 MB/s\" would be a second unit; one limit has one unit, so write two limits".into(),
        ),
        (
            "1000 packets/s, 5 MB/s",
            "5 MB/s",
            "\"5 MB/s\" would be a second unit; one limit has one unit, so write two limits".into(),
        ),
        (
            "1000 packets 5 MB/s",
            "5 MB/s",
            "\"5 MB/s\" would be a second unit; one limit has one unit, so write two limits".into(),
        ),
        ("1000 packets/s burst 5 and 100 syns/s", "and", format!("unit \"and\" {known_units}")),
        (
            "1000 packets/s burst 5 packets and 100 syns/s",
            "100 syns/s",
            "\"100 syns/s\" would be a second unit; one limit has one unit, so write two limits".into(),
        ),
        (
            "15/s bust 5",
            "bust 5",
            "\"bust 5\" is not understood here; write the limit like \"1000 packets/s burst 2000\"".into(),
        ),
        ("15/s burst", "burst", format!("\"burst\" has no number; {example}")),
        ("15/s burst many", "many", format!("\"many\" stands where a number belongs; {example}")),
        (
            "100 syns/s burst 200 packets",
            "packets",
            "burst unit \"packets\" does not fit a limit in syns; use \"syns\" or no unit".into(),
        ),
        (
            "2 MB/s burst 200 packets",
            "packets",
            "burst unit \"packets\" does not fit a limit in bytes; use a unit such as \"bytes\" or \"KiB\""
                .into(),
        ),
        ("15/s burst 5/s", "/s", "\"/s\" does not belong to a burst, which is an amount; remove it".into()),
        (
            "5 \u{1b}[31m/s",
            "\u{1b}[31m/s",
            "\"\\u{1b}[31m/s\" is not understood here; write the limit like \"1000 packets/s burst 2000\""
                .into(),
        ),
    ] {
        let error = parse_rate(text).expect_err(text);
        assert_eq!((error.piece(), error.to_string()), (piece, sentence), "{text:?}");
        assert_eq!(&text[error.offset()..][..piece.len()], piece, "{text:?}");
    }
}

#[test]
fn rates_that_cannot_be_enforced_name_the_whole_text() {
    for (text, error, sentence) in [
        (
            "0/s",
            RateError::ZeroRate,
            "limit \"0/s\": rate 0 lets nothing pass; use at least 1, or block the source",
        ),
        (
            " 5/s burst 0 ",
            RateError::ZeroBurst,
            "limit \"5/s burst 0\": burst 0 is never satisfiable; use at least 1",
        ),
        (
            "101M packets/s",
            RateError::TooFast { meter: Meter::Packets },
            "limit \"101M packets/s\": rate is above 100000000 packets/s, more than any port delivers; \
             use at most that",
        ),
    ] {
        let found = parse_limit(text).expect_err(text);
        assert_eq!(found.fault(), Fault::Rate(error));
        assert_eq!(found.piece(), text.trim());
        assert_eq!(found.to_string(), sentence);
    }
}

#[test]
fn a_limit_carries_the_parameters_of_its_rate() {
    let (rate, limit) = parse_limit("5000 packets/s burst 10000").unwrap();
    assert_eq!(rate.limit(), Ok(limit));
    assert_eq!((limit.cost_fp, limit.tolerance_q8), (51_200_000, 2_000_000_000 << 8));
}

#[test]
fn a_mistake_knows_the_text_that_it_is_in() {
    let error = parse_rate("5 parsecs/s").unwrap_err();
    assert_eq!((error.text(), error.piece()), ("5 parsecs/s", "parsecs"));
}

#[test]
fn a_window_of_few_bytes_has_no_larger_burst_than_its_amount() {
    assert_eq!(parse_rate("2000 bytes/s fixed-window").unwrap().burst, 2_000);
    assert!(parse_rate("2000 bytes/s").unwrap().burst > 2_000, "a bucket has room for frames");
}

#[test]
fn a_long_piece_is_cut_in_the_sentence_but_not_in_the_piece() {
    let word = "x".repeat(1000);
    let text = format!("5 {word}/s");
    let error = parse_rate(&text).unwrap_err();
    assert_eq!(error.piece(), word);
    assert!(error.to_string().starts_with(&format!("unit \"{}...\" is not known", "x".repeat(48))));
}

/// Fragments that take a random text deep into the grammar.
fn fragment() -> impl Strategy<Value = &'static str> {
    prop::sample::select(
        &[
            "1",
            "0",
            "15",
            "1_000",
            "2.5",
            ".",
            "_",
            "99999999999999999999",
            "k",
            "M",
            " ",
            "  ",
            "/",
            "s",
            "min",
            "day",
            "packets",
            "syns",
            "bytes",
            "MB",
            "Mbit",
            "mb",
            "KiB",
            "burst",
            "burst 5",
            "é",
            "\u{a0}",
            ",",
            "and",
            "\0",
            "-",
            "0.0000000000000000000000000000000000000001",
        ][..],
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn no_text_panics_and_every_piece_lies_in_its_text(text in any::<String>()) {
        check_any(&text)?;
    }

    #[test]
    fn no_near_miss_panics_and_every_piece_lies_in_its_text(parts in prop::collection::vec(fragment(), 0..12)) {
        check_any(&parts.concat())?;
    }

    #[test]
    fn what_display_writes_is_read_back_as_the_same_rate(
        meter in prop::sample::select(&Meter::ALL[..]),
        period in prop::sample::select(&[Period::Second, Period::Minute, Period::Hour, Period::Day][..]),
        amount in any::<u64>(),
        burst in any::<u64>(),
    ) {
        let rate = Rate { meter, amount, period, burst, manner: Manner::PLAIN, units: Rate::UNTYPED };
        let text = rate.to_string();
        prop_assert_eq!(parse_rate(&text), Ok(rate));
    }
}

#[test]
fn bytes_are_read_back_in_the_unit_they_were_typed_in() {
    for (typed, shown) in [
        ("50 Mbit/s", "50 Mbit/s burst 50 Mbit"),
        ("2.5 MB/s burst 256 KiB", "2.5 MB/s burst 256 KiB"),
        ("1 GB/hour burst 200000", "1 GB/hour burst 200000 bytes"),
        ("5000 B/s", "5000 bytes/s burst 64 KiB"),
        ("0.5 GiB/day fixed-window", "0.5 GiB/day fixed-window"),
        ("1000 packet/s", "1000 packets/s burst 1000"),
    ] {
        let rate = parse_rate(typed).unwrap();
        assert_eq!(rate.to_string(), shown, "{typed}");
        let again = parse_rate(shown).unwrap();
        assert_eq!((again, again.to_string().as_str()), (rate, shown), "{typed}");
    }
    assert_eq!(parse_rate("50 Mbit/s"), parse_rate("6250000 bytes/s"), "units are for display alone");
}

fn check_any(text: &str) -> Result<(), TestCaseError> {
    if let Err(error) = parse_limit(text) {
        prop_assert_eq!(&text[error.offset()..][..error.piece().len()], error.piece());
        prop_assert!(!error.to_string().contains(char::is_control));
    }
    Ok(())
}

#[test]
fn algorithms_and_throttles_stand_behind_the_rate_and_are_written_back() {
    for text in [
        "1000 packets/min fixed-window",
        "1000 packets/min sliding-window soft 10%",
        "1000 packets/min sliding-window-weighted elastic 50%",
        "5000 packets/s burst 10000 leaky-bucket",
        "5000 packets/s burst 10000 soft 25%",
        "2000000 bytes/s burst 4000000 bytes elastic 100%",
        "5000000 bytes/hour fixed-window",
    ] {
        let rate = parse_rate(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(rate.to_string(), text);
        assert_eq!(parse_rate(&rate.to_string()), Ok(rate));
        rate.limit().unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    let spelt_out = parse_rate("10/s burst 20 token-bucket hard").unwrap();
    assert_eq!(spelt_out, parse_rate("10/s burst 20").unwrap());
}

#[test]
fn every_mistake_in_an_algorithm_or_a_throttle_is_named() {
    for (text, piece, sentence) in [
        ("10/s soft", "soft", "is no margin; write it like \"soft 10%\", from 1% to 1000%"),
        ("10/s soft 10", "10", "is no margin"),
        ("10/s elastic 0%", "0%", "is no margin"),
        ("10/s soft 1001%", "1001%", "is no margin"),
        ("10/s soft 10% elastic 20%", "elastic 20%", "is not understood here"),
        ("10/s soft 10% fixed-window", "fixed-window", "is not understood here"),
        ("10/s fixed-window sliding-window", "sliding-window", "is not understood here"),
        ("10/s sliding-log", "10/s sliding-log", "sliding-log keeps every single one, which is for requests"),
        ("10/month", "10/month", "months are for requests with a time_zone; use a rate per day"),
        ("10/s burst 20 fixed-window", "burst 20", "does not go with a window"),
        ("10/s fixed-window burst 20", "burst 20", "is not understood here"),
    ] {
        let error = parse_limit(text).expect_err(text);
        assert_eq!(error.piece(), piece, "{text}");
        assert!(error.to_string().contains(sentence), "{text}: {error}");
    }
}
