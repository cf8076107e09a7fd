//! The document of the API: what it says is what is answered.

use std::{collections::BTreeSet, process::Command};

use ratelimit_tests::service::Service;

const POLICY: &str = "[[api]]\nname = \"*\"\nkey = [\"api\", \"ip\"]\nlimits = [\"5/s\"]\n";

#[test]
fn the_document_has_every_path_and_every_reference_in_it_leads_somewhere() {
    let service = Service::start(POLICY);
    let reply = service.get("/openapi.json");
    assert_eq!((reply.status, reply.field("content-type")), (200, Some("application/json")));
    let document = reply.json();
    assert_eq!(document["openapi"], "3.1.0");
    let paths: BTreeSet<&str> =
        document["paths"].as_object().expect("paths").keys().map(String::as_str).collect();
    let expected = ["/healthz", "/openapi.json", "/readyz", "/v1/check", "/v1/refund", "/v1/reset"];
    assert_eq!(paths, BTreeSet::from(expected));
    for reference in reply.body.split("\"$ref\": \"#").skip(1) {
        let pointer = reference.split('"').next().expect("a pointer");
        assert!(document.pointer(pointer).is_some(), "{pointer}");
    }
}

/// Questions made up from the document, right and wrong ones: every answer is one that the document has.
#[test]
fn a_fuzzer_that_knows_the_document_finds_nothing_that_it_does_not_say() {
    // With the token, so that things are changed as well.
    let token = std::env::temp_dir().join(format!("ratelimit-fuzzed-{}", std::process::id()));
    std::fs::write(&token, "a-token-that-nobody-guesses").expect("write the token");
    let service = Service::start_listening(POLICY, &format!("token_file = \"{}\"", token.display()));
    std::fs::remove_file(&token).expect("remove the token");
    let output = Command::new("schemathesis")
        .args(["run", &format!("http://{}/openapi.json", service.http)])
        .args([
            "--max-examples",
            "25",
            "--seed",
            "1",
            "--generation-deterministic",
            "--phases",
            "examples,coverage,fuzzing",
        ])
        .args(["--header", "Authorization: Bearer a-token-that-nobody-guesses"])
        .args(["--checks", "all", "--request-timeout", "10", "--no-color"])
        .current_dir(service.dir())
        .output()
        .unwrap_or_else(|error| panic!("cannot start schemathesis: {error}; cargo xtask test installs it"));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(service.get("/healthz").status, 200);
}
