//! The dashboard of a service that guards nothing: the page, the stream, and who may see it.

use std::{fs, os::unix::net::UnixStream};

use ratelimit_tests::service::{Client, Service};

const POLICY: &str = "[[api]]\nname = \"a\"\nkey = [\"user\"]\nlimits = [\"5/hour\"]\n";
const TOKEN: &str = "a-token-that-nobody-guesses";
const OPERATOR: &str = "an-operators-own-token";
/// What a browser asks under that reaches the service through an SSH tunnel.
const HOST: &str = "localhost:9000";

fn client(service: &Service) -> Client<std::net::TcpStream> {
    service.connect().under(HOST)
}

#[test]
fn the_page_comes_with_a_policy_that_lets_it_ask_nobody_else_and_under_no_foreign_name() {
    let service = Service::start(POLICY);
    let mut own = client(&service);
    let page = own.get("/");
    assert_eq!((page.status, page.field("content-type")), (200, Some("text/html; charset=utf-8")));
    let named = page.body.split('"').filter(|word| word.starts_with("/dashboard/"));
    for path in named.chain(["/dashboard/chart.js", "/"]) {
        let file = own.get(path);
        assert_eq!(file.status, 200, "{path}");
        let policy = file.field("content-security-policy").expect("a policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; "), "{policy}");
        assert!(policy.ends_with("frame-ancestors 'none'") && !policy.contains("unsafe"), "{policy}");
        for (field, value) in [
            ("x-content-type-options", "nosniff"),
            ("cache-control", "no-store"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(file.field(field), Some(value), "{path}");
        }
    }
    for (method, path, status) in [
        ("HEAD", "/", 200),
        ("POST", "/", 405),
        ("DELETE", "/dashboard/main.js", 405),
        ("POST", "/dashboard/stream", 405),
        ("GET", "/dashboard/order", 405),
        ("GET", "/dashboard/nothing", 404),
        ("GET", "/dashboard/../etc/passwd", 404),
        ("GET", "/dashboard/explain", 400),
        ("GET", "/dashboard/explain?address=nobody", 400),
        ("GET", "/dashboard/attack?number=one", 400),
        // There are no packets here.
        ("GET", "/dashboard/attack?number=1", 501),
        ("GET", "/dashboard/explain?address=192.0.2.1", 501),
        ("GET", "/dashboard/lists", 501),
    ] {
        assert_eq!(own.ask(method, path, &[], "").status, status, "{method} {path}");
    }
    // A site that makes its own name mean this host.
    for (host, status) in [
        ("rebound.example", 421),
        ("127.0.0.1.rebound.example:80", 421),
        ("localhost\r\nHost: rebound.example", 400),
    ] {
        for path in ["/", "/dashboard/stream", "/dashboard/main.js"] {
            let reply = service.connect().under(host).get(path);
            assert_eq!(reply.status, status, "{host} {path}");
            assert!(reply.field("content-security-policy").is_some());
        }
    }
    // Programs that ask for decisions may call the service what they like.
    assert_eq!(service.get("/v1/check?user=ann&api=a").status, 200);
}

#[test]
fn pictures_tell_of_decisions_and_come_only_to_so_many_at_once() {
    let file = std::env::temp_dir().join(format!("ratelimit-operator-{}", std::process::id()));
    fs::write(&file, OPERATOR).expect("write the token");
    let service = Service::start_listening(POLICY, &format!("operator_token_file = {file:?}"));
    fs::remove_file(&file).expect("remove the token");
    let mut first = client(&service);
    let head = first.stream_events("/dashboard/stream", &[]);
    assert_eq!((head.status, head.field("content-type")), (200, Some("text/event-stream")));
    let (name, session) = first.event().expect("an event");
    assert_eq!(
        (name.as_str(), &session["guards"], &session["changes"]),
        ("session", &false.into(), &"never".into())
    );
    let mut asking = service.connect();
    let mut told = 0.0;
    // The first picture has no rates; those of later ones add up to what was asked.
    for nth in 0..4 {
        let (name, picture) = first.event().expect("a picture");
        assert_eq!((name.as_str(), &picture["version"]), ("picture", &1.into()));
        assert!(picture.get("packets").is_none() && picture.get("status").is_none(), "{picture}");
        told += picture["decisions"]["refused_per_second"].as_f64().unwrap();
        if nth == 0 {
            (0..12).for_each(|_| _ = asking.get("/v1/check?user=ann&api=a"));
        }
        if told > 6.0 {
            let api = &picture["decisions"]["apis"][0];
            assert_eq!((&api["api"], &api["total"], &api["refused"]), (&"a".into(), &12.into(), &7.into()));
            assert!(
                picture["decisions"]["p99_us"].is_u64() || picture["decisions"]["timed"] == 0,
                "{picture}"
            );
            break;
        }
    }
    assert!((6.0..8.0).contains(&told), "7 were refused, {told} told");
    let mut others: Vec<_> = (1..16).map(|_| client(&service)).collect();
    for other in &mut others {
        assert_eq!(other.stream_events("/dashboard/stream", &[]).status, 200);
    }
    let turned_away = client(&service).get("/dashboard/stream");
    assert_eq!(turned_away.status, 503, "{turned_away:?}");
    assert_eq!(turned_away.json()["detail"], "16 dashboards look already; close one of them");
    // Somebody who has the operator's token is not kept out by those who have nothing.
    let operator = [("Authorization", format!("Bearer {OPERATOR}"))];
    let operator: Vec<_> = operator.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(client(&service).stream_events("/dashboard/stream", &operator).status, 200);
    assert_eq!(
        client(&service)
            .get_with("/dashboard/stream", &[("Authorization", "Bearer another-long-token")])
            .status,
        401
    );
    drop(others);
    ratelimit_tests::redis::wait_for("a place", || {
        (client(&service).stream_events("/dashboard/stream", &[]).status == 200).then_some(())
    });
    // Nobody who looks keeps others from asking for decisions.
    assert_eq!(asking.get("/v1/check?user=bob&api=a").status, 200);
}

#[test]
fn where_a_token_is_needed_the_page_is_open_what_it_shows_is_not_and_a_new_token_ends_the_stream() {
    let file = std::env::temp_dir().join(format!("ratelimit-dashboard-{}", std::process::id()));
    fs::write(&file, TOKEN).expect("write the token");
    let service = Service::start_listening(POLICY, &format!("token_file = {file:?}"));
    let mut outsider = service.connect().under("edge.example");
    // Under any name: a site under another one has no token to show.
    assert_eq!(outsider.get("/").status, 200);
    for path in ["/dashboard/stream", "/dashboard/explain?address=192.0.2.1", "/dashboard/lists", "/metrics"]
    {
        let refused = outsider.get(path);
        assert_eq!((refused.status, refused.field("www-authenticate")), (401, Some("Bearer")), "{path}");
    }
    // The rights of a socket's file are a proxy's, and not those of whoever is in front of it.
    let mut proxied = Client::new(UnixStream::connect(service.http_socket()).expect("connect"));
    assert_eq!(proxied.get("/dashboard/lists").status, 401);
    assert_eq!(proxied.get("/v1/check?user=u&api=a").status, 200, "the proxy itself may ask");
    let shown = format!("Bearer {TOKEN}");
    let mut viewer = service.connect().under("edge.example");
    assert_eq!(viewer.stream_events("/dashboard/stream", &[("Authorization", &shown)]).status, 200);
    assert_eq!(viewer.event().expect("an event").0, "session");
    assert_eq!(viewer.event().expect("an event").0, "picture");
    fs::write(&file, "another-token-that-nobody-guesses").expect("write another");
    service.wait_for_log("token of listeners read again");
    assert!(
        (0..10).any(|_| viewer.event().is_none()),
        "the stream goes on with a token that is no longer the right one"
    );
    fs::remove_file(&file).expect("remove the token");
    assert_eq!(service.connect().get_with("/dashboard/stream", &[("Authorization", &shown)]).status, 401);
}

#[test]
fn metrics_are_there_for_whoever_may_look_at_the_dashboard() {
    let service = Service::start(POLICY);
    let mut own = client(&service);
    assert_eq!(own.get("/v1/check?user=u&api=a").status, 200);
    let metrics = own.get("/metrics");
    assert_eq!((metrics.status, metrics.field("content-type")), (200, Some("text/plain; version=0.0.4")));
    let line = "ratelimit_decisions_total{api=\"a\",outcome=\"allowed\"} 1";
    assert!(metrics.body.lines().any(|one| one == line), "{}", metrics.body);
    assert_eq!(
        service.connect().under("edge.example").get("/metrics").status,
        421,
        "a name of some other site"
    );
}
