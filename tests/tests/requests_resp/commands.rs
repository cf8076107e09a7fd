//! What is about connections and the server itself.

use ratelimit_tests::resp::packed;

use crate::{caller, service};

#[test]
fn commands_of_any_redis_are_answered_as_redis_answers_them() {
    let service = service();
    let mut caller = caller(&service);
    let cases = [
        ("PING", "PONG"),
        ("ping hi", "hi"),
        ("PING a b", "-ERR wrong number of arguments for 'ping' command"),
        ("ECHO hi", "hi"),
        ("ECHO", "-ERR wrong number of arguments for 'echo' command"),
        ("SELECT 0", "OK"),
        ("SELECT 1", "-ERR DB index is out of range"),
        ("SELECT x", "-ERR value is not an integer or out of range"),
        ("CONFIG GET save", ""),
        ("CONFIG SET save x", "-ERR unknown subcommand 'SET'. Try CONFIG HELP."),
        ("CLIENT GETNAME", "nil"),
        ("CLIENT SETNAME me", "OK"),
        ("CLIENT GETNAME", "me"),
        ("CLIENT SETINFO LIB-NAME x", "OK"),
        ("CLIENT SETNAME", "-ERR wrong number of arguments for 'client|setname' command"),
        ("CLIENT KILL x", "-ERR unknown subcommand 'KILL'. Try CLIENT HELP."),
        ("COMMAND COUNT", "16"),
        ("COMMAND INFO nothing", "nil"),
        ("COMMAND INFO cl.throttle", "cl.throttle -1 write fast 1 1 1    "),
        ("GET a b", "-ERR unknown command 'GET', with args beginning with: 'a' 'b' "),
        ("get", "-ERR unknown command 'get', with args beginning with: "),
        ("RESET", "RESET"),
        ("CLIENT GETNAME", "nil"),
        (
            "AUTH x",
            "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
        ),
    ];
    for (question, answer) in cases {
        assert_eq!(caller.ask(question), answer, "{question}");
    }
    assert!(caller.ask("INFO").contains("redis_version:7"));
    assert!(caller.ask("COMMAND DOCS").contains("check summary Decides about a request"));
    assert!(caller.ask("CLIENT ID").parse::<u64>().is_ok());
    assert_eq!(caller.ask("QUIT"), "OK");
    assert_eq!(caller.rest(), "");
}

#[test]
fn the_third_version_has_maps_and_a_null() {
    let service = service();
    let mut caller = caller(&service);
    assert_eq!(caller.ask("HELLO 4"), "-NOPROTO unsupported protocol version");
    assert_eq!(caller.ask("HELLO 3 SETNAME"), "-ERR Syntax error in HELLO");
    assert_eq!(caller.ask("CLIENT GETNAME"), "nil");
    let greeting = caller.ask("HELLO 3 SETNAME me");
    assert!(greeting.starts_with("{server: ratelimit, version: "), "{greeting}");
    assert!(greeting.contains("proto: 3") && greeting.ends_with("modules: }"), "{greeting}");
    assert_eq!(caller.ask("CLIENT GETNAME"), "me");
    assert_eq!(caller.ask("CONFIG GET save"), "{}");
    assert_eq!(
        caller.ask("CHECK ann free"),
        "{allowed: 1, remaining: -1, retry_after_ms: -1, reset_ms: 0, policy: nil, outcome: allowed}"
    );
    assert!(caller.ask("HELLO 2").starts_with("server ratelimit"));
    assert_eq!(caller.ask("CHECK ann free"), "1 -1 -1 0 nil allowed");
}

#[test]
fn a_pipeline_is_answered_in_its_order_however_it_is_cut() {
    let service = service();
    let mut caller = caller(&service);
    let mut pipeline = Vec::new();
    for n in 0..300 {
        pipeline.extend(packed(&format!("ECHO {n}")));
        pipeline.extend(packed("NOTHING"));
        pipeline.extend(format!("PING line{n}\r\n").bytes());
    }
    for piece in pipeline.chunks(997) {
        caller.send(piece);
    }
    for n in 0..300 {
        assert_eq!(caller.receive(), n.to_string());
        assert_eq!(caller.receive(), "-ERR unknown command 'NOTHING', with args beginning with: ");
        assert_eq!(caller.receive(), format!("line{n}"));
    }
    for byte in packed("ECHO slowly") {
        caller.send(&[byte]);
    }
    assert_eq!(caller.receive(), "slowly");
}
