//! Who may ask: tokens, certificates, sockets in the file system.

use std::{fs, path::PathBuf, process::Command};

use ratelimit_tests::{
    daemon::{Daemon, binary},
    redis::Certificates,
    resp::{Caller, packed},
    service::Service,
};

use super::{POLICY, caller};

const TOKEN: &str = "a-token-that-nobody-guesses";
const FIRST: &str = "-NOAUTH Authentication required.";
const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.";

/// A directory of this test.
fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("ratelimit-resp-{}-{name}", std::process::id()));
    fs::create_dir_all(&path).expect("a directory");
    path
}

fn guarded(name: &str) -> Service {
    let file = directory(name).join("token");
    fs::write(&file, format!("{TOKEN}\n")).expect("a token");
    Service::start_listening(POLICY, &format!("token_file = \"{}\"", file.display()))
}

#[test]
fn nothing_is_counted_for_who_has_shown_no_token() {
    let service = guarded("first");
    let mut caller = caller(&service);
    for question in [
        "CHECK ann search",
        "CL.THROTTLE k 1 1 1",
        "INFO",
        "COMMAND",
        "NOTHING",
        "CHECK",
        "REFUND ann search",
    ] {
        assert_eq!(caller.ask(question), FIRST, "{question}");
    }
    assert_eq!(caller.ask("PING"), "PONG");
    assert!(caller.ask("HELLO 3").starts_with("-NOAUTH HELLO must be called"));
    assert_eq!(caller.ask("AUTH"), "-ERR wrong number of arguments for 'auth' command");
    for wrong in [
        "AUTH x",
        "AUTH a-token-that-nobody-guesse",
        "AUTH me a-token-that-nobody-guessed",
        "HELLO 3 AUTH me x",
    ] {
        assert_eq!(caller.ask(wrong), WRONG, "{wrong}");
    }
    assert_eq!(caller.ask("CHECK ann search"), FIRST);
    assert_eq!(caller.ask(&format!("AUTH {TOKEN}")), "OK");
    assert!(caller.ask("CHECK ann search").starts_with("1 4 "));
    assert_eq!(caller.ask("AUTH x"), WRONG);
    assert_eq!(caller.ask("RESET"), "RESET");
    assert_eq!(caller.ask("CHECK ann search"), FIRST, "who begins again has shown nothing");
    let greeting = caller.ask(&format!("HELLO 3 AUTH anybody {TOKEN} SETNAME me"));
    assert!(greeting.starts_with("{server: ratelimit"), "{greeting}");
    assert!(caller.ask("CHECK ann search").starts_with("1 3 "));
}

#[test]
fn who_speaks_http_is_hung_up_on_and_nothing_of_it_is_carried_out() {
    let service = super::service();
    let mut caller = caller(&service);
    for page in [
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n\r\n",
        "GET /x HTTP/1.1\r\n",
        "host: localhost\r\n",
        "*1\r\n$4\r\npost\r\n",
    ] {
        let mut browser = super::caller(&service);
        browser.send(format!("{page}CHECK ann search 5\r\nRESETKEY ann search\r\n").as_bytes());
        assert_eq!(browser.rest(), "", "{page}");
        assert!(caller.ask("CHECK ann search PEEK").starts_with("1 5 "), "{page}");
    }
    // A caller who has shown no token uses the same words.
    let guarded = guarded("browser");
    let mut browser = super::caller(&guarded);
    browser.send(format!("POST / HTTP/1.1\r\n\r\nAUTH {TOKEN}\r\nCHECK ann search\r\n").as_bytes());
    assert_eq!(browser.rest(), "");
}

#[test]
fn an_outsider_may_send_little_and_is_told_so() {
    let guarded = guarded("little");
    let long = format!("*3\r\n$4\r\nAUTH\r\n$8000\r\n{}", "x".repeat(5_000));
    let mut outsider = caller(&guarded);
    outsider.send(long.as_bytes());
    let sentence = "-ERR Protocol error: request of more than 4096 bytes before the token was shown";
    assert_eq!(outsider.receive(), sentence);
    assert_eq!(outsider.rest(), "");
    let mut known = caller(&guarded);
    assert_eq!(known.ask(&format!("AUTH {TOKEN}")), "OK");
    known.send(long.as_bytes());
    known.send(format!("{}\r\n$1\r\nx\r\n", "x".repeat(3_000)).as_bytes());
    assert_eq!(known.receive(), WRONG);
}

#[test]
fn a_socket_in_the_file_system_needs_no_token() {
    let dir = directory("unix");
    let (policy, token, socket) = (dir.join("policy.toml"), dir.join("token"), dir.join("resp.sock"));
    fs::write(&token, TOKEN).expect("a token");
    let listen =
        format!("[listen]\nresp = \"unix:{}\"\ntoken_file = \"{}\"\n", socket.display(), token.display());
    fs::write(&policy, format!("{POLICY}{listen}")).expect("a policy");
    let mut command = Command::new(binary("ratelimit"));
    command.arg("serve").arg("--policy").arg(&policy);
    let _daemon = Daemon::start(command);
    let mut caller = Caller::open(&socket);
    assert_eq!(caller.ask("CL.THROTTLE k 0 1 60"), "0 1 0 -1 60");
    caller.send(&[packed("PING a"), packed("PING b")].concat());
    assert_eq!((caller.receive(), caller.receive()), ("a".to_owned(), "b".to_owned()));
    let output =
        Command::new("redis-cli").arg("-s").arg(&socket).args(["CL.THROTTLE", "k", "0", "1", "60"]).output();
    let output = output.expect("redis-cli");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n1\n0\n60\n60\n");
}

#[test]
fn certificates_are_spoken_over() {
    let certificates = Certificates::new();
    let (chain, key) = (certificates.file("server.pem"), certificates.file("server.key"));
    let listen = format!("tls = {{ certificate = \"{}\", key = \"{}\" }}", chain.display(), key.display());
    let service = Service::start_listening(POLICY, &listen);
    let port = service.resp.port().to_string();
    let authority = certificates.file("ca.pem");
    let mut cli = Command::new("redis-cli");
    cli.args(["-p", &port, "--tls", "--cacert"]).arg(authority).args([
        "-r",
        "3",
        "CL.THROTTLE",
        "k",
        "1",
        "1",
        "60",
    ]);
    let output = cli.output().expect("redis-cli");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "0\n2\n1\n-1\n60\n0\n2\n0\n-1\n120\n1\n2\n0\n60\n120\n", "{output:?}");
}
