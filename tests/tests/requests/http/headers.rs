//! Status, header fields and bodies of single questions.

use ratelimit_tests::service::Service;
use serde_json::json;

const POLICY: &str = r#"
[[api]]
name = "search"
limits = ["100/hour", "3/min"]
algorithm = "fixed-window"
[[api]]
name = "bulk"
limits = ["1/hour"]
on_limit = "deprioritise"
[[api]]
name = "tenants"
key = ["tenant", "user"]
limits = ["1/hour"]
[[api]]
name = "free"
limits = []
[[api]]
name = "important"
limits = ["10/hour"]
reserved = { critical = "20%", normal = "30%" }
"#;

#[test]
fn every_decision_says_what_the_limits_are_and_how_much_is_left() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    for left in [2, 1, 0] {
        let reply = client.get("/v1/check?user=ann&api=search");
        assert_eq!((reply.status, reply.body.as_str()), (200, ""));
        assert_eq!(
            reply.field("ratelimit-policy"),
            Some("\"search-hour\";q=100;w=3600, \"search-min\";q=3;w=60")
        );
        let standing = reply.field("ratelimit").expect("a standing");
        let (head, reset) = standing.rsplit_once(";t=").expect("a time");
        assert_eq!(head, format!("\"search-min\";r={left}"));
        assert!((1..=60).contains(&reset.parse::<u64>().expect("seconds")), "{standing}");
        assert_eq!(reply.field("retry-after"), None);
        assert_eq!(reply.field("date"), None);
    }
    let reply = client.get("/v1/check?user=ann&api=search");
    assert_eq!(reply.status, 429);
    assert_eq!(reply.field("content-type"), Some("application/problem+json"));
    let retry = reply.number("retry-after").expect("a time");
    assert!((1..=60).contains(&retry));
    assert!(reply.field("ratelimit").expect("a standing").starts_with("\"search-min\";r=0;t="));
    let expected = json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Request cannot be satisfied as assigned quota has been exceeded",
        "status": 429,
        "detail": format!("policy \"search-min\" allows 3 in 60 s; try again in {retry} s"),
        "policy": "search-min",
        "violated-policies": ["search-min"],
        "retry_after": retry,
    });
    assert_eq!(reply.json(), expected);
}

#[test]
fn fields_say_what_is_left_when_there_is_more_and_a_problem_names_all_that_refuse() {
    let service = Service::start(
        "[plan.default]\nlimits = [\"5/day fixed-window\"]\n\
         [[api]]\nname = \"slow\"\nlimits = [\"6/min\", \"4/hour\"]\n\
         [[api]]\nname = \"once\"\nkey = [\"ip\"]\nlimits = [\"1/min\"]\nalgorithm = \"sliding-window-weighted\"\n",
    );
    let mut client = service.connect();
    let first = client.get("/v1/check?user=ann&api=slow&cost=2");
    assert_eq!(
        first.field("ratelimit"),
        Some("\"slow-hour\";r=2;t=900"),
        "one of four in a quarter of an hour"
    );
    let refused = client.get("/v1/check?user=ann&api=slow&cost=4");
    assert_eq!(refused.status, 429);
    assert!(refused.field("ratelimit").unwrap().starts_with("\"default\";r=3;t="), "{refused:?}");
    assert_eq!(refused.json()["violated-policies"], json!(["slow-hour", "default"]));
    assert_eq!(
        refused.field("ratelimit-policy"),
        Some("\"default\";q=5;w=86400, \"slow-min\";q=6;w=60, \"slow-hour\";q=4;w=3600")
    );
    for (peek, left) in [("&peek=1", 2), ("&peek=1&cost=2", 2), ("", 1)] {
        let reply = client.get(&format!("/v1/check?user=ann&api=slow{peek}"));
        assert!(reply.field("ratelimit").unwrap().contains(&format!(";r={left};")), "{peek} {reply:?}");
    }
    // Whoever asks for all of a limit is told when to come again, and not before there is more.
    assert_eq!(client.get("/v1/check?api=once").status, 200);
    let refused = client.get("/v1/check?api=once");
    let more: u64 =
        refused.field("ratelimit").unwrap().strip_prefix("\"once\";r=0;t=").unwrap().parse().unwrap();
    let retry = refused.number("retry-after").expect("a time");
    assert!((60..=120).contains(&retry) && retry >= more, "{refused:?}");
}

#[test]
fn what_elastic_limits_give_above_themselves_is_for_hosts_with_headroom() {
    let policy = "[[api]]\nname = \"a\"\nlimits = [\"100/hour elastic 50%\"]\nalgorithm = \"fixed-window\"\n";
    let served =
        |service: &Service| super::allowed(&mut service.connect(), "/v1/check?user=ann&api=a", 160).0;
    let strained = Service::start_under_pressure(policy, 80);
    ratelimit_tests::redis::wait_for("a host without headroom", || {
        strained.log().contains("headroom lost").then_some(())
    });
    assert_eq!(served(&strained), 100);
    assert_eq!(served(&Service::start_under_pressure(policy, 1)), 150);
}

#[test]
fn a_request_that_never_fits_is_not_told_to_come_again() {
    let service = Service::start(POLICY);
    for cost in ["4", "9007199254740991"] {
        let reply = service.get(&format!("/v1/check?user=ann&api=search&cost={cost}"));
        assert_eq!((reply.status, reply.field("retry-after")), (429, None));
        assert!(
            reply.json()["detail"].as_str().expect("a sentence").ends_with("more than there ever is at once")
        );
        assert_eq!(reply.json().get("retry_after"), None);
    }
    // The refused request has taken nothing.
    let reply = service.get("/v1/check?user=ann&api=search&cost=3");
    assert_eq!((reply.status, reply.field("ratelimit").unwrap().split(';').nth(1)), (200, Some("r=0")));
}

#[test]
fn peeking_takes_nothing() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    for _ in 0..5 {
        let reply = client.get("/v1/check?user=ann&api=search&cost=3&peek=1");
        assert_eq!(reply.status, 200);
    }
    assert_eq!(client.get("/v1/check?user=ann&api=search&cost=3").status, 200);
    assert_eq!(client.get("/v1/check?user=ann&api=search&peek=1").status, 429);
}

#[test]
fn header_fields_ask_as_well_as_a_query_does_and_count_under_the_same_key() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    let fields = [("X-RateLimit-User", "ann"), ("X-RateLimit-Api", "search"), ("X-RateLimit-Cost", "2")];
    assert_eq!(client.get_with("/v1/check", &fields).status, 200);
    assert_eq!(client.get_with("/v1/check?user=ann", &fields).status, 429);
    assert_eq!(client.get("/v1/check?user=ann&api=search").status, 200);
    assert_eq!(client.ask("HEAD", "/v1/check?user=ann&api=search", &[], "").status, 429);
}

#[test]
fn further_parts_of_a_key_tell_requests_apart() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    assert_eq!(client.get("/v1/check?user=ann&api=tenants&tenant=blue").status, 200);
    assert_eq!(client.get("/v1/check?user=ann&api=tenants&tenant=green").status, 200);
    let again = [("X-RateLimit-Key-Tenant", "blue")];
    assert_eq!(client.get_with("/v1/check?user=ann&api=tenants", &again).status, 429);
    // Requests without a tenant share one count.
    assert_eq!(client.get("/v1/check?user=ann&api=tenants").status, 200);
    assert_eq!(client.get("/v1/check?user=ann&api=tenants&tenant=").status, 429);
}

#[test]
fn what_is_above_its_limit_and_passes_is_marked() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    let first = client.get("/v1/check?user=ann&api=bulk");
    assert_eq!((first.status, first.field("x-ratelimit-priority")), (200, None));
    let second = client.get("/v1/check?user=ann&api=bulk");
    assert_eq!((second.status, second.field("x-ratelimit-priority")), (200, Some("low")));
}

#[test]
fn what_has_no_limit_passes_without_a_word_about_limits() {
    let service = Service::start(POLICY);
    let reply = service.get("/v1/check?user=ann&api=free");
    assert_eq!((reply.status, reply.field("ratelimit-policy"), reply.field("ratelimit")), (200, None, None));
}

#[test]
fn important_requests_get_what_others_leave() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    let mut passed = |priority: &str| {
        let target = format!("/v1/check?user=ann&api=important&priority={priority}");
        super::allowed(&mut client, &target, 10).0
    };
    assert_eq!([passed("background"), passed("normal"), passed("critical")], [5, 3, 2]);
}
