//! Packets and bytes by the second: of everything, of a reason, of a service.

use serde::{Deserialize, Serialize};

use super::remaining::LimitLeft;

/// Packets and bytes by the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// The number of packets per second.
    pub packets_per_second: f64,
    /// The number of bytes per second.
    pub bytes_per_second: f64,
}

/// What ended for one reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReasonFlow {
    /// Name of the reason.
    pub reason: String,
    /// What happened to these packets.
    pub verdict: String,
    /// The traffic that ended for this reason.
    #[serde(flatten)]
    pub flow: Flow,
}

/// What came for one service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceFlow {
    /// The name of the service; empty for packets of no service.
    pub service: String,
    /// What was handed on.
    pub passed: Flow,
    /// What was dropped.
    pub dropped: Flow,
    /// What was answered on the spot.
    pub replied: Flow,
    /// What is left of its totals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub totals: Vec<LimitLeft>,
}
