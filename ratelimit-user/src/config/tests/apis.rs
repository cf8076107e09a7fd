//! `[requests]`, `[[api]]`, and limits of plans and users: what they mean.

use std::time::Duration;

use ratelimit_common::limit::manner::Throttle;

use super::parse;
use crate::policy::{
    Alone, Api, Escalation, KeyPart, OnRefusal, Policy, RequestLimit, RequestPolicy, Reserved, Sharing,
};

const SOURCE: &str = "[source]\nlimits = [\"1/s\"]\n";

fn policy(text: &str) -> Policy {
    parse(&format!("{SOURCE}{text}"), "p.toml").unwrap_or_else(|error| panic!("{error}")).policy
}

/// The one API of a policy.
fn api(lines: &str) -> Api {
    let policy = policy(&format!("[[api]]\nname = \"a\"\n{lines}\n"));
    policy.requests().apis[0].clone()
}

fn words(limits: &[RequestLimit]) -> Vec<String> {
    limits.iter().map(ToString::to_string).collect()
}

#[test]
fn an_api_of_two_lines_has_the_defaults() {
    let api = api("limits = [\"100/hour\", \"3/min burst 5\"]");
    assert_eq!((api.name.as_str(), api.key.as_slice()), ("a", &[KeyPart::User][..]));
    assert_eq!(words(&api.limits), ["100/hour burst 100", "3/min burst 5"]);
    assert_eq!(
        (api.on_limit, api.sharing, api.without_store),
        (OnRefusal::Refuse, Sharing::Lease, Alone::Share)
    );
    assert_eq!((api.reserved, api.ipv4_prefix, api.ipv6_prefix), (Reserved::default(), 32, 64));
    assert_eq!((api.login, api.escalation), (None, None));
    assert!(api.by_plan.is_empty() && api.by_user.is_empty());
    assert_eq!(policy("").requests(), &RequestPolicy::default());
}

#[test]
fn every_key_of_an_api_is_understood() {
    let text = r#"
        [requests]
        keys = 500
        threads = 2
        [plan.gold]
        limits = ["500/hour sliding-window soft 10%"]
        [plan.default]
        limits = ["100/hour"]
        [[user]]
        name = "acme"
        plan = "gold"
        limits = ["1000/hour"]
        [[api]]
        name = "/v1/urls:create"
        key = ["user", "ip", "api", "tenant_id"]
        limits = ["100/hour", "3/min sliding-log hard", "1000/day fixed-window", "5/s burst 9 token-bucket"]
        algorithm = "sliding-window"
        throttle = "elastic 50%"
        on_limit = "deprioritise"
        sharing = "strict"
        without_store = "reserve"
        reserved = { critical = "20%", normal = "30%" }
        ipv4_prefix = 24
        ipv6_prefix = 56
        time_zone = "Europe/Berlin"
        plans = { gold = ["1000/hour"], default = [] }
        users = { "a.b@c" = ["1/month fixed-window"] }
        escalate = { above = "10/s", for = "30s", block = "10m", ipv4_prefix = 24, ipv6_prefix = 48 }
        [[api]]
        name = "*"
        key = ["ip"]
        limits = ["10/s", "1/min burst 3 leaky-bucket"]
        on_limit = "delay 1500ms"
    "#;
    let policy = policy(text);
    let RequestPolicy { apis, keys, threads } = policy.requests();
    assert_eq!((apis.len(), *keys, *threads), (2, 500, Some(2)));
    let api = &apis[0];
    let tenant = KeyPart::Other("tenant_id".to_owned());
    assert_eq!(api.key, [KeyPart::User, KeyPart::Ip, KeyPart::Api, tenant]);
    assert_eq!(
        words(&api.limits),
        [
            "100/hour sliding-window elastic 50%",
            "3/min sliding-log",
            "1000/day fixed-window elastic 50% in Europe/Berlin",
            "5/s burst 9 elastic 50%",
        ]
    );
    assert_eq!(api.on_limit, OnRefusal::Deprioritise);
    assert_eq!((api.sharing, api.without_store), (Sharing::Strict, Alone::Reserve));
    assert_eq!(api.reserved, Reserved { critical: 20, normal: 30 });
    assert_eq!((api.ipv4_prefix, api.ipv6_prefix), (24, 56));
    assert_eq!(words(&api.by_plan["gold"]), ["1000/hour sliding-window elastic 50%"]);
    assert_eq!(words(&api.by_plan["default"]), [""; 0]);
    assert_eq!(words(&api.by_user["a.b@c"]), ["1/month fixed-window elastic 50% in Europe/Berlin"]);
    let Escalation { above, lasting, block_for, ipv4_prefix, ipv6_prefix } = api.escalation.unwrap();
    assert_eq!((above.amount, lasting, block_for), (10, Duration::from_secs(30), Duration::from_secs(600)));
    assert_eq!((ipv4_prefix, ipv6_prefix), (24, 48));
    assert_eq!(apis[1].on_limit, OnRefusal::Delay(Duration::from_millis(1500)));
    let gold = policy.users().plan("gold").unwrap();
    assert_eq!(gold.requests()[0].rate.manner.throttle, Throttle::Soft(10));
    assert_eq!(words(policy.users().get("acme").unwrap().requests().unwrap()), ["1000/hour burst 1000"]);
}

#[test]
fn logins_have_limits_of_their_own_which_are_there_unless_given() {
    let login = api("preset = \"login\"").login.unwrap();
    assert_eq!(words(&login.per_ip), ["20/hour burst 20"]);
    assert_eq!(words(&login.per_user_and_ip), ["5/hour burst 5"]);
    assert_eq!(words(&login.per_user), ["100/hour burst 100"]);
    assert_eq!(login.known_for, Duration::from_secs(30 * 86_400));
    let given = "preset = \"login\"\nper_ip = [\"1/s\"]\nper_user_and_ip = []\nper_user = [\"7/day\"]\nknown_for = \"12h\"";
    let login = api(&format!("{given}\nalgorithm = \"fixed-window\"")).login.unwrap();
    assert_eq!(
        (words(&login.per_ip), words(&login.per_user_and_ip)),
        (vec!["1/s fixed-window".to_owned()], vec![])
    );
    assert_eq!(
        (words(&login.per_user), login.known_for),
        (vec!["7/day fixed-window".to_owned()], Duration::from_secs(43_200))
    );
}

#[test]
fn a_zone_of_all_requests_is_that_of_limits_without_one() {
    let policy = policy(
        "[requests]\ntime_zone = \"Asia/Tokyo\"\n[plan.gold]\nlimits = [\"10k/month fixed-window\", \"10/s\"]\n\
         [[api]]\nname = \"a\"\nlimits = [\"5/day fixed-window\"]\n[[api]]\nname = \"b\"\ntime_zone = \"UTC\"\n\
         limits = [\"5/day fixed-window\"]\n",
    );
    let gold = policy.users().plan("gold").unwrap();
    assert_eq!(words(gold.requests()), ["10000/month fixed-window in Asia/Tokyo", "10/s burst 10"]);
    assert_eq!(words(&policy.requests().apis[0].limits), ["5/day fixed-window in Asia/Tokyo"]);
    assert_eq!(words(&policy.requests().apis[1].limits), ["5/day fixed-window in UTC"]);
}
