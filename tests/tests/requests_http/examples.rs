//! The examples that the product was asked for, by name: over HTTP where it takes no time, else with a clock that is moved.

use ratelimit_tests::service::Service;
use ratelimit_user::{
    config,
    decide::{Engine, Outcome, Request},
};

use crate::allowed;

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
/// Noon of a day: the beginning of a minute and of an hour.
const NOON: u64 = 1_800_014_400 * SECOND;

/// An engine with a clock in the hand.
struct Clocked {
    engine: Engine,
}

impl Clocked {
    fn new(text: &str) -> Self {
        let text = format!("{text}\n[source]\nlimits = [\"1/s\"]\n");
        let policy = config::parse(&text, "p.toml").unwrap_or_else(|error| panic!("{error}")).policy;
        Self { engine: Engine::new(&policy, NOON) }
    }

    fn ask(&self, user: &str, api: &str, now_us: u64) -> Outcome {
        let rules = self.engine.rules();
        self.engine.decide(&rules, &Request::new(user, api), now_us).expect("a question").outcome
    }

    /// How many of so many pass at this time.
    fn pass(&self, user: &str, api: &str, now_us: u64, asked: usize) -> usize {
        (0..asked).filter(|_| self.ask(user, api, now_us).is_served()).count()
    }
}

#[test]
fn fifteen_a_second() {
    let service =
        Service::start("[[api]]\nname = \"call\"\nlimits = [\"15/s\"]\nalgorithm = \"sliding-window\"\n");
    let mut client = service.connect();
    let all: Vec<u8> = b"GET /v1/check?user=ann&api=call HTTP/1.1\r\nHost: h\r\n\r\n".repeat(20);
    client.send(&all);
    let statuses: Vec<u16> = (0..20).map(|_| client.receive().status).collect();
    assert_eq!(statuses, [[200; 15].as_slice(), &[429; 5]].concat());
    // Somebody else has a limit of his own.
    assert_eq!(client.get("/v1/check?user=bob&api=call").status, 200);
}

#[test]
fn three_a_minute_also_across_the_edge_of_a_window() {
    let limit = |algorithm: &str| {
        Clocked::new(&format!("[[api]]\nname = \"a\"\nlimits = [\"3/min\"]\nalgorithm = \"{algorithm}\"\n"))
    };
    for (algorithm, after_the_edge) in [("sliding-window", 0), ("sliding-log", 0), ("fixed-window", 3)] {
        let engine = limit(algorithm);
        assert_eq!(engine.pass("ann", "a", NOON + 59 * SECOND, 4), 3, "{algorithm}");
        // One second later is the next minute of the clock, and still the same minute for whoever counts any 60 seconds.
        assert_eq!(engine.pass("ann", "a", NOON + 61 * SECOND, 4), after_the_edge, "{algorithm}");
        assert_eq!(engine.pass("ann", "a", NOON + 59 * SECOND + 2 * MINUTE, 4), 3, "{algorithm}");
    }
}

#[test]
fn five_hundred_an_hour_with_ten_a_minute() {
    let engine = Clocked::new(
        "[[api]]\nname = \"a\"\nlimits = [\"500/hour\", \"10/min\"]\nalgorithm = \"sliding-window\"\n",
    );
    assert_eq!(engine.pass("ann", "a", NOON, 30), 10);
    // Ten in each minute, until the hour has had its five hundred: 50 minutes.
    let by_minute: Vec<usize> =
        (1..60).map(|n| engine.pass("ann", "a", NOON + n * (MINUTE + SECOND), 30)).collect();
    assert_eq!(by_minute, [[10; 49].as_slice(), &[0; 10]].concat());
    assert_eq!(engine.pass("ann", "a", NOON + 2 * HOUR, 30), 10);
}

#[test]
fn a_hundred_an_hour_with_three_a_minute_per_user_and_api() {
    let text = "[[api]]\nname = \"*\"\nkey = [\"user\", \"api\"]\nlimits = [\"100/hour\", \"3/min\"]\nalgorithm = \"sliding-window\"\n";
    let service = Service::start(text);
    let mut client = service.connect();
    for user in ["ann", "bob"] {
        for api in ["create-url", "delete-url"] {
            let (passed, last) = allowed(&mut client, &format!("/v1/check?user={user}&api={api}"), 5);
            assert_eq!((passed, last.status), (3, 429), "{user} {api}");
            assert_eq!(last.field("ratelimit-policy"), Some("\"*-hour\";q=100;w=3600, \"*-min\";q=3;w=60"));
            assert!((55..=61).contains(&last.number("retry-after").expect("a time")), "{last:?}");
        }
    }
    let engine = Clocked::new(text);
    let in_an_hour: usize =
        (0..59).map(|n| engine.pass("ann", "create-url", NOON + n * (MINUTE + SECOND), 5)).sum();
    assert_eq!(in_an_hour, 100);
}

#[test]
fn a_hundred_and_ten_of_a_hundred_with_ten_percent_soft() {
    let service = Service::start(
        "[[api]]\nname = \"a\"\nlimits = [\"100/min\"]\nalgorithm = \"sliding-window\"\nthrottle = \"soft 10%\"\n",
    );
    let mut client = service.connect();
    let replies: Vec<_> = (0..120).map(|_| client.get("/v1/check?user=ann&api=a")).collect();
    let marked = replies.iter().map(|reply| (reply.status, reply.field("x-ratelimit-margin").is_some()));
    let expected = [[(200, false); 100].as_slice(), &[(200, true); 10], &[(429, false); 10]].concat();
    assert_eq!(marked.collect::<Vec<_>>(), expected);
}
