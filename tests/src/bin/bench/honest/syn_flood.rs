//! New connections to a port while forged SYNs for it come as fast as the generator can make them.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use serde::Serialize;

use super::{
    Pace, Seats,
    site::Site,
    visits::{self, Strangers, Visits},
};
use crate::{
    case::TABLE_ENTRIES,
    contestant::Abilities,
    flight,
    interrupt::Interrupt,
    progress,
    rig::Generator,
    spread::Spread,
    traffic::{self, Family, SYN_FRAME, Traffic},
};

/// Until SYNs are answered with cookies.
const SETTLING: Duration = Duration::from_millis(300);

/// What came of it.
#[derive(Debug, Serialize)]
pub(crate) struct SynFlood {
    /// Forged SYNs that arrived.
    pub(crate) syns_per_second: Spread,
    /// SYNs that the limiter answered with a cookie.
    pub(crate) answered: u64,
    pub(crate) answered_per_second: Spread,
    /// Part of the new honest connections that succeeded in time, round by round.
    pub(crate) shares: Vec<f64>,
    pub(crate) connections: Visits,
}

/// Limits of sources out of the way: they see no flood in which every source comes once.
fn policy() -> String {
    format!(
        "[source]\nlimits = [\"1000 packets/s burst 1000\"]\ntable_entries = {TABLE_ENTRIES}\n\n\
         [[service]]\nname = \"web\"\nmatch = {{ protocol = \"tcp\", ports = [{}] }}\n\
         syn_cookies = \"1000 syns/s burst 1000\"\n",
        traffic::PORT
    )
}

pub(super) fn measure(
    seats: Seats,
    pace: Pace,
    abilities: &Abilities,
    interrupt: &Interrupt,
) -> Result<SynFlood> {
    let site = Site::new(&policy(), seats, seats.host, abilities)?;
    let forged = Traffic { family: Family::V4, base_v4: traffic::BASE_V4, sources: 0, frame_len: SYN_FRAME };
    let flood = site.generator(|outlet| Generator::of_syns(&forged, outlet))?;
    let strangers = Strangers::default();
    let (mut arrived, mut answered, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    let mut connections = Visits::default();
    let answered_before = site.answered()?;
    for round in 0..pace.rounds {
        interrupt.check()?;
        progress::show(&format!("SYN flood, round {} of {}", round + 1, pace.rounds));
        let visits = flight::during(&site.ground, &flood, seats.generator, || {
            thread::sleep(SETTLING);
            let before = Counts::now(&site, &flood)?;
            // The flood goes on until the last one has an answer or has given up.
            let visits = visits::receive(pace.round, &strangers, seats)?;
            let after = Counts::now(&site, &flood)?;
            arrived.push(per_second(before.arrived, after.arrived));
            answered.push(per_second(before.answered, after.answered));
            Ok(visits)
        })?;
        shares.extend(visits.share());
        connections.join(visits);
    }
    progress::clear();
    Ok(SynFlood {
        syns_per_second: Spread::of(&arrived).context("no rounds")?,
        answered: site.answered()? - answered_before,
        answered_per_second: Spread::of(&answered).context("no rounds")?,
        shares,
        connections,
    })
}

/// Each count with its own time: asking the daemon takes a while on a CPU that is as busy as this one.
struct Counts {
    arrived: (u64, Instant),
    answered: (u64, Instant),
}

impl Counts {
    fn now(site: &Site, flood: &Generator) -> Result<Self> {
        let arrived = (site.arrived(flood)?, Instant::now());
        Ok(Self { arrived, answered: (site.answered()?, Instant::now()) })
    }
}

fn per_second(before: (u64, Instant), after: (u64, Instant)) -> f64 {
    (after.0 - before.0) as f64 / (after.1 - before.1).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_taken_between_the_times_of_its_own_readings() {
        let start = Instant::now();
        assert_eq!(per_second((100, start), (400, start + Duration::from_millis(500))), 600.0);
    }
}
