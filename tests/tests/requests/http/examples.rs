//! The examples that the product was asked for, by name, over HTTP. What becomes of them as time passes is in the engine's own tests, with a clock
//! that is moved.

use ratelimit_tests::service::Service;

use super::allowed;

fn sliding(name: &str, limits: &str) -> String {
    format!("[[api]]\nname = \"{name}\"\nlimits = {limits}\nalgorithm = \"sliding-window\"\n")
}

#[test]
fn fifteen_a_second() {
    let service = Service::start(&sliding("call", "[\"15/s\"]"));
    let mut client = service.connect();
    let all: Vec<u8> = b"GET /v1/check?user=ann&api=call HTTP/1.1\r\nHost: h\r\n\r\n".repeat(20);
    client.send(&all);
    let statuses: Vec<u16> = (0..20).map(|_| client.receive().status).collect();
    assert_eq!(statuses, [[200; 15].as_slice(), &[429; 5]].concat());
    // Somebody else has a limit of his own.
    assert_eq!(client.get("/v1/check?user=bob&api=call").status, 200);
}

#[test]
fn three_a_minute() {
    let service = Service::start(&sliding("a", "[\"3/min\"]"));
    let (passed, last) = allowed(&mut service.connect(), "/v1/check?user=ann&api=a", 5);
    assert_eq!((passed, last.status), (3, 429));
    // At the edge of a clock's minute nothing comes back: all three count for a whole minute.
    assert!((55..=61).contains(&last.number("retry-after").expect("a time")), "{last:?}");
}

#[test]
fn five_hundred_an_hour_with_ten_a_minute() {
    let service = Service::start(&sliding("a", "[\"500/hour\", \"10/min\"]"));
    let mut client = service.connect();
    let (passed, last) = allowed(&mut client, "/v1/check?user=ann&api=a", 30);
    assert_eq!((passed, last.status), (10, 429));
    assert_eq!(last.json()["policy"], "a-min");
    assert_eq!(last.field("ratelimit-policy"), Some("\"a-hour\";q=500;w=3600, \"a-min\";q=10;w=60"));
}

#[test]
fn a_hundred_an_hour_with_three_a_minute_per_user_and_api() {
    let policy = sliding("*", "[\"100/hour\", \"3/min\"]") + "key = [\"user\", \"api\"]\n";
    let service = Service::start(&policy);
    let mut client = service.connect();
    for user in ["ann", "bob"] {
        for api in ["create-url", "delete-url"] {
            let (passed, last) = allowed(&mut client, &format!("/v1/check?user={user}&api={api}"), 5);
            assert_eq!((passed, last.status), (3, 429), "{user} {api}");
            assert_eq!(last.field("ratelimit-policy"), Some("\"*-hour\";q=100;w=3600, \"*-min\";q=3;w=60"));
            assert!((55..=61).contains(&last.number("retry-after").expect("a time")), "{last:?}");
        }
    }
}

#[test]
fn a_hundred_and_ten_of_a_hundred_with_ten_percent_soft() {
    let service = Service::start(&(sliding("a", "[\"100/min\"]") + "throttle = \"soft 10%\"\n"));
    let mut client = service.connect();
    let replies: Vec<_> = (0..120).map(|_| client.get("/v1/check?user=ann&api=a")).collect();
    let marked = replies.iter().map(|reply| (reply.status, reply.field("x-ratelimit-margin").is_some()));
    let expected = [[(200, false); 100].as_slice(), &[(200, true); 10], &[(429, false); 10]].concat();
    assert_eq!(marked.collect::<Vec<_>>(), expected);
}
