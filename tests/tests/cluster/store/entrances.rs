//! Every way into one server, and what is said to those who use the wrong one.

use std::time::Duration;

use ratelimit_tests::redis::{Certificates, Options, Redis, free_port};
use ratelimit_user::{
    policy::address::{Password, StoreAddress},
    store::redis::{RedisLink, Role, StoreError},
};

use super::{SOON, block_on, counted, open, refusal_to_open, refusal_within};

/// Opens, counts to two over it, and is asked for nothing else.
fn serves(url: &str) -> RedisLink {
    block_on(async {
        let mut link = open(url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!(counted(&mut link, "a", 1).await, Ok(1), "{url}");
        assert_eq!(counted(&mut link, "a", 2).await, Ok(2), "{url}");
        assert!(!link.is_cluster());
        link
    })
}

#[test]
fn tcp_unix_socket_and_another_database_are_ways_in() {
    let server = Redis::single(Options::default());
    serves(&server.url());
    serves(&format!("{}/3", server.url()));
    serves(&format!("redis+unix://{}?db=4", server.socket().display()));
    let said = refusal_to_open(&format!("{}/99", server.url()));
    let at = server.at();
    assert_eq!(
        said,
        format!("Redis at {at} has no database 99; its setting databases says how many there are")
    );
}

#[test]
fn a_place_where_nobody_listens_is_named() {
    let port = free_port();
    let said = refusal_to_open(&format!("redis://:s3cret@127.0.0.1:{port}"));
    assert_eq!(
        said,
        format!("Redis at 127.0.0.1:{port} cannot be reached: Connection refused (os error 111)")
    );
    let said = refusal_to_open("redis+unix:///nowhere/s");
    assert_eq!(said, "Redis at /nowhere/s cannot be reached: No such file or directory (os error 2)");
    let said = refusal_to_open("redis://no-such-name.invalid");
    assert!(said.starts_with("Redis at no-such-name.invalid:6379 cannot be reached: "), "{said}");
}

#[test]
fn passwords_and_users_are_told_apart_from_rights() {
    let server = Redis::single(Options::with([
        "requirepass s3cret",
        "user limiter on >t0ken ~* +@all",
        "user reader on >t0ken ~* +@all -evalsha",
        "user elsewhere on >t0ken ~other:* +@all",
        "user no-hset on >t0ken ~* +@all -hset",
        "user blind on >t0ken ~* +@all -info",
    ]));
    let at = server.at();
    serves(&format!("redis://:s3cret@{at}"));
    serves(&format!("redis://limiter:t0ken@{at}/1"));
    let no_password = format!(
        "Redis at {at} wants a password; name a password_file, or write it into the address as redis://user:password@host"
    );
    assert_eq!(refusal_to_open(&server.url()), no_password);
    for (login, user) in [(":wr0ng", "default"), ("limiter:wr0ng", "limiter"), ("nobody:wr0ng", "nobody")] {
        let said = refusal_to_open(&format!("redis://{login}@{at}"));
        assert_eq!(said, format!("Redis at {at} refuses the password or does not know the user \"{user}\""));
    }
    for (user, right) in [
        ("reader", "the command evalsha"),
        ("elsewhere", "the keys of the script count"),
        ("no-hset", "what the script count calls"),
    ] {
        let error = block_on(async {
            let mut link = open(&format!("redis://{user}:t0ken@{at}")).await.unwrap();
            counted(&mut link, "a", 1).await.unwrap_err()
        });
        let said = format!("Redis at {at} does not permit {right} to this user; its ACL must allow {right}");
        assert_eq!(error.to_string(), said, "{user}");
        assert!(!error.is_transient() && !error.needs_reconnect());
    }
    let error = block_on(async {
        open(&format!("redis://blind:t0ken@{at}")).await.unwrap().facts(SOON).await.unwrap_err()
    });
    assert_eq!(error, StoreError::NoPermission { at, what: "the command info".into() });
}

#[test]
fn another_password_in_the_file_counts_at_the_next_connection() {
    let server = Redis::single(Options::with(["user limiter on >first ~* +@all"]));
    let file = server.dir().join("password");
    let address = |user: &str| {
        let url = format!("redis://{user}@{}", server.at());
        StoreAddress::parse_with(&url, Some(Password::InFile(file.clone()))).unwrap()
    };
    std::fs::write(&file, "first\n").unwrap();
    block_on(async {
        let mut link = RedisLink::open(&address("limiter"), SOON).await.unwrap();
        assert_eq!(counted(&mut link, "a", 1).await, Ok(1));
        server.ask(&["ACL", "SETUSER", "limiter", "resetpass", ">second"]);
        server.ask(&["CLIENT", "KILL", "USER", "limiter"]);
        assert!(counted(&mut link, "a", 2).await.is_err_and(|error| error.needs_reconnect()));
        assert!(matches!(link.mend(SOON).await, Err(StoreError::WrongPassword { .. })));
        std::fs::write(&file, "second\n").unwrap();
        link.mend(SOON).await.unwrap();
        assert_eq!(counted(&mut link, "b", 1).await, Ok(1));
        std::fs::remove_file(&file).unwrap();
        let said = link.mend(SOON).await.unwrap_err().to_string();
        assert_eq!(said, format!("password_file {}: No such file or directory (os error 2)", file.display()));
    });
}

#[test]
fn certificates_that_are_replaced_count_at_the_next_connection() {
    let made = Certificates::new();
    let server = Redis::single(Options::tls(&made, false));
    let trusted = made.file("trusted.pem");
    std::fs::copy(made.file("ca.pem"), &trusted).unwrap();
    let url = format!("rediss://{}?ca={}", server.at(), trusted.display());
    block_on(async {
        let mut link = open(&url).await.unwrap();
        std::fs::copy(made.file("other.pem"), &trusted).unwrap();
        assert!(matches!(link.mend(SOON).await, Err(StoreError::NotTrusted { .. })));
        std::fs::write(&trusted, "no certificate").unwrap();
        assert!(
            matches!(link.mend(SOON).await, Err(StoreError::NotTrusted { .. })),
            "what was there stays in use"
        );
        std::fs::copy(made.file("ca.pem"), &trusted).unwrap();
        link.mend(SOON).await.unwrap();
        assert_eq!(counted(&mut link, "a", 1).await, Ok(1));
    });
}

#[test]
fn a_password_for_a_server_without_one_is_refused_as_the_server_says_it() {
    let server = Redis::single(Options::default());
    let said = refusal_to_open(&format!("redis://:s3cret@{}", server.at()));
    assert!(
        said.starts_with(&format!(
            "Redis at {} refused AUTH: AUTH <password> called without any password",
            server.at()
        )),
        "{said}"
    );
    assert!(!said.contains("s3cret"));
}

#[test]
fn tls_needs_the_right_authority_and_the_right_scheme() {
    let made = Certificates::new();
    let server = Redis::single(Options::tls(&made, false));
    let (at, ca) = (server.at(), made.file("ca.pem"));
    let over_tls = |options: &str| format!("rediss://{at}?{options}");
    serves(&over_tls(&format!("ca={}", ca.display())));
    assert_eq!(
        refusal_to_open(&over_tls(&format!("ca={}", made.file("other.pem").display()))),
        format!(
            "the certificate of {at} is not trusted: its issuer is unknown; name the authority with ca=FILE in the address"
        )
    );
    assert_eq!(
        refusal_to_open(&server.url()),
        format!("{at} speaks TLS; write rediss instead of redis in the address")
    );
    assert_eq!(refusal_to_open(&over_tls("ca=/no/file")), "/no/file: No such file or directory (os error 2)");
    let key = made.file("ca.key");
    assert_eq!(
        refusal_to_open(&over_tls(&format!("ca={}", key.display()))),
        format!("{}: has no certificate in PEM", key.display())
    );
    // The certificate is for 127.0.0.1 and localhost.
    let said = refusal_to_open(&format!("rediss://127.0.0.2:{}?ca={}", server.port(), ca.display()));
    assert!(said.contains("cannot be reached"), "it listens on 127.0.0.1 alone: {said}");
}

#[test]
fn a_certificate_for_another_name_is_not_trusted() {
    let made = Certificates::new();
    let server = Redis::single(Options { bind: Some("127.0.0.2".into()), ..Options::tls(&made, false) });
    let said = refusal_to_open(&format!("rediss://{}?ca={}", server.at(), made.file("ca.pem").display()));
    assert!(
        said.starts_with(&format!(
            "the certificate of {} is not trusted: certificate not valid for name",
            server.at()
        )),
        "{said}"
    );
}

#[test]
fn tls_to_a_server_without_it_is_told_from_a_slow_one() {
    let made = Certificates::new();
    let server = Redis::single(Options::default());
    let url = format!("rediss://{}?ca={}", server.at(), made.file("ca.pem").display());
    let plain = format!("{} does not speak TLS; write redis instead of rediss in the address", server.at());
    assert_eq!(refusal_to_open(&url), plain);
    server.pause();
    let said = refusal_within(&url, Duration::from_secs(2)).to_string();
    assert_eq!(said, format!("Redis at {} did not answer within 2000 ms", server.at()));
    server.resume();
}

#[test]
fn a_server_that_wants_a_certificate_gets_ours() {
    let made = Certificates::new();
    let server = Redis::single(Options::tls(&made, true));
    let file = |name: &str| made.file(name).display().to_string();
    let trusting = format!("rediss://{}?ca={}", server.at(), file("ca.pem"));
    serves(&format!("{trusting}&cert={}&key={}", file("client.pem"), file("client.key")));
    assert_eq!(
        refusal_to_open(&trusting),
        format!(
            "{} does not accept our certificate: CertificateRequired; name one with cert=FILE&key=FILE in the address",
            server.at()
        )
    );
    let said = refusal_to_open(&format!("{trusting}&cert={}&key={}", file("other.pem"), file("other.key")));
    assert!(said.contains("does not accept our certificate: UnknownCA"), "{said}");
    let said = refusal_to_open(&format!("{trusting}&cert={}&key={}", file("client.pem"), file("other.key")));
    assert!(said.starts_with(&format!("{}: is not the key of the certificate", file("other.key"))), "{said}");
}

#[test]
fn something_that_is_not_redis_is_recognised() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        let (mut client, _) = listener.accept().unwrap();
        let _asked = client.read(&mut [0; 64]).unwrap();
        client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    let said = refusal_to_open(&format!("redis://{at}"));
    assert_eq!(
        said,
        format!("{at} does not speak Redis' protocol: it answers PING with \"HTTP/1.1 400 Bad Request\"")
    );
    server.join().unwrap();
}

#[test]
fn a_server_says_what_it_is() {
    let server = Redis::single(Options::with(["maxmemory 100mb", "maxmemory-policy allkeys-lru"]));
    let facts = block_on(async { open(&server.url()).await.unwrap().facts(SOON).await.unwrap() });
    let [facts] = facts.try_into().unwrap();
    assert_eq!((facts.at.clone(), facts.role, facts.maxmemory), (server.at(), Role::Master, 100 << 20));
    assert!(facts.evicts_all_keys() && facts.version >= (6, 2, 0));
    assert_eq!(facts.run_id, server.info("run_id"));
}
