//! Real proxies with the configurations of docs/integrations: what people copy is what runs here, with other ports.

mod application;
mod documented;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use application::Application;
use documented::Documented;
use ratelimit_tests::{
    redis::{free_port, wait_for},
    service::{Client, Reply, Service},
};

/// A proxy in front of an application, with the service beside it.
struct Site {
    service: Service,
    proxy: SocketAddr,
    child: Child,
    // Answers as long as the value lives.
    application: Application,
}

impl Site {
    /// Starts a proxy as its page says. `files` are those of its configuration, by the kind of their block and their number among those.
    fn new(page: &str, files: &[(&str, usize, &str)], command: impl FnOnce(&Path) -> Command) -> Self {
        let service = Service::start(Documented::read(page).policy());
        Self::edited(page, files, service, str::to_owned, command)
    }

    /// A site with another policy, and a configuration that `edit` has changed.
    fn edited(
        page: &str,
        files: &[(&str, usize, &str)],
        service: Service,
        edit: impl Fn(&str) -> String,
        command: impl FnOnce(&Path) -> Command,
    ) -> Self {
        let documented = Documented::read(page);
        let application = Application::start();
        let proxy = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        for (kind, number, name) in files {
            let text = edit(documented.block(kind, *number));
            let text = text.replace("127.0.0.1:8080", &service.http.to_string());
            let text = text.replace("127.0.0.1:3000", &application.address.to_string());
            let text = documented::with_port(kind, &text, proxy);
            std::fs::write(service.dir().join(name), text).expect("write a configuration");
        }
        let mut command = command(service.dir());
        command.current_dir(service.dir()).stdout(Stdio::null());
        let log = std::fs::File::create(service.dir().join("proxy.log")).expect("a log");
        // Certificates and caches of the proxy go with the test.
        command
            .env("HOME", service.dir())
            .env("XDG_DATA_HOME", service.dir())
            .env("XDG_CONFIG_HOME", service.dir());
        let child = command.stderr(log).spawn().unwrap_or_else(|error| {
            panic!("cannot start {:?}: {error}; cargo xtask test installs it", command.get_program())
        });
        let site = Self { service, proxy, child, application };
        wait_for("a proxy that answers", || TcpStream::connect(site.proxy).ok());
        site
    }

    fn ask(&self, method: &str, fields: &[(&str, &str)], body: &str) -> Reply {
        let stream = TcpStream::connect(self.proxy).expect("connect to the proxy");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        Client::new(stream).ask(method, "/some/page?x=1", fields, body)
    }

    /// Exactly as many pass as the policy says, whatever callers write, and the next one is told when to come again.
    fn assert_limit(&self) {
        let lies = [
            ("X-RateLimit-Ip", "192.0.2.7"),
            ("X-RateLimit-Cost", "0"),
            ("X-RateLimit-Priority", "critical"),
        ];
        let lie_about_others = [("X-Forwarded-For", "192.0.2.8"), ("X-RateLimit-Api", "other")];
        let replies = [
            self.ask("GET", &[], ""),
            self.ask("GET", &lies, ""),
            self.ask("GET", &lie_about_others, ""),
            self.ask("POST", &[("Content-Type", "text/plain")], "a body for the application"),
            self.ask("DELETE", &[], ""),
        ];
        for reply in &replies {
            assert_eq!((reply.status, reply.body.as_str()), (200, "the application"), "{}", self.log());
        }
        assert_eq!(self.application.answered(), 5);
        for fields in [&[][..], &lies, &lie_about_others] {
            let refused = self.ask("GET", fields, "");
            assert_eq!(refused.status, 429, "{}", self.log());
            let retry = refused.number("retry-after").expect("a time");
            assert!((1..=61).contains(&retry), "{retry}");
            assert_eq!(refused.field("ratelimit-policy"), Some("\"web\";q=5;w=60"));
            assert!(refused.field("ratelimit").expect("a standing").starts_with("\"web\";r=0;t="));
        }
        assert_eq!(self.application.answered(), 5, "a request that was refused has reached the application");
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.service.dir().join("proxy.log")).unwrap_or_default()
    }

    /// Another answer than before once the service has gone.
    fn status_without_service(&self) -> u16 {
        ratelimit_tests::netns::run(Command::new("kill").arg("-KILL").arg(self.service.pid().to_string()));
        wait_for("a service that is gone", || match TcpStream::connect(self.service.http) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Some(()),
            _ => None,
        });
        self.ask("GET", &[], "").status
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // nginx tells its workers to end only if it is asked, not killed.
        let _gone = Command::new("kill").arg(self.child.id().to_string()).status();
        let _gone = self.child.wait();
    }
}

const NGINX: &[(&str, usize, &str)] = &[("nginx", 0, "nginx.conf")];
const PER_USER: &str = "[[api]]\nname = \"web\"\nkey = [\"user\"]\nlimits = [\"5/min sliding-window\"]\n";

fn nginx(dir: &Path) -> Command {
    let mut command = Command::new("nginx");
    command.arg("-p").arg(dir).arg("-e").arg(dir.join("proxy.log")).arg("-c").arg(dir.join("nginx.conf"));
    command.args(["-g", "daemon off; pid nginx.pid;"]);
    command
}

/// The line of a page that is to be used for limits per user.
fn per_user(text: &str) -> String {
    assert!(text.contains("# For limits per user: "), "{text}");
    text.replace("# For limits per user: ", "")
}

/// Bytes as `Authorization: Basic` has them, with a password behind them.
fn basic(user: &[u8]) -> String {
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = [user, b":pw"].concat();
    // Blanks behind the password instead of padding.
    bytes.resize(bytes.len().next_multiple_of(3), b' ');
    let word = |three: &[u8]| {
        let number = three.iter().fold(0, |number, byte| number << 8 | usize::from(*byte));
        [18, 12, 6, 0].map(|shift| char::from(letters[number >> shift & 63]))
    };
    format!("Basic {}", bytes.chunks(3).flat_map(word).collect::<String>())
}

#[test]
fn whatever_callers_of_nginx_write_or_leave_out_has_a_limit() {
    let site = Site::edited("nginx", NGINX, Service::start(PER_USER), per_user, nginx);
    let served = |user: Option<&[u8]>| {
        let shown = user.map(basic);
        let fields: Vec<(&str, &str)> = shown.iter().map(|shown| ("Authorization", shown.as_str())).collect();
        let statuses: Vec<u16> = (0..7).map(|_| site.ask("GET", &fields, "").status).collect();
        assert!(statuses.iter().all(|status| matches!(status, 200 | 429)), "{statuses:?}");
        statuses.iter().filter(|status| **status == 200).count()
    };
    for (what, user) in [
        ("no name", None),
        ("a name", Some(&b"ann"[..])),
        ("a long name", Some(&[b'x'; 3_000])),
        ("bytes that are no text", Some(b"\xff\xfe")),
        ("other bytes that are no text", Some(b"\xfe\xff")),
    ] {
        assert_eq!(served(user), 5, "{what}: {}", site.log());
    }
    for unsafe_name in [&b""[..], b"ann\r\nX-RateLimit-Priority: critical", b"eve\x01"] {
        assert_eq!(served(Some(unsafe_name)), 0, "{unsafe_name:?} is nobody, whose limit is spent");
    }
}

#[test]
fn a_mistake_in_the_configuration_of_nginx_serves_nobody() {
    let service = Service::start(Documented::read("nginx").policy());
    let site = Site::edited("nginx", NGINX, service, |text| text.replace("?api=web", "?api=wbe"), nginx);
    assert_eq!(site.ask("GET", &[], "").status, 500);
    assert_eq!(site.application.answered(), 0);
    site.service.wait_for_log("api \"wbe\" is not in the policy; there is web");
    assert_eq!(
        site.status_without_service(),
        200,
        "the service is gone, and the configuration says what then"
    );
}

#[test]
fn nginx_refuses_exactly_above_the_limit_and_lets_everybody_pass_without_the_service() {
    let site = Site::new("nginx", NGINX, nginx);
    site.assert_limit();
    assert!(!site.log().contains("unexpected status"), "{}", site.log());
    assert_eq!(site.status_without_service(), 200);
}

fn traefik(_: &Path) -> Command {
    let mut command = Command::new("traefik");
    command.args(["--configFile=static.yml"]);
    command
}

fn caddy(_: &Path) -> Command {
    let mut command = Command::new("caddy");
    command.args(["run", "--config", "Caddyfile", "--adapter", "caddyfile"]);
    command
}

const TRAEFIK: &[(&str, usize, &str)] = &[("yaml", 0, "dynamic.yml"), ("yaml", 1, "static.yml")];
const CADDY: &[(&str, usize, &str)] = &[("caddyfile", 0, "Caddyfile")];

#[test]
fn traefik_refuses_exactly_above_the_limit_and_refuses_without_the_service() {
    let site = Site::new("traefik", TRAEFIK, traefik);
    wait_for("a route", || (site.ask("GET", &[], "").status != 404).then_some(()));
    let reset = "{\"api\": \"web\", \"ip\": \"127.0.0.1\"}";
    assert_eq!(site.service.open().post("/v1/reset", reset).status, 204);
    site.application.forget();
    site.assert_limit();
    assert_eq!(site.status_without_service(), 500);
}

#[test]
fn caddy_refuses_exactly_above_the_limit_and_refuses_without_the_service() {
    let site = Site::new("caddy", CADDY, caddy);
    site.assert_limit();
    assert_eq!(site.status_without_service(), 502);
}

/// Each of two users has the whole limit, whatever else they write.
fn assert_limit_per_user(site: &Site) {
    for user in [&b"ann"[..], b"bob"] {
        let shown = basic(user);
        let lie = [("Authorization", shown.as_str()), ("X-RateLimit-User", "eve")];
        let statuses: Vec<u16> = (0..7).map(|_| site.ask("GET", &lie, "").status).collect();
        assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429], "{}", site.log());
    }
}

/// The password of everybody, hashed.
fn hashed() -> String {
    let output = Command::new("caddy")
        .args(["hash-password", "--bcrypt-cost", "4", "--plaintext", "pw"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn callers_of_caddy_have_a_limit_by_the_name_that_caddy_knows_them_by() {
    let users = ["ann", "bob"].map(|user| format!("{user} {}", hashed())).join("\n");
    let edit = |text: &str| {
        per_user(text).replacen("forward_auth", &format!("basic_auth {{\n{users}\n}}\nforward_auth"), 1)
    };
    assert_limit_per_user(&Site::edited("caddy", CADDY, Service::start(PER_USER), edit, caddy));
}

#[test]
fn callers_of_traefik_have_a_limit_by_the_name_that_traefik_knows_them_by() {
    let users = ["ann", "bob"].map(|user| format!("\"{user}:{}\"", hashed())).join(", ");
    let edit = |text: &str| {
        let text =
            text.replace("[X-Nothing]", "[X-Ratelimit-User]").replace("[ratelimit]", "[users, ratelimit]");
        let users = format!(
            "middlewares:\n    users:\n      basicAuth:\n        headerField: X-Ratelimit-User\n        users: [{users}]\n"
        );
        text.replacen("middlewares:\n", &users, 1)
    };
    let site = Site::edited("traefik", TRAEFIK, Service::start(PER_USER), edit, traefik);
    wait_for("a route", || (site.ask("GET", &[], "").status == 401).then_some(()));
    assert_limit_per_user(&site);
}

#[test]
fn check_takes_the_policies_of_the_pages_as_they_stand_there() {
    for page in ["nginx", "caddy", "traefik"] {
        let file = std::env::temp_dir().join(format!("ratelimit-page-{page}-{}.toml", std::process::id()));
        std::fs::write(&file, Documented::read(page).block("toml", 0)).unwrap();
        let checked = Command::new(ratelimit_tests::daemon::binary("ratelimit"))
            .arg("check")
            .arg(&file)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&checked.stdout);
        assert!(checked.status.success(), "{page}: {}", String::from_utf8_lossy(&checked.stderr));
        assert!(said.contains("ratelimit serve takes this policy, ratelimit run does not"), "{page}: {said}");
        assert!(!said.contains("source.packets"), "{page}: {said}");
        std::fs::remove_file(&file).unwrap();
    }
}
