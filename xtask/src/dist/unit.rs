//! Checks the systemd unit: how exposed it is by systemd's own measure, and whether it fits the command line.

use anyhow::{Context, Result, bail};

use crate::{tool, workspace};

/// The largest exposure that a unit may have: 0 is a service without any right, 10 one without any sandbox. docs/install.md states the unit's value.
const MOST_EXPOSED: f64 = 2.0;

/// The units of the daemon and of the front process.
const UNITS: [&str; 2] = ["ratelimit.service", "ratelimit-front@.service"];

pub(super) fn check() -> Result<()> {
    UNITS.iter().try_for_each(|unit| check_one(unit))
}

fn check_one(name: &str) -> Result<()> {
    let unit = workspace::root().join("packaging/systemd").join(name);
    let mut analyse = tool::command("systemd-analyze");
    let said = tool::output(analyse.args(["security", "--offline=true", "--no-pager"]).arg(&unit))?;
    let exposure = exposure(&said).with_context(|| format!("systemd-analyze says no level: {said}"))?;
    if exposure > MOST_EXPOSED {
        bail!("{name} has an exposure level of {exposure}, and may have {MOST_EXPOSED}:\n{said}");
    }
    eprintln!("dist: exposure level of {name} {exposure}");
    Ok(())
}

/// Reads the exposure from a line such as `→ Overall exposure level for ratelimit.service: 1.9 OK`.
fn exposure(said: &str) -> Option<f64> {
    let line = said.lines().find(|line| line.contains("Overall exposure level"))?;
    line.split(": ").nth(1)?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_is_read_from_the_last_line() {
        let said = "✗ User=  root 0.4\n\n→ Overall exposure level for ratelimit.service: 1.9 OK 🙂\n";
        assert_eq!(exposure(said), Some(1.9));
        assert_eq!(exposure("nothing"), None);
    }

    #[test]
    fn the_unit_is_no_more_exposed_than_it_may_be() {
        check().unwrap();
    }

    #[test]
    fn the_unit_names_what_the_package_installs() {
        let unit =
            std::fs::read_to_string(workspace::root().join("packaging/systemd/ratelimit.service")).unwrap();
        for line in [
            "Type=notify",
            "ExecStart=/usr/bin/ratelimit run --policy /etc/ratelimit/policy.toml --front /run/ratelimit-front.sock",
            "RuntimeDirectory=ratelimit",
            "RuntimeDirectoryPreserve=yes",
            "StateDirectory=ratelimit",
        ] {
            assert!(unit.lines().any(|found| found == line), "{line}");
        }
        assert!(unit.contains("WatchdogSec="));
    }
}
