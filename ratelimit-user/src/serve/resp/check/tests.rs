use super::*;

fn parse(line: &str, words: CheckWords) -> Result<(RespCheck<'_>, Parts<'_>), CheckProblem> {
    let arguments: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let mut parts = Parts::new();
    Ok((RespCheck::parse(&arguments, words, &mut parts)?, parts))
}

#[test]
fn address_and_cost_may_both_be_left_out() {
    let cases = [
        ("ann search", None, None),
        ("ann search 5", None, Some(5)),
        ("ann search 192.0.2.1", Some("192.0.2.1"), None),
        ("ann search 2001:db8::1 7", Some("2001:db8::1"), Some(7)),
        ("ann search PEEK 192.0.2.1", Some("192.0.2.1"), None),
    ];
    for (line, ip, cost) in cases {
        let (question, parts) = parse(line, CheckWords::All).unwrap();
        let ip = ip.map(|ip| ip.parse().unwrap());
        assert_eq!(
            (question.user, question.api, question.ip, question.cost),
            ("ann", "search", ip, cost),
            "{line}"
        );
        assert_eq!(question.request(&parts).cost, cost.unwrap_or(1));
    }
}

#[test]
fn words_come_in_any_case_and_order() {
    let (question, parts) =
        parse("ann search 3 key tenant a priority CRITICAL peek KEY region b", CheckWords::All).unwrap();
    assert_eq!((question.priority, question.asking), (Priority::Critical, Asking::Peeking));
    assert_eq!(question.request(&parts).parts, [("tenant", "a"), ("region", "b")]);
    assert_eq!(question.request(&parts).cost, 3);
}

#[test]
fn what_cannot_be_asked_has_a_sentence() {
    let many = format!("a b{}", " KEY k v".repeat(17));
    let cases = [
        ("a", CheckWords::All, "a question needs user and api behind it"),
        ("a b c", CheckWords::All, "\"c\" is no address, no cost, and none of PRIORITY, PEEK and KEY"),
        ("a b PEEK", CheckWords::Keys, "\"PEEK\" is no address, no cost, and none of KEY"),
        ("a b 1 2", CheckWords::All, "\"2\" is one too many; use [ip] [cost], each once, in this order"),
        ("a b 1 ::1", CheckWords::All, "\"::1\" is one too many; use [ip] [cost], each once, in this order"),
        (
            "a b 192.0.2.1 192.0.2.2",
            CheckWords::All,
            "\"192.0.2.2\" is one too many; use [ip] [cost], each once, in this order",
        ),
        ("a b 0", CheckWords::All, "\"0\" is no address, and no cost from 1 on"),
        ("a b -1", CheckWords::All, "\"-1\" is no address, and no cost from 1 on"),
        ("a b 192.0.2.256", CheckWords::All, "\"192.0.2.256\" is no address, and no cost from 1 on"),
        ("a b PRIORITY", CheckWords::All, "PRIORITY needs background, normal or critical behind it"),
        (
            "a b PRIORITY high",
            CheckWords::All,
            "priority \"high\" is unknown; use background, normal or critical",
        ),
        ("a b KEY k", CheckWords::All, "KEY needs a name and a value behind it"),
        (&many, CheckWords::All, "more than 16 parts of a key"),
    ];
    for (line, words, sentence) in cases {
        assert_eq!(parse(line, words).map(drop).unwrap_err().to_string(), sentence, "{line}");
    }
    let bytes: [&[u8]; 2] = [b"a\xff", b"b"];
    let problem = RespCheck::parse(&bytes, CheckWords::All, &mut Parts::new()).map(drop).unwrap_err();
    assert_eq!(problem.to_string(), "user is not UTF-8 text");
}
