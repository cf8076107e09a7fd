//! What a daemon leaves to the next one, beside the list itself.

use serde::{Deserialize, Serialize};

use super::{Gossip, WaitingEdit};
use crate::{cluster::blocks::HostBlock, compile::lists::Prefix};

/// Everything that the next daemon cannot read from the list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Saved {
    /// Blocks of this host alone behind longer ones of the cluster: prefix, end, reason.
    pub hidden: Vec<(String, Option<u64>, String)>,
    /// Blocks that an operator of this host made although they cut somebody off.
    pub forced: Vec<String>,
    /// Edits that the store has not answered.
    pub waiting: Vec<WaitingEdit>,
    /// How far the daemon has counted.
    pub numbers: Numbers,
}

/// How far a daemon has counted, for the next one to go on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Numbers {
    /// The store, as it calls itself.
    pub identity: Option<String>,
    /// Up to where its changes have been heard.
    pub version: u64,
    /// What the store has this host's edits under.
    pub incarnation: u64,
    /// Daemons that have begun under that incarnation.
    pub daemons: u64,
    /// The number of the last edit.
    pub edit: u64,
}

impl Gossip {
    /// What is to be kept for the next daemon. It changes rarely.
    pub fn saved(&self) -> Saved {
        let hidden = self.blocks.hidden().iter();
        let hidden = hidden
            .map(|(prefix, host_block)| (prefix.to_string(), host_block.until_ns, host_block.reason.clone()))
            .collect();
        let forced = self.blocks.forced().iter().map(ToString::to_string).collect();
        Saved { hidden, forced, waiting: self.waiting_after(0).collect(), numbers: self.numbers() }
    }

    /// How far this daemon has counted.
    pub fn numbers(&self) -> Numbers {
        Numbers {
            identity: self.identity.clone(),
            version: self.since,
            incarnation: self.incarnation,
            daemons: self.daemons,
            edit: self.outbox.last(),
        }
    }

    /// Edits with numbers above this one that the store has not answered.
    pub fn waiting_after(&self, sequence: u64) -> impl Iterator<Item = WaitingEdit> {
        self.outbox.after(sequence)
    }

    /// Up to which number the store has answered every edit.
    pub fn answered(&self) -> u64 {
        self.outbox.done()
    }

    /// The block of this host alone that the list does not say, because the one for all hosts lasts longer.
    pub fn hidden(&self, prefix: &Prefix) -> Option<&HostBlock> {
        self.blocks.hidden().get(prefix)
    }

    /// Whether an operator of this host wants a block although it cuts somebody off.
    pub fn is_forced(&self, prefix: &Prefix) -> bool {
        self.blocks.forced().contains(prefix)
    }
}
