//! Known clients behind a flood, counted at the clients.
//!
//! ```text
//! generator --- flood ---------------> rlb0  \
//! clients in the flood's queue ------>        limiter -> stack -> echo at a service with a total
//! clients on a wire of their own ----> host0 /                    echo at a port without a limit
//! ```
//!
//! Each client sends the same to both ports at the same time, through the same wire. What comes back from the service, of what comes back from the other port, is
//! what the limiter leaves of it: losses of queues and of a CPU that is short are in both.
//!
//! The clients' words are in the host's memory before it begins, and nothing is learned while the total is spent. So each round begins with what the policy
//! promises to clients of this average: all that they send, up to f times the average, where f is 7/8 of the rate by the sum of averages that are claimed,
//! and at most 4 ([decision 88](../../../../docs/decisions/0088-known-clients-first.md)).

mod cost;
mod site;

use std::{
    net::Ipv4Addr,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use ratelimit_tests::clients::{EchoClients, Echoed, QUESTION, QuestionCarrier};
use serde::Serialize;

pub(crate) use self::cost::{Cost, measure as costs};
use self::site::{Forger, Site};
use crate::{
    client_wire, flight, honest::Seats, interrupt::Interrupt, lane, place, rig::Generator, rounds::Pace,
    spread::Spread, traffic,
};

/// The port without a limit.
const CONTROL: u16 = traffic::PORT + 2;
/// Clients that are counted.
const CLIENTS: u16 = 20;
/// Until the total is spent, and refusing is all that is left.
const SETTLING: Duration = Duration::from_millis(300);
/// What newcomers may have of a total at least.
pub(crate) const NEWCOMERS: f64 = 1.0 / 8.0;
/// What known clients may have of a total together.
const RESERVED: f64 = 1.0 - NEWCOMERS;
/// The most that a client may claim, in times of its average.
const MOST_TIMES: f64 = 4.0;
/// How far a simulation of the same attack may be from the wire.
const OFF_SIMULATION: f64 = 0.03;

/// What each client sends in a second, and the total of the service in packets per second.
const LOADS: [(u16, u32); 3] = [(5, 2_000), (20, 2_000), (100, 2_500)];

/// Addresses that the host knows, besides those of the counted clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Others {
    first: Ipv4Addr,
    count: u32,
    /// The prefix of theirs that packets are forged from.
    prefix: u8,
    /// What all of them are served on average, in packets per second.
    per_sec: f64,
}

impl Others {
    /// The clients, each with what it is served on average.
    pub(crate) fn clients(self) -> impl Iterator<Item = (Ipv4Addr, f64)> {
        let first = self.first.to_bits();
        let average = self.per_sec / f64::from(self.count);
        (0..self.count).map(move |number| (Ipv4Addr::from_bits(first + number), average))
    }
}

/// Clients like those that are counted: 5 packets/s each.
const FEW: Others = Others { first: Ipv4Addr::new(100, 65, 0, 0), count: 50, prefix: 26, per_sec: 250.0 };
/// Addresses that somebody has had served for a while, to forge them later.
const SOME: Others = Others { first: Ipv4Addr::new(100, 64, 0, 0), count: 1_000, prefix: 22, per_sec: 500.0 };
/// Nearly as many as the filter has room for.
pub(crate) const MANY: Others =
    Others { first: Ipv4Addr::new(100, 66, 0, 0), count: 100_000, prefix: 15, per_sec: 500.0 };

/// Where the clients are, and what is forged beside the flood.
#[derive(Clone, Copy, Debug)]
struct Scene {
    /// By load.
    names: [&'static str; LOADS.len()],
    in_flood: bool,
    is_known: bool,
    forged: Option<Others>,
}

macro_rules! scene {
    ($name:literal) => {
        Scene {
            names: [concat!($name, ", 5/s"), concat!($name, ", 20/s"), concat!($name, ", 100/s")],
            in_flood: false,
            is_known: true,
            forged: None,
        }
    };
}

const SCENES: [Scene; 6] = [
    scene!("known, own queue"),
    Scene { in_flood: true, ..scene!("known, the flood's queue") },
    Scene { forged: Some(FEW), ..scene!("known, 50 others forged") },
    Scene { forged: Some(SOME), ..scene!("known, 1 000 prepared") },
    Scene { forged: Some(MANY), ..scene!("known, 100 000 prepared") },
    Scene { is_known: false, ..scene!("never seen") },
];

impl Scene {
    /// Addresses of the counted clients. Those that were never seen are others in each round.
    fn addresses(&self, round: usize) -> impl Iterator<Item = Ipv4Addr> {
        let first = match (self.is_known, self.in_flood) {
            (true, false) => OWN_WIRE,
            (true, true) => FLOOD_WIRE,
            (false, _) => NEVER_SEEN + (round as u16 % 64) * 256,
        };
        addresses(first)
    }

    /// What has to be answered of what is answered without a limit; nothing of clients that are not known.
    fn wanted(&self, (per_sec, total): (u16, u32)) -> Option<f64> {
        let own = f64::from(CLIENTS * per_sec);
        let averages = own + self.forged.map_or(0.0, |others| others.per_sec);
        let times = MOST_TIMES.min(RESERVED * f64::from(total) / averages).min(1.0);
        let wanted = if self.forged.is_some() { times - OFF_SIMULATION } else { 0.99 };
        self.is_known.then_some(wanted)
    }
}

/// Numbers of the first client on each wire, and of the first that was never seen.
const OWN_WIRE: u16 = 1;
const NEVER_SEEN: u16 = 0x0101;
const FLOOD_WIRE: u16 = site::FIRST_IN_FLOOD + 1;

fn addresses(first: u16) -> impl Iterator<Item = Ipv4Addr> {
    (first..first + CLIENTS).map(|number| client_wire::address(number).into())
}

/// What known clients got while floods ran, and what it costs to know them.
#[derive(Debug, Serialize)]
pub(crate) struct Known {
    pub(crate) rows: Vec<Row>,
    pub(crate) costs: Vec<Cost>,
}

/// What became of the clients' packets in a scene.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) total_per_second: u32,
    /// Datagrams to each port.
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    /// Answers from the port without a limit.
    pub(crate) answered_without_limit: u64,
    /// Answers of the service by answers of the other port, round by round.
    pub(crate) shares: Vec<f64>,
    pub(crate) wanted: Option<f64>,
    pub(crate) flood_per_second: Spread,
    /// Packets per second that passed of all newcomers together; not known where known addresses are forged.
    pub(crate) newcomers_per_second: Option<Spread>,
}

impl Row {
    /// The part of all that was answered, with the spread of the rounds: one bad round of five is not to be forgotten.
    pub(crate) fn share(&self) -> Spread {
        let share = self.answered as f64 / self.answered_without_limit as f64;
        Spread { median: share, ..Spread::of(&self.shares).unwrap_or(Spread::exact(share)) }
    }
}

/// Measures all scenes; only one load with `quick`. A round of `pace` is one scene.
pub(crate) fn measure(
    seats: Seats,
    pace: Pace,
    quick: bool,
    limiter: &Path,
    interrupt: &Interrupt,
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (at, load) in LOADS.into_iter().enumerate().filter(|(at, _)| !quick || *at == 1) {
        let (per_sec, total) = load;
        let counted = [OWN_WIRE, FLOOD_WIRE].into_iter().flat_map(addresses);
        let counted = counted.map(|client| (client, f64::from(per_sec)));
        let others = [FEW, SOME, MANY].into_iter().flat_map(Others::clients);
        let site = Site::new(total, counted.chain(others), seats, limiter)?;
        let flood = site.generator()?;
        let mut turns = SCENES.map(|_| Vec::new());
        let what = format!("known clients at {per_sec} packets/s");
        pace.in_turn(&what, SCENES.len(), interrupt, |round, scene| {
            turns[scene].push(Turn::take(
                &SCENES[scene],
                (per_sec, round),
                &site,
                &flood,
                pace.round,
                seats,
            )?);
            Ok(())
        })?;
        for (scene, turns) in SCENES.iter().zip(turns) {
            rows.push(row(scene, at, &turns)?);
        }
    }
    Ok(rows)
}

/// One round of one scene.
struct Turn {
    echoed: Echoed,
    flood_per_second: f64,
    /// Packets per second that the service was handed of others than the counted clients.
    others_per_second: f64,
}

impl Turn {
    fn take(
        scene: &Scene,
        (per_sec, round): (u16, usize),
        site: &Site,
        flood: &Generator,
        lasts: Duration,
        seats: Seats,
    ) -> Result<Self> {
        flight::during(&site.ground, flood, seats.generator, || {
            let _forger = scene.forged.map(|others| Forger::start(site, others, lasts, seats)).transpose()?;
            thread::sleep(SETTLING);
            let before = Counts::now(site, flood)?;
            let echoed = place::in_thread(|| {
                place::enter(if scene.in_flood { site.ground.namespace() } else { client_wire::NAMESPACE })?;
                place::stay_on(seats.host)?;
                let clients = EchoClients::bind(QuestionCarrier::Udp, scene.addresses(round));
                let ports = [traffic::PORT, CONTROL];
                Ok(clients.ask(lane::HOST_V4.into(), ports, QUESTION, u32::from(per_sec), lasts))
            })?;
            let after = Counts::now(site, flood)?;
            let seconds = (after.at - before.at).as_secs_f64();
            let others = (after.passed - before.passed).saturating_sub(echoed.answered[0]);
            Ok(Self {
                echoed,
                flood_per_second: (after.arrived - before.arrived) as f64 / seconds,
                others_per_second: others as f64 / seconds,
            })
        })
    }
}

struct Counts {
    arrived: u64,
    passed: u64,
    at: Instant,
}

impl Counts {
    fn now(site: &Site, flood: &Generator) -> Result<Self> {
        Ok(Self { passed: site.passed()?, arrived: site.arrived(flood)?, at: Instant::now() })
    }
}

fn row(scene: &Scene, load: usize, turns: &[Turn]) -> Result<Row> {
    let sum = |count: fn(&Echoed) -> u64| turns.iter().map(|turn| count(&turn.echoed)).sum::<u64>();
    let spread = |value: fn(&Turn) -> f64| {
        Spread::of(&turns.iter().map(value).collect::<Vec<_>>()).context("no rounds")
    };
    // Not a result but a rig that does not work.
    ensure!(turns.iter().all(|turn| turn.echoed.answered[1] > 0), "nothing was answered without a limit");
    let share = |turn: &Turn| turn.echoed.answered[0] as f64 / turn.echoed.answered[1] as f64;
    let (sent, answered_without_limit) = (sum(|echoed| echoed.sent), sum(|echoed| echoed.answered[1]));
    Ok(Row {
        name: scene.names[load],
        total_per_second: LOADS[load].1,
        sent,
        answered: sum(|echoed| echoed.answered[0]),
        answered_without_limit,
        shares: turns.iter().map(share).collect(),
        wanted: scene.wanted(LOADS[load]).map(|wanted| wanted - chance(sent, answered_without_limit)),
        flood_per_second: spread(|turn| turn.flood_per_second)?,
        newcomers_per_second: match scene.forged {
            None => Some(spread(|turn| turn.others_per_second)?),
            Some(_) => None,
        },
    })
}

/// How far two ports may differ by chance, where a queue loses packets of both alike: two standard deviations.
fn chance(sent: u64, answered: u64) -> f64 {
    let lost = sent.saturating_sub(answered) as f64;
    2.0 * (2.0 * lost / (sent as f64 * answered as f64)).sqrt()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// 0.98 of the answers and 0.9 of what newcomers may have, in the first scene.
    pub(crate) fn example() -> Known {
        let row = Row {
            name: SCENES[0].names[0],
            total_per_second: 2_000,
            sent: 200,
            answered: 98,
            answered_without_limit: 100,
            shares: vec![0.96, 1.0],
            wanted: SCENES[0].wanted(LOADS[0]),
            flood_per_second: Spread::exact(5e6),
            newcomers_per_second: Some(Spread::exact(225.0)),
        };
        Known { rows: vec![row], costs: vec![cost::tests::example()] }
    }

    #[test]
    fn prepared_addresses_cut_claims_that_do_not_fit() {
        let wanted = |scene: usize, load: usize| SCENES[scene].wanted(LOADS[load]);
        assert_eq!((wanted(0, 2), wanted(1, 0)), (Some(0.99), Some(0.99)));
        assert_eq!(wanted(4, 0), Some(1.0 - OFF_SIMULATION));
        assert_eq!(wanted(4, 2), Some(0.875 * 2_500.0 / 2_500.0 - OFF_SIMULATION));
        assert_eq!(wanted(5, 0), None);
    }

    #[test]
    fn chance_has_a_part_only_in_losses() {
        assert_eq!(chance(1_000, 1_000), 0.0);
        assert!((chance(10_000, 8_000) - 0.014).abs() < 0.001);
    }

    #[test]
    fn forged_addresses_are_in_the_prefix_that_is_forged() {
        for others in [FEW, SOME, MANY] {
            let last = others.clients().last().unwrap().0.to_bits();
            let bits = 32 - u32::from(others.prefix);
            assert_eq!(others.first.to_bits() >> bits, last >> bits, "{others:?}");
        }
    }
}
