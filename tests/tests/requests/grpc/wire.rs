//! Messages and calls that make no sense cost their call, or one connection, and are said in a sentence.

use std::io::{Read as _, Write as _};

use bytes::Bytes;
use prost::Message as _;
use ratelimit_tests::{grpc::Client, service::Service};
use ratelimit_user::serve::grpc::messages::{LimitCode, RateLimitRequest, RateLimitResponse};

use super::{SHOULD_RATE_LIMIT, ask, asked, descriptor};

const POLICY: &str = "[[api]]\nname = \"web\"\nkey = [\"user\"]\nlimits = [\"10/hour\"]\n[[api]]\nname = \"net\"\nkey = [\"ip\"]\nlimits = [\"10/hour\"]\n";

/// To a proxy an error is the same as nobody being there: it may let the request pass.
fn refused(client: &mut Client, question: &RateLimitRequest, sentence: &str) {
    let answer = ask(client, question).expect(sentence);
    assert_eq!(
        (answer.overall_code(), &answer.raw_body[..]),
        (LimitCode::OverLimit, format!("{sentence}\n").as_bytes())
    );
}

#[test]
fn a_question_that_makes_no_sense_is_refused_with_a_sentence() {
    let service = Service::start(POLICY);
    let mut client = Client::connect(service.grpc);
    let cases = [
        (asked(vec![]), "0 descriptors; use 1 to 64"),
        (
            asked(vec![descriptor(&[("api", "net"), ("user", "a")])]),
            "ip is missing; requests for api \"net\" are counted by it",
        ),
        (asked(vec![descriptor(&[("user", "a"), ("ip", "here")])]), "ip \"here\" is no IP address"),
    ];
    for (question, sentence) in cases {
        refused(&mut client, &question, sentence);
    }
    let mut nameless = asked(vec![descriptor(&[("user", "a")])]);
    nameless.domain = Bytes::new();
    refused(&mut client, &nameless, "domain is empty");
    nameless.domain = Bytes::from_static(&[0xff]);
    refused(&mut client, &nameless, "domain is not UTF-8 text");
    assert!(ask(&mut client, &asked(vec![descriptor(&[("user", "a")])])).is_ok(), "the connection goes on");
}

#[test]
fn frames_that_make_no_sense_cost_their_call() {
    let service = Service::start(POLICY);
    let mut client = Client::connect(service.grpc);
    let mut long = vec![0, 0, 1, 0, 1];
    long.resize(5 + 65_537, 0);
    let cases: [(&str, Vec<u8>, i32); 5] = [
        ("no message", vec![], 3),
        ("cut short", vec![0, 0, 0, 0, 9, 1], 3),
        ("two messages", vec![0; 10], 3),
        ("no protobuf", vec![0, 0, 0, 0, 2, 0xff, 0xff], 3),
        ("compressed", vec![1, 0, 0, 0, 0], 12),
    ];
    for (name, body, code) in cases {
        let ending = client.call_raw(SHOULD_RATE_LIMIT, body.into()).expect_err(name);
        assert_eq!(ending.code, code, "{name}: {}", ending.message);
    }
    let answer = client.call_raw(SHOULD_RATE_LIMIT, long.into()).expect("an answer");
    let answer = RateLimitResponse::decode(answer).expect("a message");
    assert_eq!(answer.overall_code(), LimitCode::OverLimit, "too long");
    let ending = client.call_raw("/nobody.Here/Does", Bytes::from_static(&[0; 5])).expect_err("no method");
    assert_eq!((ending.code, &ending.message[..]), (12, "there is no method \"/nobody.Here/Does\""));
    assert!(ask(&mut client, &asked(vec![descriptor(&[("user", "a")])])).is_ok(), "the connection goes on");
}

#[test]
fn what_is_no_http2_costs_one_connection() {
    let service = Service::start(POLICY);
    let mut client = Client::connect(service.grpc);
    for bytes in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x05\x00\0\0\0\0\0hello"]
    {
        let mut stream = std::net::TcpStream::connect(service.grpc).expect("connect");
        stream.set_read_timeout(Some(std::time::Duration::from_secs(10))).expect("a timeout");
        stream.write_all(bytes).expect("send");
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        assert!(
            ended.is_ok() || ended.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
        );
    }
    assert!(ask(&mut client, &asked(vec![descriptor(&[("user", "a")])])).is_ok(), "others go on");
}

#[test]
fn who_has_to_show_a_token_is_told_so() {
    let file = std::env::temp_dir().join(format!("ratelimit-grpc-token-{}", std::process::id()));
    std::fs::write(&file, "0123456789abcdefgh\n").expect("a token");
    let service = Service::start_listening(POLICY, &format!("token_file = {file:?}"));
    std::fs::remove_file(&file).expect("it has been read");
    let mut client = Client::connect(service.grpc);
    let question = asked(vec![descriptor(&[("user", "a")])]);
    for shown in [None, Some("Bearer 0123456789abcdefgX"), Some("0123456789abcdefgh")] {
        client.metadata = shown.map(|shown| ("authorization", shown.to_owned())).into_iter().collect();
        assert_eq!(ask(&mut client, &question).expect_err("no token").code, 16, "{shown:?}");
        assert!(
            client.call_raw("/grpc.health.v1.Health/Check", Bytes::from_static(&[0; 5])).is_ok(),
            "{shown:?}"
        );
    }
    client.metadata = vec![("authorization", "Bearer 0123456789abcdefgh".to_owned())];
    assert!(ask(&mut client, &question).is_ok());
}
