//! How the cost of a packet grows with what the tables hold.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, Result};
use ratelimit_user::compile::lists::Prefix;
use serde::Serialize;

use super::{
    Cost, Extent,
    paths::GENEROUS,
    stopwatch::Crowd,
    subject::{Listed, Subject},
};
use crate::{case, contestant::policy, interrupt::Interrupt, place, rounds::Cores, traffic};

/// Sources where their number is not what grows.
const SOME_SOURCES: u32 = 1 << 16;
/// Rooms in the largest table; more than this, and loading it takes longer than measuring.
const LARGEST_TABLE: u32 = 1 << 24;

/// The cost of a packet, by the size of one table.
#[derive(Debug, Serialize)]
pub(crate) struct Curve {
    pub(crate) name: &'static str,
    pub(crate) points: Vec<Point>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Point {
    pub(crate) at: u32,
    pub(crate) cost: Cost,
}

/// Measures every curve.
pub(crate) fn measure(cores: Cores, extent: Extent, interrupt: &Interrupt) -> Result<Vec<Curve>> {
    place::in_thread(|| {
        place::stay_on(cores.generator)?;
        let sources =
            extent.steps(&[1, 1_000, 65_536, 262_144, 1_000_000, 3_000_000, 10_000_000], &[1, 1_000_000]);
        let mut curves = Vec::new();
        let curve = |name, steps: &[u32], point: &dyn Fn(u32) -> Result<Cost>| -> Result<Curve> {
            let mut points = Vec::new();
            for &at in steps {
                interrupt.check()?;
                points.push(Point { at, cost: point(at).with_context(|| format!("{name}: {at}"))? });
            }
            Ok(Curve { name, points })
        };
        curves.push(curve("sources, table of 262144", &sources, &|count| {
            by_sources(count, case::TABLE_ENTRIES, extent)
        })?);
        if !extent.quick {
            curves.push(curve("sources, table that holds them", &sources, &|count| {
                by_sources(count, count.saturating_mul(2).clamp(1_024, LARGEST_TABLE), extent)
            })?);
        }
        let blocks = extent.steps(&[0, 1, 100, 1_000, 10_000, 100_000], &[0, 100_000]);
        curves.push(curve("block entries", &blocks, &|count| by_blocks(count, extent))?);
        let services = extent.steps(&[0, 1, 2, 4, 8, 16, 32, 64], &[0, 1, 64]);
        curves.push(curve("services", &services, &|count| by_services(count, extent))?);
        Ok(curves)
    })
}

fn by_sources(count: u32, table_entries: u32, extent: Extent) -> Result<Cost> {
    let mut subject = Subject::new(GENEROUS, table_entries);
    // Until the table is as full as it gets.
    let settle = count.saturating_mul(3).min(table_entries.saturating_mul(4));
    Crowd::settled(&mut subject, count, settle)?.cost(extent)
}

/// Blocked addresses all around the sources, so that a lookup goes as deep as the list does. One source in eighty is
/// itself on the longest list.
fn by_blocks(count: u32, extent: Extent) -> Result<Cost> {
    let mut subject = Subject::new(GENEROUS, case::TABLE_ENTRIES);
    let mut random = fastrand::Rng::with_seed(1);
    let address = |number: u32| IpAddr::from(Ipv4Addr::from_bits(traffic::BASE_V4 + number));
    subject.list((0..count).map(|_| Prefix::masked(address(random.u32(..1 << 23)), 32)), Listed::Blocked);
    Crowd::settled(&mut subject, SOME_SOURCES, SOME_SOURCES * 4)?.cost(extent)
}

/// The attacked service is the last one. With none, packets meet no total: what passes is the most that there is to do.
fn by_services(count: u32, extent: Extent) -> Result<Cost> {
    let service = |port| policy::service(&format!("s{port}"), port, case::TOTAL_PER_SECOND);
    let services: String = (traffic::PORT..traffic::PORT + count as u16).rev().map(service).collect();
    let mut subject = Subject::new(&format!("{GENEROUS}\n{services}"), case::TABLE_ENTRIES);
    Crowd::settled(&mut subject, SOME_SOURCES, SOME_SOURCES * 4)?.cost(extent)
}
