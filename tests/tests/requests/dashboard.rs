//! The dashboard of a daemon that guards an interface: what it shows of real traffic, and what is ordered there.

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    process::Stdio,
};

use ratelimit_tests::{
    answer::assert_answer,
    browser::Browser,
    daemon::{Edge, binary},
    netns::{EDGE, EDGE_V4, run},
    redis::{Options, Redis, wait_for},
    service::{Client, Reply},
    traffic::{PORT, edge_with_sources, flood},
};
use serde_json::Value;

const OPERATOR: &str = "an-operators-own-token";
const HONEST: &str = "10.99.1.7";
const FLOODER: &str = "10.99.3.66";

/// A policy with the dashboard on loopback and on the guarded interface, and an operator's token.
fn policy(edge: &Edge) -> String {
    let file = |name: &str, text: &str| {
        let path = edge.dir().join(name);
        std::fs::write(&path, text).expect("write a token");
        path
    };
    format!(
        "[source]\nlimits = [\"400 packets/s burst 400\"]\n[[service]]\nname = \"game\"\nmatch = {{ protocol = \"udp\", ports = [{PORT}] }}\n\
         [listen]\nhttp = [\"127.0.0.1:8080\", \"{EDGE_V4}:8080\"]\ntoken_file = {:?}\noperator_token_file = {:?}\n\
         [[api]]\nname = \"search\"\nkey = [\"user\"]\nlimits = [\"5/min\"]\n",
        file("token", "a-token-that-nobody-guesses"),
        file("operator-token", OPERATOR),
    )
}

/// A policy whose dashboard is open to everybody on loopback, and listens nowhere else.
fn open_policy(edge: &Edge) -> String {
    let text = policy(edge).replace(&format!(", \"{EDGE_V4}:8080\""), "");
    text.lines().filter(|line| !line.starts_with("token_file")).map(|line| format!("{line}\n")).collect()
}

fn client(edge: &Edge) -> Client<TcpStream> {
    let stream = edge.wire.as_edge(|| TcpStream::connect("127.0.0.1:8080")).expect("the daemon listens");
    Client::new(stream).under("127.0.0.1:8080")
}

/// Gives an order with further header fields.
fn order(client: &mut Client<TcpStream>, token: &str, fields: &[(&str, &str)], order: &str) -> Reply {
    let shown = format!("Bearer {token}");
    let mut all = vec![("Authorization", shown.as_str())];
    if !fields.iter().any(|(name, _)| *name == "Content-Type") {
        all.push(("Content-Type", "application/json"));
    }
    all.extend(fields);
    client.ask("POST", "/dashboard/order", &all, order)
}

fn blocks(edge: &Edge) -> Vec<Value> {
    edge.json(&["block", "list"])["blocks"].as_array().expect("a list").clone()
}

#[test]
fn an_order_is_carried_out_for_the_operators_token_alone_and_cuts_off_nobody_who_must_not_be() {
    let edge = edge_with_sources(&[HONEST]);
    let daemon = edge.start(&policy(&edge));
    let block = r#"{"order":"block","prefix":"10.99.3.0/24","for":"10m","reason":"too loud"}"#;
    for (token, fields, status, why) in [
        ("a-token-that-nobody-guesses", &[][..], 403, "operator's token"),
        ("a-token-that-nobody-knows--", &[], 401, "not the right one"),
        (OPERATOR, &[("Origin", "http://rebound.example")], 403, "own page"),
        (OPERATOR, &[("Origin", "null")], 403, "own page"),
        (OPERATOR, &[("Sec-Fetch-Site", "cross-site")], 403, "own page"),
        (OPERATOR, &[("Content-Type", "text/plain")], 415, "application/json"),
    ] {
        // What is refused before its body is read ends the connection.
        let refused = order(&mut client(&edge), token, fields, block);
        assert_eq!(refused.status, status, "{token} {fields:?}: {refused:?}");
        assert!(refused.json()["detail"].as_str().unwrap().contains(why), "{refused:?}");
    }
    assert_eq!(blocks(&edge), [] as [Value; 0], "nothing has come of it");
    let mut here = client(&edge);
    let done = order(&mut here, OPERATOR, &[("Origin", "http://127.0.0.1:8080")], block);
    assert_eq!(
        (done.status, done.json()["message"].as_str().unwrap()),
        (200, "blocked 10.99.3.0/24 for 600 s")
    );
    assert_eq!(blocks(&edge)[0]["reason"], "too loud");
    daemon.wait_for_log("10.99.3.0/24 blocked for 600 s by the dashboard, from 127.0.0.1: too loud");
    // This host, and the operator in the network, whose address no field of a header changes.
    let own = format!(r#"{{"order":"block","prefix":"{EDGE_V4}"}}"#);
    let refused = order(&mut here, OPERATOR, &[], &own);
    assert!(refused.status >= 400 && refused.body.contains("own address"), "{refused:?}");
    let stream = edge.wire.as_net(|| TcpStream::connect((EDGE_V4, 8080))).expect("connect");
    let mut far = Client::new(stream).under("edge.example");
    let local = far.stream().local_addr().unwrap().ip();
    let fields = [("X-Forwarded-For", "192.0.2.1"), ("Origin", "http://edge.example")];
    let refused = order(&mut far, OPERATOR, &fields, r#"{"order":"block","prefix":"10.99.0.0/16"}"#);
    assert!(refused.status >= 400, "{refused:?}");
    assert!(refused.body.contains(&format!("you are connected from {local}")), "{refused:?}");
    for (text, status, part) in [
        (r#"{"order":"allow","prefix":"192.0.2.0/24"}"#, 200, "neither blocked nor limited"),
        (r#"{"order":"disallow","prefix":"192.0.2.0/24"}"#, 200, "removed"),
        (r#"{"order":"unblock","prefix":"10.99.3.0/24"}"#, 200, "removed"),
        (r#"{"order":"unblock","prefix":"10.99.3.0/24"}"#, 409, "not on the block list"),
        (r#"{"order":"block","prefix":"somewhere"}"#, 400, "somewhere"),
        (r#"{"order":"block","prefix":"10.99.0.0/16","operator":{"force":true}}"#, 400, "operator"),
    ] {
        let reply = order(&mut here, OPERATOR, &[], text);
        assert_eq!(reply.status, status, "{text}: {reply:?}");
        assert!(reply.body.contains(part), "{text}: {reply:?}");
    }
    let long = format!(r#"{{"order":"block","prefix":"{}"}}"#, "1".repeat(5_000));
    assert_eq!(order(&mut here, OPERATOR, &[], &long).status, 413);
    assert_eq!(blocks(&edge), [] as [Value; 0]);
}

#[test]
fn an_operators_token_that_programs_have_too_is_refused_and_changes_nothing() {
    const SHARED: &str = "a-token-that-nobody-guesses";
    let edge = edge_with_sources(&[HONEST]);
    let text = policy(&edge);
    let operators = edge.dir().join("operator-token");
    let why = &["operator_token_file has the token of token_file", "name a file with another token"];
    let check = |text: &str| {
        edge.write_policy(text);
        edge.wire.on_edge(binary("ratelimit")).arg("check").arg(edge.policy()).output().expect("run check")
    };
    // The file itself, under two names that look different, and another file with the words of the first.
    let token = edge.dir().join("token");
    let same = text.replace(&format!("{operators:?}"), &format!("{:?}", edge.dir().join("./token")));
    assert_ne!(same, text);
    assert_answer(&check(&same), 2, why);
    assert_answer(&check(&text), 0, &[]);
    std::fs::write(&operators, format!("{SHARED}\nand a second line")).expect("write a token");
    assert_answer(&check(&text), 2, &[why[0], why[1], "policy.toml:9:23"]);
    assert_answer(&edge.run_command().args(["--iface", EDGE]).output().expect("run"), 2, why);
    let mut serve = edge.wire.on_edge(binary("ratelimit"));
    assert_answer(&serve.args(["serve", "--policy"]).arg(edge.policy()).output().expect("serve"), 2, why);
    // Files change while the daemon runs.
    std::fs::write(&operators, OPERATOR).expect("write a token");
    let _daemon = edge.start(&text);
    let mut here = client(&edge);
    let block = r#"{"order":"block","prefix":"10.99.3.0/24"}"#;
    std::fs::write(&token, OPERATOR).expect("write a token");
    let refused = order(&mut here, OPERATOR, &[], block);
    assert_eq!(refused.status, 403, "{refused:?}");
    assert!(refused.body.contains("operator's token"), "{refused:?}");
    std::fs::write(&token, SHARED).expect("write a token");
    assert_eq!(order(&mut here, OPERATOR, &[], block).status, 200);
}

#[test]
fn a_browser_shows_the_hosts_of_the_cluster_and_the_bound_in_force() {
    let mut redis = Redis::single(Options::default());
    let edge = Edge::new();
    let cluster =
        format!("[cluster]\nredis = \"redis+unix://{}\"\nhost = \"edge-7\"\n", redis.socket().display());
    let _daemon = edge.start(&(open_policy(&edge) + &cluster));
    let mut page = Browser::start(edge.wire.on_edge("sh"), edge.dir());
    page.look(1280, 900, "light");
    page.open("http://127.0.0.1:8080/");
    let panel = "document.querySelector('#cluster')?.innerText?";
    page.wait_for(&format!("{panel}.includes('burst + rate x time on all hosts together')"));
    page.wait_for(&format!("{panel}.includes('up, ')"));
    page.wait_for(
        "[...document.querySelectorAll('#hosts tbody tr')].some((row) => row.cells[0].innerText === 'edge-7' && row.cells[1].innerText === 'here')",
    );
    redis.kill();
    page.wait_for(&format!("{panel}.includes('AWAY: ')"));
}

#[test]
fn a_browser_shows_real_traffic_explains_blocks_and_finds_its_daemon_again() {
    let edge = edge_with_sources(&[HONEST, FLOODER]);
    let daemon = edge.start(&open_policy(&edge));
    let senders = [flood(&edge, HONEST, EDGE_V4, 50, 600.0), flood(&edge, FLOODER, EDGE_V4, 3_000, 600.0)];
    let mut senders = senders.map(Ended);
    let mut page = Browser::start(edge.wire.on_edge("sh"), edge.dir());
    page.look(1280, 900, "light");
    page.open("http://127.0.0.1:8080/");
    // Charts move: there is a line, and it is another one later.
    let line = "document.querySelector('#traffic-chart .s0')?.getAttribute('d')";
    let before = page.wait_for(line);
    page.wait_for(&format!("{line} !== {before}"));
    page.wait_for(
        "Number(document.querySelector('[data-tile=dropped] .value').innerText.match(/[\\d.]+/)[0]) > 0",
    );
    let label = page.wait_for("document.querySelector('#traffic-chart svg').getAttribute('aria-label')");
    assert!(label.as_str().unwrap().starts_with("Traffic, now: offered "), "{label}");
    page.wait_for(
        "[...document.querySelectorAll('#reasons th')].some((one) => one.innerText === 'limit packets')",
    );
    // Who it is: the flooder, its prefix, and what it is refused for.
    let listed = |who: &str| {
        format!(
            "[...document.querySelectorAll('#talkers tbody tr')].find((row) => row.cells[0].innerText === '{who}' && row.innerText.includes('game'))?.innerText"
        )
    };
    // In its first second it had its burst, and was refused nothing.
    page.wait_for(&format!("({})?.includes('limit packets')", listed(FLOODER)));
    page.wait_for(&listed(HONEST));
    page.click("input[value=prefixes]");
    page.wait_for(&listed("10.99.3.0/24"));
    page.wait_for("document.querySelector('#badges').innerText.includes('protected')");
    page.wait_for("/0; while totals were spent 0 of their packets came first, 0 were refused/.test(document.querySelector('#host').innerText)");
    // The flood is an attack by now, and how it goes is told.
    page.click("#attacks button");
    let told = page
        .wait_for("document.querySelector('#attack figure') && document.querySelector('#attack').innerText");
    assert!(told.as_str().unwrap().contains("on service game"), "{told}");
    page.wait_for("/attack on game/i.test(document.querySelector('#badges').innerText)");
    // Read-only: without the token there is nothing to block with.
    assert_eq!(page.evaluate("document.querySelector('.needs-token').hidden"), true);
    page.type_into("#address", FLOODER);
    page.press("Enter");
    let told = page.wait_for(
        "document.querySelector('#explanation h3') && document.querySelector('#explanation').innerText",
    );
    assert!(told.as_str().unwrap().contains("400 packets/s burst 400"), "{told}");
    // A wrong token, then the right one, then a block with its confirmation.
    for token in ["not-the-operators-token", OPERATOR] {
        page.wait_for("document.querySelector('#token-dialog').open || (document.querySelector('#unlock').click(), false)");
        page.type_into("#token", token);
        page.press("Enter");
        if token != OPERATOR {
            page.wait_for(
                "document.querySelector('#token-dialog .error').innerText.includes('not the right one')",
            );
        }
    }
    page.wait_for("!document.querySelector('.needs-token').hidden");
    page.click("#add-block");
    page.type_into("#order-prefix", FLOODER);
    page.type_into("#order-reason", "from the browser");
    assert_eq!(blocks(&edge), [] as [Value; 0], "not before it is confirmed");
    page.press("Enter");
    page.wait_for(&format!("document.querySelector('#notice').innerText.includes('blocked {FLOODER}')"));
    assert_eq!(blocks(&edge)[0]["prefix"], format!("{FLOODER}/32"));
    let before = edge.dropped("blocked");
    wait_for("packets that the block drops", || (edge.dropped("blocked") > before + 100).then_some(()));
    page.wait_for(&format!("document.querySelector('#lists').innerText.includes('{FLOODER}')"));
    page.wait_for("[...document.querySelectorAll('#reasons th')].some((one) => one.innerText === 'blocked')");
    // The two questions with the wrong token were refused, and the browser says so.
    let unexpected: Vec<_> =
        page.complaints.iter().filter(|one| !one.contains("401 (Unauthorized)")).collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
    assert_eq!(page.evaluate("document.documentElement.scrollWidth <= innerWidth"), true);
    page.look(360, 740, "dark");
    assert_eq!(page.evaluate("document.documentElement.scrollWidth"), 360, "it fits a telephone");
    // The daemon goes and another one comes: the page says both, and goes on.
    daemon.kill_9();
    page.wait_for("document.querySelector('#notice').innerText.startsWith('Not live')");
    let _again = edge.start_again();
    page.wait_for("document.querySelector('#connection').innerText === 'live' && document.querySelector('#notice').innerText.includes('restarted: connected again after')");
    assert_eq!(page.evaluate("document.querySelector('#notice').className"), "good", "success is no warning");
    let before = page.wait_for(line);
    page.wait_for(&format!("{line} !== {before}"));
    assert_eq!(blocks(&edge)[0]["prefix"], format!("{FLOODER}/32"), "and the block is still there");
    senders.iter_mut().for_each(Ended::end);
}

/// Tables and boxes that are wider than their place, cells that reach beyond their panel, and boxes with a scroll bar of their own.
const CUT_OFF: &str = "(() => {
    const shown = (node) => node.getClientRects().length;
    const boxes = [...document.querySelectorAll('main .card, main .scroll, main table')].filter(shown);
    const scrolls = boxes.filter((node) => node.scrollWidth > node.clientWidth + 1
        || (getComputedStyle(node).overflowY !== 'visible' && node.scrollHeight > node.clientHeight + 1));
    const cells = [...document.querySelectorAll('main th, main td')].filter(shown);
    const beyond = cells.filter((cell) => cell.scrollWidth > cell.clientWidth + 1
        || cell.getBoundingClientRect().right > cell.closest('section').getBoundingClientRect().right + 1);
    return [...scrolls, ...beyond].map((node) => `${node.closest('[id]')?.id}: ${node.textContent.slice(0, 40)}`);
})()";

#[test]
fn tables_fit_every_screen_without_scroll_bars() {
    let edge = edge_with_sources(&[HONEST, FLOODER]);
    let more: String = (0..14)
        .map(|number| {
            format!(
                "[[service]]\nname = \"service-with-a-long-name-{number}\"\n\
                 match = {{ protocol = \"udp\", ports = [{}] }}\ntotal = [\"200000 packets/s\"]\n",
                20_000 + number
            )
        })
        .collect();
    let _daemon = edge.start(&(open_policy(&edge) + &more));
    let senders = [flood(&edge, HONEST, EDGE_V4, 50, 600.0), flood(&edge, FLOODER, EDGE_V4, 3_000, 600.0)];
    let mut senders = senders.map(Ended);
    for number in 0..20 {
        let address = format!("2001:db8:aaaa:{number:x}::/64");
        let added =
            edge.cli(&["block", "add", &address, "--for", "2h", "--reason", "seen in the log of the shop"]);
        assert!(added.status.success());
    }
    let mut page = Browser::start(edge.wire.on_edge("sh"), edge.dir());
    page.look(1280, 900, "light");
    page.open("http://127.0.0.1:8080/");
    page.wait_for("document.querySelector('#attacks button') && document.querySelector('#talkers button')");
    page.wait_for("document.querySelectorAll('#lists tbody tr').length >= 12");
    for width in [768, 1280, 1440, 1920] {
        page.look(width, 900, "light");
        page.evaluate("new Promise((done) => setTimeout(done, 1500))");
        assert_eq!(page.evaluate(CUT_OFF), Value::Array(Vec::new()), "{width} pixels");
        assert_eq!(page.evaluate("document.documentElement.scrollWidth"), width, "{width} pixels");
        let talker = "document.querySelector('#talkers tbody tr')";
        let visible = page.evaluate(&format!(
            "[...{talker}.cells].filter((cell) => cell.textContent === '' || cell.getClientRects().length).length"
        ));
        assert_eq!(visible, 9, "all columns at {width} pixels");
        if let Some(directory) = std::env::var_os("SCREENSHOTS_OF_WIDTHS") {
            let path = std::path::Path::new(&directory).join(format!("{width}.b64"));
            std::fs::write(path, page.screenshot()).expect("write");
        }
    }
    // What is left out is one click away.
    let rows = "document.querySelectorAll('#lists tbody tr').length";
    assert_eq!(page.evaluate(rows), 12);
    page.evaluate("document.querySelector('#lists').parentNode.querySelector('.rest').click()");
    assert_eq!(page.evaluate(rows), 20);
    senders.iter_mut().for_each(Ended::end);
}

#[test]
fn a_page_shows_what_came_before_it_was_opened() {
    let edge = edge_with_sources(&[FLOODER]);
    let text = open_policy(&edge);
    let without_apis = text.split("[[api]]").next().expect("a policy");
    let _daemon = edge.start(without_apis);
    let mut flooder = Ended(flood(&edge, FLOODER, EDGE_V4, 3_000, 600.0));
    let mut asking = client(&edge);
    wait_for("an attack", || {
        let seconds = asking.get("/dashboard/history").json();
        let dropped = |second: &Value| second["dropped"]["packets_per_second"].as_f64() > Some(1_000.0);
        let is_attacked =
            edge.json(&["attacks", "list"])["attacks"].as_array().is_some_and(|all| !all.is_empty());
        (is_attacked && seconds.as_array()?.iter().filter(|second| dropped(second)).count() > 5).then_some(())
    });
    let mut page = Browser::start(edge.wire.on_edge("sh"), edge.dir());
    page.look(1280, 900, "light");
    page.open("http://127.0.0.1:8080/");
    // Charts begin with the seconds before: a page that is as young as this one has no minute of its own.
    page.wait_for("document.querySelector('#traffic-chart .s1')?.getAttribute('d').split('L').length > 6");
    let host = page.evaluate("document.querySelector('#host-name').innerText");
    assert_eq!(page.evaluate("document.title"), format!("{} - ratelimit", host.as_str().unwrap()));
    assert!(!host.as_str().unwrap().is_empty());
    // The banner leads to the attack.
    page.click("#alarm button");
    let told = page
        .wait_for("document.querySelector('#attack figure') && document.querySelector('#attack').innerText");
    assert!(told.as_str().unwrap().contains("on service game"), "{told}");
    page.wait_for("(({ top, bottom }) => top < innerHeight && bottom > 0)(document.querySelector('#attack').getBoundingClientRect())");
    // There are no APIs, and so no requests.
    assert_eq!(page.evaluate("document.querySelector('#requests-chart').getClientRects().length"), 0);
    assert_eq!(page.evaluate("document.querySelectorAll('[data-tile=decisions]').length"), 0);
    assert!(page.complaints.is_empty(), "{:?}", page.complaints);
    flooder.end();
}

#[test]
fn answered_syns_are_not_shown_as_passed() {
    const WEB: u16 = 4715;
    let edge = edge_with_sources(&[HONEST]);
    let _replies = edge.wire.receive_replies();
    for setting in ["tcp_syncookies=2", "tcp_timestamps=2"] {
        run(edge.wire.on_edge("sysctl").args(["-w", &format!("net.ipv4.{setting}")]));
    }
    let web = format!(
        "[[service]]\nname = \"web\"\nmatch = {{ protocol = \"tcp\", ports = [{WEB}] }}\n\
         syn_cookies = \"1 syns/day burst 1\"\n"
    );
    let _daemon = edge.start(&(open_policy(&edge) + &web));
    let at = SocketAddr::new(EDGE_V4.parse().unwrap(), WEB);
    let _listener = edge.wire.as_edge(|| TcpListener::bind(at)).expect("listen");
    let mut command = edge.wire.in_net(binary("traffic"));
    command.args(["forge", "--to", &at.to_string(), "--for", "600", "--pps", "2000"]);
    let mut flooder = Ended(command.stdout(Stdio::null()).spawn().expect("send"));
    let mut page = Browser::start(edge.wire.on_edge("sh"), edge.dir());
    page.look(1280, 900, "light");
    page.open("http://127.0.0.1:8080/");
    let tile = |id: &str| format!("document.querySelector('[data-tile={id}] .value')?.innerText");
    let number = "((text) => { const [, digits, letter] = text?.match(/([\\d.]+) ?(k?)/) ?? []; return digits * (letter ? 1000 : 1); })";
    page.wait_for(&format!("{number}({}) > 1000", tile("answered")));
    let passed = page.evaluate(&format!("{number}({})", tile("passed")));
    assert!(passed.as_f64().unwrap() < 500.0, "{passed} passed of 2000 answered SYNs");
    let label = page.wait_for("document.querySelector('#traffic-chart svg').getAttribute('aria-label')");
    assert!(label.as_str().unwrap().contains(", answered "), "{label}");
    page.wait_for("[...document.querySelectorAll('#services tbody tr')].some((row) => row.cells[0].innerText === 'web' && row.cells[2].innerText !== '0')");
    flooder.end();
}

/// A sender that ends with the test.
struct Ended(std::process::Child);

impl Ended {
    fn end(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.end();
    }
}

mod screenshots {
    //! The pictures of the documentation, from a real run.

    use std::{
        io::Write as _,
        path::PathBuf,
        process::{Command, Stdio},
        time::Duration,
    };

    use super::*;

    const POLICY: &str = r#"
[source]
limits = ["3000 packets/s burst 6000", "200 syns/s burst 400"]
[[service]]
name = "game"
match = { protocol = "udp", ports = [9000] }
per_source = ["1500 packets/s burst 3000"]
total = ["200000 packets/s"]
[[service]]
name = "web"
match = { protocol = "tcp", ports = [80, 443] }
per_source = ["2000 packets/s burst 4000"]
[plan.gold]
limits = ["500/hour", "60/min"]
[[user]]
name = "acme"
plan = "gold"
sources = ["10.99.2.0/24"]
network = ["20000 packets/s burst 40000"]
[[api]]
name = "create-url"
key = ["user", "ip"]
limits = ["100/hour", "30/min"]
[[api]]
name = "search"
key = ["user"]
limits = ["200/s"]
[listen]
http = "127.0.0.1:8080"
"#;

    /// A word in base64, decoded into a file.
    fn write_base64(text: &str, path: &PathBuf) {
        let file = std::fs::File::create(path).expect("a file");
        let mut decode =
            Command::new("base64").arg("-d").stdin(Stdio::piped()).stdout(file).spawn().expect("base64");
        decode.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("write");
        assert!(decode.wait().expect("wait").success());
    }

    #[test]
    #[ignore = "a minute of traffic; SCREENSHOTS names the directory that the pictures are for"]
    fn of_a_flood_in_light_and_dark() {
        let sources = ["10.99.1.7", "10.99.1.8", "10.99.2.10", "10.99.4.21", "10.99.5.3", FLOODER];
        let edge = edge_with_sources(&sources);
        let _daemon = edge.start(&POLICY.replace("9000", &PORT.to_string()));
        let _senders: Vec<Ended> = (sources[..5].iter().zip([900, 400, 650, 250, 120]))
            .map(|(from, pps)| Ended(flood(&edge, from, EDGE_V4, pps, 600.0)))
            .collect();
        assert!(
            edge.cli(&["block", "add", "198.51.100.0/24", "--for", "2h", "--reason", "ticket 4711"])
                .status
                .success()
        );
        let mut pages = ["light", "dark"].map(|scheme| {
            let directory = edge.dir().join(scheme);
            std::fs::create_dir_all(&directory).expect("a directory");
            let mut page = Browser::start(edge.wire.on_edge("sh"), &directory);
            page.look(1400, 1060, scheme);
            page.open("http://127.0.0.1:8080/");
            page
        });
        let mut asking = client(&edge);
        let mut ask_for = |seconds: u32| {
            for nth in 0..seconds * 10 {
                for user in 0..8 {
                    asking.get(&format!("/v1/check?user=u{user}&api=search"));
                }
                asking.get(&format!("/v1/check?user=acme&api=create-url&ip=192.0.2.{}", nth % 3));
                std::thread::sleep(Duration::from_millis(100));
            }
        };
        ask_for(25);
        let flooder = Ended(flood(&edge, FLOODER, EDGE_V4, 9_000, 600.0));
        ask_for(15);
        drop(flooder);
        ask_for(6);
        let _flooder = Ended(flood(&edge, FLOODER, EDGE_V4, 12_000, 600.0));
        ask_for(8);
        let directory = std::env::var_os("SCREENSHOTS").map_or_else(|| edge.dir().to_owned(), PathBuf::from);
        for (page, scheme) in pages.iter_mut().zip(["light", "dark"]) {
            let path = directory.join(format!("dashboard-{scheme}.png"));
            write_base64(&page.screenshot(), &path);
            let bytes = std::fs::metadata(&path).expect("a file").len();
            assert!((20_000..200_000).contains(&bytes), "{}: {bytes} bytes", path.display());
        }
    }
}
