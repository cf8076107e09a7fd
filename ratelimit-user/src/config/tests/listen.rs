//! `[listen]`: where, and whom it believes.

use super::{parse, problems};
use crate::policy::{Endpoint, Listen};

fn listen(lines: &str) -> Listen {
    let text = format!("[source]\nlimits = [\"1/s\"]\n[listen]\n{lines}\n");
    parse(&text, "p.toml").unwrap_or_else(|error| panic!("{error}")).policy.listen().clone()
}

#[test]
fn every_key_of_listen_is_understood() {
    let listen = listen(
        r#"
        http = ["127.0.0.1:8080", "unix:/run/ratelimit/http.sock"]
        grpc = "0.0.0.0:8081"
        resp = "[::1]:8082"
        metrics = "127.0.0.1:9464"
        token_file = "/etc/ratelimit/token"
        tls = { certificate = "/c.pem", key = "/k.pem", client_ca = "/ca.pem" }
        trusted_proxies = ["10.0.0.0/8", "::1"]
        "#,
    );
    let tcp = |text: &str| Endpoint::Tcp(text.parse().unwrap());
    assert_eq!(listen.http, [tcp("127.0.0.1:8080"), Endpoint::Unix("/run/ratelimit/http.sock".into())]);
    assert_eq!((listen.grpc, listen.resp), (vec![tcp("0.0.0.0:8081")], vec![tcp("[::1]:8082")]));
    assert_eq!(listen.token_file, Some("/etc/ratelimit/token".into()));
    let tls = listen.tls.unwrap();
    assert_eq!((tls.certificate, tls.key), ("/c.pem".into(), "/k.pem".into()));
    assert_eq!(tls.client_ca, Some("/ca.pem".into()));
    assert_eq!(listen.trusted_proxies, ["10.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()]);
}

#[test]
fn every_mistake_in_listen_is_reported_at_its_place() {
    let refused = |lines: &str| problems(&format!("[source]\nlimits = [\"1/s\"]\n[listen]\n{lines}\n"));
    for (lines, expected) in [(
        "http = \"unix:http.sock\"",
        "4:8: http = \"unix:http.sock\" is no absolute path; use one such as \"unix:/run/ratelimit/http.sock\"",
    )] {
        assert_eq!(refused(lines), [format!("p.toml:{expected}")], "{lines}");
    }
}
