//! Which servers of the store answer. Pure.
//!
//! A Redis Cluster has several, and each counts for itself: keys of the others are asked about while one is away. One late answer says nothing of a
//! server; several in a row do, and so does a connection that cannot be made again.

use std::collections::BTreeMap;

use crate::{policy::address::Endpoint, store::redis::StoreError};

/// Batches in a row without an answer after which a server counts as away.
const PATIENCE: u32 = 3;

/// All servers of the store, as far as they are known.
#[derive(Clone, Debug, Default)]
pub(super) struct Servers {
    known: BTreeMap<Endpoint, Server>,
    /// Why none could be found when that was last tried.
    nowhere: Option<StoreError>,
    has_worked: bool,
}

#[derive(Clone, Debug, Default)]
struct Server {
    failures: u32,
    /// Why it counts as away.
    problem: Option<StoreError>,
}

/// How the store is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Servers that answer.
    pub answering: usize,
    /// Servers that do not.
    pub away: usize,
    /// What is wrong with one of those.
    pub problem: Option<StoreError>,
    /// Whether any has answered since the start.
    pub has_worked: bool,
}

impl Condition {
    /// Whether it has been looked for at all.
    pub fn is_known(&self) -> bool {
        self.answering + self.away > 0
    }
}

impl Servers {
    /// There are connections to these, or an error instead. What is known of how they answer stays.
    pub(super) fn connected(&mut self, servers: impl IntoIterator<Item = (Endpoint, Option<StoreError>)>) {
        let mut before = std::mem::take(&mut self.known);
        self.nowhere = None;
        for (endpoint, error) in servers {
            let mut server = before.remove(&endpoint).unwrap_or_default();
            server.problem = error.or(server.problem);
            self.known.insert(endpoint, server);
        }
    }

    /// No server was found.
    pub(super) fn not_found(&mut self, error: StoreError) {
        self.nowhere = Some(error);
    }

    /// One has been asked for something that it does only if everything is well.
    pub(super) fn probed(&mut self, endpoint: &Endpoint, error: Option<StoreError>) {
        if let Some(server) = self.known.get_mut(endpoint) {
            self.has_worked |= error.is_none();
            *server = Server { failures: 0, problem: error };
        }
    }

    /// A batch was answered, or not.
    pub(super) fn heard(&mut self, endpoint: &Endpoint, error: Option<StoreError>) {
        let server = self.known.entry(endpoint.clone()).or_default();
        let Some(error) = error else {
            self.has_worked = true;
            *server = Server::default();
            return;
        };
        server.failures = server.failures.saturating_add(1);
        if server.failures >= PATIENCE {
            server.problem = Some(error);
        }
    }

    fn problem(&self, endpoint: &Endpoint) -> Option<&StoreError> {
        self.known.get(endpoint)?.problem.as_ref()
    }

    /// Whether one counts as away.
    pub(super) fn is_away(&self, endpoint: &Endpoint) -> bool {
        self.problem(endpoint).is_some()
    }

    /// Whether one counts as away because requests have waited for it too often.
    pub(super) fn is_late(&self, endpoint: &Endpoint) -> bool {
        self.problem(endpoint).is_some_and(StoreError::is_late)
    }

    /// All that count as away.
    pub(super) fn away(&self) -> Vec<Endpoint> {
        self.known.keys().filter(|endpoint| self.is_away(endpoint)).cloned().collect()
    }

    /// How they are together.
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

    /// Two servers that answer.
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
            let (is_late, is_away) = (servers.is_late(&endpoint(1)), servers.is_away(&endpoint(1)));
            assert_eq!((is_late, is_away), (nth == 3, nth == 3), "{nth}");
        }
        assert_eq!(counts(&servers), (1, 1), "the other one goes on");
        assert_eq!(servers.condition().problem, Some(late()));
        servers.heard(&endpoint(1), None);
        assert_eq!(counts(&servers), (2, 0));
    }

    #[test]
    fn a_connection_that_cannot_be_made_again_is_a_clear_loss() {
        let mut servers = two();
        let refused = StoreError::Unreachable { at: "h:2".into(), why: "refused".into() };
        let (one, two) = (endpoint(1), endpoint(2));
        servers.connected([(one.clone(), None), (two.clone(), Some(refused))]);
        assert_eq!(counts(&servers), (1, 1));
        // That there is a connection says nothing of answers; somebody asks.
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
