//! Replies about the block and allow lists.

use serde::{Deserialize, Serialize};

/// One blocked prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// The blocked prefix in CIDR notation.
    pub prefix: String,
    /// Seconds until the block ends; absent if it holds until it is removed.
    pub seconds_left: Option<u64>,
    /// Why the prefix is blocked, if the operator said so.
    pub reason: Option<String>,
    /// The host on which a block for all hosts was made; absent for a block of this host alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Why the block does not hold here, if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// The first prefixes of both lists, and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstListed {
    /// The first blocks.
    pub blocks: Vec<Block>,
    /// Blocks in all.
    pub blocks_in_all: u64,
    /// The first allowed prefixes, in CIDR notation.
    pub allows: Vec<String>,
    /// Allowed prefixes in all.
    pub allows_in_all: u64,
}
