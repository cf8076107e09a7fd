//! Who may ask over gRPC.

use std::{fs, process::Command};

use ratelimit_tests::{redis::Certificates, service::Service};

const POLICY: &str = "[[api]]\nname = \"web\"\nkey = [\"user\"]\nlimits = [\"10/hour\"]\n";
/// An empty message as gRPC frames it.
const NOTHING: [u8; 5] = [0; 5];
/// The answer `SERVING` as gRPC frames it.
const HEALTHY: [u8; 7] = [0, 0, 0, 0, 2, 8, 1];

#[test]
fn over_tls_a_certificate_of_ours_lets_callers_in_and_no_other_does() {
    let certificates = Certificates::new();
    let file = |name| certificates.file(name).display().to_string();
    let service = Service::start_listening(POLICY, &certificates.listen());
    let question = service.dir().join("question");
    fs::write(&question, NOTHING).expect("write the question");
    let ask = |words: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args(["-s", "--max-time", "10", "--http2", "--cacert", &file("ca.pem")]).args(words);
        curl.args(["-H", "content-type: application/grpc", "-H", "te: trailers", "--data-binary"]);
        curl.arg(format!("@{}", question.display()));
        curl.arg(format!("https://{}/grpc.health.v1.Health/Check", service.grpc));
        curl.output().expect("curl").stdout
    };
    assert_eq!(ask(&["--cert", &file("client.pem"), "--key", &file("client.key")]), HEALTHY);
    assert_eq!(ask(&[]), b"", "no certificate");
    assert_eq!(ask(&["--cert", &file("server.pem"), "--key", &file("client.key")]), b"", "not its key");
}
