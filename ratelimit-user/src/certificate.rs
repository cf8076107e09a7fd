//! When a certificate expires. Nothing else of it is checked here: TLS does that.

/// Days before its end at which a certificate is warned of.
const SOON_DAYS: u64 = 14;
const DAY: u64 = 86_400;

/// The warning about a certificate of this host, if it is due. Times are in seconds since 1970.
pub(crate) fn warning(file: &str, expires: u64, now: u64) -> Option<String> {
    let remedy = "put another into its place, it is read without a restart";
    if expires <= now {
        let days = (now - expires) / DAY;
        return Some(format!(
            "certificate {file} has expired, {days} days ago: clients that verify it refuse it; {remedy}"
        ));
    }
    let days = (expires - now) / DAY;
    (days < SOON_DAYS).then(|| format!("certificate {file} expires in {days} days; {remedy}"))
}

/// When the first certificate of a chain expires, in seconds since 1970.
pub(crate) fn first_end<'c>(chain: impl IntoIterator<Item = &'c [u8]>) -> Option<u64> {
    chain.into_iter().filter_map(expires).min()
}

/// When a certificate in DER expires, in seconds since 1970.
///
/// `Certificate ::= SEQUENCE { tbs SEQUENCE { [0] version OPTIONAL, serial, algorithm, issuer, validity SEQUENCE { from, until }, .. }, .. }`
fn expires(der: &[u8]) -> Option<u64> {
    let (_, certificate, _) = element(der)?;
    let (_, mut tbs, _) = element(certificate)?;
    if let (0xa0, _, behind) = element(tbs)? {
        tbs = behind;
    }
    for _serial_algorithm_issuer in 0..3 {
        tbs = element(tbs)?.2;
    }
    let (_, validity, _) = element(tbs)?;
    let (_, _, behind) = element(validity)?;
    let (kind, until, _) = element(behind)?;
    time(kind, std::str::from_utf8(until).ok()?)
}

/// The tag and the content of one element, and the bytes behind it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, behind) = rest.split_at_checked(length)?;
    Some((tag, content, behind))
}

/// The seconds since 1970 of a time. `UTCTime` has years of two digits, from 1950 to 2049; `GeneralizedTime` has four.
fn time(kind: u8, text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z')?;
    let (year, rest) = match kind {
        0x17 => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: u64 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        0x18 => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let two = |at: usize| rest.get(at..at + 2)?.parse::<u64>().ok();
    let (month, day, hour, minute, second) = (two(0)?, two(2)?, two(4)?, two(6)?, two(8)?);
    Some(days(year, month, day)? * DAY + hour * 3_600 + minute * 60 + second)
}

/// Days from 1970 to a date; `None` for a date before 1970.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    // Years that begin in March have their leap day at the end.
    let year = if month <= 2 { year.checked_sub(1)? } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    // There are 719 468 days from 1 March of the year 0 to 1970.
    (year * 365 + year / 4 - year / 100 + year / 400 + of_year).checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_both_forms() {
        for (kind, text, expected) in [
            (0x17, "700101000000Z", Some(0)),
            (0x17, "260228235959Z", Some(1_772_323_199)),
            (0x17, "240229120000Z", Some(1_709_208_000)),
            (0x17, "491231235959Z", Some(2_524_607_999)),
            (0x18, "20500101000000Z", Some(2_524_608_000)),
            (0x18, "21000301000000Z", Some(4_107_542_400)),
            (0x17, "2602282359Z", None),
            (0x17, "260028235959Z", None),
            (0x02, "260228235959Z", None),
        ] {
            assert_eq!(time(kind, text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_end() {
        for der in [&b""[..], b"\x30", b"\x30\x84\xff\xff\xff\xff", b"\x30\x80", b"\x30\x03\x30\x01\x02"] {
            assert_eq!(expires(der), None);
        }
    }

    #[test]
    fn a_certificate_is_warned_of_before_its_end_and_after_it() {
        let at = |expires| warning("c.pem", expires, 100 * DAY);
        assert_eq!(at(114 * DAY), None);
        assert!(at(114 * DAY - 1).unwrap().contains("c.pem expires in 13 days"));
        assert!(at(100 * DAY).unwrap().contains("has expired, 0 days ago"));
        assert!(at(97 * DAY).unwrap().contains("has expired, 3 days ago"));
    }
}
