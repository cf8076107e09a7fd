//! What is counted of decisions, as `status` and metrics show it.

use serde::{Deserialize, Serialize};

/// Requests, as `status` shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestsStatus {
    /// Keys that are remembered.
    pub keys: u64,
    /// Keys that had to make way.
    pub evicted: u64,
    /// API, outcome, how many.
    pub decisions: Vec<(String, String, u64)>,
    /// How long they took.
    #[serde(default)]
    pub decision_times: DecisionTimes,
    /// Whether the store that counts requests for all hosts answers; absent without one.
    pub store_up: Option<bool>,
    /// Questions to it, and those without an answer.
    pub store_questions: (u64, u64),
    /// Servers of it that answer, and those that do not.
    #[serde(default)]
    pub store_servers: (u64, u64),
    /// What is wrong with one of those: a word, and a sentence.
    #[serde(default)]
    pub store_problem: Option<(String, String)>,
}

/// How long decisions took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionTimes {
    /// By time, shortest first.
    pub counts: Vec<TimeCount>,
    /// The time of all decisions together.
    pub total_us: u64,
}

/// Decisions that took about as long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeCount {
    /// Longer than those before, and at most so many microseconds; absent for all that took longer.
    pub at_most_us: Option<u64>,
    /// How many.
    pub decisions: u64,
}
