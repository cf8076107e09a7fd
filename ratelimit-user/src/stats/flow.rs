//! Packets and bytes per second: of all traffic, of a reason, of a service.

use serde::{Deserialize, Serialize};

use super::remaining::LimitLeft;

/// Packets and bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// The number of packets per second.
    pub packets_per_second: f64,
    /// The number of bytes per second.
    pub bytes_per_second: f64,
}

/// The traffic that ended with one reason.
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

/// The traffic of one service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceFlow {
    /// The name of the service; empty for packets of no service.
    pub service: String,
    /// Traffic that was handed on.
    pub passed: Flow,
    /// Traffic that was dropped.
    pub dropped: Flow,
    /// Traffic that was answered by the kernel program.
    pub replied: Flow,
    /// What is left of the service's totals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub totals: Vec<LimitLeft>,
}
