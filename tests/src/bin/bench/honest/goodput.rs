//! A bulk transfer without a flood and with one, both through the limiter.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use super::{
    Pace, Seats,
    site::Site,
    transfer::{self, Transfer},
    visits::{Strangers, Visits},
};
use crate::{
    case::{TABLE_ENTRIES, TOTAL_PER_SECOND},
    contestant::Abilities,
    flight,
    interrupt::Interrupt,
    progress,
    rig::Generator,
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
fn policy() -> String {
    format!(
        "[source]\nlimits = [\"1000000 packets/s burst 1000000\"]\ntable_entries = {TABLE_ENTRIES}\n\n\
         [[service]]\nname = \"attacked\"\nmatch = {{ protocol = \"udp\", ports = [{}] }}\n\
         total = [\"{TOTAL_PER_SECOND} packets/s\"]\n",
        traffic::PORT
    )
}

/// `judge` is the CPU that takes the flood from its wire.
pub(super) fn measure(
    seats: Seats,
    judge: usize,
    pace: Pace,
    abilities: &Abilities,
    interrupt: &Interrupt,
) -> Result<Goodput> {
    let site = Site::new(&policy(), seats, judge, abilities)?;
    let spoofed = Traffic { family: Family::V4, base_v4: traffic::BASE_V4, sources: 0, frame_len: 64 };
    let flood = site.generator(|outlet| Generator::new(&spoofed, outlet))?;
    let strangers = Strangers::default();
    let mut rounds = Rounds::default();
    for round in 0..pace.rounds {
        progress::show(&format!("an honest client, round {} of {}", round + 1, pace.rounds));
        // Not always the same one first.
        for with_flood in [round % 2 == 1, round % 2 == 0] {
            interrupt.check()?;
            if with_flood {
                rounds.add_flooded(&site, &flood, pace.round, &strangers, seats)?;
            } else {
                rounds.add_calm(transfer::measure(&site.server, pace.round, &strangers, seats)?);
            }
        }
    }
    progress::clear();
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
        strangers: &Strangers,
        seats: Seats,
    ) -> Result<()> {
        let (transfer, arrived, cpu_share) = flight::during(&site.ground, flood, seats.generator, || {
            thread::sleep(SETTLING);
            let (before, start) = ((site.arrived(flood)?, site.flood_ran_for()?), Instant::now());
            let transfer = transfer::measure(&site.server, lasts, strangers, seats)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_taken_round_by_round_and_a_dead_rig_is_no_result() {
        let rounds = Rounds {
            calm: vec![10.0, 5.0, 8.0],
            flooded: vec![6.0, 3.0, 4.0],
            arrived: vec![1e6; 3],
            cpu_shares: vec![0.5; 3],
            ..Rounds::default()
        };
        let goodput = rounds.into_goodput().unwrap();
        assert_eq!((goodput.ratio.median, goodput.ratio.min, goodput.ratio.max), (0.6, 0.5, 0.6));
        let dead = Rounds { calm: vec![0.0], flooded: vec![0.0], arrived: vec![1e6], ..Rounds::default() };
        assert!(dead.into_goodput().unwrap_err().to_string().contains("even without a flood"));
    }
}
