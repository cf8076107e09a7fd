//! What is counted of decisions, as `status` and metrics show it.

use serde::{Deserialize, Serialize};

/// Requests, as `status` shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestsStatus {
    /// Keys that are remembered.
    pub keys: u64,
    /// Keys that had to make way.
    pub evicted: u64,
    /// Decisions by API and outcome.
    pub decisions: Vec<DecisionCount>,
    /// How long decisions took.
    #[serde(default)]
    pub decision_times: DecisionTimes,
    /// Whether the store that counts requests for all hosts answers; absent without one.
    pub store_up: Option<bool>,
    /// Questions that were sent to the store.
    pub store_questions: QuestionCount,
    /// Servers of the store, and how many of them answer.
    #[serde(default)]
    pub store_servers: ServerCount,
    /// The problem of a server of the store that does not answer.
    #[serde(default)]
    pub store_problem: Option<StoreProblem>,
    /// How often the clock of a server of the store was set back.
    #[serde(default)]
    pub store_clock_steps: u64,
    /// Warnings about servers of the store that answer, as sentences.
    #[serde(default)]
    pub store_warnings: Vec<String>,
}

/// Decisions about one API with one outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionCount {
    /// The name of the API.
    pub api: String,
    /// The word for the outcome.
    pub outcome: String,
    /// How many decisions there were.
    pub decisions: u64,
}

/// Questions to the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionCount {
    /// Questions that were asked.
    pub asked: u64,
    /// Questions that had no answer.
    pub unanswered: u64,
}

/// Servers of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerCount {
    /// Servers that answer.
    pub answering: u64,
    /// Servers that do not answer.
    pub away: u64,
}

/// What is wrong with a server of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreProblem {
    /// What is wrong, as a word that scripts can look for.
    pub kind: String,
    /// What is wrong, as a sentence.
    pub sentence: String,
}

/// How long decisions took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionTimes {
    /// Decisions by how long they took, shortest time first.
    pub counts: Vec<TimeCount>,
    /// The time of all decisions together.
    pub total_us: u64,
}

/// Decisions that took about as long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeCount {
    /// The longest time in this row, in microseconds; longer times than in the row before. Absent in the last row, which has all longer times.
    pub at_most_us: Option<u64>,
    /// How many decisions there were.
    pub decisions: u64,
}
