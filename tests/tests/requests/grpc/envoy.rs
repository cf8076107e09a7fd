//! A real Envoy, with the configurations that the documentation shows.

use std::time::{Duration, Instant};

use ratelimit_tests::{
    envoy::Envoy,
    redis::{Options, Redis, wait_for},
    service::Service,
};

#[test]
fn envoy_asks_about_every_request_and_refuses_exactly_at_the_limit() {
    let service = Service::start("[[api]]\nname = \"web\"\nkey = [\"user\"]\nlimits = [\"5/hour\"]\n");
    let envoy = Envoy::start("envoy-ratelimit.yaml", &service);
    for left in (0..5).rev() {
        let reply = envoy.get("ann");
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(reply.field("ratelimit-policy"), Some("\"web\";q=5;w=3600"));
        let state = reply.field("ratelimit").expect("a field");
        assert!(state.starts_with(&format!("\"web\";r={left};t=")), "{state}");
    }
    let refused = envoy.get("ann");
    assert_eq!(refused.status, 429, "{refused:?}");
    assert!(refused.field("ratelimit").expect("a field").starts_with("\"web\";r=0;t="), "{refused:?}");
    assert!(refused.number("retry-after").is_some_and(|seconds| (1..=720).contains(&seconds)), "{refused:?}");
    assert_eq!(envoy.get("bob").status, 200, "another user");
    assert_eq!(envoy.counter("cluster.ratelimit.upstream_rq_total"), 7);
}

#[test]
fn whatever_callers_of_envoy_write_or_leave_out_has_a_limit() {
    let service = Service::start("[[api]]\nname = \"web\"\nkey = [\"user\"]\nlimits = [\"5/hour\"]\n");
    let envoy = Envoy::start("envoy-ratelimit.yaml", &service);
    let long = [b"x-user: ".as_slice(), &[b'x'; 50_000], b"\r\n"].concat();
    for (what, fields) in [
        ("no name", b"".as_slice()),
        ("bytes that are no text", b"x-user: \xff\xfe\r\n"),
        ("other bytes that are no text", b"x-user: \xfe\xff\r\n"),
        ("a long name", &long),
        ("a name", b"x-user: ann\r\n"),
    ] {
        let served = (0..8).filter(|_| envoy.serves(fields)).count();
        assert_eq!(served, 5, "{what}");
    }
    assert!(!envoy.serves(b"x-user:\r\n"), "an empty name is no name");
}

#[test]
fn a_mistake_in_the_configuration_of_envoy_serves_nobody() {
    let service = Service::start("[[api]]\nname = \"web\"\nkey = [\"user\"]\nlimits = [\"5/hour\"]\n");
    let mistyped = |text: String| text.replace("domain: web", "domain: wbe");
    let envoy = Envoy::start_edited("envoy-ratelimit.yaml", &service, mistyped);
    let refused = envoy.get("ann");
    assert_eq!(
        (refused.status, refused.body.trim()),
        (429, "api \"wbe\" is not in the policy; there is web")
    );
    service.wait_for_log("makes no sense: api \"wbe\" is not in the policy");
}

/// Asks until it is answered with 200: the first assignment is there, or one has come again.
fn until_served(envoy: &Envoy, user: &str) -> Duration {
    let begun = Instant::now();
    while envoy.get(user).status != 200 {
        assert!(begun.elapsed() < Duration::from_secs(30), "nothing is served");
        std::thread::sleep(Duration::from_millis(10));
    }
    begun.elapsed()
}

#[test]
fn envoy_decides_for_itself_from_what_it_was_given() {
    let service = Service::start("[[api]]\nname = \"web\"\nkey = [\"user\"]\nlimits = [\"10/hour\"]\n");
    let envoy = Envoy::start("envoy-quota.yaml", &service);
    until_served(&envoy, "ann");
    let served = (0..30).filter(|_| envoy.get("ann").status == 200).count();
    assert_eq!(served, 9, "and one before");
    assert_eq!(envoy.get("ann").status, 429);
    until_served(&envoy, "bob");
    // Those who give no name, or one that is no text, are one: nobody decides about them without a limit.
    let begun = Instant::now();
    while !envoy.serves(b"") {
        assert!(begun.elapsed() < Duration::from_secs(30), "nothing is served");
        std::thread::sleep(Duration::from_millis(10));
    }
    let anonymous = |n: usize| envoy.serves(if n.is_multiple_of(2) { b"" } else { b"x-user: \xff\r\n" });
    assert_eq!((0..30).filter(|n| anonymous(*n)).count(), 9, "and one before");
    assert_eq!(envoy.counter("cluster.ratelimit.upstream_rq_total"), 1, "one stream, whatever the requests");
}

#[test]
fn envoy_serves_again_when_there_is_something_left_again() {
    let service =
        Service::start("[[api]]\nname = \"web\"\nkey = [\"user\"]\nlimits = [\"30/min burst 3\"]\n");
    let envoy = Envoy::start("envoy-quota.yaml", &service);
    until_served(&envoy, "ann");
    while envoy.get("ann").status == 200 {}
    let waited = until_served(&envoy, "ann");
    assert!(waited > Duration::from_millis(200), "it was refused for a while: {waited:?}");
}

#[test]
#[ignore = "half a minute: Envoy reports every five seconds"]
fn two_envoys_of_two_hosts_serve_nearly_all_of_a_limit_and_never_more_than_its_bound() {
    let redis = Redis::single(Options::default());
    let policy = format!(
        "[[api]]\nname = \"web\"\nkey = [\"user\"]\nlimits = [\"20/s burst 100\"]\n[cluster]\nredis = \"{}\"\nhosts = 2\n",
        redis.url()
    );
    let services = [(); 2].map(|()| Service::start(&policy));
    for service in &services {
        wait_for("a host that is ready", || (service.get("/readyz").status == 200).then_some(()));
    }
    let envoys = services.each_ref().map(|service| Envoy::start("envoy-quota.yaml", service));
    let begun = Instant::now();
    let ask = |envoy: &Envoy| {
        let mut served = Vec::new();
        for n in 0..900 {
            // Each Envoy gets thirty requests a second.
            std::thread::sleep(Duration::from_millis(n * 1000 / 30).saturating_sub(begun.elapsed()));
            if envoy.get("ann").status == 200 {
                served.push(begun.elapsed().as_secs_f64());
            }
        }
        served
    };
    let [one, other] = std::thread::scope(|scope| {
        envoys.each_ref().map(|envoy| scope.spawn(|| ask(envoy))).map(|thread| thread.join().unwrap())
    });
    let mut all = [one, other].concat();
    all.sort_by(f64::total_cmp);
    let in_five: Vec<usize> =
        (0..6).map(|n| all.iter().filter(|at| (**at / 5.0) as usize == n).count()).collect();
    println!("{} served, {in_five:?} in each five seconds", all.len());
    for (nth, from) in all.iter().enumerate() {
        for (later, to) in all.iter().enumerate().skip(nth) {
            let bound = 100.0 + 20.0 * (to - from) + 2.0 * 100.0;
            assert!((later - nth + 1) as f64 <= bound, "{} from {from} to {to}", later - nth + 1);
        }
    }
    assert!(all.len() as f64 >= 0.9 * 20.0 * 30.0, "{} of 600: {in_five:?}", all.len());
}
