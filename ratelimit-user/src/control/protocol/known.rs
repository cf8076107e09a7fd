//! Replies about known clients.

use serde::{Deserialize, Serialize};

use crate::explain::RememberedClient;

/// What is remembered of one client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnownClient {
    /// The address or prefix that the client is remembered by.
    pub source: String,
    /// The services that have served the client.
    pub services: Vec<ClientAtService>,
}

/// What is remembered of a client at one service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientAtService {
    /// The name of the service; `None` for packets of no service.
    pub service: Option<String>,
    /// What is remembered.
    #[serde(flatten)]
    pub client: RememberedClient,
}

/// All known clients together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnownSummary {
    /// Known clients, once for each service.
    pub clients: u64,
    /// Known clients that the filter has.
    pub in_filter: u64,
    /// What known clients were served on average, all together, in packets each second.
    pub packets_per_second: f64,
    /// The totals in packets.
    pub totals: Vec<TotalOfClients>,
    /// When clients were last saved; `None` if they were not.
    pub saved: Option<String>,
    /// The file that clients are saved in.
    pub kept_in: String,
}

/// A total in packets, and how often claims fit into it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TotalOfClients {
    /// The name of the service; `None` for a total of the host.
    pub service: Option<String>,
    /// The rate of the total, in packets each second.
    pub packets_per_second: f64,
    /// What the total leaves known clients beside a flood, in packets each second.
    pub left_packets_per_second: f64,
    /// What its known clients are served on average, in packets each second.
    pub served_packets_per_second: f64,
    /// How often the claims of its known clients fit into what is left to them; `None` without claims.
    pub claims_fit: Option<f64>,
}

/// Some of the known clients, as lines of text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownPage {
    /// The lines, each with its line end.
    pub lines: String,
    /// Clients that have a line.
    pub clients: u64,
    /// Clients that have a line for each of several services.
    pub ambiguous: u64,
    /// Clients without a line, because their addresses cannot be told from their hashes.
    pub left_out: u64,
    /// Where the next answer begins; `None` after the last client.
    pub next: Option<u32>,
}
