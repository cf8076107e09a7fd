//! `[listen]`: endpoints, tokens, certificates and trusted proxies.

use super::{parse, problems};
use crate::policy::{Listen, ListenEndpoint};

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
        operator_token_file = "/etc/ratelimit/operator-token"
        tls = { certificate = "/c.pem", key = "/k.pem", client_ca = "/ca.pem" }
        trusted_proxies = ["10.0.0.0/8", "::1"]
        socket_mode = "0600"
        socket_group = "www-data"
        "#,
    );
    let tcp = |text: &str| ListenEndpoint::Tcp(text.parse().unwrap());
    assert_eq!(listen.http, [tcp("127.0.0.1:8080"), ListenEndpoint::Unix("/run/ratelimit/http.sock".into())]);
    assert_eq!((listen.grpc, listen.resp), (vec![tcp("0.0.0.0:8081")], vec![tcp("[::1]:8082")]));
    let rights = listen.socket_rights;
    assert_eq!((rights.mode, rights.group.as_deref()), (0o600, Some("www-data")));
    assert_eq!(listen.token_file, Some("/etc/ratelimit/token".into()));
    assert_eq!(listen.operator_token_file, Some("/etc/ratelimit/operator-token".into()));
    let tls = listen.tls.unwrap();
    assert_eq!((tls.certificate, tls.key), ("/c.pem".into(), "/k.pem".into()));
    assert_eq!(tls.client_ca, Some("/ca.pem".into()));
    assert_eq!(listen.trusted_proxies, ["10.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()]);
}

#[test]
fn every_mistake_in_listen_is_reported_at_its_place() {
    let open =
        "would answer anybody who reaches it; name a token_file or tls.client_ca, or listen on loopback";
    let port = "is not an address with a port, nor a socket; use one such as \"127.0.0.1:8080\" or \"unix:/run/ratelimit/http.sock\"";
    let path = "is no absolute path; use one such as \"unix:/run/ratelimit/http.sock\"";
    for (lines, expected) in [
        ("http = \"unix:http.sock\"", vec![format!("4:8: http = \"unix:http.sock\" {path}")]),
        ("resp = [\"unix:\"]", vec![format!("4:9: resp = \"unix:\" {path}")]),
        ("grpc = \"localhost:80\"", vec![format!("4:8: grpc = \"localhost:80\" {port}")]),
        ("http = 80", vec!["4:8: http is a number; write a string in quotes".to_owned()]),
        (
            "http = [80, \"x\"]",
            vec![
                "4:9: an entry of http is a number; write a string in quotes".to_owned(),
                format!("4:13: http = \"x\" {port}"),
            ],
        ),
        (
            "http = [\"127.0.0.1:1\", \"0.0.0.0:2\"]\ngrpc = \"[::]:3\"\nresp = \"10.0.0.1:4\"\ntls = { certificate = \"c\", key = \"k\" }",
            vec![
                format!("4:24: http on 0.0.0.0:2 {open}"),
                format!("5:8: grpc on [::]:3 {open}"),
                format!("6:8: resp on 10.0.0.1:4 {open}"),
            ],
        ),
        (
            "tls = { client_ca = \"\" }",
            vec![
                "4:7: tls has no certificate; write certificate = \"/etc/ratelimit/certificate.pem\"".to_owned(),
                "4:7: tls has no key; write key = \"/etc/ratelimit/key.pem\"".to_owned(),
                "4:21: client_ca is empty; name a file".to_owned(),
            ],
        ),
        (
            "socket_mode = \"0777\"\nsocket_group = \"a:b\"",
            vec![
                "4:15: socket_mode = \"0777\" is no mode of a socket; use \"0660\" for owner and group, \"0600\" or \"0666\"".to_owned(),
                "5:16: socket_group = \"a:b\" is no name of a group; use one such as \"www-data\"".to_owned(),
            ],
        ),
        (
            "socket_mode = 432",
            vec!["4:15: socket_mode is a number; write a string in quotes".to_owned()],
        ),
        ("token_file = \"\"", vec!["4:14: token_file is empty; name a file".to_owned()]),
        (
            "http = \"127.0.0.1:1\"\ntoken_file = \"/t/a\"\noperator_token_file = \"/t/./a\"",
            vec![format!("6:23: {}", crate::config::OPERATORS_ARE_OTHERS)],
        ),
        (
            "http = \"127.0.0.1:1\"\noperator_token_file = \"\"",
            vec!["5:23: operator_token_file is empty; name a file".to_owned()],
        ),
        (
            "trusted_proxies = [\"10.0.0.1/8\", \"x\"]",
            vec![
                "4:20: 10.0.0.1/8 has host bits set; use 10.0.0.0/8 for the network, or the address alone".to_owned(),
                "4:34: \"x\" is not an address or prefix; use one such as 203.0.113.7, 203.0.113.0/24 or 2001:db8::/48".to_owned(),
            ],
        ),
    ] {
        assert_eq!(refused(lines), expected, "{lines}");
    }
}

fn refused(lines: &str) -> Vec<String> {
    let found = problems(&format!("[source]\nlimits = [\"1/s\"]\n[listen]\n{lines}\n"));
    found.iter().map(|problem| problem.strip_prefix("p.toml:").unwrap().to_owned()).collect()
}

#[test]
fn callers_beyond_loopback_show_a_token_or_a_certificate() {
    for fine in [
        "http = \"0.0.0.0:1\"\ntoken_file = \"/t\"",
        "http = \"0.0.0.0:1\"\ntls = { certificate = \"/c\", key = \"/k\", client_ca = \"/ca\" }",
        "http = [\"127.8.9.1:1\", \"[::1]:1\", \"unix:/s\"]",
    ] {
        assert!(!listen(fine).http.is_empty(), "{fine}");
    }
}

#[test]
fn what_operators_type_must_not_be_read_on_the_way_and_needs_a_dashboard() {
    let warnings = |lines: &str| {
        let text = format!("[source]\nlimits = [\"1/s\"]\n[listen]\noperator_token_file = \"/o\"\n{lines}\n");
        parse(&text, "p.toml").unwrap_or_else(|error| panic!("{error}")).warnings
    };
    let open = "http = \"192.0.2.1:1\"\ntoken_file = \"/t\"";
    for (lines, expected) in [
        ("resp = \"127.0.0.1:1\"", Some("operator_token_file does nothing: the dashboard is on http")),
        (
            open,
            Some("operator_token_file: what operators type on 192.0.2.1:1 can be read on the way; name tls"),
        ),
        ("http = [\"127.0.0.1:1\", \"unix:/s\"]", None),
        (&format!("{open}\ntls = {{ certificate = \"/c\", key = \"/k\" }}"), None),
    ] {
        let found = warnings(lines);
        match expected {
            Some(expected) => {
                assert!(found.iter().any(|one| one.message.contains(expected)), "{lines}: {found:?}");
            }
            None => assert!(!found.iter().any(|one| one.message.contains("operator")), "{lines}: {found:?}"),
        }
    }
}

#[test]
fn two_listeners_cannot_have_one_address() {
    for (one, other, both) in [
        ("127.0.0.1:1", "127.0.0.1:1", false),
        ("0.0.0.0:1", "127.0.0.1:1", false),
        ("127.0.0.1:1", "[::]:1", false),
        ("[::1]:1", "[::]:1", false),
        ("unix:/a", "unix:/a", false),
        ("127.0.0.1:1", "127.0.0.1:2", true),
        ("127.0.0.1:1", "127.0.0.2:1", true),
        ("0.0.0.0:1", "[::1]:1", true),
        ("127.0.0.1:0", "127.0.0.1:0", true),
        ("unix:/a", "unix:/b", true),
    ] {
        let lines = format!("token_file = \"/t\"\nhttp = {one:?}\nresp = {other:?}");
        if both {
            assert_eq!(listen(&lines).resp.len(), 1);
        } else {
            assert_eq!(
                refused(&lines),
                [format!("6:8: resp on {other}: http listens there already; use another")]
            );
        }
    }
    assert_eq!(
        refused("metrics = \"127.0.0.1:1\"\ngrpc = [\"127.0.0.1:2\", \"127.0.0.1:2\", \"127.0.0.1:1\"]"),
        [
            "5:24: grpc on 127.0.0.1:2: grpc listens there already; use another",
            "5:39: grpc on 127.0.0.1:1: metrics listens there already; use another",
        ]
    );
}
