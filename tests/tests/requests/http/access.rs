//! Which paths and methods there are, and which of them need a token.

use std::{fs, net::TcpStream, os::unix::net::UnixStream, process::Command};

use ratelimit_tests::{
    redis::{Certificates, wait_for},
    resp::Caller,
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
        ("GET", "/", 421, None),
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
    assert_eq!(service.post("/v1/reset", "{\"user\":\"ann\",\"api\":\"a\"}").status, 401);
    assert_eq!(client.get("/healthz").status, 200);
    // Rights to the socket's file are enough.
    let stream = UnixStream::connect(service.http_socket()).expect("connect");
    let reply = Client::new(stream).get("/v1/check?user=ann&api=a");
    // The token is enough too.
    let shown =
        [("Authorization", "Bearer a-token-that-nobody-guesses"), ("Content-Type", "application/json")];
    let elsewhere = "{\"user\":\"bob\",\"api\":\"a\"}";
    assert_eq!(client.ask("POST", "/v1/reset", &shown, elsewhere).status, 204);
    // Two requests have been counted with the token.
    assert_eq!((reply.status, reply.field("ratelimit").unwrap().split(';').nth(1)), (200, Some("r=2")));
}

#[test]
fn nothing_is_changed_for_who_is_just_on_this_host_nor_for_a_page_in_a_browser() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    let question = "{\"user\":\"ann\",\"api\":\"a\"}";
    assert_eq!(client.get("/v1/check?user=ann&api=a&cost=5").status, 200);
    for path in ["/v1/reset", "/v1/refund"] {
        let reply = service.post(path, question);
        let detail = reply.json()["detail"].to_string();
        assert_eq!(reply.status, 403, "{path}: {detail}");
        assert!(detail.contains("name a token_file in [listen]"), "{path}: {detail}");
        // What a page can send to another site without asking it first.
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
            "text/plain; a=application/json",
        ] {
            let reply = service.open().ask("POST", path, &[("Content-Type", kind)], question);
            assert_eq!(reply.status, 415, "{path}: {kind}");
        }
        assert_eq!(service.open().ask("POST", path, &[], question).status, 415, "{path}");
    }
    assert_eq!(client.get("/v1/check?user=ann&api=a").status, 429, "nothing has come back");
    let said = [("Content-Type", "Application/JSON; charset=utf-8")];
    assert_eq!(service.open().ask("POST", "/v1/reset", &said, question).status, 204);
    assert_eq!(client.get("/v1/check?user=ann&api=a").status, 200);
    let mut caller = Caller::connect(service.resp);
    for change in ["REFUND ann a", "RESETKEY ann a"] {
        let said = caller.ask(change);
        assert!(said.starts_with("-NOPERM changes need more than being on this host"), "{change}: {said}");
        assert_eq!(Caller::open(&service.resp_socket()).ask(change), "OK");
    }
}

#[test]
fn where_operators_have_a_token_nobody_resets_without_it_and_askers_still_give_back() {
    const ASKING: &str = "a-token-for-those-who-ask";
    const OPERATORS: &str = "a-token-for-operators-only";
    let file = |name: &str, token: &str| {
        let file = std::env::temp_dir().join(format!("ratelimit-{name}-{}", std::process::id()));
        fs::write(&file, token).expect("write the token");
        file
    };
    let (asking, operators) = (file("asking", ASKING), file("operators", OPERATORS));
    let named = format!("operator_token_file = \"{}\"", operators.display());
    let guarded =
        Service::start_listening(POLICY, &format!("token_file = \"{}\"\n{named}", asking.display()));
    let open = Service::start_listening(POLICY, &named);
    [&asking, &operators].iter().for_each(|file| fs::remove_file(file).expect("remove the token"));
    let question = "{\"user\":\"ann\",\"api\":\"a\"}";
    for (service, shown, reset, refund) in [
        (&guarded, None, 401, 401),
        (&guarded, Some("a-token-that-is-neither"), 401, 401),
        (&guarded, Some(ASKING), 403, 204),
        // It is for resets, and for the dashboard.
        (&guarded, Some(OPERATORS), 204, 401),
        (&open, None, 403, 403),
        (&open, Some("a-token-that-is-neither"), 403, 403),
        (&open, Some(OPERATORS), 204, 403),
    ] {
        let shown = shown.map(|token| format!("Bearer {token}"));
        let mut fields = vec![("Content-Type", "application/json")];
        fields.extend(shown.iter().map(|shown| ("Authorization", shown.as_str())));
        for (path, status) in [("/v1/refund", refund), ("/v1/reset", reset)] {
            let spent = service.open().get("/v1/check?user=ann&api=a&cost=5").status;
            let reply = service.connect().ask("POST", path, &fields, question);
            assert_eq!(reply.status, status, "{path} with {shown:?}, after {spent}");
            if path == "/v1/reset" && status == 403 {
                let detail = reply.json()["detail"].to_string();
                assert!(detail.contains("resets need the operator's token"), "{detail}");
            }
        }
        let after = service.open().get("/v1/check?user=ann&api=a&cost=5&peek=1").status;
        assert_eq!(after == 200, reset == 204, "{shown:?}");
    }
    // Rights to the socket's file are enough to ask and to give back, and not for this.
    for (path, status) in [("/v1/refund", 204), ("/v1/reset", 403)] {
        assert_eq!(guarded.open().post(path, question).status, status, "{path}");
    }
    let fields =
        [("Content-Type", "application/json"), ("Authorization", "Bearer a-token-for-operators-only")];
    assert_eq!(guarded.open().ask("POST", "/v1/reset", &fields, question).status, 204);
    let mut caller = Caller::open(&guarded.resp_socket());
    assert!(caller.ask("RESETKEY ann a").starts_with("-NOPERM resets need the operator's token"));
    assert_eq!(caller.ask("REFUND ann a"), "OK");
}

#[test]
fn beyond_loopback_a_certificate_of_ours_lets_callers_in_and_no_other_does() {
    let certificates = Certificates::new();
    let file = |name| certificates.file(name).display().to_string();
    let service = Service::start_listening(POLICY, &certificates.listen());
    let ask_at = |path: &str, words: &[&str]| {
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
        let asked = curl.args(words).arg(format!("https://{}{path}", service.http)).output();
        String::from_utf8(asked.expect("curl").stdout).unwrap()
    };
    let ask = |words: &[&str]| ask_at("/v1/check?user=ann&api=a", words);
    assert_eq!(ask(&["--cert", &file("client.pem"), "--key", &file("client.key")]), "200");
    let change = ["-H", "Content-Type: application/json", "-d", "{\"user\":\"ann\",\"api\":\"a\"}"];
    let certificate = ["--cert", &file("client.pem"), "--key", &file("client.key")];
    assert_eq!(ask_at("/v1/reset", &[&certificate[..], &change].concat()), "204", "it has shown something");
    assert_eq!(ask(&[]), "000", "no certificate");
    assert_eq!(ask(&["--cert", &file("server.pem"), "--key", &file("client.key")]), "000", "not its key");
}

#[test]
fn another_token_in_the_file_counts_also_on_connections_that_are_open() {
    let file = std::env::temp_dir().join(format!("ratelimit-token-again-{}", std::process::id()));
    fs::write(&file, "the-first-token-of-all\n").expect("write the token");
    let service = Service::start_listening(POLICY, &format!("token_file = \"{}\"", file.display()));
    let (mut client, mut redis) = (service.connect(), Caller::connect(service.resp));
    let ask = |client: &mut Client<TcpStream>, token: &str| {
        let shown = format!("Bearer {token}");
        client.get_with("/v1/check?user=ann&api=a&peek=1", &[("Authorization", &shown)]).status
    };
    assert_eq!(ask(&mut client, "the-first-token-of-all"), 200);
    assert_eq!(redis.ask("AUTH the-first-token-of-all"), "OK");
    // What cannot be a token changes nothing.
    fs::write(&file, "short\n").expect("write the token");
    service.wait_for_log("token of listeners not read again, the old stay in use");
    assert_eq!(ask(&mut client, "the-first-token-of-all"), 200);
    fs::write(&file, "the-second-token-of-all\n").expect("write the token");
    service.wait_for_log("token of listeners read again");
    fs::remove_file(&file).expect("remove the token");
    assert_eq!(ask(&mut client, "the-first-token-of-all"), 401);
    assert_eq!(ask(&mut client, "the-second-token-of-all"), 200);
    assert!(redis.ask("CHECK ann a").starts_with("-NOAUTH"), "it has shown another token");
    assert_eq!(redis.ask("AUTH the-second-token-of-all"), "OK");
}

#[test]
fn certificates_that_are_replaced_count_from_the_next_connection_on() {
    let (before, after) = (Certificates::new(), Certificates::new());
    let service = Service::start_listening(POLICY, &before.listen());
    service.wait_for_log("server.pem expires in 1 days");
    let ask = |made: &Certificates| {
        let file = |name| made.file(name).display().to_string();
        let mut curl = Command::new("curl");
        curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "10"]);
        curl.args([
            "--cacert",
            &file("authority.pem"),
            "--cert",
            &file("client.pem"),
            "--key",
            &file("client.key"),
        ]);
        let asked = curl.arg(format!("https://{}/healthz", service.http)).output();
        String::from_utf8(asked.expect("curl").stdout).unwrap()
    };
    // Whom callers trust stays as it is when the files of the service are replaced.
    for made in [&before, &after] {
        fs::copy(made.file("ca.pem"), made.file("authority.pem")).unwrap();
    }
    assert_eq!((ask(&before).as_str(), ask(&after).as_str()), ("200", "000"));
    let key = fs::read(before.file("server.key")).unwrap();
    fs::write(before.file("server.key"), "no key").unwrap();
    service.wait_for_log("certificates of listeners not read again, the old stay in use");
    assert_eq!(ask(&before), "200");
    fs::write(before.file("server.key"), key).unwrap();
    service.wait_for_log("certificates of listeners read again");
    let already = service.log().matches("certificates of listeners read again").count();
    for name in ["server.pem", "server.key", "ca.pem"] {
        fs::copy(after.file(name), before.file(name)).unwrap();
    }
    wait_for("the new certificates", || {
        (service.log().matches("certificates of listeners read again").count() > already
            && ask(&after) == "200")
            .then_some(())
    });
    assert_eq!(ask(&before), "000", "its authority is not asked any more");
}
