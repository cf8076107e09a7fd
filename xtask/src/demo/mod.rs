//! The demonstration: a real flood and a real good client on a private wire, with the limiter in between.
//!
//!     lab -> daemon -> good client alone -> good client and attack -> table -> everything removed
//!
//! Everything that is made has a guard that removes it, so an error or Ctrl-C at any point leaves nothing behind.

mod daemon;
pub(crate) mod interrupt;
mod lab;
mod people;
pub(crate) mod policy;
mod process;
mod summary;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use daemon::{Counters, Daemon};
use interrupt::Interrupt;
use lab::Lab;
use people::{Attack, GoodClient, Server};
use summary::{Measured, Moment};

use crate::build::BuildProfile;

const BEFORE: Duration = Duration::from_secs(3);
/// The last message: what to try next.
const AND_NOW: &str = "\nOn an interface of yours: cargo xtask run --iface NAME. Then, in another terminal:\n    \
                       sudo target/release/ratelimit top       who sends, who is dropped and why\n    \
                       sudo target/release/ratelimit doctor    what is in the way on this host";
const LIVE_VIEW_EVERY: Duration = Duration::from_secs(1);

/// Runs the demonstration with programs of a profile. `trace` is the level from which verdicts are printed.
pub(crate) fn run(
    profile: BuildProfile,
    policy: Option<PathBuf>,
    attack_lasts: Duration,
    trace: Option<&str>,
) -> Result<()> {
    let interrupt = Interrupt::watch()?;
    // The order matters: values that are declared later are dropped first, so the processes end before their namespaces.
    let lab = Lab::build(profile)?;
    let policy = policy.map_or_else(|| write_built_in_policy(&lab), Ok)?;
    say("Two private namespaces, joined by a wire; your interfaces are not touched. The policy:")?;
    say(&indented(&policy)?)?;
    let daemon = Daemon::start(&lab, &policy, trace, &interrupt)?;
    say(&daemon.attached()?)?;
    let mut scene =
        Scene { server: Server::start(&lab, &interrupt)?, daemon: &daemon, interrupt: &interrupt };

    say(&format!(
        "{} s: the good client alone ({}: pings, TCP requests)",
        BEFORE.as_secs(),
        lab::GOOD_CLIENT
    ))?;
    let at_start = scene.now()?;
    let client = GoodClient::start(&lab, BEFORE)?;
    scene.watch(BEFORE, &at_start)?;
    let before = client.finish(&interrupt)?;

    let (udp, syn) = (lab::UDP_ATTACKER, lab::SYN_ATTACKER);
    say(&format!(
        "\n{} s: the same, while {udp} floods with UDP and {syn} with SYNs",
        attack_lasts.as_secs()
    ))?;
    let at_start = scene.now()?;
    let lost_before = lab.lost_on_wire()?;
    let client = GoodClient::start(&lab, attack_lasts)?;
    let attack = Attack::start(&lab, attack_lasts)?;
    scene.watch(attack_lasts, &at_start)?;
    let attack = attack.finish(&interrupt)?;
    let during = client.finish(&interrupt)?;
    let at_end = scene.now()?;

    let xdp = at_end.xdp.since(&at_start.xdp);
    let reached = at_end.reached - at_start.reached;
    let lost_on_wire = lab.lost_on_wire()? - lost_before;
    let measured =
        Measured { before, during, attack, attack_lasted: attack_lasts, lost_on_wire, xdp, reached };
    say(&format!("\n{}\n{}", summary::table(&measured), summary::verdict(&measured)))?;
    say(AND_NOW)?;
    Ok(())
}

fn write_built_in_policy(lab: &Lab) -> Result<PathBuf> {
    let path = lab.dir().join("policy.toml");
    fs::write(&path, policy::BUILT_IN).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

fn indented(policy: &Path) -> Result<String> {
    let text =
        fs::read_to_string(policy).with_context(|| format!("cannot read the policy {}", policy.display()))?;
    Ok(text.lines().map(|line| format!("    {line}\n")).collect())
}

/// Prints a line. It fails if nobody reads any more (`| head`), so that the guards clean up; println would panic.
fn say(line: &str) -> Result<()> {
    writeln!(io::stdout(), "{line}").context("cannot print")
}

/// The participants whose counters are read while the traffic runs.
struct Scene<'a> {
    server: Server,
    daemon: &'a Daemon,
    interrupt: &'a Interrupt,
}

/// Totals at one moment.
#[derive(Clone)]
struct Totals {
    taken: Instant,
    xdp: Counters,
    reached: u64,
}

impl Scene<'_> {
    fn now(&mut self) -> Result<Totals> {
        let reached = self.server.received_from(lab::UDP_ATTACKER, self.interrupt)?;
        Ok(Totals { xdp: self.daemon.counters()?, taken: Instant::now(), reached })
    }

    /// Prints the live view: one line per second since `start`.
    fn watch(&mut self, lasts: Duration, start: &Totals) -> Result<()> {
        say(summary::LIVE_HEADER)?;
        let mut last = start.clone();
        for line in 1..=lasts.as_secs() as u32 {
            self.interrupt.sleep_until(start.taken + LIVE_VIEW_EVERY * line)?;
            let now = self.now()?;
            let moment = Moment {
                at: now.taken - start.taken,
                lasted: now.taken - last.taken,
                xdp: now.xdp.since(&last.xdp),
                reached: now.reached - last.reached,
            };
            say(&summary::live_line(&moment))?;
            last = now;
        }
        Ok(())
    }
}
