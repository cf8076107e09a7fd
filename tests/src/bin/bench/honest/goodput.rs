//! A bulk transfer without a flood and with one, both through the limiter.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use super::{
    Seats,
    site::Site,
    transfer::{self, Transfer},
    visits::{Newcomers, Visits},
};
use crate::{
    case::{TABLE_ENTRIES, TOTAL_PER_SECOND},
    contestant::policy,
    flight,
    interrupt::Interrupt,
    rig::Generator,
    rounds::Pace,
    spread::Spread,
    traffic::{self, Family, Traffic},
};

/// Until the limiter is as busy as it gets: bursts spent, attack state found.
const SETTLING: Duration = Duration::from_millis(300);

/// What the honest client gets.
#[derive(Debug, Serialize)]
pub(crate) struct Goodput {
    /// Bits per second that the server read, round by round.
    pub(crate) calm: Vec<f64>,
    pub(crate) flooded: Vec<f64>,
    pub(crate) calm_bits_per_second: Spread,
    pub(crate) flooded_bits_per_second: Spread,
    /// With the flood against without, round by round.
    pub(crate) ratio: Spread,
    /// Packets of the flood that arrived.
    pub(crate) flood_per_second: Spread,
    /// Part of the host's CPU that taking the flood from the wire and judging it had.
    pub(crate) flood_cpu_share: Spread,
    /// Connections without the flood, and during it.
    pub(crate) calm_connections: Visits,
    pub(crate) connections: Visits,
}

/// Limits out of the way of the one source that sends as fast as it can; what has to hold is the total.
fn limits() -> String {
    format!(
        "[source]\nlimits = [\"1000000 packets/s burst 1000000\"]\ntable_entries = {TABLE_ENTRIES}\n\n{}",
        policy::service("attacked", traffic::PORT, TOTAL_PER_SECOND)
    )
}

/// `judge` is the CPU that takes the flood from its wire.
pub(super) fn measure(
    seats: Seats,
    judge: usize,
    pace: Pace,
    limiter: &Path,
    interrupt: &Interrupt,
) -> Result<Goodput> {
    let site = Site::new(&limits(), seats, judge, limiter)?;
    let spoofed = Traffic { family: Family::V4, base_v4: traffic::BASE_V4, sources: 0, frame_len: 64 };
    let flood = site.generator(|outlet| Generator::new(&spoofed, outlet))?;
    let newcomers = Newcomers::default();
    let mut rounds = Rounds::default();
    let with_flood = [false, true];
    pace.in_turn("an honest client", with_flood.len(), interrupt, |_, at| {
        if with_flood[at] {
            rounds.add_flooded(&site, &flood, pace.round, &newcomers, seats)?;
        } else {
            rounds.add_calm(transfer::measure(&site.server, pace.round, &newcomers, seats)?);
        }
        Ok(())
    })?;
    rounds.into_goodput()
}

#[derive(Debug, Default)]
struct Rounds {
    calm: Vec<f64>,
    flooded: Vec<f64>,
    arrived: Vec<f64>,
    cpu_shares: Vec<f64>,
    calm_connections: Visits,
    connections: Visits,
}

impl Rounds {
    fn add_calm(&mut self, transfer: Transfer) {
        self.calm.push(transfer.bits_per_second);
        self.calm_connections.join(transfer.visits);
    }

    fn add_flooded(
        &mut self,
        site: &Site,
        flood: &Generator,
        lasts: Duration,
        newcomers: &Newcomers,
        seats: Seats,
    ) -> Result<()> {
        let (transfer, arrived, cpu_share) = flight::during(&site.ground, flood, seats.generator, || {
            thread::sleep(SETTLING);
            let (before, start) = ((site.arrived(flood)?, site.flood_ran_for()?), Instant::now());
            let transfer = transfer::measure(&site.server, lasts, newcomers, seats)?;
            let after = (site.arrived(flood)?, site.flood_ran_for()?);
            let seconds = start.elapsed().as_secs_f64();
            let arrived = (after.0 - before.0) as f64 / seconds;
            Ok((transfer, arrived, (after.1 - before.1).as_secs_f64() / seconds))
        })?;
        self.flooded.push(transfer.bits_per_second);
        self.arrived.push(arrived);
        self.cpu_shares.push(cpu_share);
        self.connections.join(transfer.visits);
        Ok(())
    }

    fn into_goodput(self) -> Result<Goodput> {
        let Self { calm, flooded, arrived, cpu_shares, calm_connections, connections } = self;
        // Not a result but a rig that does not work.
        ensure!(calm.iter().all(|bits| *bits > 0.0), "nothing was transferred even without a flood");
        let spread = |rounds: &[f64]| Spread::of(rounds).context("no rounds");
        Ok(Goodput {
            calm_bits_per_second: spread(&calm)?,
            flooded_bits_per_second: spread(&flooded)?,
            ratio: Spread::of_ratios(&flooded, &calm).context("no rounds")?,
            flood_per_second: spread(&arrived)?,
            flood_cpu_share: spread(&cpu_shares)?,
            calm,
            flooded,
            calm_connections,
            connections,
        })
    }
}
