//! What is asked of the daemon: one line each.

use std::{net::IpAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{requests::TestQuestion, users::UserOrder};

/// Who gives an order that can cut somebody off, and how much they mean it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Operator {
    /// Where they sit, if they came over SSH and the shell knows it.
    pub origin: Option<IpAddr>,
    /// Do it also if somebody is cut off.
    pub force: bool,
}

/// A question or an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum Order {
    /// Is it working?
    Status,
    /// What was counted?
    Stats,
    /// What does the next second of traffic bring, and who sends it?
    Top,
    /// Why is this address treated as it is?
    Explain {
        /// The address.
        address: IpAddr,
        /// Only this service; all that have limits when absent.
        #[serde(default)]
        service: Option<String>,
    },
    /// Which packets are refused, from now on until the caller hangs up?
    Watch {
        /// CIDR; only sources that have addresses in it.
        #[serde(default)]
        source: Option<String>,
        /// Only this reason.
        #[serde(default)]
        reason: Option<String>,
        /// With their first bytes.
        #[serde(default)]
        frames: bool,
    },
    /// Put a prefix on the block list, or change its lifetime and reason.
    BlockAdd {
        /// CIDR.
        prefix: String,
        /// Lifetime; for good when absent.
        for_ns: Option<u64>,
        /// Why.
        reason: Option<String>,
        /// On all hosts of the cluster.
        #[serde(default)]
        cluster: bool,
        /// Who says so.
        #[serde(default)]
        operator: Operator,
    },
    /// Take a prefix off the block list.
    BlockDel {
        /// CIDR.
        prefix: String,
        /// On all hosts of the cluster.
        #[serde(default)]
        cluster: bool,
    },
    /// May this user call this API now?
    Test(TestQuestion),
    /// Which hosts are in the cluster?
    Cluster,
    /// Show the block list.
    BlockList,
    /// Show the first prefixes of both lists, and how many there are.
    Lists {
        /// At most so many of each.
        most: u32,
    },
    /// Put a prefix on the allow list.
    AllowAdd {
        /// CIDR.
        prefix: String,
    },
    /// Take a prefix off the allow list.
    AllowDel {
        /// CIDR.
        prefix: String,
        /// Who says so.
        #[serde(default)]
        operator: Operator,
    },
    /// Show the allow list.
    AllowList,
    /// Show all limits.
    LimitList,
    /// Show one limit.
    LimitGet {
        /// Its name.
        name: String,
    },
    /// Change one limit of the running policy, or all of a list.
    LimitSet {
        /// Its name.
        name: String,
        /// The new rate, as in the policy file; those of a list with commas between them.
        rate: String,
        /// Also write it into the file that the policy came from.
        #[serde(default)]
        save: bool,
        /// Who says so.
        #[serde(default)]
        operator: Operator,
    },
    /// Show all users.
    UserList,
    /// Show one user, and how much is left of its limits.
    UserGet {
        /// Its name.
        name: String,
    },
    /// Change one user of the running policy.
    UserSet {
        /// Who, and what.
        #[serde(flatten)]
        user: UserOrder,
        /// Who says so.
        #[serde(default)]
        operator: Operator,
    },
    /// Give a user its whole burst of packets again.
    UserReset {
        /// Its name.
        name: String,
    },
    /// What would this policy change?
    Diff {
        /// Where the text was read, for messages.
        file: PathBuf,
        /// The text of the policy.
        #[serde(default)]
        text: String,
        /// How many bytes of text follow the line instead.
        #[serde(default)]
        text_follows: Option<u64>,
    },
    /// Put this policy in force.
    Apply {
        /// Where the text was read.
        file: PathBuf,
        /// The text of the policy.
        #[serde(default)]
        text: String,
        /// How many bytes of text follow the line instead.
        #[serde(default)]
        text_follows: Option<u64>,
        /// Roll back unless confirmed within this time.
        confirm_ns: Option<u64>,
        /// Who says so.
        #[serde(default)]
        operator: Operator,
    },
    /// Keep what was applied.
    Confirm,
    /// Back to the policy before the last change.
    Rollback {
        /// Who says so.
        #[serde(default)]
        operator: Operator,
    },
    /// Which attacks were there?
    AttackList,
    /// What is known of one attack?
    AttackShow {
        /// Its number.
        number: u64,
    },
    /// Take the program off an interface, or off all.
    Detach {
        /// One interface; all when absent.
        interface: Option<String>,
    },
}

impl Order {
    /// Whether it changes the block or the allow list.
    pub fn changes_lists(&self) -> bool {
        matches!(
            self,
            Self::BlockAdd { .. } | Self::BlockDel { .. } | Self::AllowAdd { .. } | Self::AllowDel { .. }
        )
    }

    /// Whether it changes nothing, costs little, and shows nothing of what packets carry.
    pub fn only_asks(&self) -> bool {
        match self {
            Self::Status
            | Self::Stats
            | Self::Top
            | Self::Explain { .. }
            | Self::Cluster
            | Self::BlockList
            | Self::Lists { .. }
            | Self::AllowList
            | Self::LimitList
            | Self::LimitGet { .. }
            | Self::UserList
            | Self::UserGet { .. }
            | Self::AttackList
            | Self::AttackShow { .. } => true,
            Self::Watch { frames, .. } => !frames,
            Self::Test(question) => question.peek,
            // A policy has to be compiled for it.
            Self::Diff { .. } => false,
            Self::BlockAdd { .. }
            | Self::BlockDel { .. }
            | Self::AllowAdd { .. }
            | Self::AllowDel { .. }
            | Self::LimitSet { .. }
            | Self::UserSet { .. }
            | Self::UserReset { .. }
            | Self::Apply { .. }
            | Self::Confirm
            | Self::Rollback { .. }
            | Self::Detach { .. } => false,
        }
    }

    /// The line to send and the text to send behind it: a policy is long, and quoting it in JSON costs more than the change it makes.
    pub fn into_message(mut self) -> serde_json::Result<Vec<u8>> {
        let mut behind = String::new();
        if let Some((text, follows)) = self.text() {
            behind = std::mem::take(text);
            *follows = Some(behind.len() as u64);
        }
        let mut message = serde_json::to_vec(&self)?;
        message.push(b'\n');
        message.extend_from_slice(behind.as_bytes());
        Ok(message)
    }

    /// Whether the daemon compiles a policy to answer.
    pub(in crate::control) fn has_policy(&self) -> bool {
        matches!(self, Self::Apply { .. } | Self::Diff { .. } | Self::Rollback { .. })
    }

    /// The text in it, and how much of it follows, if it is a request with a text.
    pub(in crate::control) fn text(&mut self) -> Option<(&mut String, &mut Option<u64>)> {
        match self {
            Self::Diff { text, text_follows, .. } | Self::Apply { text, text_follows, .. } => {
                Some((text, text_follows))
            }
            _ => None,
        }
    }
}
