//! A real Envoy with a configuration from `docs/integrations`, on ports of its own. It ends with the value.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{
    redis::free_port,
    service::{Client, Reply, Service},
};

/// How long Envoy may take until it answers.
const START: Duration = Duration::from_secs(60);
/// The ports of the configurations: the listener, the server behind it, the administrator's, and ours.
const PORTS: [u16; 4] = [10_000, 10_001, 9_901, 8_081];

/// A proxy in front of a server that says 200 to everything.
#[derive(Debug)]
pub struct Envoy {
    process: Child,
    front: SocketAddr,
    admin: SocketAddr,
}

impl Envoy {
    /// Starts Envoy with a file of `docs/integrations`, in front of a service.
    pub fn start(file: &str, service: &Service) -> Self {
        Self::start_edited(file, service, |text| text)
    }

    /// Starts Envoy with a file of `docs/integrations` that `edit` has changed.
    pub fn start_edited(file: &str, service: &Service, edit: impl FnOnce(String) -> String) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/integrations").join(file);
        let mut text =
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let [front, backend, admin] = [(); 3].map(|()| free_port());
        for (from, to) in PORTS.into_iter().zip([front, backend, admin, service.grpc.port()]) {
            let (from, to) = (format!("port_value: {from}"), format!("port_value: {to}"));
            assert!(text.contains(&from), "{file} has no {from}");
            text = text.replace(&from, &to);
        }
        let config = service.dir().join(file);
        fs::write(&config, edit(text)).expect("write the configuration");
        let log = fs::File::create(service.dir().join("envoy.log")).expect("a log");
        let mut command = Command::new("envoy");
        command.arg("-c").arg(&config).args(["--disable-hot-restart", "--concurrency", "1", "-l", "warning"]);
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let process = process.expect("envoy is installed by `cargo xtask test`");
        let [front, admin] = [front, admin].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let mut envoy = Self { process, front, admin };
        envoy.wait(&service.dir().join("envoy.log"));
        envoy
    }

    fn wait(&mut self, log: &Path) {
        let begun = Instant::now();
        let said = || fs::read_to_string(log).unwrap_or_default();
        while TcpStream::connect(self.front).is_err() {
            assert!(self.process.try_wait().expect("a process").is_none(), "envoy has ended: {}", said());
            assert!(begun.elapsed() < START, "envoy does not listen: {}", said());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Asks for something as a user.
    pub fn get(&self, user: &str) -> Reply {
        Client::new(TcpStream::connect(self.front).expect("connect"))
            .get_with("/", &[("x-user", user), ("connection", "close")])
    }

    /// Asks for something with these bytes in front of the end of the head: `x-user: ann\r\n`. Whether it was served.
    pub fn serves(&self, fields: &[u8]) -> bool {
        let mut client = Client::new(TcpStream::connect(self.front).expect("connect"));
        client.send(&[b"GET / HTTP/1.1\r\nHost: h\r\nconnection: close\r\n", fields, b"\r\n"].concat());
        client.receive().status == 200
    }

    /// The value of one of Envoy's counters.
    pub fn counter(&self, name: &str) -> u64 {
        let mut client = Client::new(TcpStream::connect(self.admin).expect("connect"));
        client.send(
            format!("GET /stats?filter=^{name}$ HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n")
                .as_bytes(),
        );
        let text = String::from_utf8(client.rest()).expect("text");
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        line.and_then(|count| count.trim().parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _gone = self.process.wait();
    }
}
