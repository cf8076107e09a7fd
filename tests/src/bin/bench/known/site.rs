//! The host that is attacked, with a wire of the flood and one of the clients, and what runs on it.

use std::{
    net::Ipv4Addr,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};
use ratelimit_common::abi::Verdict;
use ratelimit_tests::{
    clients::{EchoServer, QuestionCarrier},
    daemon::binary,
};
use ratelimit_user::dataplane::remains::Remains;

use super::{CONTROL, Others, SETTLING};
use crate::{
    case::TABLE_ENTRIES,
    client_wire::{self, ClientWire},
    contestant::{
        daemon::{self, Guard},
        policy,
    },
    honest::Seats,
    lane::{self, Ground, Lane, ip},
    place,
    rig::Generator,
    traffic::{self, Family, Traffic},
};

/// Clients from this number on are behind the flood's wire: 198.19.128.0/17.
pub(super) const FIRST_IN_FLOOD: u16 = 0x8000;
/// Random sources of the flood: all of 16.0.0.0/4.
const FLOOD: Traffic = Traffic { family: Family::V4, base_v4: 0x1000_0000, sources: 1 << 28, frame_len: 64 };
/// Packets per second from known addresses, beside the flood.
const FORGED_PER_SECOND: u32 = 60_000;

/// Fields are dropped in order: the server and the daemon leave before their wires go.
pub(super) struct Site {
    _echo: EchoServer,
    guard: Guard,
    _clients: ClientWire,
    lane: Lane,
    pub(super) ground: Ground,
}

impl Site {
    /// A host whose service has a total, and that knows these clients by their averages.
    pub(super) fn new(
        total: u32,
        known: impl IntoIterator<Item = (Ipv4Addr, f64)>,
        seats: Seats,
        limiter: &Path,
    ) -> Result<Self> {
        let ground = Ground::new()?;
        let lane = Lane::new(&ground, 0, FLOOD.frame_len)?;
        let clients = ClientWire::connect(&lane)?;
        join_flood(&ground, &lane).context("cannot put clients into the flood's queue")?;
        let policy = format!(
            "[source]\nlimits = [\"1000 packets/s burst 2000\"]\ntable_entries = {TABLE_ENTRIES}\n\n{}",
            policy::service("attacked", traffic::PORT, total)
        );
        let interfaces = [lane.inlet.as_str(), client_wire::HOST];
        let guard = daemon::start_with_clients(&lane, &interfaces, &policy, known, limiter)?;
        let echo = place::inside(lane.namespace(), || {
            place::stay_on(seats.host)?;
            let addresses = [traffic::PORT, CONTROL].map(|port| (lane::HOST_V4, port).into());
            Ok(EchoServer::start(QuestionCarrier::Udp, &addresses))
        })?;
        Ok(Self { _echo: echo, guard, _clients: clients, lane, ground })
    }

    /// What makes the flood.
    pub(super) fn generator(&self) -> Result<Generator> {
        place::inside(self.ground.namespace(), || Generator::new(&FLOOD, &self.lane.outlet))
    }

    /// Packets of the flood's wire that the limiter has judged so far.
    pub(super) fn arrived(&self, generator: &Generator) -> Result<u64> {
        place::inside(self.ground.namespace(), || generator.arrived())
    }

    /// Packets that the service was handed so far. Read from the pins: the daemon would answer late on a host that is as busy as this one.
    pub(super) fn passed(&self) -> Result<u64> {
        let counts = Remains::find(&self.guard.pins())?.context("nothing is pinned")?.counts()?;
        let passed = counts.iter().filter(|one| one.service == 1 && one.reason.verdict() == Verdict::Pass);
        Ok(passed.map(|one| one.counter.packets).sum())
    }
}

/// Gives the generator's namespace clients of its own.
fn join_flood(ground: &Ground, lane: &Lane) -> Result<()> {
    let (generator, host) = (ground.namespace(), lane.namespace());
    let [neighbour, mac] = client_wire::NEIGHBOUR;
    let clients = format!("{}/17", Ipv4Addr::from(client_wire::address(FIRST_IN_FLOOD)));
    let server = Ipv4Addr::from(lane::HOST_V4).to_string();
    let host_mac = lane::MAC.map(|byte| format!("{byte:02x}")).join(":");
    ip(&["-n", generator, "link", "set", "lo", "up"])?;
    ip(&["-n", generator, "link", "set", &lane.outlet, "address", mac])?;
    ip(&["-n", generator, "route", "add", "local", &clients, "dev", "lo"])?;
    ip(&["-n", generator, "route", "add", &server, "dev", &lane.outlet])?;
    // Questions for addresses would stand in the flood's queue too.
    ip(&["-n", generator, "neigh", "add", &server, "lladdr", &host_mac, "dev", &lane.outlet])?;
    ip(&["-n", host, "route", "add", &clients, "via", neighbour, "dev", &lane.inlet])
}

/// Sends packets from addresses that the host knows, on the flood's wire. Ends with the value.
pub(super) struct Forger(Child);

impl Forger {
    pub(super) fn start(site: &Site, others: Others, lasts: Duration, seats: Seats) -> Result<Self> {
        let size = 1_u32 << (32 - others.prefix);
        // Some addresses of the prefix are not known; the known ones are to have the rate.
        let per_sec = u64::from(FORGED_PER_SECOND) * u64::from(size) / u64::from(others.count);
        let to = format!("{}:{}", Ipv4Addr::from(lane::DESTINATION_V4), traffic::PORT);
        // Until it is ended, and not for ever if this process is killed.
        let seconds = (SETTLING + lasts).as_secs_f64() + 10.0;
        let mut command = Command::new(binary("traffic"));
        command.args(["forge", "--kind", "udp", "--to", &to, "--for", &seconds.to_string()]);
        command.args(["--within", &format!("{}/{}", others.first, others.prefix)]);
        command.args(["--pps", &per_sec.to_string()]).stdout(Stdio::null());
        place::inside(site.ground.namespace(), || {
            place::pin(None, seats.host)?;
            Ok(Self(command.spawn().context("cannot start the program that forges known addresses")?))
        })
    }
}

impl Drop for Forger {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}
