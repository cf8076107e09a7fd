//! What was measured, of packets or of requests: everything that the text, the JSON and the plot show.

use serde::Serialize;

use crate::{
    apply::Step,
    comparison::Comparison,
    cost::{growth::Curve, instructions::Executed, paths::PathCost, same_source::Together},
    honest::Honest,
    known::Known,
    machine::Machine,
    targets::Reached,
};

/// The numbers of one run.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) command: String,
    pub(crate) rounds: usize,
    pub(crate) round_seconds: f64,
    pub(crate) notes: Vec<String>,
    pub(crate) targets: Vec<Reached>,
    /// Requests: each protocol, the library, leases, memory.
    pub(crate) comparisons: Vec<Comparison>,
    #[serde(flatten)]
    pub(crate) request_cpus: Option<RequestCpus>,
    pub(crate) frame_len: usize,
    /// Generator and receiver on one core.
    pub(crate) one_core: Vec<Comparison>,
    /// The receiver on a core of its own.
    pub(crate) two_cores: Vec<Comparison>,
    pub(crate) paths: Vec<PathCost>,
    pub(crate) growth: Vec<Curve>,
    pub(crate) same_source: Vec<Together>,
    pub(crate) instructions: Vec<Executed>,
    /// Longer frames, generator and receiver on one core.
    pub(crate) frame_size: Vec<LongerFrames>,
    /// Honest clients while a flood runs.
    pub(crate) honest: Option<Honest>,
    /// Known clients while a flood runs.
    pub(crate) known: Option<Known>,
    /// Changes of a long policy.
    pub(crate) apply: Vec<Step>,
}

/// Which CPU does what while requests are measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct RequestCpus {
    pub(crate) server_cpu: usize,
    pub(crate) client_cpu: usize,
}

/// A case with frames of another length.
#[derive(Debug, Serialize)]
pub(crate) struct LongerFrames {
    pub(crate) frame_len: usize,
    #[serde(flatten)]
    pub(crate) case: Comparison,
}
