//! What an answer depends on beside the question: who asks, what they have shown, and whom they ask.

use std::sync::Arc;

use super::{credentials::Token, drain::Draining, grpc::rlqs::Quotas, listener::Peer};
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
    /// The token that this caller must show first, if there is one.
    pub token: Option<Arc<Token>>,
    /// The token that a viewer of the dashboard must show, if there is one. It holds for a socket's file, too: behind the file is most often a proxy, before
    /// which anybody may be.
    pub viewer_token: Option<Arc<Token>>,
    /// The token that operators show to change something in the dashboard and to reset keys, if there is one.
    pub operator_token: Option<Arc<Token>>,
    /// What the dashboard shows, and the way of its orders to the daemon.
    pub gallery: Option<Gallery>,
    /// The tokens that proxies hold to decide for themselves.
    pub quotas: Arc<Quotas>,
    /// Room for streams of gRPC that all connections share.
    pub streams: Arc<Common>,
    /// The peer at the other end of the connection.
    pub peer: Peer,
    /// Whether every caller that gets an answer here has shown something that others on this host do not have: the token, a certificate, or rights to the
    /// socket's file.
    pub is_shown: bool,
    /// The place of the connection.
    pub guest: Arc<Guest>,
    /// Whether the service ends.
    pub draining: Draining,
}

impl Door {
    /// Whether the caller is trusted about addresses, so that an address that it names may be blocked.
    pub fn vouches(&self) -> bool {
        self.is_shown || matches!(self.peer, Peer::Host(ip) if self.decisions.trusts(ip))
    }
}
