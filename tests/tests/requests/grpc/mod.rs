//! The gRPC services of a real `ratelimit serve`, asked by a client that sees every frame and by a real Envoy.

mod access;
mod envoy;
mod quota;
mod standard;
mod wire;

use std::{
    net::{Ipv4Addr, TcpStream},
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use ratelimit_tests::{
    grpc::{Client, Ending},
    redis::{RedisCluster, free_port, wait_for},
    service::{self, Service},
};
use ratelimit_user::serve::grpc::messages::{
    Descriptor, DescriptorEntry, DescriptorStatus, LimitCode, NumberMessage, RateLimitRequest,
    RateLimitResponse, RateUnit,
};

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A descriptor of these names and values.
fn descriptor(entries: &[(&'static str, &'static str)]) -> Descriptor {
    let entry = |(key, value): &(&'static str, &'static str)| DescriptorEntry {
        key: (*key).into(),
        value: (*value).into(),
    };
    Descriptor { entries: entries.iter().map(entry).collect(), hits_addend: None }
}

fn asked(descriptors: Vec<Descriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: "web".into(), descriptors, hits_addend: 0 }
}

fn ask(client: &mut Client, question: &RateLimitRequest) -> Result<RateLimitResponse, Ending> {
    client.call(SHOULD_RATE_LIMIT, question)
}

/// What is left, for each descriptor.
fn remaining(answer: &RateLimitResponse) -> Vec<u32> {
    answer.statuses.iter().map(|status| status.limit_remaining).collect()
}

fn codes(answer: &RateLimitResponse) -> (LimitCode, Vec<LimitCode>) {
    (answer.overall_code(), answer.statuses.iter().map(DescriptorStatus::code).collect())
}

fn fields(answer: &RateLimitResponse) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    answer.response_headers_to_add.iter().map(|field| (text(&field.key), text(&field.value))).collect()
}

#[test]
fn a_descriptor_gets_its_status_and_the_request_its_fields() {
    let service = Service::start(
        "[[api]]\nname = \"web\"\nkey = [\"user\", \"tenant\"]\nlimits = [\"2/hour fixed-window\"]\n",
    );
    let mut client = Client::connect(service.grpc);
    let question = asked(vec![descriptor(&[("user", "ann"), ("tenant", "a")])]);
    let first = ask(&mut client, &question).expect("an answer");
    assert_eq!(codes(&first), (LimitCode::Ok, vec![LimitCode::Ok]));
    let status = &first.statuses[0];
    let limit = status.current_limit.as_ref().expect("a limit");
    assert_eq!((limit.requests_per_unit, limit.unit(), &limit.name[..]), (2, RateUnit::Hour, &b"web"[..]));
    assert_eq!(status.limit_remaining, 1);
    let reset = status.duration_until_reset.expect("a time");
    assert!((0..=3600).contains(&reset.seconds), "{reset:?}");
    let given = fields(&first);
    assert_eq!(given[0], ("ratelimit-policy".to_owned(), "\"web\";q=2;w=3600".to_owned()));
    assert_eq!(given[1].0, "ratelimit");
    assert!(given[1].1.starts_with("\"web\";r=1;t="), "{given:?}");
    assert_eq!(given.len(), 2);

    ask(&mut client, &question).expect("an answer");
    let refused = ask(&mut client, &question).expect("an answer");
    assert_eq!(codes(&refused), (LimitCode::OverLimit, vec![LimitCode::OverLimit]));
    let given = fields(&refused);
    assert_eq!(given[2].0, "retry-after");
    let retry: i64 = given[2].1.parse().expect("seconds");
    assert!((1..=3600).contains(&retry), "{given:?}");

    let other = asked(vec![descriptor(&[("user", "ann"), ("tenant", "b")])]);
    assert_eq!(codes(&ask(&mut client, &other).expect("an answer")).0, LimitCode::Ok, "another key");
}

#[test]
fn a_descriptor_that_refuses_costs_the_others_nothing() {
    let policy = "[[api]]\nname = \"small\"\nkey = [\"user\"]\nlimits = [\"1/hour\"]\n\
                  [[api]]\nname = \"large\"\nkey = [\"user\"]\nlimits = [\"10/hour\"]\n";
    let service = Service::start(policy);
    let mut client = Client::connect(service.grpc);
    let both = || {
        asked(vec![
            descriptor(&[("api", "large"), ("user", "ann")]),
            descriptor(&[("api", "small"), ("user", "ann")]),
        ])
    };
    let first = ask(&mut client, &both()).expect("an answer");
    assert_eq!(remaining(&first), [9, 0]);
    assert!(
        fields(&first)[0].1.contains("\"large\";q=10;w=3600, \"small\";q=1;w=3600"),
        "{:?}",
        fields(&first)
    );
    let refused = ask(&mut client, &both()).expect("an answer");
    assert_eq!(codes(&refused), (LimitCode::OverLimit, vec![LimitCode::Ok, LimitCode::OverLimit]));
    let alone = asked(vec![descriptor(&[("api", "large"), ("user", "ann")])]);
    assert_eq!(remaining(&ask(&mut client, &alone).expect("an answer")), [8], "the second cost nothing");

    // One key twice in a question: each fits alone, and both do not fit together, so both are over the limit.
    let twice = asked(vec![descriptor(&[("api", "small"), ("user", "bob")]); 2]);
    let refused = ask(&mut client, &twice).expect("an answer");
    assert_eq!(codes(&refused), (LimitCode::OverLimit, vec![LimitCode::OverLimit; 2]));
    let once = asked(vec![descriptor(&[("api", "small"), ("user", "bob")])]);
    assert_eq!(codes(&ask(&mut client, &once).expect("an answer")).0, LimitCode::Ok, "nothing was charged");
}

/// Two descriptors of one user are two requests of its plan.
#[test]
fn descriptors_that_count_under_one_key_wait_until_all_of_them_fit() {
    let service = Service::start(
        "[[api]]\nname = \"web\"\nlimits = [\"1000/min\"]\n[[api]]\nname = \"search\"\nlimits = [\"1000/min\"]\n\
         [plan.default]\nlimits = [\"4/hour\"]\n[plan.one]\nlimits = [\"1/hour\"]\n\
         [[user]]\nname = \"small\"\nplan = \"one\"\n",
    );
    let mut client = Client::connect(service.grpc);
    let both =
        |user| asked(vec![descriptor(&[("user", user)]), descriptor(&[("api", "search"), ("user", user)])]);
    let mut told = |user| {
        let answer = ask(&mut client, &both(user)).expect("an answer");
        let retry_s = fields(&answer).into_iter().find(|(name, _)| name == "retry-after");
        (
            codes(&answer).0,
            remaining(&answer),
            retry_s.map(|(_, value)| value.parse::<u64>().expect("seconds")),
        )
    };
    assert_eq!(told("ann"), (LimitCode::Ok, vec![3, 2], None));
    assert_eq!(told("ann"), (LimitCode::Ok, vec![1, 0], None));
    let (code, left, retry_s) = told("ann");
    assert_eq!((code, left), (LimitCode::OverLimit, vec![0, 0]));
    // One comes every 900 s, and it takes two.
    assert!(retry_s.is_some_and(|retry_s| (1_700..=1_800).contains(&retry_s)), "{retry_s:?}");
    assert_eq!(told("small"), (LimitCode::OverLimit, vec![1, 1], None), "two of one never fit");
}

/// The fields of a refusal.
type Refused = Vec<(String, String)>;

/// Asks until a question is served, or refused for longer than a second: where answers of the store take long, a refusal is not confirmed.
fn served_or_refused_for_long(client: &mut Client, question: &RateLimitRequest) -> Result<(), Refused> {
    let mut refused = Vec::new();
    for _ in 0..100 {
        let answer = ask(client, question).expect("an answer");
        if answer.overall_code() == LimitCode::Ok {
            return Ok(());
        }
        refused = fields(&answer);
        if !refused.contains(&("retry-after".to_owned(), "1".to_owned())) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(refused)
}

#[test]
fn full_descriptors_cost_others_nothing_on_a_cluster() {
    const OF_PATH: usize = 20;
    const CLIENTS: usize = 2 * OF_PATH;
    let cluster = RedisCluster::new();
    let policy = format!(
        "[[api]]\nname = \"user\"\nkey = [\"user\"]\nlimits = [\"40/hour\"]\n\
         [[api]]\nname = \"path\"\nkey = [\"path\", \"user\"]\nlimits = [\"{OF_PATH}/hour\"]\n\
         [cluster]\nredis = \"{}\"\nhosts = 2\n",
        cluster.url()
    );
    let metrics = [(); 2].map(|()| free_port());
    let services =
        metrics.map(|port| Service::start_listening(&policy, &format!("metrics = \"127.0.0.1:{port}\"")));
    for service in &services {
        wait_for("a host that is ready", || (service.get("/readyz").status == 200).then_some(()));
    }
    // What the store has no answer for in time, hosts decide by themselves, and a round says nothing about keys.
    let unanswered = || {
        metrics.map(|port| {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a listener");
            let body = service::Client::new(stream).get("/metrics").body;
            let is_count = |line: &&str| line.starts_with("ratelimit_request_store_failures_total");
            body.lines().find(is_count).map(str::to_owned)
        })
    };
    let mut rounds = 0;
    for user in ["ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal", "ida", "jim", "kay", "lea"] {
        let before = unanswered();
        let question = |path| {
            let of_path = descriptor(&[("api", "path"), ("user", user), ("path", path)]);
            asked(vec![descriptor(&[("api", "user"), ("user", user)]), of_path])
        };
        let (goes_on, served, begun) = (AtomicBool::new(true), AtomicUsize::new(0), Instant::now());
        // What is charged for a path that becomes full is given back while others ask.
        let start = Barrier::new(CLIENTS + OF_PATH);
        let refused: Vec<Refused> = std::thread::scope(|scope| {
            for n in 0..CLIENTS {
                let (address, goes_on, served, start) = (services[n % 2].grpc, &goes_on, &served, &start);
                let full = question("full");
                scope.spawn(move || {
                    let mut client = Client::connect(address);
                    start.wait();
                    // A test that fails ends, too.
                    while goes_on.load(Ordering::Relaxed) && begun.elapsed() < Duration::from_secs(60) {
                        let answer = served_or_refused_for_long(&mut client, &full);
                        served.fetch_add(usize::from(answer.is_ok()), Ordering::Relaxed);
                    }
                });
            }
            let once = |n: usize| {
                let (address, other, start) = (services[n % 2].grpc, question("other"), &start);
                scope.spawn(move || {
                    let mut client = Client::connect(address);
                    start.wait();
                    served_or_refused_for_long(&mut client, &other)
                })
            };
            let others: Vec<_> = (0..OF_PATH).map(once).collect();
            let others = others.into_iter().map(|thread| thread.join().expect("an answer"));
            let refused = others.filter_map(Result::err).collect();
            wait_for("a full path", || (served.load(Ordering::Relaxed) >= OF_PATH).then_some(()));
            goes_on.store(false, Ordering::Relaxed);
            refused
        });
        if unanswered() != before {
            continue;
        }
        assert!(refused.is_empty(), "{user}: {} of {OF_PATH}: {refused:?}", refused.len());
        assert_eq!(served.into_inner(), OF_PATH, "{user}");
        rounds += 1;
    }
    assert!(rounds > 0, "the store was late in every round");
}

#[test]
fn hits_count_for_the_request_or_for_one_descriptor() {
    let service = Service::start("[[api]]\nname = \"web\"\nkey = [\"user\"]\nlimits = [\"10/hour\"]\n");
    let mut client = Client::connect(service.grpc);
    let mut question = RateLimitRequest { hits_addend: 3, ..asked(vec![descriptor(&[("user", "ann")])]) };
    assert_eq!(remaining(&ask(&mut client, &question).expect("an answer")), [7]);
    question.descriptors[0].hits_addend = Some(NumberMessage { value: 5 });
    assert_eq!(remaining(&ask(&mut client, &question).expect("an answer")), [2]);
    assert_eq!(codes(&ask(&mut client, &question).expect("an answer")).0, LimitCode::OverLimit);
}

/// What Envoy sends with `apply_on_stream_done`: the answer has gone out, and the proxy does not look at this one.
#[test]
fn a_charge_after_the_answer_empties_the_limit() {
    let policy = "[[api]]\nname = \"web\"\nkey = [\"user\"]\nlimits = [\"100/hour fixed-window\"]\n\
                  [[api]]\nname = \"large\"\nkey = [\"user\"]\nlimits = [\"9000/hour fixed-window\"]\n";
    let service = Service::start(policy);
    let mut client = Client::connect(service.grpc);
    let hits = |value, entries: &[(&'static str, &'static str)]| Descriptor {
        hits_addend: Some(NumberMessage { value }),
        ..descriptor(entries)
    };
    let mut served = |descriptors: Vec<Descriptor>| {
        let answer = ask(&mut client, &asked(descriptors)).expect("an answer");
        (codes(&answer).0 == LimitCode::Ok, remaining(&answer))
    };
    let (ann, large) = ([("user", "ann")], [("api", "large"), ("user", "ann")]);
    assert_eq!(served(vec![hits(30, &ann)]), (true, vec![70]));
    assert_eq!(served(vec![hits(5_000, &ann)]), (false, vec![70]), "what was left is told");
    assert_eq!(served(vec![descriptor(&ann)]), (false, vec![0]));
    // Each descriptor for itself: what fits is charged whole.
    assert!(!served(vec![hits(5_000, &ann), hits(5_000, &large)]).0);
    assert_eq!(served(vec![descriptor(&large)]), (true, vec![3_999]));
    // A question before the answer is charged whole or not at all.
    let bob = [("user", "bob")];
    assert!(!served(vec![hits(5_000, &bob), descriptor(&large)]).0);
    assert_eq!(served(vec![descriptor(&bob)]), (true, vec![99]));
}

#[test]
fn a_descriptor_of_no_hits_is_a_question_without_a_charge() {
    let service =
        Service::start("[[api]]\nname = \"web\"\nkey = [\"user\"]\nlimits = [\"2/hour fixed-window\"]\n");
    let mut client = Client::connect(service.grpc);
    let hits = |user, value| Descriptor {
        hits_addend: Some(NumberMessage { value }),
        ..descriptor(&[("user", user)])
    };
    let mut left = |descriptors: Vec<Descriptor>| {
        let answer = ask(&mut client, &asked(descriptors)).expect("an answer");
        (codes(&answer).0, remaining(&answer))
    };
    for _ in 0..5 {
        assert_eq!(left(vec![hits("ann", 0)]), (LimitCode::Ok, vec![2]), "two are left, and stay");
    }
    assert_eq!(left(vec![hits("ann", 0), hits("bob", 1)]), (LimitCode::Ok, vec![2, 1]), "bob's counts");
    assert_eq!(left(vec![hits("ann", 2)]), (LimitCode::Ok, vec![0]));
    assert_eq!(left(vec![hits("ann", 0)]), (LimitCode::OverLimit, vec![0]), "nothing is left");
    let refused = left(vec![hits("ann", 0), hits("bob", 1)]);
    assert_eq!(refused.0, LimitCode::OverLimit);
    assert_eq!(left(vec![hits("bob", 0)]), (LimitCode::Ok, vec![1]), "who refuses costs others nothing");
}

#[test]
fn what_no_rule_is_for_is_refused_unless_the_policy_says_otherwise() {
    let policy = "[[api]]\nname = \"web\"\nkey = [\"user\"]\nlimits = [\"1/hour\"]\n";
    let question = asked(vec![descriptor(&[("api", "other"), ("user", "ann")])]);
    let service = Service::start(policy);
    let answer = ask(&mut Client::connect(service.grpc), &question).expect("an answer");
    assert_eq!(codes(&answer), (LimitCode::OverLimit, vec![LimitCode::OverLimit]));
    assert_eq!(&answer.raw_body[..], b"api \"other\" is not in the policy; there is web\n");
    let service = Service::start(&format!("{policy}[[api]]\nname = \"*\"\nlimits = []\n"));
    let mut client = Client::connect(service.grpc);
    let answer = ask(&mut client, &question).expect("an answer");
    assert_eq!(codes(&answer), (LimitCode::Ok, vec![LimitCode::Ok]));
    assert_eq!(answer.statuses[0].current_limit, None);
    assert_eq!(fields(&answer), []);
}

#[test]
fn what_is_above_its_limit_waits_or_is_marked_where_the_policy_says_so() {
    let policy = "[[api]]\nname = \"late\"\nkey = [\"user\"]\nlimits = [\"1/hour\"]\non_limit = \"deprioritise\"\n\
                  [[api]]\nname = \"slow\"\nkey = [\"user\"]\nlimits = [\"2/s burst 1\"]\non_limit = \"delay 5s\"\n";
    let service = Service::start(policy);
    let mut client = Client::connect(service.grpc);
    let late = asked(vec![descriptor(&[("api", "late"), ("user", "ann")])]);
    ask(&mut client, &late).expect("an answer");
    let marked = ask(&mut client, &late).expect("an answer");
    assert_eq!(codes(&marked).0, LimitCode::Ok);
    let mark = ("x-ratelimit-priority".to_owned(), "low".to_owned());
    assert!(fields(&marked).contains(&mark), "{:?}", fields(&marked));
    assert_eq!(&marked.request_headers_to_add[0].key[..], b"x-ratelimit-priority");

    let slow = asked(vec![descriptor(&[("api", "slow"), ("user", "ann")])]);
    let begun = Instant::now();
    for _ in 0..3 {
        assert_eq!(codes(&ask(&mut client, &slow).expect("an answer")).0, LimitCode::Ok);
    }
    assert!(begun.elapsed() >= Duration::from_millis(900), "two of three wait half a second each");
}
