//! What an answer depends on beside the question: who asks, what they have shown, and whom they ask.

use std::sync::Arc;

use super::{credentials::Token, grpc::rlqs::Quotas, listener::Peer};
use crate::{
    places::{Common, Guest},
    requests::decision_service::DecisionService,
    web::gallery::Gallery,
};

/// What a caller has to show, and may ask.
#[derive(Clone, Debug)]
pub struct Door {
    /// The decision service that callers ask.
    pub decisions: Arc<DecisionService>,
    /// What this caller must show first, if anything.
    pub token: Option<Arc<Token>>,
    /// What whoever looks at the dashboard must show, if anything. Over a socket's file too: behind it is most often a proxy, and before that anybody.
    pub viewer_token: Option<Arc<Token>>,
    /// What operators show to change something in the dashboard, if that is possible, and to reset keys.
    pub operator_token: Option<Arc<Token>>,
    /// What the dashboard has of the daemon.
    pub gallery: Option<Gallery>,
    /// What all proxies hold that decide for themselves.
    pub quotas: Arc<Quotas>,
    /// Open streams of gRPC that all connections have in common.
    pub streams: Arc<Common>,
    /// The peer at the other end of the connection.
    pub peer: Peer,
    /// Whether whoever gets an answer here has shown something that others on this host do not have: the token, a certificate, or rights to
    /// the socket's file.
    pub is_shown: bool,
    /// The place that it has.
    pub guest: Arc<Guest>,
}

impl Door {
    /// Whether its word about an address counts so far that the address may be blocked.
    pub fn vouches(&self) -> bool {
        self.is_shown || matches!(self.peer, Peer::Host(ip) if self.decisions.trusts(ip))
    }
}
