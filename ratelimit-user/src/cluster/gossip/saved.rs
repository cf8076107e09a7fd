//! The state of gossip that a daemon saves for the next one, beside the list itself.

use serde::{Deserialize, Serialize};

use super::{Gossip, WaitingEdit};
use crate::{cluster::blocks::HostBlock, compile::lists::Prefix};

/// The state of gossip that the next daemon cannot read from the list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Saved {
    /// Blocks of this host alone that are hidden behind longer ones of the cluster: prefix, end, reason.
    pub hidden: Vec<(String, Option<u64>, String)>,
    /// Blocks that an operator of this host made although they cut somebody off.
    pub forced: Vec<String>,
    /// Edits that the store has not answered.
    pub waiting: Vec<WaitingEdit>,
    /// The numbers from which the next daemon goes on.
    pub numbers: Numbers,
}

/// The numbers of a daemon's gossip, from which the next daemon goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Numbers {
    /// The identity of the store.
    pub identity: Option<String>,
    /// The store's version up to which changes have been heard.
    pub version: u64,
    /// The incarnation under which the store knows this host's edits.
    pub incarnation: u64,
    /// Daemons that have begun under this incarnation.
    pub daemons: u64,
    /// The number of the last edit.
    pub edit: u64,
}

impl Gossip {
    /// Returns the state to save for the next daemon. It changes rarely.
    pub fn saved(&self) -> Saved {
        let hidden = self.blocks.hidden().iter();
        let hidden = hidden
            .map(|(prefix, host_block)| (prefix.to_string(), host_block.until_ns, host_block.reason.clone()))
            .collect();
        let forced = self.blocks.forced().iter().map(ToString::to_string).collect();
        Saved { hidden, forced, waiting: self.waiting_after(0).collect(), numbers: self.numbers() }
    }

    /// Returns the numbers from which the next daemon goes on.
    pub fn numbers(&self) -> Numbers {
        Numbers {
            identity: self.identity.clone(),
            version: self.since,
            incarnation: self.incarnation,
            daemons: self.daemons,
            edit: self.outbox.last(),
        }
    }

    /// Returns the edits with numbers above `sequence` that the store has not answered.
    pub fn waiting_after(&self, sequence: u64) -> impl Iterator<Item = WaitingEdit> {
        self.outbox.after(sequence)
    }

    /// Returns the number up to which the store has answered every edit.
    pub fn answered(&self) -> u64 {
        self.outbox.done()
    }

    /// Returns the block of this host alone that is not on the list, because the one for all hosts lasts longer.
    pub fn hidden(&self, prefix: &Prefix) -> Option<&HostBlock> {
        self.blocks.hidden().get(prefix)
    }

    /// Whether an operator of this host wants a block although it cuts somebody off.
    pub fn is_forced(&self, prefix: &Prefix) -> bool {
        self.blocks.forced().contains(prefix)
    }
}
