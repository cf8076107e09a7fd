//! What is asked of the daemon, each order in one line.

use std::{collections::BTreeSet, net::IpAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{requests::TestQuestion, users::UserOrder};

/// Who gives an order that can cut somebody off, and whether the order is to be obeyed also if it does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Operator {
    /// The address of the operator, if they came over SSH and the shell knows it.
    pub origin: Option<IpAddr>,
    /// Whether the order is to be obeyed also if it cuts somebody off.
    pub force: bool,
    /// Ports that SSH servers of this host have, as far as the command may look into other processes: the daemon may not.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub ssh_ports: BTreeSet<u16>,
}

/// A question or an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum Order {
    /// Is the daemon working?
    Status,
    /// What was counted?
    Stats,
    /// What does the next second of traffic bring, and who sends it?
    Top,
    /// Why is this address treated as it is?
    Explain {
        /// The address that is asked about.
        address: IpAddr,
        /// Only this service; all that have limits when absent.
        #[serde(default)]
        service: Option<String>,
    },
    /// Which packets are refused, from now on until the caller hangs up?
    Watch {
        /// Only sources that have addresses in this prefix, as CIDR.
        #[serde(default)]
        source: Option<String>,
        /// Only this reason.
        #[serde(default)]
        reason: Option<String>,
        /// Whether the first bytes of each packet are wanted.
        #[serde(default)]
        frames: bool,
    },
    /// Put a prefix on the block list, or change its lifetime and reason.
    BlockAdd {
        /// The prefix, as CIDR.
        prefix: String,
        /// Lifetime of the block; for good when absent.
        for_ns: Option<u64>,
        /// Why the prefix is blocked.
        reason: Option<String>,
        /// Whether the order is for all hosts of the cluster.
        #[serde(default)]
        cluster: bool,
        /// The operator who gives the order.
        #[serde(default)]
        operator: Operator,
    },
    /// Take a prefix off the block list.
    BlockDel {
        /// The prefix, as CIDR.
        prefix: String,
        /// Whether the order is for all hosts of the cluster.
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
        /// How many prefixes of each list are shown at most.
        most: u32,
    },
    /// Put a prefix on the allow list.
    AllowAdd {
        /// The prefix, as CIDR.
        prefix: String,
    },
    /// Take a prefix off the allow list.
    AllowDel {
        /// The prefix, as CIDR.
        prefix: String,
        /// The operator who gives the order.
        #[serde(default)]
        operator: Operator,
    },
    /// Show the allow list.
    AllowList,
    /// Show all limits.
    LimitList,
    /// Show one limit.
    LimitGet {
        /// The name of the limit.
        name: String,
    },
    /// Change one limit of the running policy, or all of a list.
    LimitSet {
        /// The name of the limit or list.
        name: String,
        /// The new rate, as in the policy file; the rates of a list have commas between them.
        rate: String,
        /// Whether the new rate is also written into the file that the policy came from.
        #[serde(default)]
        save: bool,
        /// The operator who gives the order.
        #[serde(default)]
        operator: Operator,
    },
    /// Show all users.
    UserList,
    /// Show one user, and how much is left of its limits.
    UserGet {
        /// The name of the user.
        name: String,
    },
    /// Change one user of the running policy.
    UserSet {
        /// The user, and what changes.
        #[serde(flatten)]
        user: UserOrder,
        /// The operator who gives the order.
        #[serde(default)]
        operator: Operator,
    },
    /// Give a user its whole burst of packets again.
    UserReset {
        /// The name of the user.
        name: String,
    },
    /// What would this policy change?
    Diff {
        /// Where the text was read, for messages.
        file: PathBuf,
        /// The text of the policy.
        #[serde(default)]
        text: String,
        /// How many bytes of text follow the line, if the text is not in it.
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
        /// How many bytes of text follow the line, if the text is not in it.
        #[serde(default)]
        text_follows: Option<u64>,
        /// The policy is rolled back unless it is confirmed within this time.
        confirm_ns: Option<u64>,
        /// The operator who gives the order.
        #[serde(default)]
        operator: Operator,
    },
    /// Keep what was applied.
    Confirm,
    /// Back to the policy before the last change.
    Rollback {
        /// The operator who gives the order.
        #[serde(default)]
        operator: Operator,
    },
    /// Which attacks have there been?
    AttackList,
    /// What is known of one attack?
    AttackShow {
        /// The number of the attack.
        number: u64,
    },
    /// Take the program off an interface, or off all.
    Detach {
        /// One interface; all when absent.
        interface: Option<String>,
    },
}

impl Order {
    /// Whether the order changes the block list or the allow list.
    pub fn changes_lists(&self) -> bool {
        matches!(
            self,
            Self::BlockAdd { .. } | Self::BlockDel { .. } | Self::AllowAdd { .. } | Self::AllowDel { .. }
        )
    }

    /// The operator who gives the order, of orders that can cut somebody off.
    pub fn operator(&self) -> Option<&Operator> {
        match self {
            Self::Apply { operator, .. }
            | Self::Rollback { operator }
            | Self::BlockAdd { operator, .. }
            | Self::AllowDel { operator, .. }
            | Self::LimitSet { operator, .. }
            | Self::UserSet { operator, .. } => Some(operator),
            _ => None,
        }
    }

    /// Whether the order changes nothing, costs little, and shows nothing of what packets carry.
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
            // This order costs the daemon the compilation of a policy.
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

    /// The text of an order that has one, and how many bytes of it follow the line.
    pub(in crate::control) fn text(&mut self) -> Option<(&mut String, &mut Option<u64>)> {
        match self {
            Self::Diff { text, text_follows, .. } | Self::Apply { text, text_follows, .. } => {
                Some((text, text_follows))
            }
            _ => None,
        }
    }
}
