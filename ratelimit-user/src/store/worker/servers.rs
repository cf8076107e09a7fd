//! Which servers of the store answer. Pure.
//!
//! A Redis Cluster has several servers, and each counts for itself: keys of the others are asked about while one is away. One late answer says nothing
//! of a server; several in a row do, and so does a connection that cannot be made again.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::{policy::address::Endpoint, store::redis::StoreError};

/// Batches in a row without an answer after which a server counts as away.
const PATIENCE: u32 = 3;
/// Writes in a row that a server takes before it is believed again that it takes writes. A store that is full has room for one write whenever a key
/// expires, and requests that went back to it would find it full again.
const TAKEN: u32 = 5;

/// All servers of the store, as far as they are known.
#[derive(Clone, Debug, Default)]
pub(super) struct Servers {
    known: BTreeMap<Endpoint, Server>,
    /// Why no server could be found at the last attempt.
    nowhere: Option<StoreError>,
    has_worked: bool,
}

#[derive(Clone, Debug, Default)]
struct Server {
    failures: u32,
    /// Writes that the server has taken since it last refused one.
    taken: u32,
    /// When the last failure was recorded.
    failed: Option<Instant>,
    /// Why the server counts as away.
    problem: Option<StoreError>,
}

/// The state of all servers together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Servers that answer.
    pub answering: usize,
    /// Servers that do not answer.
    pub away: usize,
    /// What is wrong with one of the servers that do not answer.
    pub problem: Option<StoreError>,
    /// Whether any server has answered since the start.
    pub has_worked: bool,
}

impl Server {
    /// Whether the server counts as away because it takes no writes, whatever else it answers.
    fn refuses_writes(&self) -> bool {
        self.problem.as_ref().is_some_and(StoreError::refuses_writes)
    }
}

impl Condition {
    /// Whether any server of the store has been looked for.
    pub fn is_known(&self) -> bool {
        self.answering + self.away > 0
    }
}

impl Servers {
    /// Records which servers there are connections to, and why to others not. What is known of how they answer stays.
    pub(super) fn connected(&mut self, servers: impl IntoIterator<Item = (Endpoint, Option<StoreError>)>) {
        let mut before = std::mem::take(&mut self.known);
        self.nowhere = None;
        for (endpoint, error) in servers {
            let mut server = before.remove(&endpoint).unwrap_or_default();
            server.problem = error.or(server.problem);
            self.known.insert(endpoint, server);
        }
    }

    /// Records that no server was found.
    pub(super) fn not_found(&mut self, error: StoreError) {
        self.nowhere = Some(error);
    }

    /// Records the result of a question to one server that writes something, so that it is answered only if everything is well.
    pub(super) fn probed(&mut self, endpoint: &Endpoint, error: Option<StoreError>) {
        let Some(server) = self.known.get_mut(endpoint) else { return };
        if error.is_some() {
            *server = Server { problem: error, ..Server::default() };
            return;
        }
        server.taken += 1;
        if !server.refuses_writes() || server.taken >= TAKEN {
            self.has_worked = true;
            *server = Server::default();
        }
    }

    /// Records whether a server has answered a batch that was sent at a moment. Batches are under way together: one that was sent before the failure of
    /// another says nothing new if it fails too.
    pub(super) fn heard_of_batch(
        &mut self,
        endpoint: &Endpoint,
        error: Option<StoreError>,
        sent: Instant,
        now: Instant,
    ) {
        let failed = self.known.get(endpoint).and_then(|server| server.failed);
        let is_old = error.as_ref().is_some_and(|error| !error.refuses_writes());
        if is_old && failed.is_some_and(|failed| failed > sent) {
            return;
        }
        let has_failed = error.is_some();
        self.heard(endpoint, error);
        if let Some(server) = self.known.get_mut(endpoint).filter(|_| has_failed) {
            server.failed = Some(now);
        }
    }

    /// Records whether a server has answered.
    pub(super) fn heard(&mut self, endpoint: &Endpoint, error: Option<StoreError>) {
        let server = self.known.entry(endpoint.clone()).or_default();
        let Some(error) = error else {
            // Questions that write nothing are answered by a store that takes no writes, too.
            if !server.refuses_writes() {
                self.has_worked = true;
                *server = Server::default();
            }
            return;
        };
        server.failures = server.failures.saturating_add(1);
        // One refused write is enough, because answers to questions that write nothing come between two refusals.
        if error.refuses_writes() || server.failures >= PATIENCE {
            *server = Server { failures: server.failures, problem: Some(error), ..Server::default() };
        }
    }

    fn problem(&self, endpoint: &Endpoint) -> Option<&StoreError> {
        self.known.get(endpoint)?.problem.as_ref()
    }

    /// Whether a server counts as away.
    pub(super) fn is_away(&self, endpoint: &Endpoint) -> bool {
        self.problem(endpoint).is_some()
    }

    /// Whether a server is asked nothing for requests: they have waited for it too often, or it takes no writes.
    pub(super) fn is_left_alone(&self, endpoint: &Endpoint) -> bool {
        self.problem(endpoint).is_some_and(|problem| problem.is_late() || problem.refuses_writes())
    }

    /// Returns the error of a server that counts as away because it is late.
    pub(super) fn late(&self, endpoint: &Endpoint) -> Option<&StoreError> {
        self.problem(endpoint).filter(|problem| problem.is_late())
    }

    /// Returns all servers that count as away.
    pub(super) fn away(&self) -> Vec<Endpoint> {
        self.known.keys().filter(|endpoint| self.is_away(endpoint)).cloned().collect()
    }

    /// The condition of all servers together.
    pub(super) fn condition(&self) -> Condition {
        let problems = || self.known.values().filter_map(|server| server.problem.as_ref());
        let away = problems().count();
        let answering = self.known.len() - away;
        let nowhere = self.nowhere.as_ref().filter(|_| answering == 0);
        Condition {
            answering,
            away: away.max(usize::from(nowhere.is_some())),
            problem: nowhere.or(problems().next()).cloned(),
            has_worked: self.has_worked,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn endpoint(port: u16) -> Endpoint {
        Endpoint::Tcp { host: "h".into(), port }
    }

    fn late() -> StoreError {
        StoreError::TimedOut { at: "h:1".into(), after: Duration::from_millis(50) }
    }

    /// Makes two servers that answer.
    fn two() -> Servers {
        let mut servers = Servers::default();
        let both = [endpoint(1), endpoint(2)];
        servers.connected(both.clone().map(|endpoint| (endpoint, None)));
        both.iter().for_each(|endpoint| servers.probed(endpoint, None));
        servers
    }

    fn counts(servers: &Servers) -> (usize, usize) {
        let Condition { answering, away, .. } = servers.condition();
        (answering, away)
    }

    #[test]
    fn a_server_is_away_after_three_late_answers_in_a_row_and_back_with_the_first_in_time() {
        let mut servers = two();
        for nth in [1, 2, 0, 1, 2, 3] {
            servers.heard(&endpoint(1), (nth > 0).then(late));
            let (is_left, is_away) = (servers.is_left_alone(&endpoint(1)), servers.is_away(&endpoint(1)));
            assert_eq!((is_left, is_away), (nth == 3, nth == 3), "{nth}");
        }
        assert_eq!(counts(&servers), (1, 1), "the other one goes on");
        assert_eq!(servers.condition().problem, Some(late()));
        servers.heard(&endpoint(1), None);
        assert_eq!(counts(&servers), (2, 0));
    }

    #[test]
    fn batches_that_fail_together_are_one_failure() {
        let (mut servers, began) = (two(), Instant::now());
        let at = |ms| began + Duration::from_millis(ms);
        for (sent, failed) in [(0, 50), (2, 52), (4, 54), (50, 100)] {
            servers.heard_of_batch(&endpoint(1), Some(late()), at(sent), at(failed));
            assert!(!servers.is_away(&endpoint(1)), "{sent}");
        }
        servers.heard_of_batch(&endpoint(1), Some(late()), at(101), at(151));
        assert!(servers.is_away(&endpoint(1)), "the third");
    }

    #[test]
    fn a_server_that_refuses_one_write_is_away_until_it_has_taken_several_in_a_row() {
        let (one, at) = (endpoint(1), || "h:1".to_owned());
        for refused in [
            StoreError::OutOfMemory { at: at() },
            StoreError::ReadOnly { at: at() },
            StoreError::CannotSave { at: at() },
            StoreError::TooFewReplicas { at: at() },
            StoreError::MasterDown { at: at() },
        ] {
            let mut servers = two();
            servers.heard(&one, Some(refused.clone()));
            assert_eq!((counts(&servers), servers.is_left_alone(&one)), ((1, 1), true), "{refused}");
            // Somebody peeked, and the store had an answer.
            servers.heard(&one, None);
            for _ in 1..TAKEN {
                servers.probed(&one, None);
            }
            assert_eq!(servers.condition().problem, Some(refused.clone()), "not yet");
            servers.probed(&one, Some(refused.clone()));
            for nth in 1..=TAKEN {
                assert_eq!(counts(&servers), (1, 1), "{refused}, before write {nth}");
                servers.probed(&one, None);
            }
            assert_eq!(counts(&servers), (2, 0), "{refused}");
        }
    }

    #[test]
    fn a_replica_that_was_found_first_has_never_worked_and_the_master_found_next_counts_at_once() {
        let mut servers = Servers::default();
        servers.connected([(endpoint(1), None)]);
        servers.probed(&endpoint(1), Some(StoreError::ReadOnly { at: "h:1".into() }));
        let Condition { answering, away, has_worked, .. } = servers.condition();
        assert_eq!((answering, away, has_worked), (0, 1, false));
        servers.connected([(endpoint(2), None)]);
        servers.probed(&endpoint(2), None);
        assert_eq!(servers.condition(), Condition { answering: 1, has_worked: true, ..Condition::default() });
    }

    #[test]
    fn a_connection_that_cannot_be_made_again_is_a_clear_loss() {
        let mut servers = two();
        let refused = StoreError::Unreachable { at: "h:2".into(), why: "refused".into() };
        let (one, two) = (endpoint(1), endpoint(2));
        servers.connected([(one.clone(), None), (two.clone(), Some(refused))]);
        assert_eq!(counts(&servers), (1, 1));
        // A new connection says nothing of answers; the server has to be asked.
        servers.connected([(one, None), (two.clone(), None)]);
        assert_eq!(counts(&servers), (1, 1));
        servers.probed(&two, None);
        assert_eq!(counts(&servers), (2, 0));
    }

    #[test]
    fn a_store_that_was_never_found_has_not_worked() {
        let mut servers = Servers::default();
        assert!(!servers.condition().is_known());
        let wrong = StoreError::WrongPassword { at: "h:1".into(), user: "default".into() };
        servers.not_found(wrong.clone());
        let condition = Condition { answering: 0, away: 1, problem: Some(wrong), has_worked: false };
        assert_eq!(servers.condition(), condition);
        servers.connected([(endpoint(1), None)]);
        servers.probed(&endpoint(1), None);
        assert_eq!(servers.condition(), Condition { answering: 1, has_worked: true, ..Condition::default() });
        servers.not_found(late());
        assert_eq!(counts(&servers), (1, 0), "a search that fails takes nothing away that answers");
    }
}
