//! Tests the life of the .rpm, with a database of its own, on the host from which the Debian package was purged: files, scripts, unit, removal.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};

use super::before::{Before, file_of};
use super::debian_host::DebianHost;
use super::lifecycle::{BLOCKED, POLICY};
use super::machine::Machine;
use super::say;

/// The rpm command. Debian's rpm installs only with `--force-debian`, and does not know the packages of this host.
const RPM: &str = "rpm --dbpath /var/lib/rpm --force-debian --nodeps --nosignature";

pub(super) fn check(host: &DebianHost, dist: &Path, machine: &Machine, before: &Before) -> Result<()> {
    let current = file_of(dist, &format!(".{}.rpm", machine.name))?;
    fs::copy(&before.rpm, host.root.join("root/previous.rpm"))?;
    fs::copy(&current, host.root.join("root/current.rpm"))?;

    say("rpm, install: nothing runs, nothing is attached, every file is as it was packed");
    host.run(&format!("{RPM} -i /root/previous.rpm"))?;
    ensure!(!host.is_attached()?, "installing attached a program");
    ensure!(host.run("systemctl is-active ratelimit").is_err(), "installing started the daemon");
    ensure!(host.run("systemctl is-enabled ratelimit").is_err(), "installing enabled the daemon");
    host.run("getent passwd ratelimit")?;
    host.run("ratelimit check /etc/ratelimit/policy.toml")?;
    let differs = host.run("rpm --dbpath /var/lib/rpm --nodeps -V ratelimit")?;
    ensure!(differs.is_empty(), "files differ from the package: {differs}");

    say("rpm, start and upgrade: the unit enforces, blocks and policy stay");
    fs::write(host.root.join("etc/ratelimit/policy.toml"), POLICY)?;
    host.run("systemctl enable --now ratelimit")?;
    host.must_protect("after the start of the rpm's unit")?;
    host.run(&format!("ratelimit block add {BLOCKED} --reason test"))?;
    let first = host.run("systemctl show -p MainPID --value ratelimit")?;
    host.run(&format!("{RPM} -U /root/current.rpm"))?;
    host.run("systemctl is-active ratelimit")?;
    let second = host.run("systemctl show -p MainPID --value ratelimit")?;
    ensure!(first != second, "the daemon of the version before still runs");
    ensure!(host.run("ratelimit block list")?.contains(BLOCKED), "the block is gone");
    ensure!(
        fs::read_to_string(host.root.join("etc/ratelimit/policy.toml"))? == POLICY,
        "the policy was replaced"
    );
    host.must_protect("after the upgrade of the rpm")?;
    host.must_answer("after the upgrade of the rpm")?;

    say("rpm, remove: protection ends, the policy of the operator is set aside");
    host.run("rpm --dbpath /var/lib/rpm --force-debian -e ratelimit")?;
    ensure!(!host.is_attached()?, "a program is still attached after the removal of the rpm");
    ensure!(host.answered(50)? == 50, "after the removal of the rpm every ping is answered");
    ensure!(host.run("systemctl is-active ratelimit").is_err(), "the daemon still runs");
    for gone in ["usr/bin/ratelimit", "usr/lib/systemd/system/ratelimit.service", "etc/ratelimit/policy.toml"]
    {
        ensure!(!host.root.join(gone).exists(), "/{gone} is left behind");
    }
    let set_aside = fs::read_to_string(host.root.join("etc/ratelimit/policy.toml.rpmsave"))?;
    ensure!(set_aside == POLICY, "the policy that was set aside is another: {set_aside}");
    Ok(())
}
