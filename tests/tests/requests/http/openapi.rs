//! The document of the API: what it says is what is answered.

use std::{collections::BTreeSet, process::Command};

use ratelimit_tests::service::Service;
use serde_json::Value;

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

/// The names of the properties of a schema.
fn properties(document: &Value, schema: &str) -> BTreeSet<String> {
    let properties = document["components"]["schemas"][schema]["properties"].as_object().expect(schema);
    properties.keys().cloned().collect()
}

fn keys(object: &Value) -> impl Iterator<Item = String> {
    object.as_object().into_iter().flatten().map(|(name, _)| name.clone())
}

#[test]
fn the_document_has_every_method_and_every_field_and_no_others() {
    let limited = "[[api]]\nname = \"few\"\nlimits = [\"1/hour\"]\n";
    let queue =
        "[[api]]\nname = \"queue\"\nlimits = [\"2/s burst 20 leaky-bucket\"]\non_limit = \"delay 5s\"\n";
    let service = Service::start(&format!("{limited}{queue}"));
    let mut client = service.connect();
    let document = client.get("/openapi.json").json();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] {
            let documented = methods.get(method.to_lowercase()).is_some();
            // Whoever answers GET answers HEAD.
            let expected = documented || (method == "HEAD" && methods.get("get").is_some());
            let reply = client.ask(method, path, &[], "");
            assert_eq!(reply.status != 405, expected, "{method} {path}: {}", reply.status);
        }
    }

    let unknown = client.post("/v1/check", r#"{"api": "few", "colour": "red"}"#).json();
    let detail = unknown["detail"].as_str().expect("a sentence");
    let (_, known) = detail.split_once("there are ").expect("the fields that there are");
    let known: BTreeSet<String> = known.replace(" and ", ", ").split(", ").map(str::to_owned).collect();
    assert_eq!(known, properties(&document, "Question"), "{detail}");

    // Served, refused, delayed, and one that is no question.
    let ask = r#"{"api": "few", "user": "ann"}"#;
    let wait = r#"{"api": "queue", "user": "ann"}"#;
    let answers = client.post("/v1/check", &format!("[{ask}, {ask}, {wait}, {wait}, 5]")).json();
    let (failed, decided) = answers.as_array().and_then(|all| all.split_last()).expect("answers");
    let told: BTreeSet<String> = decided.iter().flat_map(keys).collect();
    assert_eq!(told, properties(&document, "Decision"), "{answers}");
    assert_eq!(keys(failed).collect::<BTreeSet<_>>(), properties(&document, "Failed"));
    let problem = client.get("/v1/check?user=ann&api=few");
    assert_eq!(keys(&problem.json()).collect::<BTreeSet<_>>(), properties(&document, "Problem"));
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
