//! `cargo xtask dist --check`: tests the life of the Debian package on a clean host under systemd, and then that of the other packages.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};

use super::before::Before;
use super::debian_host::{DebianHost, INTERFACE};
use super::machine::Machine;
use super::release::Release;
use super::{image, rpm_life, say};

/// A policy that refuses most pings: 50 pings at 100 a second take half a second, and 5 + 0.5 x 5 of them may be answered.
pub(super) const POLICY: &str = "interfaces = [\"edge0\"]\n[source]\nlimits = [\"5 packets/s burst 5\"]\n\
                      [listen]\nhttp = [\"127.0.0.1:8080\"]\nmetrics = \"127.0.0.1:9464\"\n\
                      [[api]]\nname = \"search\"\nlimits = [\"1000/min\"]\n";
/// A prefix that is blocked before the upgrade, and must be blocked after it.
pub(super) const BLOCKED: &str = "203.0.113.0/24";

pub(super) fn check(dist: &Path, release: &Release, before: &Before) -> Result<()> {
    let machine = &Machine::ALL[0];
    let kept = dist.join("check");
    fs::create_dir_all(&kept)?;
    let current = dist.join(format!("ratelimit_{}_{}.deb", release.debian(), machine.debian));
    let host = DebianHost::boot(&kept)?;
    fs::copy(&before.deb, host.root.join("root/previous.deb"))?;
    fs::copy(&current, host.root.join("root/current.deb"))?;

    say("install: nothing runs, nothing is attached, the user is there");
    host.run("dpkg -i /root/previous.deb")?;
    ensure!(!host.is_attached()?, "installing attached a program");
    ensure!(host.run("systemctl is-active ratelimit").is_err(), "installing started the daemon");
    ensure!(host.run("systemctl is-enabled ratelimit").is_err(), "installing enabled the daemon");
    host.run("getent passwd ratelimit")?;
    host.run("ratelimit check /etc/ratelimit/policy.toml")?;
    ensure!(host.answered(50)? == 50, "without protection every ping is answered");

    say("start: the unit is active once it enforces");
    fs::write(host.root.join("etc/ratelimit/policy.toml"), POLICY)?;
    host.run("systemctl enable --now ratelimit")?;
    host.must_protect("after the start")?;
    let status = host.run("systemctl show -p StatusText --value ratelimit")?;
    ensure!(status.contains(&format!("guarding {INTERFACE}")), "systemd was told: {status}");
    host.run(&format!("ratelimit block add {BLOCKED} --reason test"))?;

    say("reload: a broken policy fails and changes nothing, a right one is read");
    fs::write(host.root.join("etc/ratelimit/policy.toml"), "[source]\nlimits = [\"nonsense\"]\n")?;
    ensure!(host.run("systemctl reload ratelimit").is_err(), "a broken policy was reloaded");
    fs::write(host.root.join("etc/ratelimit/policy.toml"), POLICY)?;
    host.run("systemctl reload ratelimit")?;
    host.run("systemctl is-active ratelimit")?;
    host.must_protect("after the reload")?;

    say("upgrade: pings all the while are answered as the limit says, lists and policy stay");
    replace(&host, "/root/current.deb", "the upgrade")?;
    host.must_answer("after the upgrade")?;

    say("downgrade: back to the package of before, and here again");
    replace(&host, "/root/previous.deb", "the downgrade")?;
    replace(&host, "/root/current.deb", "the second upgrade")?;
    host.must_answer("after the second upgrade")?;

    say("store: the front looks its name up at a server of names");
    let store = host.start_store()?;
    let with_store = format!("{POLICY}[cluster]\nredis = \"redis://{store}\"\n");
    fs::write(host.root.join("etc/ratelimit/policy.toml"), with_store)?;
    host.run("systemctl restart ratelimit")?;
    host.must_reach_store()?;
    host.must_answer("with a store")?;
    fs::write(host.root.join("etc/ratelimit/policy.toml"), POLICY)?;
    host.run("systemctl restart ratelimit")?;

    say("watchdog: a daemon that hangs is started again, protected all the while");
    let drop_in = host.root.join("etc/systemd/system/ratelimit.service.d");
    fs::create_dir_all(&drop_in)?;
    fs::write(drop_in.join("watchdog.conf"), "[Service]\nWatchdogSec=3s\nTimeoutAbortSec=1s\n")?;
    host.run("systemctl daemon-reload && systemctl restart ratelimit")?;
    let hung = host.run("systemctl show -p MainPID --value ratelimit")?;
    host.run(&format!("kill -STOP {hung}"))?;
    host.must_protect("while the daemon hangs")?;
    host.wait("systemctl show -p NRestarts --value ratelimit", |said| said.trim() != "0")?;
    host.wait("systemctl is-active ratelimit || true", |said| said.trim() == "active")?;
    fs::remove_dir_all(&drop_in)?;

    say("watchdog: a front that hangs is killed by systemd, and another one answers");
    let drop_in = host.root.join("etc/systemd/system/ratelimit-front@.service.d");
    fs::create_dir_all(&drop_in)?;
    fs::write(drop_in.join("watchdog.conf"), "[Service]\nWatchdogSec=3s\n")?;
    host.run("systemctl daemon-reload && systemctl restart ratelimit")?;
    host.must_answer("before the front hangs")?;
    let hung = host.fronts()?.concat();
    host.run(&format!("kill -STOP {hung}"))?;
    // The daemon would replace a front that does not answer for ten seconds; systemd's watchdog kills this one before that.
    host.wait(&format!("test -d /proc/{hung} && echo there || echo gone"), |said| said == "gone")?;
    host.wait("journalctl --no-pager -u ratelimit", |said| said.contains("another front process serves"))?;
    host.must_answer("after the front hung")?;
    let journal = host.run("journalctl --no-pager -u 'ratelimit-front@*'")?;
    ensure!(journal.contains("Watchdog timeout"), "systemd did not kill the front: {journal}");
    fs::remove_dir_all(&drop_in)?;

    say("remove: the daemon ends, the limits stay in force");
    host.run("systemctl daemon-reload && dpkg --remove ratelimit")?;
    ensure!(!host.root.join("usr/bin/ratelimit").exists(), "the binary is still there");
    ensure!(host.run("systemctl is-active ratelimit").is_err(), "the daemon still runs");
    host.must_protect("after the removal")?;

    say("install again: it takes over what was left");
    host.run("dpkg -i /root/current.deb && systemctl start ratelimit")?;
    host.must_protect("after it was installed again")?;
    ensure!(host.run("ratelimit block list")?.contains(BLOCKED), "the block is gone");
    host.must_answer("after it was installed again")?;

    say("purge: protection ends and nothing is left");
    host.run("dpkg --purge ratelimit")?;
    ensure!(!host.is_attached()?, "a program is still attached");
    ensure!(host.answered(50)? == 50, "after the purge every ping is answered");
    for left in [
        "etc/ratelimit",
        "var/lib/ratelimit",
        "usr/share/doc/ratelimit",
        "etc/systemd/system/multi-user.target.wants/ratelimit.service",
    ] {
        ensure!(!host.root.join(left).exists(), "/{left} is left behind");
    }
    let left = host.run("ls /sys/fs/bpf /run")?;
    ensure!(!left.contains("ratelimit"), "something is left behind: {left}");

    rpm_life::check(&host, dist, machine, before)?;
    drop(host);
    image::check(dist)?;
    println!(
        "the packages were installed, upgraded and removed; the units ran under systemd; the image was built and ran"
    );
    Ok(())
}

/// Installs another package over the one whose daemon runs, while pings are sent.
fn replace(host: &DebianHost, package: &str, what: &str) -> Result<()> {
    let before = host.run("systemctl show -p MainPID --value ratelimit")?;
    let (began, pinging) = (Instant::now(), host.ping_until_stopped()?);
    host.run(&format!("dpkg -i {package}"))?;
    let answered = pinging.answered()?;
    let most = 5.0 + 5.0 * (began.elapsed().as_secs_f64() + 1.0);
    ensure!(f64::from(answered) <= most, "{answered} pings were answered during {what}, and {most} may be");
    host.run("systemctl is-active ratelimit")?;
    let after = host.run("systemctl show -p MainPID --value ratelimit")?;
    ensure!(before != after, "after {what} the daemon of the package before still runs");
    let installed = host.run("dpkg-query -W -f '${Version}' ratelimit")?;
    let packed = host.run(&format!("dpkg-deb -f {package} Version"))?;
    ensure!(installed == packed, "after {what} {installed} is installed, and {packed} would be right");
    host.run(&format!("cmp /proc/{after}/exe /usr/bin/ratelimit"))?;
    ensure!(host.run("ratelimit block list")?.contains(BLOCKED), "after {what} the block is gone");
    let policy = fs::read_to_string(host.root.join("etc/ratelimit/policy.toml"))?;
    ensure!(policy == POLICY, "{what} replaced the policy");
    host.must_protect(&format!("after {what}"))?;
    say(&format!("    {installed}: {answered} answered, at most {most:.0} may be"));
    Ok(())
}
