//! New connections to a port while forged SYNs for it come as fast as the generator can make them.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use serde::Serialize;

use super::{
    Seats,
    site::Site,
    visits::{self, Newcomers, Visits},
};
use crate::{
    case::TABLE_ENTRIES,
    flight,
    interrupt::Interrupt,
    rig::Generator,
    rounds::Pace,
    spread::Spread,
    traffic::{self, Family, SYN_FRAME, Traffic},
};

/// Until SYNs are answered with cookies.
const SETTLING: Duration = Duration::from_millis(300);

/// What became of honest connections and of forged SYNs.
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

pub(super) fn measure(seats: Seats, pace: Pace, limiter: &Path, interrupt: &Interrupt) -> Result<SynFlood> {
    let site = Site::new(&policy(), seats, seats.host, limiter)?;
    let forged = Traffic { family: Family::V4, base_v4: traffic::BASE_V4, sources: 0, frame_len: SYN_FRAME };
    let flood = site.generator(|outlet| Generator::of_syns(&forged, outlet))?;
    let newcomers = Newcomers::default();
    let (mut arrived, mut answered, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    let mut connections = Visits::default();
    let answered_before = site.answered()?;
    pace.in_turn("SYN flood", 1, interrupt, |_, _| {
        let visits = flight::during(&site.ground, &flood, seats.generator, || {
            thread::sleep(SETTLING);
            let before = Counts::now(&site, &flood)?;
            // The flood goes on until the last one has an answer or has given up.
            let visits = visits::receive(pace.round, &newcomers, seats)?;
            let after = Counts::now(&site, &flood)?;
            arrived.push(per_second(before.arrived, after.arrived));
            answered.push(per_second(before.answered, after.answered));
            Ok(visits)
        })?;
        shares.extend(visits.share());
        connections.join(visits);
        Ok(())
    })?;
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
