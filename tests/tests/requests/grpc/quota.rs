//! Quotas: what proxies are given is never more than the limit allows, whatever they say.

use std::time::{Duration, Instant};

use ratelimit_tests::{
    grpc::{Client, Stream},
    redis::{Options, Redis, wait_for},
    service::Service,
};
use ratelimit_user::serve::grpc::messages::{
    self,
    quota::{Action, Blanket, BucketId, BucketUsage, QuotaResponse, QuotaStrategy, UsageReports},
};

const STREAM: &str = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";

fn usage(user: &str, allowed: u64, denied: u64) -> BucketUsage {
    let bucket = [("user".to_owned(), user.into())].into();
    BucketUsage {
        bucket_id: Some(BucketId { bucket }),
        time_elapsed: Some(messages::Duration { seconds: 1, nanos: 0 }),
        num_requests_allowed: allowed,
        num_requests_denied: denied,
    }
}

/// What one bucket is told after a report.
fn report(client: &Client, stream: &mut Stream, usage: BucketUsage) -> QuotaStrategy {
    client.send(stream, &UsageReports { domain: "web".to_owned(), bucket_quota_usages: vec![usage] });
    let answer: QuotaResponse = client.receive(stream).expect("an assignment");
    // A new bucket comes behind a rule without one, or Envoy would not fill it.
    let [first @ .., action] = &answer.bucket_action[..] else { panic!("{answer:?}") };
    assert!(
        first.len() <= 1 && first.iter().all(|before| before.bucket_id == action.bucket_id),
        "{answer:?}"
    );
    let Some(Action::Assign(assignment)) = action.bucket_action else { panic!("{answer:?}") };
    let life = assignment.assignment_time_to_live.expect("a life");
    assert!((1..=10).contains(&life.seconds) && life.nanos == 0, "{life:?}");
    assignment.rate_limit_strategy.expect("a strategy").strategy.expect("a strategy")
}

/// Tokens in it, and what tells it from others.
fn tokens(kind: QuotaStrategy) -> (u32, i32) {
    match kind {
        QuotaStrategy::TokenBucket(bucket) => {
            let interval = bucket.fill_interval.expect("an interval");
            assert!(
                interval.seconds > 86_400 && bucket.tokens_per_fill.is_some_and(|fill| fill.value == 1),
                "{bucket:?}"
            );
            (bucket.max_tokens, interval.nanos)
        }
        QuotaStrategy::BlanketRule(rule) => {
            assert_eq!(rule, i32::from(Blanket::DenyAll));
            (0, 0)
        }
    }
}

const POLICY: &str = "[[api]]\nname = \"web\"\nkey = [\"user\"]\nlimits = [\"100/hour\"]\n";

#[test]
fn two_proxies_together_are_given_what_the_limit_allows_and_not_one_more() {
    let service = Service::start(POLICY);
    let mut clients = [(); 2].map(|()| Client::connect(service.grpc));
    let mut streams = clients.each_mut().map(|client| client.open(STREAM));
    let (first, _) = tokens(report(&clients[0], &mut streams[0], usage("ann", 0, 1)));
    assert_eq!(first, 100, "nobody else wants any");
    let (second, _) = tokens(report(&clients[1], &mut streams[1], usage("ann", 0, 1)));
    assert_eq!(second, 0, "all is given out");
    // Proxies use all they have, and say so; whatever they get, a hundred is all.
    let (mut have, mut used) = ([first, second], 0);
    for _ in 0..5 {
        for at in 0..2 {
            let spent = std::mem::take(&mut have[at]);
            used += spent;
            have[at] += tokens(report(&clients[at], &mut streams[at], usage("ann", spent.into(), 1))).0;
            assert!(used + have[0] + have[1] <= 101, "{used} used and {have:?} given");
        }
    }
    assert!(used >= 100, "{used} used");
}

#[test]
fn what_is_not_used_comes_back_when_another_needs_it() {
    let service = Service::start(POLICY);
    let mut clients = [(); 2].map(|()| Client::connect(service.grpc));
    let mut streams = clients.each_mut().map(|client| client.open(STREAM));
    assert_eq!(tokens(report(&clients[0], &mut streams[0], usage("ann", 0, 1))).0, 100);
    assert_eq!(tokens(report(&clients[1], &mut streams[1], usage("ann", 0, 1))).0, 0);
    // The first is idle: it has to let go, and what it had is given out once it is sure not to have it any more.
    assert_eq!(tokens(report(&clients[0], &mut streams[0], usage("ann", 0, 0))).0, 0);
    assert_eq!(tokens(report(&clients[1], &mut streams[1], usage("ann", 0, 1))).0, 0, "not yet");
    let begun = Instant::now();
    let mut given = [0, 0];
    while given[1] == 0 {
        assert!(begun.elapsed() < Duration::from_secs(5), "nothing came back");
        std::thread::sleep(Duration::from_millis(50));
        given[0] +=
            tokens(report(&clients[0], &mut streams[0], usage("ann", 0, 0))).0.saturating_sub(given[0]);
        given[1] = tokens(report(&clients[1], &mut streams[1], usage("ann", 0, 1))).0;
    }
    assert!(given[1] >= 25 && given[0] + given[1] <= 101, "{given:?}");
}

#[test]
fn what_a_proxy_still_has_is_extended_and_not_given_again() {
    let service = Service::start(POLICY);
    let mut client = Client::connect(service.grpc);
    let mut stream = client.open(STREAM);
    let first = report(&client, &mut stream, usage("ann", 0, 1));
    assert_eq!(
        report(&client, &mut stream, usage("ann", 10, 0)),
        first,
        "the same bucket goes on, with ninety in it"
    );
    assert_eq!(tokens(report(&client, &mut stream, usage("bob", 0, 1))).0, 100, "another bucket");
    client.end(stream);
    // What a proxy held that has gone counts as used.
    let mut stream = client.open(STREAM);
    assert_eq!(tokens(report(&client, &mut stream, usage("ann", 0, 1))).0, 0);
}

#[test]
fn what_was_used_without_an_assignment_is_charged_as_far_as_it_goes() {
    let service = Service::start(POLICY);
    let mut client = Client::connect(service.grpc);
    let mut stream = client.open(STREAM);
    assert_eq!(tokens(report(&client, &mut stream, usage("ann", 30, 0))).0, 70);
    assert_eq!(tokens(report(&client, &mut stream, usage("bob", 1_000, 0))).0, 0);
}

/// Buckets of one stream that are given anything.
const MOST: u32 = 10_000;

#[test]
fn one_stream_has_no_more_buckets_than_its_share_and_what_others_use_is_charged_all_the_same() {
    let service = Service::start(POLICY);
    let mut client = Client::connect(service.grpc);
    let mut stream = client.open(STREAM);
    let mut told = 0;
    let users: Vec<String> = (0..MOST).map(|n| format!("u{n}")).collect();
    for some in users.chunks(500) {
        let bucket_quota_usages = some.iter().map(|user| usage(user, 1, 0)).collect();
        client.send(&mut stream, &UsageReports { domain: "web".to_owned(), bucket_quota_usages });
        told += client.receive::<QuotaResponse>(&mut stream).expect("assignments").bucket_action.len();
    }
    assert_eq!(told, MOST as usize);
    let usages = vec![usage("one-too-many", 30, 0), usage("u0", 0, 1)];
    client.send(&mut stream, &UsageReports { domain: String::new(), bucket_quota_usages: usages });
    let answer: QuotaResponse = client.receive(&mut stream).expect("an answer about the one it knows");
    let about = answer.bucket_action.iter().filter_map(|action| action.bucket_id.as_ref());
    assert!(about.clone().count() > 0);
    assert!(about.into_iter().all(|id| id.bucket["user"] == b"u0"), "{answer:?}");
    // Thirty of a hundred are gone, as another stream sees.
    let mut other = client.open(STREAM);
    assert_eq!(tokens(report(&client, &mut other, usage("one-too-many", 0, 1))).0, 70);
}

#[test]
fn buckets_that_the_policy_does_not_have_are_denied_and_bad_ones_cost_the_others_nothing() {
    let service = Service::start(POLICY);
    let mut client = Client::connect(service.grpc);
    let mut stream = client.open(STREAM);
    let mut unknown = usage("ann", 0, 1);
    unknown.bucket_id.as_mut().expect("an id").bucket.insert("api".to_owned(), "other".into());
    assert_eq!(report(&client, &mut stream, unknown), QuotaStrategy::BlanketRule(Blanket::DenyAll.into()));
    // What a caller has chosen ends no stream that others are in.
    let mut bytes = usage("ann", 0, 1);
    bytes.bucket_id.as_mut().expect("an id").bucket.insert("user".to_owned(), vec![0xff]);
    assert_ne!(report(&client, &mut stream, bytes), QuotaStrategy::BlanketRule(Blanket::DenyAll.into()));
    let mut bad = usage("ann", 0, 1);
    bad.bucket_id.as_mut().expect("an id").bucket.insert("ip".to_owned(), "here".into());
    let usages = vec![bad, usage("ann", 0, 1)];
    client.send(&mut stream, &UsageReports { domain: String::new(), bucket_quota_usages: usages });
    let answer: QuotaResponse = client.receive(&mut stream).expect("an answer");
    assert_eq!(answer.bucket_action.len(), 1, "{answer:?}");
}

/// Puts another policy in force.
fn follow(service: &Service, text: &str) {
    let reloads = || service.log().matches("policy read again").count();
    let before = reloads();
    service.write_policy(text);
    service.signal("HUP");
    wait_for("another policy", || (reloads() > before).then_some(()));
}

#[test]
fn a_bucket_whose_api_has_gone_is_denied_at_the_next_report() {
    let service = Service::start(POLICY);
    let before = service.policy_text();
    let mut client = Client::connect(service.grpc);
    let mut stream = client.open(STREAM);
    assert_eq!(tokens(report(&client, &mut stream, usage("ann", 0, 1))).0, 100);
    follow(&service, &before.replace("\"web\"", "\"other\""));
    for used in [10, 0] {
        assert_eq!(tokens(report(&client, &mut stream, usage("ann", used, 0))).0, 0, "it is not there");
    }
    follow(&service, &before);
    let given = tokens(report(&client, &mut stream, usage("ann", 0, 1))).0;
    assert!(given <= 90, "{given} of ninety that nobody has used");
}

#[test]
fn what_was_given_of_a_limit_that_is_lowered_is_not_extended() {
    for algorithm in ["", " fixed-window", " sliding-log"] {
        let service = Service::start(&POLICY.replace("100/hour", &format!("100/hour{algorithm}")));
        let mut clients = [(); 2].map(|()| Client::connect(service.grpc));
        let mut streams = clients.each_mut().map(|client| client.open(STREAM));
        let mut given = |proxy: usize, used: u64| {
            tokens(report(&clients[proxy], &mut streams[proxy], usage("ann", used, 1))).0
        };
        assert_eq!(given(0, 0), 100, "{algorithm}");
        follow(&service, &service.policy_text().replace("100/hour", "5/hour"));
        assert_eq!((given(0, 0), given(1, 0)), (0, 0), "{algorithm}: what was given ends first");
        let begun = Instant::now();
        let mut held = [0, 0];
        while held == [0, 0] {
            assert!(begun.elapsed() < Duration::from_secs(5), "{algorithm}: nothing came back");
            std::thread::sleep(Duration::from_millis(50));
            held = [given(0, 0), given(1, 0)];
        }
        assert!(held[0] + held[1] <= 5, "{algorithm}: {held:?} of five an hour");
        // What a limit has given stays good when the limit grows.
        follow(&service, &service.policy_text().replace("5/hour", "6/hour"));
        held = [given(0, 0), given(1, 0)];
        assert!((1..=6).contains(&(held[0] + held[1])), "{algorithm}: {held:?} of six an hour");
    }
}

/// A proxy, and the assignment that it has.
struct Proxy {
    client: Client,
    stream: Stream,
    bucket: (u32, i32),
    left: u64,
    used: u64,
}

impl Proxy {
    fn new(service: &Service) -> Self {
        let mut client = Client::connect(service.grpc);
        let stream = client.open(STREAM);
        Self { client, stream, bucket: (0, 0), left: 0, used: 0 }
    }

    /// Uses so many if it has them, and reports. How many it has then.
    fn uses(&mut self, most: u64) -> u64 {
        let used = self.left.min(most);
        (self.left, self.used) = (self.left - used, self.used + used);
        let bucket = tokens(report(&self.client, &mut self.stream, usage("ann", used, most - used)));
        if bucket != self.bucket {
            (self.bucket, self.left) = (bucket, bucket.0.into());
        }
        self.left
    }
}

/// Two hosts that count together, with a limit whose bucket has a hundred.
fn two_hosts(redis: &Redis, limit: &str) -> [Service; 2] {
    let policy = format!(
        "[[api]]\nname = \"web\"\nkey = [\"user\"]\nlimits = [\"{limit}\"]\n[cluster]\nredis = \"{}\"\nhosts = 2\n",
        redis.url()
    );
    let services = [(); 2].map(|()| Service::start(&policy));
    for service in &services {
        wait_for("a host that is ready", || (service.get("/readyz").status == 200).then_some(()));
    }
    services
}

#[test]
fn proxies_of_two_hosts_are_given_nearly_all_of_a_limit_and_never_more_than_its_bound() {
    let redis = Redis::single(Options::default());
    let services = two_hosts(&redis, "200/s burst 100");
    let mut proxies = services.each_ref().map(Proxy::new);
    let begun = Instant::now();
    let mut halves = Vec::new();
    for eighth in 0..24 {
        let due = Duration::from_millis(125 * eighth);
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
        // The proxies report in turn, and each has more to do than the whole limit.
        proxies[eighth as usize % 2].uses(60);
        let used: u64 = proxies.iter().map(|proxy| proxy.used).sum();
        let admitted = 100.0 + 200.0 * begun.elapsed().as_secs_f64();
        assert!(used as f64 <= admitted + 100.0, "{used} in {:?}", begun.elapsed());
        if eighth % 8 == 7 {
            halves.push(used);
        }
    }
    let (used, seconds) = (halves[2], begun.elapsed().as_secs_f64());
    println!("{halves:?} used after each second, {:?} by each", proxies.each_ref().map(|proxy| proxy.used));
    assert!(used as f64 >= 0.9 * 200.0 * seconds, "{used} in {seconds} s: {halves:?}");
}

#[test]
fn a_proxy_of_a_host_that_counts_with_others_is_given_with_every_report_what_has_come_in() {
    let redis = Redis::single(Options::default());
    let services = two_hosts(&redis, "200/s burst 100");
    let mut proxy = Proxy::new(&services[0]);
    let mut given = Vec::new();
    for _ in 0..6 {
        given.push(proxy.uses(250));
        // Four fifths of it come in again: what is left is not what the limit gives at most.
        std::thread::sleep(Duration::from_millis(400));
    }
    println!("{given:?}");
    assert!(given.iter().all(|given| (75..=100).contains(given)), "{given:?}");
}
