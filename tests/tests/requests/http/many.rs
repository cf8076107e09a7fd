//! Questions in JSON, one and many; what is given back and forgotten.

use ratelimit_tests::service::Service;
use serde_json::{Value, json};

const POLICY: &str = "[[api]]\nname = \"a\"\nlimits = [\"3/hour\"]\nalgorithm = \"fixed-window\"\n\
                      [[api]]\nname = \"slow\"\nlimits = [\"1/min burst 2 leaky-bucket\"]\non_limit = \"delay 60s\"\n\
                      [[api]]\nname = \"t\"\nkey = [\"tenant\"]\nlimits = [\"1/hour\"]\n\
                      [[api]]\nname = \"free\"\nlimits = []\n";

#[test]
fn one_question_in_json_is_answered_in_json() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    let reply = client.post("/v1/check", r#"{"user": "ann", "api": "a", "cost": 2}"#);
    assert_eq!((reply.status, reply.field("content-type")), (200, Some("application/json")));
    let mut told = reply.json();
    let reset = told["reset"].take().as_u64().expect("seconds");
    assert!((1..=3600).contains(&reset));
    let expected = json!({
        "allowed": true, "outcome": "allowed", "policy": "a", "limit": 3, "window": 3600, "remaining": 1, "reset": null
    });
    assert_eq!(told, expected);
    assert_eq!(reply.field("ratelimit"), Some(format!("\"a\";r=1;t={reset}").as_str()));
    let refused = client.post("/v1/check", r#"{"user": "ann", "api": "a", "cost": 2}"#);
    assert_eq!((refused.status, refused.field("content-type")), (429, Some("application/problem+json")));
    assert_eq!(refused.number("retry-after"), refused.json()["retry_after"].as_u64());
    assert_eq!(
        client.post("/v1/check", r#"{"user":"ann","api":"free"}"#).json(),
        json!({"allowed": true, "outcome": "allowed"})
    );
    assert_eq!(client.post("/v1/check", r#"{"user":"ann","api":"b"}"#).status, 404);
    assert_eq!(client.post("/v1/check", r#"{"user":"ann"}"#).status, 400);
}

#[test]
fn many_questions_are_answered_each_in_its_place() {
    let service = Service::start(POLICY);
    let reply = service.post(
        "/v1/check",
        r#"[
            {"user": "ann", "api": "a"}, {"user": "ann", "api": "a", "cost": 2, "peek": true}, {"user": "ann", "api": "a", "cost": 2.0},
            {"user": "ann", "api": "a"}, {"user": "bob", "api": "a", "priority": "background", "ip": "192.0.2.1"},
            {"api": "t", "key": {"tenant": "blue"}}, {"api": "t", "key": {"tenant": "blue"}}, {"user": "ann", "api": "a", "cost": 9},
            {"user": "ann", "api": "slow"}, {"user": "ann", "api": "slow"}, 17, [], null, "x", true, -1, 1.5, {}, {"api": "none"},
            {"api": "a", "usr": "ann"}, {"api": "a", "cost": "1"}, {"api": "a", "cost": 1.5}, {"api": "a", "peek": 1},
            {"api": 1}, {"api": "t", "key": {"tenant": 1}}, {"api": "t", "key": []}, {"api": "a", "api": "t"}
        ]"#,
    );
    assert_eq!(reply.status, 200);
    let told = reply.json();
    let row = |value: &Value| {
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        (
            text("outcome"),
            value["remaining"].as_i64().unwrap_or(-1),
            value["retry_after"].is_u64(),
            value["delay_ms"].is_u64(),
        )
    };
    let decided: Vec<_> = told.as_array().expect("an array")[..10].iter().map(row).collect();
    let expected = [
        ("allowed", 2, false, false),
        ("allowed", 2, false, false),
        ("allowed", 0, false, false),
        ("refused", 0, true, false),
        ("allowed", 2, false, false),
        ("allowed", 0, false, false),
        ("refused", 0, true, false),
        ("refused", 0, false, false),
        ("allowed", 1, false, false),
        ("delayed", 0, false, true),
    ];
    let expected = expected.map(|(outcome, left, retry, delay)| (outcome.to_owned(), left, retry, delay));
    assert_eq!(decided, expected);
    let errors: Vec<&str> =
        told.as_array().unwrap()[10..].iter().map(|one| one["error"].as_str().expect("an error")).collect();
    let sentences = [
        "a number is no question; use an object such as",
        "an array is no question",
        "null is no question",
        "a string is no question",
        "a boolean is no question",
        "a number is no question",
        "a number is no question",
        "api is missing",
        "api \"none\" is not in the policy",
        "field \"usr\" is not known; there are user, api, ip, cost, priority, peek, age_ms and key",
        "cost is a string; use a number",
        "cost \"1.5\" is no whole number",
        "peek is a number; use true or false",
        "api is a number; use a string",
        "key \"tenant\" is a number; use a string",
        "key is an array; use an object of strings",
        "api is given twice",
    ];
    assert_eq!(errors.len(), sentences.len(), "{errors:?}");
    for (error, sentence) in errors.iter().zip(sentences) {
        assert!(error.contains(sentence), "{error} / {sentence}");
    }
}

#[test]
fn a_thousand_questions_at_once_are_answered_and_one_more_is_too_many() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    let questions = |count: usize| {
        let all: Vec<String> =
            (0..count).map(|n| format!("{{\"user\":\"u{n}\",\"api\":\"a\",\"cost\":3}}")).collect();
        format!("[{}]", all.join(","))
    };
    let reply = client.post("/v1/check", &questions(1_000));
    let told = reply.json();
    let allowed = told.as_array().expect("an array").iter().filter(|one| one["allowed"] == true).count();
    assert_eq!((reply.status, allowed), (200, 1_000));
    let reply = client.post("/v1/check", &questions(1_001).replace('u', "v"));
    assert_eq!(reply.status, 400);
    assert!(reply.json()["detail"].as_str().unwrap().contains("more than 1000 questions"), "{reply:?}");
    assert_eq!(client.post("/v1/check", "[]").body, "[]");
    // None of those that were too many has been counted.
    assert_eq!(client.get("/v1/check?user=v0&api=a&cost=3").status, 200);
}

#[test]
fn bodies_that_are_no_questions_are_refused() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    for body in ["", "{", "nonsense", "17", "\"a\"", "null", "[{}", "{}{}", "{\"api\":\"a\"} x"] {
        let reply = client.post("/v1/check", body);
        assert_eq!(
            (reply.status, reply.field("content-type")),
            (400, Some("application/problem+json")),
            "{body:?}"
        );
    }
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    assert_eq!(client.post("/v1/check", &format!("{{\"api\": {deep}}}")).status, 400);
    assert!(client.post("/v1/check", &deep).json()[0]["error"].is_string());
    let long = format!("{{\"api\": \"{}\"}}", "x".repeat(1024 * 1024));
    assert_eq!(service.post("/v1/check", &long).status, 413);
}

#[test]
fn what_is_given_back_can_be_taken_again() {
    let service = Service::start(POLICY);
    let mut client = service.open();
    let (all, one) = (r#"{"user":"ann","api":"a","cost":3}"#, r#"{"user":"ann","api":"a"}"#);
    assert_eq!(client.post("/v1/check", all).status, 200);
    assert_eq!(client.post("/v1/check", one).status, 429);
    let reply = client.post("/v1/refund", one);
    assert_eq!((reply.status, reply.body.as_str()), (204, ""));
    assert_eq!(client.post("/v1/check", one).status, 200);
    assert_eq!(client.post("/v1/check", one).status, 429);
    assert_eq!(client.post("/v1/reset", one).status, 204);
    assert_eq!(client.post("/v1/check", all).status, 200);
    let reply = client.post("/v1/refund", &format!("[{one}, 1, {one}]"));
    assert_eq!(reply.status, 200);
    assert_eq!((&reply.json()[0], &reply.json()[2]), (&json!({"done": true}), &json!({"done": true})));
    assert!(reply.json()[1]["error"].is_string());
    assert_eq!(client.post("/v1/check", r#"{"user":"ann","api":"a","cost":2}"#).status, 200);
    assert_eq!(client.post("/v1/reset", r#"{"user":"ann","api":"none"}"#).status, 404);
    assert_eq!(client.post("/v1/refund", "{}").status, 400);
}

#[test]
fn a_refund_gives_back_what_was_charged_then_and_nothing_else() {
    let service = Service::start(POLICY);
    let mut client = service.open();
    let mut left = |refund: &str| {
        assert_eq!(client.post("/v1/refund", refund).status, 204, "{refund}");
        let peeked = client.post("/v1/check", r#"{"user":"ann","api":"a","peek":true}"#);
        peeked.json()["remaining"].as_u64().unwrap_or(0)
    };
    assert_eq!(left(r#"{"user":"ann","api":"a","cost":3}"#), 3, "nothing was charged");
    assert_eq!(service.post("/v1/check", r#"{"user":"ann","api":"a","cost":2}"#).status, 200);
    assert_eq!(left(r#"{"user":"ann","api":"a","cost":3}"#), 1, "three were not charged");
    assert_eq!(left(r#"{"user":"ann","api":"a","cost":2,"age_ms":3600000}"#), 1, "an hour ago is over");
    assert_eq!(left(r#"{"user":"ann","api":"a","cost":2,"age_ms":0}"#), 3);
    let wrong = service.open().post("/v1/refund", r#"{"user":"ann","api":"a","age_ms":-1}"#);
    assert_eq!(wrong.status, 400);
    assert!(wrong.body.contains("age_ms \\\"-1\\\" is no whole number"), "{}", wrong.body);
}

#[test]
fn a_refund_that_the_store_would_have_to_take_is_refused_while_it_is_away() {
    let policy = format!(
        "[cluster]\nredis = \"redis://127.0.0.1:{}\"\nhosts = 1\n{POLICY}",
        ratelimit_tests::redis::free_port()
    );
    let service = Service::start(&policy);
    let mut client = service.open();
    let ann = r#"{"user":"ann","api":"a"}"#;
    let away = client.post("/v1/refund", ann);
    assert_eq!((away.status, away.number("retry-after")), (503, Some(1)));
    assert!(away.body.contains("nothing was given back"), "{}", away.body);
    let many = client.post("/v1/refund", &format!("[{ann}]"));
    assert!(many.body.contains("nothing was given back"), "{}", many.body);
    for _ in 0..3 {
        assert_eq!(client.post("/v1/check", ann).status, 200, "decided here");
    }
    assert_eq!(client.post("/v1/check", ann).status, 429);
    assert_eq!(client.post("/v1/refund", ann).status, 204, "and given back here");
    assert_eq!(client.post("/v1/check", ann).status, 200);
}
