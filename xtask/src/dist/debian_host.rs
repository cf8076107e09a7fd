//! A clean Debian under a real systemd, on which the life of a package is tested.
//!
//! The root is made by mmdebstrap and booted by systemd-nspawn in a network namespace of its own, which a second namespace sends packets to. So the
//! unit is started as a host starts it, with its sandbox, its capabilities and its watchdog.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::say;
use crate::setup::Need;
use crate::tool;

pub(super) const NEEDS: [Need; 6] = [
    Need::Executable { name: "mmdebstrap", package: "mmdebstrap" },
    Need::Executable { name: "systemd-nspawn", package: "systemd-container" },
    Need::Executable { name: "ip", package: "iproute2" },
    Need::Executable { name: "ping", package: "iputils-ping" },
    Need::Executable { name: "nsenter", package: "util-linux" },
    Need::Executable { name: "mount", package: "mount" },
];

/// The Debian release that is installed; the next constant has its further packages. They include rpm, so that packages of both kinds can be installed, and a
/// store with a server of names that knows it.
const SUITE: &str = "bookworm";
const INCLUDED: &str = "systemd,systemd-sysv,dbus,iproute2,rpm,redis-server,dnsmasq-base";

/// The network namespace of the host in the container; the next constant has that of the sender.
const EDGE: &str = "ratelimit-dist-edge";
const PEER: &str = "ratelimit-dist-peer";
pub(super) const INTERFACE: &str = "edge0";
const ADDRESS: &str = "10.77.0.1";

/// The capabilities that the unit leaves to the daemon: `CAP_NET_ADMIN`, `CAP_PERFMON` and `CAP_BPF`, as the kernel writes them.
const DAEMON_CAPABILITIES: u64 = 1 << 12 | 1 << 38 | 1 << 39;

/// How long any step may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running Debian, and the wire to it.
pub(super) struct DebianHost {
    pub(super) root: PathBuf,
    bpf: PathBuf,
    nspawn: Child,
    /// The process id of the first process inside.
    leader: String,
}

impl DebianHost {
    pub(super) fn boot(kept: &Path) -> Result<Self> {
        // The name says what is in the archive, so that one of an older checkout is not used.
        let archive = kept.join(format!("{SUITE},{INCLUDED}.tar"));
        let (root, bpf) = (kept.join("root"), kept.join("bpf"));
        if !archive.exists() {
            say("making a Debian root (a few minutes)");
            let mut make = tool::command("mmdebstrap");
            make.args(["--quiet", "--variant=minbase", &format!("--include={INCLUDED}"), SUITE]);
            tool::run(make.arg(&archive)).inspect_err(|_| drop(fs::remove_file(&archive)))?;
        }
        clear(&root, &bpf);
        fs::create_dir_all(&root)?;
        fs::create_dir_all(&bpf)?;
        tool::run(tool::command("tar").arg("-C").arg(&root).arg("-xf").arg(&archive))?;
        tool::run(tool::command("mount").args(["-t", "bpf", "bpf"]).arg(&bpf))?;
        for words in [
            format!("netns add {EDGE}"),
            format!("netns add {PEER}"),
            format!("link add {INTERFACE} netns {EDGE} type veth peer name peer0 netns {PEER}"),
            format!("-n {EDGE} address add {ADDRESS}/24 dev {INTERFACE}"),
            format!("-n {PEER} address add 10.77.0.2/24 dev peer0"),
            format!("-n {EDGE} link set {INTERFACE} up"),
            format!("-n {EDGE} link set lo up"),
            format!("-n {PEER} link set peer0 up"),
        ] {
            tool::run(tool::command("ip").args(words.split(' ')))?;
        }
        let mut nspawn = tool::command("systemd-nspawn");
        // The container is not registered, so this machine need not run systemd itself.
        nspawn.args([
            "--quiet",
            "--register=no",
            "--keep-unit",
            "--capability=all",
            "--system-call-filter=bpf",
        ]);
        nspawn.arg(format!("--bind={}:/sys/fs/bpf", bpf.display()));
        nspawn.arg(format!("--network-namespace-path=/run/netns/{EDGE}"));
        nspawn.arg("-D").arg(&root).arg("--boot").env("SYSTEMD_NSPAWN_UNIFIED_HIERARCHY", "1");
        let log = fs::File::create(kept.join("console.log"))?;
        let child = nspawn.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        let mut host = Self { root, bpf, nspawn: child, leader: String::new() };
        host.find_leader()?;
        host.wait("systemctl is-system-running || true", |said| {
            ["running", "degraded"].contains(&said.trim())
        })?;
        Ok(host)
    }

    fn find_leader(&mut self) -> Result<()> {
        let children = format!("/proc/{0}/task/{0}/children", self.nspawn.id());
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(ended) = self.nspawn.try_wait()? {
                bail!("systemd-nspawn ended with {ended}; target/dist/check/console.log says why");
            }
            for pid in fs::read_to_string(&children).unwrap_or_default().split_whitespace() {
                let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                if name.trim() == "systemd" {
                    pid.clone_into(&mut self.leader);
                    return Ok(());
                }
            }
            thread::sleep(Duration::from_millis(100));
        }
        bail!("systemd did not start in the container; target/dist/check/console.log says why")
    }

    /// Runs a line of shell inside.
    pub(super) fn run(&self, line: &str) -> Result<String> {
        let mut enter = tool::command("nsenter");
        enter.args(["--target", &self.leader, "--all", "/bin/sh", "-c", line]);
        enter.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("DEBIAN_FRONTEND", "noninteractive");
        Ok(tool::output(&mut enter)?.trim().to_owned())
    }

    /// Runs a line of shell again and again until its output is right.
    pub(super) fn wait(&self, line: &str, right: impl Fn(&str) -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let said = self.run(line).unwrap_or_default();
            if right(&said) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let journal = self.run("journalctl --no-pager -n 30").unwrap_or_default();
                bail!("`{line}` still says {said:?}; the journal ends with:\n{journal}");
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    pub(super) fn is_attached(&self) -> Result<bool> {
        Ok(tool::output(tool::command("ip").args(["-n", EDGE, "link", "show", "dev", INTERFACE]))?
            .contains("xdp"))
    }

    /// Sends a number of pings, 100 a second, and returns how many are answered.
    pub(super) fn answered(&self, pings: u32) -> Result<u32> {
        let mut ping = ping();
        ping.args(["-i", "0.01", "-W", "1", "-c", &pings.to_string(), ADDRESS]);
        // Missing answers are expected, and ping's exit code is 1 then.
        let said = ping.output().context("cannot start ping")?;
        received(&String::from_utf8_lossy(&said.stdout)).context("ping says no number")
    }

    pub(super) fn must_protect(&self, when: &str) -> Result<()> {
        ensure!(self.is_attached()?, "no program is attached {when}");
        let answered = self.answered(50)?;
        // The limit admits 5 + 5 a second; a busy machine takes longer for 50 pings, so more are allowed.
        ensure!(answered <= 25, "{answered} of 50 pings were answered {when}");
        Ok(())
    }

    /// Asks one of the listeners, and returns its whole answer.
    fn ask(&self, port: u16, path: &str) -> Result<String> {
        self.run(&format!(
            "bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port} && printf \"GET {path} HTTP/1.1\\r\\nhost: x\\r\\nconnection: close\\r\\n\\r\\n\" >&3 && cat <&3'"
        ))
    }

    /// Starts a Redis, and a server of names that alone knows where it is. It says that the name has no IPv6 address: with `--address` it would refuse that
    /// question, and the resolver of musl waits for another answer then. Returns the name.
    pub(super) fn start_store(&self) -> Result<&'static str> {
        self.run("systemctl disable --now redis-server || true")?;
        self.run("systemd-run --unit store /usr/bin/redis-server --save ''")?;
        self.run(
            "systemd-run --unit names /usr/sbin/dnsmasq --keep-in-foreground --user=root --no-resolv --no-hosts --bind-interfaces \
             --listen-address=127.0.0.1 --local=/store.test/ --host-record=store.test,127.0.0.1",
        )?;
        self.run("rm -f /etc/resolv.conf && echo nameserver 127.0.0.1 > /etc/resolv.conf")?;
        Ok("store.test")
    }

    /// Waits until the front is connected to the store.
    pub(super) fn must_reach_store(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let metrics = self.ask(9464, "/metrics").unwrap_or_default();
            if metrics.lines().any(|line| line == "ratelimit_store_up 1") {
                return Ok(());
            }
            if Instant::now() > deadline {
                let journal = self.run("journalctl --no-pager -n 30 -u ratelimit -u 'ratelimit-front@*'")?;
                bail!("the store is not reached by its name; the journal ends with:\n{journal}");
            }
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// Checks that the listeners answer, from a process of another user without rights, that the daemon has no more rights than its unit leaves it, and that
    /// `ratelimit status` has no warnings.
    pub(super) fn must_answer(&self, when: &str) -> Result<()> {
        for (port, path, answer) in
            [(8080, "/v1/check?user=u&api=search", "200 OK"), (9464, "/metrics", "ratelimit_")]
        {
            let said = self.ask(port, path)?;
            ensure!(said.contains(answer), "port {port} {when}: {said}");
        }
        let user = self.run("id -u ratelimit")?;
        let fronts = self.fronts()?;
        ensure!(fronts.len() == 1, "{} fronts run {when}", fronts.len());
        let front = self.run(&format!("cat /proc/{}/status", fronts[0]))?;
        let has = |line: &str| front.lines().any(|found| found == line);
        ensure!(has(&format!("Uid:\t{user}\t{user}\t{user}\t{user}")), "the front {when}: {front}");
        ensure!(
            has("CapEff:\t0000000000000000") && has("CapBnd:\t0000000000000000"),
            "the front {when}: {front}"
        );
        let daemon = self.run("cat /proc/$(systemctl show -p MainPID --value ratelimit)/status")?;
        for set in ["CapPrm", "CapEff", "CapBnd"] {
            let line = format!("{set}:\t{DAEMON_CAPABILITIES:016x}");
            ensure!(
                daemon.lines().any(|found| found == line),
                "{line} is right for the daemon {when}: {daemon}"
            );
        }
        let status: serde_json::Value = serde_json::from_str(&self.run("ratelimit status --output json")?)?;
        ensure!(status["warnings"] == serde_json::json!([]), "status {when}: {}", status["warnings"]);
        // A member of the group may ask the daemon; another user may not.
        let ask = |groups: &str| {
            self.run(&format!("setpriv --reuid nobody --regid nogroup {groups} ratelimit limit list"))
        };
        ask("--groups ratelimit")?;
        ensure!(ask("--clear-groups").is_err(), "somebody without rights may ask {when}");
        Ok(())
    }

    /// Returns the ids of all front processes: the one that serves, and those that hang.
    pub(super) fn fronts(&self) -> Result<Vec<String>> {
        let said = self.run("for p in /proc/[0-9]*; do [ \"$(cat $p/comm)\" = ratelimit-front ] && echo ${p#/proc/}; done 2>/dev/null || true")?;
        Ok(said.lines().map(str::to_owned).collect())
    }

    pub(super) fn ping_until_stopped(&self) -> Result<Pinging> {
        let mut ping = ping();
        ping.args(["-i", "0.01", ADDRESS]);
        Ok(Pinging(ping.stdout(Stdio::piped()).spawn()?))
    }
}

/// A ping that runs in the background.
pub(super) struct Pinging(Child);

impl Pinging {
    /// Ends the pings, and returns how many were answered.
    pub(super) fn answered(self) -> Result<u32> {
        tool::run(tool::command("kill").args(["-INT", &self.0.id().to_string()]))?;
        let said = self.0.wait_with_output()?;
        received(&String::from_utf8_lossy(&said.stdout)).context("ping says no number")
    }
}

fn ping() -> Command {
    let mut ping = tool::command("ip");
    ping.args(["netns", "exec", PEER, "ping", "-n", "-q"]);
    ping
}

/// Reads the received packets from a line such as `50 packets transmitted, 7 received, 86% packet loss`.
fn received(said: &str) -> Option<u32> {
    let line = said.lines().find(|line| line.contains(" received"))?;
    line.split(", ").nth(1)?.split(' ').next()?.parse().ok()
}

/// Removes what an earlier run may have left.
fn clear(root: &Path, bpf: &Path) {
    let _not_mounted = tool::output(tool::command("umount").arg(bpf));
    for name in [EDGE, PEER] {
        let _absent = tool::output(tool::command("ip").args(["netns", "delete", name]));
    }
    let _absent = fs::remove_dir_all(root);
}

impl Drop for DebianHost {
    fn drop(&mut self) {
        // This powers the machine off, and its process ends.
        let _off = self.run("systemctl poweroff --force --force");
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.nspawn.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(100));
        }
        let _ended = self.nspawn.kill();
        let _ended = self.nspawn.wait();
        clear(&self.root, &self.bpf);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_from_what_ping_says() {
        let said = "PING x\n\n--- 10.77.0.1 ping statistics ---\n50 packets transmitted, 7 received, 86% packet loss, time 512ms\n";
        assert_eq!(received(said), Some(7));
        assert_eq!(received("nothing"), None);
    }
}
