//! The prefilter's settings: whether sources need an entry at once, and how many entries per second.

use super::fields::{Fields, followed};

/// New sources that one CPU enters into the table per second, unless the policy says otherwise. An insert costs
/// about half a microsecond, so this is a few percent of a core.
pub const DEFAULT_NEW_SOURCES: u32 = 50_000;
/// The largest budget of inserts per second and CPU; no core can make more.
const MAX_NEW_SOURCES: u32 = 10_000_000;

/// The prefilter in front of the table of sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefilterPolicy {
    enabled: bool,
    new_sources_per_cpu: u32,
}

/// Why the prefilter's settings are rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("new_sources_per_cpu = {value} is out of range; use 1 to {MAX_NEW_SOURCES}")]
pub struct PrefilterError {
    /// The rejected value, as the policy file has it.
    pub value: i64,
}

impl Default for PrefilterPolicy {
    fn default() -> Self {
        Self { enabled: true, new_sources_per_cpu: DEFAULT_NEW_SOURCES }
    }
}

impl PrefilterPolicy {
    /// A prefilter that is on or off, and how many new sources each CPU may enter into the table per second.
    pub fn new(enabled: bool, new_sources_per_cpu: i64) -> Result<Self, PrefilterError> {
        match u32::try_from(new_sources_per_cpu) {
            Ok(n) if (1..=MAX_NEW_SOURCES).contains(&n) => Ok(Self { enabled, new_sources_per_cpu: n }),
            _ => Err(PrefilterError { value: new_sources_per_cpu }),
        }
    }

    /// The prefilter in words, for `diff`.
    pub(super) fn fields(&self) -> Fields {
        followed([
            ("gate", self.enabled.to_string()),
            ("new_sources_per_cpu", self.new_sources_per_cpu.to_string()),
        ])
    }

    /// Whether light sources share prefilter cells instead of having entries.
    pub fn enabled(&self) -> bool {
        self.enabled
    }

    /// New sources that each CPU may enter into the table per second.
    pub fn new_sources_per_cpu(&self) -> u32 {
        self.new_sources_per_cpu
    }
}
