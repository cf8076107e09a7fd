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
        let documented = Documented::read(page);
        let service = Service::start(documented.policy());
        let application = Application::start();
        let proxy = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        for (kind, number, name) in files {
            let text = documented.block(kind, *number).replace("127.0.0.1:8080", &service.http.to_string());
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

#[test]
fn nginx_refuses_exactly_above_the_limit_and_lets_everybody_pass_without_the_service() {
    let site = Site::new("nginx", &[("nginx", 0, "nginx.conf")], |dir| {
        let mut command = Command::new("nginx");
        command.arg("-p").arg(dir).arg("-e").arg(dir.join("proxy.log")).arg("-c").arg(dir.join("nginx.conf"));
        command.args(["-g", "daemon off; pid nginx.pid;"]);
        command
    });
    site.assert_limit();
    assert!(!site.log().contains("unexpected status"), "{}", site.log());
    assert_eq!(site.status_without_service(), 200);
}

#[test]
fn traefik_refuses_exactly_above_the_limit_and_refuses_without_the_service() {
    let site = Site::new("traefik", &[("yaml", 0, "dynamic.yml"), ("yaml", 1, "static.yml")], |_| {
        let mut command = Command::new("traefik");
        command.args(["--configFile=static.yml"]);
        command
    });
    wait_for("a route", || (site.ask("GET", &[], "").status != 404).then_some(()));
    let reset = "{\"api\": \"web\", \"ip\": \"127.0.0.1\"}";
    assert_eq!(site.service.open().post("/v1/reset", reset).status, 204);
    site.application.forget();
    site.assert_limit();
    assert_eq!(site.status_without_service(), 500);
}

#[test]
fn caddy_refuses_exactly_above_the_limit_and_refuses_without_the_service() {
    let site = Site::new("caddy", &[("caddyfile", 0, "Caddyfile")], |_| {
        let mut command = Command::new("caddy");
        command.args(["run", "--config", "Caddyfile", "--adapter", "caddyfile"]);
        command
    });
    site.assert_limit();
    assert_eq!(site.status_without_service(), 502);
}
