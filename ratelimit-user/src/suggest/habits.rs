//! Habits: the busiest second of each source, over all traffic and at each service.

use std::collections::BTreeMap;

use foldhash::HashMap;

use super::{
    distribution::Distribution,
    subject::{ProposalSubject, Traits},
};
use crate::{capture::Arrival, policy::Services, replay::SourceId};

/// The most rows of sources, over all subjects. When there is no more room, the lighter half is summed up; a source that sends more after that
/// counts twice.
const MAX_ROWS: usize = 1 << 18;

/// Packets in the current second and in the busiest one.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    second: u64,
    now: u64,
    most: u64,
}

impl Peak {
    fn count(&mut self, second: u64) {
        if self.second != second {
            (self.second, self.now) = (second, 0);
        }
        self.now += 1;
        self.most = self.most.max(self.now);
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct HabitRow {
    packets: Peak,
    syns: Peak,
}

/// Rates of the sources of one subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubjectRates {
    /// Packets in the busiest second of each source.
    pub packets: Distribution,
    /// SYNs in the busiest second of each source that sent any.
    pub syns: Distribution,
}

impl SubjectRates {
    fn add(&mut self, row: &HabitRow) {
        self.packets.add(row.packets.most);
        if row.syns.most > 0 {
            self.syns.add(row.syns.most);
        }
    }
}

/// The habits of all sources.
#[derive(Debug)]
pub struct Habits {
    rows: HashMap<(ProposalSubject, SourceId), HabitRow>,
    /// The rates of sources whose rows were summed up.
    summed: BTreeMap<ProposalSubject, SubjectRates>,
    packets: u64,
    max_rows: usize,
}

impl Default for Habits {
    fn default() -> Self {
        Self::with_rows(MAX_ROWS)
    }
}

impl Habits {
    fn with_rows(max_rows: usize) -> Self {
        Self { rows: HashMap::default(), summed: BTreeMap::new(), packets: 0, max_rows }
    }

    /// Counts an arrival. Services are those of a policy, or the observed ports.
    pub fn add(&mut self, arrival: &Arrival<'_>, services: Option<&Services>) {
        let Some(Traits { source, subject, is_syn }) = Traits::of(&arrival.frame, services) else { return };
        self.packets += 1;
        let second = arrival.unix_ns / 1_000_000_000;
        for subject in [Some(ProposalSubject::Everything), subject].into_iter().flatten() {
            if self.rows.len() >= self.max_rows && !self.rows.contains_key(&(subject, source)) {
                self.sum_up();
            }
            let row = self.rows.entry((subject, source)).or_default();
            row.packets.count(second);
            if is_syn {
                row.syns.count(second);
            }
        }
    }

    fn sum_up(&mut self) {
        let mut most: Vec<u64> = self.rows.values().map(|row| row.packets.most).collect();
        let half = most.len() / 2;
        let (_, bar, _) = most.select_nth_unstable(half.saturating_sub(1));
        let (bar, mut left, summed) = (*bar, half.max(1), &mut self.summed);
        self.rows.retain(|(subject, _), row| {
            let goes = left > 0 && row.packets.most <= bar;
            if goes {
                left -= 1;
                summed.entry(*subject).or_default().add(row);
            }
            !goes
        });
    }

    /// Packets that have a source.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Sources with a row of their own, to show progress.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// The rates of all subjects.
    pub fn rates(&self) -> BTreeMap<ProposalSubject, SubjectRates> {
        let mut rates = self.summed.clone();
        for ((subject, _), row) in &self.rows {
            rates.entry(*subject).or_default().add(row);
        }
        rates
    }
}
