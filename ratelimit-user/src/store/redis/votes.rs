//! Which master most Sentinels name. Pure.
//!
//! A majority is one of all Sentinels that the policy names, not of those that answer: other hosts do not act on what a few Sentinels say that are cut
//! off, behind, or wrong. Where no master has a majority, because too few answer or they disagree for as long as there is time to ask, all that were
//! named are candidates.

use crate::policy::address::Endpoint;

/// Masters, and by how many Sentinels each is named.
#[derive(Debug)]
pub(super) struct Votes {
    sentinels: usize,
    named: Vec<(Endpoint, usize)>,
}

impl Votes {
    /// Makes the votes of `sentinels` Sentinels, none of which has answered yet.
    pub(super) fn of(sentinels: usize) -> Self {
        Self { sentinels, named: Vec::new() }
    }

    /// Counts one more Sentinel that names this master.
    pub(super) fn add(&mut self, master: Endpoint) {
        match self.named.iter_mut().find(|(other, _)| *other == master) {
            Some((_, votes)) => *votes += 1,
            None => self.named.push((master, 1)),
        }
    }

    /// Whether no Sentinel has named a master.
    pub(super) fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// Returns the master that more than half of all Sentinels name.
    pub(super) fn majority(&self) -> Option<&Endpoint> {
        self.named.iter().find(|(_, votes)| *votes > self.sentinels / 2).map(|(master, _)| master)
    }

    /// Whether enough Sentinels have answered for a majority, and there is none.
    pub(super) fn disagree(&self) -> bool {
        let answered: usize = self.named.iter().map(|(_, votes)| votes).sum();
        answered > self.sentinels / 2 && self.majority().is_none()
    }

    /// Returns where the store may be, the most likely first: the master of the majority and no other one, or all masters that were named. Of two masters
    /// with as many votes, the one that was named first comes first.
    pub(super) fn candidates(self) -> Vec<Endpoint> {
        if let Some(master) = self.majority() {
            return vec![master.clone()];
        }
        let mut named = self.named;
        named.sort_by_key(|(_, votes)| std::cmp::Reverse(*votes));
        named.into_iter().map(|(master, _)| master).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn master(port: u16) -> Endpoint {
        Endpoint::Tcp { host: "h".into(), port }
    }

    fn votes(sentinels: usize, named: &[u16]) -> Votes {
        let mut votes = Votes::of(sentinels);
        named.iter().for_each(|port| votes.add(master(*port)));
        votes
    }

    #[test]
    fn a_majority_is_more_than_half_of_all_sentinels_and_not_of_those_that_answer() {
        for (named, sentinels, expected) in [
            (&[1_u16, 1][..], 3, Some(1)),
            (&[1], 3, None),
            (&[1, 2], 3, None),
            (&[2, 1, 2], 3, Some(2)),
            (&[1, 1], 4, None),
            (&[1, 1, 2, 1], 4, Some(1)),
            (&[1, 1], 2, Some(1)),
            (&[1], 2, None),
            (&[1], 1, Some(1)),
            (&[], 1, None),
        ] {
            let votes = votes(sentinels, named);
            assert_eq!(votes.majority(), expected.map(master).as_ref(), "{named:?} of {sentinels}");
        }
    }

    #[test]
    fn sentinels_disagree_if_enough_of_them_answer_and_name_no_master_together() {
        for (sentinels, named, expected) in [
            (3, &[1, 2, 3][..], true),
            (3, &[1, 2], true),
            (3, &[1, 2, 2], false),
            (3, &[1], false),
            (2, &[1, 2], true),
            (1, &[], false),
        ] {
            assert_eq!(votes(sentinels, named).disagree(), expected, "{named:?} of {sentinels}");
        }
    }

    #[test]
    fn a_minority_has_no_candidate_beside_that_of_the_majority() {
        assert_eq!(votes(3, &[2, 1, 1]).candidates(), [1].map(master));
    }

    #[test]
    fn without_a_majority_those_with_most_votes_come_first_and_each_once() {
        assert_eq!(votes(5, &[1, 2, 3, 2]).candidates(), [2, 1, 3].map(master));
        assert_eq!(votes(3, &[3]).candidates(), [3].map(master));
        assert_eq!(votes(3, &[]).candidates(), []);
    }
}
