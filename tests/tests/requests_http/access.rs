//! Paths, methods, tokens.

use std::{fs, os::unix::net::UnixStream, process::Command};

use ratelimit_tests::{
    redis::Certificates,
    service::{Client, Service},
};

const POLICY: &str = "[[api]]\nname = \"a\"\nlimits = [\"5/hour\"]\n";

#[test]
fn every_path_answers_its_methods_and_names_them_to_others() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    for (method, path, status, allow) in [
        ("GET", "/healthz", 200, None),
        ("HEAD", "/healthz", 200, None),
        ("GET", "/readyz", 200, None),
        ("GET", "/openapi.json", 200, None),
        ("POST", "/healthz", 405, Some("GET, HEAD")),
        ("DELETE", "/openapi.json", 405, Some("GET, HEAD")),
        ("PUT", "/v1/check", 405, Some("GET, HEAD, POST")),
        ("BREW", "/v1/check", 405, Some("GET, HEAD, POST")),
        ("GET", "/v1/refund", 405, Some("POST")),
        ("GET", "/v1/reset", 405, Some("POST")),
        ("GET", "/", 404, None),
        ("GET", "/v1/check/", 404, None),
        ("GET", "/v2/check", 404, None),
        ("POST", "/v1/nothing", 404, None),
    ] {
        let reply = client.ask(method, path, &[], "");
        assert_eq!((reply.status, reply.field("allow")), (status, allow), "{method} {path}");
        if status >= 400 {
            assert_eq!(reply.field("content-type"), Some("application/problem+json"), "{method} {path}");
            assert_eq!(reply.json()["status"], status);
        }
    }
    assert_eq!(service.get("/healthz").body, "ok\n");
}

#[test]
fn whoever_has_no_token_gets_no_answer_but_that_the_service_lives() {
    let file = std::env::temp_dir().join(format!("ratelimit-token-{}", std::process::id()));
    fs::write(&file, "a-token-that-nobody-guesses\n").expect("write the token");
    let service = Service::start_listening(POLICY, &format!("token_file = \"{}\"", file.display()));
    fs::remove_file(&file).expect("remove the token");
    let mut client = service.connect();
    for (shown, status) in [
        (None, 401),
        (Some("Bearer a-token-that-nobody-guesses"), 200),
        (Some("bearer  a-token-that-nobody-guesses"), 200),
        (Some("Bearer a-token-that-nobody-guesse"), 401),
        (Some("Bearer a-token-that-nobody-guessess"), 401),
        (Some("Bearer "), 401),
        (Some("Bearer"), 401),
        (Some("Basic a-token-that-nobody-guesses"), 401),
    ] {
        let fields: Vec<(&str, &str)> = shown.iter().map(|shown| ("Authorization", *shown)).collect();
        let reply = client.get_with("/v1/check?user=ann&api=a", &fields);
        assert_eq!(reply.status, status, "{shown:?}");
        let challenge = (status == 401).then_some("Bearer");
        assert_eq!(reply.field("www-authenticate"), challenge, "{shown:?}");
    }
    assert_eq!(client.post("/v1/reset", "{\"user\":\"ann\",\"api\":\"a\"}").status, 401);
    assert_eq!(client.get("/healthz").status, 200);
    // Rights to the socket's file are enough.
    let stream = UnixStream::connect(service.http_socket()).expect("connect");
    let reply = Client::new(stream).get("/v1/check?user=ann&api=a");
    // Two have been taken with the token.
    assert_eq!((reply.status, reply.field("ratelimit").unwrap().split(';').nth(1)), (200, Some("r=2")));
}

#[test]
fn beyond_loopback_a_certificate_of_ours_lets_callers_in_and_no_other_does() {
    let certificates = Certificates::new();
    let file = |name| certificates.file(name).display().to_string();
    let service = Service::start_listening(POLICY, &certificates.listen());
    let ask = |words: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args([
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "--max-time",
            "10",
            "--cacert",
            &file("ca.pem"),
        ]);
        let asked =
            curl.args(words).arg(format!("https://{}/v1/check?user=ann&api=a", service.http)).output();
        String::from_utf8(asked.expect("curl").stdout).unwrap()
    };
    assert_eq!(ask(&["--cert", &file("client.pem"), "--key", &file("client.key")]), "200");
    assert_eq!(ask(&[]), "000", "no certificate");
    assert_eq!(ask(&["--cert", &file("server.pem"), "--key", &file("client.key")]), "000", "not its key");
}
