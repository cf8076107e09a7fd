//! What is about connections and the server itself.

use ratelimit_tests::resp::packed;

use super::{caller, service};

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
        ("COMMAND COUNT", "19"),
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
    // Libraries make lists of maps, and whether it is allowed must be what comes first.
    assert_eq!(caller.ask("CHECK ann free"), "1 -1 -1 0 nil allowed");
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

#[test]
fn a_transaction_is_carried_out_at_its_end_and_not_before() {
    let service = service();
    let (mut caller, mut other) = (caller(&service), caller(&service));
    let left = |other: &mut ratelimit_tests::resp::Caller<_>, user: &str| {
        other.ask(&format!("CHECK {user} search PEEK")).split(' ').nth(1).unwrap().to_owned()
    };
    for (question, answer) in [
        ("EXEC", "-ERR EXEC without MULTI"),
        ("DISCARD", "-ERR DISCARD without MULTI"),
        ("MULTI", "OK"),
        ("CHECK ann search 2", "QUEUED"),
        ("CHECK ann search 4", "QUEUED"),
        ("PING done", "QUEUED"),
    ] {
        assert_eq!(caller.ask(question), answer, "{question}");
    }
    assert_eq!(left(&mut other, "ann"), "5", "nothing is counted yet");
    let all = caller.ask("EXEC");
    assert!(
        all.starts_with("1 3 -1 ") && all.contains(" allowed 0 ") && all.ends_with(" refused done"),
        "{all}"
    );
    assert_eq!(left(&mut other, "ann"), "3");
    // A transaction with something wrong in it, one that is given up, and one that is left: nothing is counted.
    for (wrong, sentence) in [
        ("NONSENSE", "-ERR unknown command 'NONSENSE', with args beginning with: "),
        ("CHECK bob", "-ERR wrong number of arguments for 'check' command"),
        ("HELLO 3", "-ERR Command not allowed inside a transaction"),
        ("MULTI", "-ERR MULTI calls can not be nested"),
        ("WATCH x", "-ERR unknown command 'WATCH', with args beginning with: 'x' "),
    ] {
        assert_eq!((caller.ask("MULTI"), caller.ask("CHECK bob search")), ("OK".into(), "QUEUED".into()));
        assert_eq!(caller.ask(wrong), sentence);
        assert_eq!(caller.ask("EXEC"), "-EXECABORT Transaction discarded because of previous errors.");
    }
    for end in ["DISCARD", "RESET"] {
        assert_eq!((caller.ask("MULTI"), caller.ask("CHECK bob search")), ("OK".into(), "QUEUED".into()));
        assert_eq!(caller.ask(end), end.replace("DISCARD", "OK"));
        assert_eq!(caller.ask("EXEC"), "-ERR EXEC without MULTI");
    }
    assert_eq!(left(&mut other, "bob"), "5");
    // More than a request may have is not kept.
    caller.ask("MULTI");
    let long = format!("ECHO {}", "x".repeat(40_000));
    assert_eq!(caller.ask(&long), "QUEUED");
    assert_eq!(caller.ask(&long), "-ERR a transaction has at most 65536 bytes");
    assert!(caller.ask("EXEC").starts_with("-EXECABORT"));
}

#[test]
fn the_answer_to_a_transaction_waits_for_the_last_of_its_turns() {
    let service = service();
    let mut caller = caller(&service);
    let begun = std::time::Instant::now();
    caller.send(b"MULTI\r\nCHECK ann queue\r\nCHECK ann queue\r\nCHECK ann queue\r\nEXEC\r\nPING behind\r\n");
    for _ in 0..4 {
        caller.receive();
    }
    let all = caller.receive();
    assert!(all.ends_with("queue delayed"), "{all}");
    assert!(begun.elapsed() >= std::time::Duration::from_millis(98), "{:?}", begun.elapsed());
    assert_eq!(caller.receive(), "behind");
}
