//! What is understood, and what is refused in which words.

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use super::*;

/// Header fields as they come.
type Fields<'f> = [(&'static str, &'f [u8])];

fn fields(given: &Fields<'_>) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &[u8])| {
        (HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap())
    };
    given.iter().map(pair).collect()
}

fn read(query: &str, given: &Fields<'_>) -> Result<Question<'static>, String> {
    let headers = fields(given);
    Question::read(Some(query), &headers).map(Question::into_owned).map_err(|trouble| trouble.detail)
}

fn plain(user: &'static str, api: &'static str) -> Question<'static> {
    Question {
        user: user.into(),
        api: api.into(),
        ip: None,
        cost: 1,
        priority: Priority::Normal,
        age_us: 0,
        asking: Asking::Counted,
        parts: Vec::new(),
    }
}

#[test]
fn a_query_says_everything() {
    let all = "user=ann&api=search&ip=2001%3Adb8::1&cost=3&priority=critical&peek=1&tenant=blue&region=eu";
    let expected = Question {
        ip: Some("2001:db8::1".parse().unwrap()),
        cost: 3,
        priority: Priority::Critical,
        asking: Asking::Peeking,
        parts: vec![("tenant".into(), "blue".into()), ("region".into(), "eu".into())],
        ..plain("ann", "search")
    };
    assert_eq!(read(all, &[]), Ok(expected));
}

#[test]
fn header_fields_say_the_same() {
    let given: [(&str, &[u8]); 7] = [
        ("x-ratelimit-user", b"ann"),
        ("x-ratelimit-api", b"search"),
        ("x-ratelimit-ip", b"192.0.2.1"),
        ("x-ratelimit-cost", b"3"),
        ("x-ratelimit-priority", b"background"),
        ("x-ratelimit-key-tenant", b"bl\xc3\xa4u"),
        // A field that other programs answer with is ignored.
        ("x-ratelimit-limit", b"17"),
    ];
    let expected = Question {
        ip: Some("192.0.2.1".parse().unwrap()),
        cost: 3,
        priority: Priority::Background,
        parts: vec![("tenant".into(), "bl\u{e4}u".into())],
        ..plain("ann", "search")
    };
    assert_eq!(read("", &given), Ok(expected));
}

#[test]
fn what_is_said_twice_may_be_the_same() {
    let given: [(&str, &[u8]); 2] = [("x-ratelimit-user", b"ann"), ("x-ratelimit-cost", b"1")];
    assert_eq!(read("user=ann&api=a&user=ann&cost=1&peek=0&peek=false", &given), Ok(plain("ann", "a")));
}

#[test]
fn encoded_text_is_decoded() {
    assert_eq!(read("user=a%20b+c%2Bd%25&api=%E2%82%AC&&", &[]), Ok(plain("a b c+d%", "\u{20ac}")));
}

#[test]
fn whatever_stands_where_a_name_does_is_a_name_or_none() {
    assert_eq!(read("user=&api=a&tenant=", &[("x-ratelimit-key-part", b"")]), Ok(plain("", "a")));
    assert_eq!(read("user=%&api=a", &[]), Ok(plain("%", "a")));
    assert_eq!(read("user=%zz%4&api=a", &[]), Ok(plain("%zz%4", "a")));
    let bytes = plain("\u{10ffff}ff", "a");
    assert_eq!(read("user=%ff&api=a", &[]), Ok(bytes.clone()));
    assert_eq!(read("api=a", &[("x-ratelimit-user", b"\xff")]), Ok(bytes));
}

#[test]
fn what_makes_no_sense_is_refused_in_a_sentence() {
    let long = format!("api=a&cost={}", "9".repeat(100));
    let many: String = (0..17).map(|n| format!("&p{n}=1")).collect();
    let table: &[(&str, &Fields<'_>, &str)] = &[
        ("", &[], "api is missing; name the API that the request is for"),
        ("user=ann", &[], "api is missing"),
        ("api=", &[], "api is missing"),
        ("api=a&cost=-1", &[], "cost \"-1\" is no whole number from 1 to 9007199254740991"),
        ("api=a&cost=%2B1", &[], "cost \"+1\" is no whole number"),
        ("api=a&cost=0", &[], "cost \"0\" is no whole number"),
        ("api=a&cost=1.5", &[], "cost \"1.5\" is no whole number"),
        ("api=a&cost=9007199254740992", &[], "cost \"9007199254740992\" is no whole number"),
        ("api=a&cost=many", &[], "cost \"many\""),
        ("api=a&cost=", &[], "cost \"\""),
        (&long, &[], "9999\"... is no whole number"),
        ("api=a&ip=1.2.3", &[], "ip \"1.2.3\" is no address; use one such as 192.0.2.1 or 2001:db8::1"),
        ("api=a&ip=", &[], "ip \"\" is no address"),
        ("api=a&priority=high", &[], "priority \"high\" is not critical, normal or background"),
        ("api=a&peek=maybe", &[], "peek \"maybe\" is neither 1 nor 0"),
        ("api=a&api=b", &[], "api is given twice, as \"a\" and as \"b\"; give one"),
        ("api=a&cost=1&cost=2", &[], "cost is given twice, as 1 and as 2"),
        ("api=a&t=1&t=2", &[], "t is given twice"),
        ("api=a&User=ann", &[], "\"User\" cannot be a part of a key; its name is of small letters"),
        ("api=a&=1", &[], "\"\" cannot be a part of a key"),
        (&format!("api=a{many}"), &[], "\"p16\" is one part of a key too many; use at most 16"),
        ("api=a", &[("x-ratelimit-api", b"b")], "api is given twice, as \"a\" and as \"b\""),
        ("api=a&user=ann", &[("x-ratelimit-user", b"bob")], "user is given twice"),
        ("api=a", &[("x-ratelimit-key-", b"1")], "\"\" cannot be a part of a key"),
        ("api=a", &[("x-ratelimit-key-user", b"1")], "\"user\" cannot be a part of a key"),
    ];
    for (query, given, expected) in table {
        let refused = read(query, given).expect_err(query);
        assert!(refused.contains(expected), "{query}: {refused}");
    }
}
