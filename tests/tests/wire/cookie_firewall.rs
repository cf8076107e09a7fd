//! Clients that come by cookie to a host whose firewall follows connections.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use ratelimit_tests::{
    cookie_site::{Asks, BY_COOKIE, BY_KERNEL, CookieSite, at},
    netns::{EDGE_V4, EDGE_V6, run},
};

const CLIENT_V4: &str = "10.99.0.2";
const CLIENT_V6: &str = "fd00:99:1::2";
const SERVERS: [&str; 2] = [EDGE_V4, EDGE_V6];

/// The page that recommends rules.
const PAGE: &str = include_str!("../../../docs/policy.md");

/// A usual ruleset: what belongs to a connection passes, what conntrack makes no sense of does not, and services are open.
const USUAL: &str = "
table inet filter {
    chain input {
        type filter hook input priority filter; policy drop;
        ct state invalid counter drop
        ct state established,related accept
        meta l4proto ipv6-icmp accept
        tcp dport { 4711, 4712 } ct state new accept
    }
}
";

/// A stricter one: connections begin with a SYN.
const SYNS_ONLY: &str = "
table inet filter {
    chain input {
        type filter hook input priority filter; policy drop;
        ct state invalid drop
        ct state established,related accept
        meta l4proto ipv6-icmp accept
        tcp dport { 4711, 4712 } tcp flags syn / fin,syn,rst,ack ct state new accept
    }
}
";

/// The rules that the page recommends, word for word but for the port: a table of its own, and a rule among those that there are.
fn recommended() -> (String, String) {
    let section = PAGE.split("### SYN cookies and firewalls").nth(1).unwrap().split("\n###").next().unwrap();
    let code: Vec<&str> = section.lines().filter_map(|line| line.strip_prefix("    ")).collect();
    let text = code.join("\n").replace("443", &BY_COOKIE.to_string());
    let at = text.rfind("\ntcp").expect("a rule by itself");
    (text[..at].to_owned(), text[at..].trim().to_owned())
}

fn nft(site: &CookieSite, rules: &str) {
    let mut nft =
        site.edge.wire.on_edge("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().expect("start nft");
    nft.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
    assert!(nft.wait().unwrap().success(), "{rules}");
}

/// A site behind a ruleset.
fn site(loose: u32, rules: &str) -> CookieSite {
    let site = CookieSite::new(&[CLIENT_V4, CLIENT_V6]);
    site.begin(EDGE_V4);
    nft(&site, rules);
    let loose = format!("net.netfilter.nf_conntrack_tcp_loose={loose}");
    run(site.edge.wire.on_edge("sysctl").args(["-w", &loose]));
    site
}

/// Whether a client that connects is heard and answered.
fn heard(site: &CookieSite, server: &str, port: u16) -> bool {
    let listener: TcpListener = site.listen(server, port, Asks::default());
    let before = site.cookies_sent();
    let client =
        site.edge.wire.as_net(|| TcpStream::connect_timeout(&at(server, port), Duration::from_secs(3)));
    assert_eq!(site.cookies_sent() > before, port == BY_COOKIE, "answered by whom it should");
    let Ok(mut client) = client else { return false };
    client.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    client.write_all(b"hello").unwrap();
    listener.set_nonblocking(true).unwrap();
    let Some((mut served, _)) = (0..20)
        .find_map(|_| listener.accept().inspect_err(|_| thread::sleep(Duration::from_millis(100))).ok())
    else {
        return false;
    };
    served.set_nonblocking(false).unwrap();
    served.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut text = [0; 5];
    served.read_exact(&mut text).is_ok()
        && served.write_all(&text).is_ok()
        && client.read_exact(&mut text).is_ok()
        && &text == b"hello"
}

fn leave_untracked(site: &CookieSite) {
    let (table, rule) = recommended();
    nft(site, &table);
    nft(site, &format!("insert rule inet filter input {rule}\n"));
}

fn warnings(site: &CookieSite) -> String {
    site.edge.json(&["status"])["warnings"].to_string()
}

#[test]
fn behind_usual_rules_clients_connect_by_cookie_and_nobody_is_warned() {
    let site = site(1, USUAL);
    for server in SERVERS {
        assert!(heard(&site, server, BY_KERNEL), "{server}: by the kernel");
        assert!(heard(&site, server, BY_COOKIE), "{server}: by cookie");
    }
    assert_eq!(warnings(&site), "[]");
}

#[test]
fn where_connections_must_be_seen_to_begin_the_operator_is_told_and_the_remedy_works() {
    let site = site(0, USUAL);
    for server in SERVERS {
        assert!(heard(&site, server, BY_KERNEL), "{server}: by the kernel");
        assert!(!heard(&site, server, BY_COOKIE), "{server}: by cookie");
    }
    let warned = warnings(&site);
    assert!(warned.contains("sysctl -w net.netfilter.nf_conntrack_tcp_loose=1"), "{warned}");
    leave_untracked(&site);
    for server in SERVERS {
        assert!(heard(&site, server, BY_KERNEL), "{server}: by the kernel, with the remedy");
        assert!(heard(&site, server, BY_COOKIE), "{server}: by cookie, with the remedy");
    }
    run(site.edge.wire.on_edge("sysctl").args(["-w", "net.netfilter.nf_conntrack_tcp_loose=1"]));
    run(site.edge.wire.on_edge("nft").args(["flush", "ruleset"]));
    nft(&site, USUAL);
    for server in SERVERS {
        assert!(heard(&site, server, BY_COOKIE), "{server}: with the other remedy");
    }
}

#[test]
fn whatever_the_rules_clients_that_do_not_get_through_are_noticed_and_so_is_the_remedy() {
    let site = site(1, SYNS_ONLY);
    let listener = site.listen(EDGE_V4, BY_COOKIE, Asks::default());
    // A listener whose queue is full has no cookies to give.
    thread::spawn(move || listener.incoming().flatten().collect::<Vec<_>>());
    assert_eq!(warnings(&site), "[]", "nobody has come yet");
    // Each an acknowledgement and data, which the client sends again and again.
    let knock = || {
        site.edge.wire.as_net(|| {
            let mut client =
                TcpStream::connect_timeout(&at(EDGE_V4, BY_COOKIE), Duration::from_secs(3)).unwrap();
            client.write_all(b"hello").unwrap();
            client
        })
    };
    let lost: Vec<TcpStream> = (0..20).map(|_| knock()).collect();
    site.daemon.wait_for_log("clients that come by SYN cookie do not get through: of the last ");
    let warned = warnings(&site);
    assert!(warned.contains("leave the ports untracked"), "{warned}");
    leave_untracked(&site);
    drop(lost);
    let started = Instant::now();
    let mut found = Vec::new();
    while warnings(&site) != "[]" {
        assert!(started.elapsed() < Duration::from_secs(30), "{}", warnings(&site));
        found.push(knock());
    }
    drop(found);
}
