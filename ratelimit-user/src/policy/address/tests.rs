//! Tables of addresses and what they parse to.

use super::*;

fn parsed(text: &str) -> StoreAddress {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn an_address_is_shown_as_it_was_typed_but_for_defaults_and_secrets() {
    for (typed, shown) in [
        ("redis://localhost", "redis://localhost:6379"),
        ("redis://10.0.0.1:7000/3", "redis://10.0.0.1:7000/3"),
        ("redis://10.0.0.1/0", "redis://10.0.0.1:6379"),
        ("redis://[2001:db8::1]:7000", "redis://[2001:db8::1]:7000"),
        ("redis://[2001:db8::1]", "redis://[2001:db8::1]:6379"),
        ("redis://:s3cret@h", "redis://h:6379"),
        ("redis://me:s3cret@h/2", "redis://me@h:6379/2"),
        ("rediss://me:s3cret@h?ca=/ca.pem&cert=/c.pem&key=/k.pem", "rediss://me@h:6379"),
        ("redis+unix:///run/redis.sock", "redis+unix:///run/redis.sock"),
        ("unix:///run/redis.sock?db=2", "redis+unix:///run/redis.sock?db=2"),
        ("redis+unix://me:s3cret@/run/r.sock", "redis+unix://me@/run/r.sock"),
        ("redis+sentinel://a,b:1/mymaster", "redis+sentinel://a:26379,b:1/mymaster"),
        ("rediss+sentinel://me:s3cret@a,b/m/1", "rediss+sentinel://me@a:26379,b:26379/m/1"),
        ("redis+cluster://a,b:7000", "redis+cluster://a:6379,b:7000"),
        ("rediss+cluster://:s3cret@a/", "rediss+cluster://a:6379"),
    ] {
        let address = parsed(typed);
        assert_eq!(address.to_string(), shown, "{typed}");
        assert!(!format!("{address:?} {:?}", address.login).contains("s3cret"), "{typed}");
    }
}

#[test]
fn parts_may_be_percent_encoded() {
    let login = parsed("redis://us%40er:p%2F%3A%40%25%23w@h").login.unwrap();
    let known = |password: &str| Password::Known(password.to_owned());
    assert_eq!((login.user.as_deref(), login.password), (Some("us@er"), known("p/:@%#w")));
    // A password may have a colon and an @ as it is: the first colon and the last @ count.
    assert_eq!(parsed("redis://me:a:b@c@h").login.unwrap().password, known("a:b@c"));
    assert_eq!(parsed("redis+unix:///a%20b").place, StorePlace::Single(Endpoint::Unix("/a b".into())));
}

#[test]
fn files_for_tls_are_kept() {
    let tls = parsed("rediss://h?ca=/a/ca.pem&cert=c.pem&key=k.pem").tls.unwrap();
    assert_eq!(tls.ca, Some("/a/ca.pem".into()));
    assert_eq!(tls.identity, Some(Identity { cert: "c.pem".into(), key: "k.pem".into() }));
    assert_eq!(parsed("rediss://h").tls, Some(Tls::default()));
    assert_eq!(parsed("redis://h").tls, None);
}

#[test]
fn a_mistake_gets_a_sentence_that_says_what_would_be_right() {
    for (typed, said) in [
        ("localhost:6379", "the address has no scheme; write for example redis://127.0.0.1:6379"),
        ("", "the address has no scheme; write for example redis://127.0.0.1:6379"),
        (
            "http://h",
            "scheme \"http\" is not known; use redis, rediss, redis+unix, redis+sentinel, rediss+sentinel, redis+cluster or rediss+cluster",
        ),
        ("redis://", "host \"\" is not a name or address; write for example 127.0.0.1:6379"),
        ("redis://a b", "host \"a b\" is not a name or address; write for example 127.0.0.1:6379"),
        ("redis+cluster://a,,b", "host \"\" is not a name or address; write for example 127.0.0.1:6379"),
        ("redis://h:70000", "host \"h\" has a port that is not a number from 1 to 65535"),
        ("redis://h:0", "host \"h\" has a port that is not a number from 1 to 65535"),
        ("redis://h:", "host \"h\" has a port that is not a number from 1 to 65535"),
        ("redis://::1", "a host has more than one colon; put IPv6 in brackets, as in [2001:db8::1]:6379"),
        ("redis://[::1", "a host in brackets has no closing one before the port; write [2001:db8::1]:6379"),
        ("redis://me:s3cret", "host \"me\" has a port that is not a number from 1 to 65535"),
        (
            "redis://me:s3cret/more@h",
            "the address has an @ behind / or ?; inside a password write / as %2F, ? as %3F and @ as %40",
        ),
        (
            "redis://me:s3cret?more@h",
            "the address has an @ behind / or ?; inside a password write / as %2F, ? as %3F and @ as %40",
        ),
        ("redis://h/x", "database \"x\" is not a number; use for example /0"),
        ("redis://h/-1", "database \"-1\" is not a number; use for example /0"),
        ("redis://h/1/2", "database \"1/2\" is not a number; use for example /0"),
        ("redis://a,b", "2 hosts for one server; use redis+sentinel:// or redis+cluster:// for several"),
        (
            "redis://me@h",
            "a user without a password; name a password_file, or write user:password@host, or :password@host for the default user",
        ),
        ("redis://me:@h", "the password is empty; write user:password@host, or leave out both"),
        (
            "redis://:s3cret%zz@h",
            "the password has a % without two hexadecimal digits; write a % itself as %25",
        ),
        (
            "redis://:s3cret%e@h",
            "the password has a % without two hexadecimal digits; write a % itself as %25",
        ),
        ("redis://:s3cret#1@h", "the address has a #; inside a name or password write it as %23"),
        ("redis+cluster://a/1", "database \"1\": a Redis Cluster has only database 0; leave it out"),
        (
            "redis+sentinel://a",
            "the name of the master is missing; write redis+sentinel://host:26379/NAME with the name that the Sentinels have for it",
        ),
        (
            "redis+unix://run/r.sock",
            "the path of the socket does not begin with /; write redis+unix:///path/to/socket",
        ),
        ("unix:///", "/ is not the path of a socket; write redis+unix:///path/to/socket"),
        ("unix:///s?ca=/x", "ca=, cert= and key= are for TLS; a Unix socket has none"),
        ("redis://h?ca=/x", "ca=, cert= and key= are for TLS; write rediss instead of redis"),
        ("rediss://h?ca=", "option ca has no value; write ca=/path/to/file.pem"),
        ("rediss://h?ca=/a&ca=/b", "option ca is there twice; leave one of them out"),
        ("rediss://h?cert=/c", "cert= without key=; a client certificate needs both"),
        ("rediss://h?key=/c", "key= without cert=; a client certificate needs both"),
        (
            "rediss://h?insecure",
            "option \"insecure\" is not known; there are ca, cert, key, and db for Unix sockets",
        ),
        (
            "redis://h?db=1",
            "db= is for Unix sockets; write the database as the last part of the path, as in redis://host/1",
        ),
    ] {
        let error = typed.parse::<StoreAddress>().expect_err(typed);
        assert_eq!(error.to_string(), said, "{typed}");
        assert!(!error.to_string().contains("s3cret"), "{typed}");
    }
}

#[test]
fn a_sentinel_that_is_there_twice_however_it_is_written_is_refused_as_it_has_one_vote() {
    for (hosts, twice) in [
        ("a,b,a", "a:26379"),
        ("a,a:26379,b", "a:26379"),
        ("s1.example.org,S1.Example.org.", "S1.Example.org.:26379"),
        ("10.0.0.1:1,10.0.0.2:1,[::ffff:10.0.0.1]:1", "[::ffff:10.0.0.1]:1"),
        ("[2001:db8::1],[2001:DB8:0::1]", "[2001:DB8:0::1]:26379"),
    ] {
        for scheme in ["redis+sentinel", "rediss+sentinel"] {
            let error =
                format!("{scheme}://:s3cret@{hosts}/main").parse::<StoreAddress>().unwrap_err().to_string();
            let said =
                format!("Sentinel {twice} is there twice and would have two votes; name each Sentinel once");
            assert_eq!(error, said, "{hosts}");
        }
    }
    // Sentinels at different ports or names count as different Sentinels; cluster nodes have no votes, so they may repeat.
    let others = "a,a:1,b,10.0.0.1,10.0.0.2,[::1]";
    assert_eq!(parsed(&format!("redis+sentinel://{others}/main")).endpoints().len(), 6);
    assert_eq!(parsed("redis+cluster://a,a").endpoints().len(), 2);
}

#[test]
fn a_password_apart_from_the_address_is_for_the_user_in_it_or_the_default_one() {
    let apart = || Some(Password::InFile("/p".into()));
    for (text, user) in [
        ("redis://h", None),
        ("redis://acme@h:1/2", Some("acme")),
        ("redis+unix:///s", None),
        ("redis+unix://acme@/s", Some("acme")),
        ("rediss+sentinel://acme@h/main", Some("acme")),
    ] {
        let login = StoreAddress::parse_with(text, apart()).unwrap().login.unwrap();
        assert_eq!((login.user.as_deref(), Some(login.password)), (user, apart()), "{text}");
    }
    let both = StoreAddress::parse_with("redis://acme:hunter2@h", apart()).unwrap_err().to_string();
    assert_eq!(both, "the password is in the address and apart from it; leave one of them out");
}

#[test]
fn what_others_say_about_a_command_line_shows_no_password() {
    for (text, safe) in [
        (
            "unexpected argument 'redis://u:pa@ss@h:1/2' found",
            "unexpected argument 'redis://***@h:1/2' found",
        ),
        ("a redis://:x@h b rediss://y:z@g c", "a redis://***@h b rediss://***@g c"),
        ("see https://example.org/a", "see https://example.org/a"),
        ("no address", "no address"),
    ] {
        assert_eq!(without_passwords(text), safe);
    }
}
