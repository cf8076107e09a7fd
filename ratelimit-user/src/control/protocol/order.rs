//! Orders to the daemon, one line each.

use std::{collections::BTreeSet, net::IpAddr, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::{requests::TestQuestion, users::UserOrder};

/// How long the daemon waits for a disk at most before it answers an order that changes the block list or the allow list. Callers wait longer.
pub const DISK_PATIENCE: Duration = Duration::from_secs(10);

/// The most prefixes of each list that the dashboard shows.
pub const MOST_LISTED: u32 = 200;

/// Who gives an order that can cut somebody off, and whether the order is to be obeyed also if it does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Operator {
    /// The address of the operator, if they came over SSH and the shell knows it.
    pub origin: Option<IpAddr>,
    /// Whether the order is to be obeyed also if it cuts somebody off.
    pub force: bool,
    /// Ports of this host's SSH servers, as far as the command may read open files of other processes. The daemon may not read them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub ssh_ports: BTreeSet<u16>,
}

/// A question or an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum Order {
    /// Asks how the daemon is.
    Status,
    /// Asks for all counters.
    Stats,
    /// Asks for the traffic of the next second, and who sends it.
    Top,
    /// Asks why packets of an address pass or are refused.
    Explain {
        /// The address to explain.
        address: IpAddr,
        /// The service to explain; all services with limits if absent.
        #[serde(default)]
        service: Option<String>,
    },
    /// Asks for refused packets, from now on until the caller hangs up.
    Watch {
        /// Restricts the packets to sources with addresses in this prefix, as CIDR.
        #[serde(default)]
        source: Option<String>,
        /// Restricts the packets to one reason.
        #[serde(default)]
        reason: Option<String>,
        /// Whether the first bytes of each packet are wanted.
        #[serde(default)]
        frames: bool,
    },
    /// Puts a prefix on the block list, or changes its lifetime and reason.
    BlockAdd {
        /// The prefix, as CIDR.
        prefix: String,
        /// Lifetime of the block in nanoseconds; without one the block holds until it is removed.
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
    /// Takes a prefix off the block list.
    BlockDel {
        /// The prefix, as CIDR.
        prefix: String,
        /// Whether the order is for all hosts of the cluster.
        #[serde(default)]
        cluster: bool,
    },
    /// Asks whether a user may call an API now.
    Test(TestQuestion),
    /// Asks for the hosts of the cluster.
    Cluster,
    /// Asks for the block list.
    BlockList,
    /// Asks for the first prefixes of both lists, and how many there are.
    Lists {
        /// The largest number of prefixes to show of each list; the dashboard has [`MOST_LISTED`].
        most: u32,
    },
    /// Asks for the traffic of the last minutes, second by second.
    History,
    /// Puts a prefix on the allow list.
    AllowAdd {
        /// The prefix, as CIDR.
        prefix: String,
    },
    /// Takes a prefix off the allow list.
    AllowDel {
        /// The prefix, as CIDR.
        prefix: String,
        /// The operator who gives the order.
        #[serde(default)]
        operator: Operator,
    },
    /// Asks for the allow list.
    AllowList,
    /// Asks for all limits.
    LimitList,
    /// Asks for one limit.
    LimitGet {
        /// The name of the limit.
        name: String,
    },
    /// Changes one limit of the running policy, or all limits of a list.
    LimitSet {
        /// The name of the limit or list.
        name: String,
        /// The new rate, as in the policy file; commas separate the rates of a list.
        rate: String,
        /// Whether the new rate is also written into the file that the policy came from.
        #[serde(default)]
        save: bool,
        /// The operator who gives the order.
        #[serde(default)]
        operator: Operator,
    },
    /// Asks for all users.
    UserList,
    /// Asks for one user, and how much is left of its limits.
    UserGet {
        /// The name of the user.
        name: String,
    },
    /// Changes one user of the running policy.
    UserSet {
        /// The user and its changes.
        #[serde(flatten)]
        user: UserOrder,
        /// The operator who gives the order.
        #[serde(default)]
        operator: Operator,
    },
    /// Gives a user its whole burst of packets again.
    UserReset {
        /// The name of the user.
        name: String,
    },
    /// Asks what a policy would change.
    Diff {
        /// The file that the text was read from, for messages.
        file: PathBuf,
        /// The text of the policy.
        #[serde(default)]
        text: String,
        /// How many bytes of text follow the line, if the text is not in it.
        #[serde(default)]
        text_follows: Option<u64>,
    },
    /// Puts a policy in force.
    Apply {
        /// The file that the text was read from.
        file: PathBuf,
        /// The text of the policy.
        #[serde(default)]
        text: String,
        /// How many bytes of text follow the line, if the text is not in it.
        #[serde(default)]
        text_follows: Option<u64>,
        /// Nanoseconds after which the policy is rolled back unless it is confirmed.
        confirm_ns: Option<u64>,
        /// The operator who gives the order.
        #[serde(default)]
        operator: Operator,
    },
    /// Keeps the policy that was applied and waits for confirmation.
    Confirm,
    /// Goes back to the policy before the last change.
    Rollback {
        /// The operator who gives the order.
        #[serde(default)]
        operator: Operator,
    },
    /// Asks for the attacks that the daemon has kept.
    AttackList,
    /// Asks for the report of one attack.
    AttackShow {
        /// The number of the attack.
        number: u64,
    },
    /// Asks what is remembered of a client, or of all known clients together.
    KnownShow {
        /// The address of the client; all if absent.
        #[serde(default)]
        address: Option<IpAddr>,
    },
    /// Asks for known clients as lines of text, some at a time.
    KnownExport {
        /// The first set of the memory to look at: 0, or where the answer before ended.
        from: u32,
    },
    /// Makes clients known.
    KnownImport {
        /// The file that the text was read from, for messages.
        file: PathBuf,
        /// The clients, as they were exported.
        #[serde(default)]
        text: String,
        /// How many bytes of text follow the line, if the text is not in it.
        #[serde(default)]
        text_follows: Option<u64>,
    },
    /// Forgets a client at all services.
    KnownForget {
        /// The address of the client.
        address: IpAddr,
    },
    /// Takes the program off one interface, or off all.
    Detach {
        /// The interface; all if absent.
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

    /// Whether the order changes the memory of known clients.
    pub fn changes_clients(&self) -> bool {
        matches!(self, Self::KnownImport { .. } | Self::KnownForget { .. })
    }

    /// Returns the operator of an order that can cut somebody off; `None` for other orders.
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

    /// Whether the order changes nothing, costs little, and shows no contents of packets.
    pub fn only_asks(&self) -> bool {
        match self {
            Self::Status
            | Self::Stats
            | Self::Top
            | Self::Explain { .. }
            | Self::Cluster
            | Self::BlockList
            | Self::Lists { .. }
            | Self::History
            | Self::AllowList
            | Self::LimitList
            | Self::LimitGet { .. }
            | Self::UserList
            | Self::UserGet { .. }
            | Self::AttackList
            | Self::AttackShow { .. }
            | Self::KnownShow { .. } => true,
            Self::Watch { frames, .. } => !frames,
            Self::Test(question) => question.peek,
            // This order costs the daemon the compilation of a policy.
            Self::Diff { .. } => false,
            // This order reads the whole memory of known clients.
            Self::KnownExport { .. } => false,
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
            | Self::KnownImport { .. }
            | Self::KnownForget { .. }
            | Self::Detach { .. } => false,
        }
    }

    /// Returns the line of the order and, behind it, its text: the text of a policy is long, and quoting it in JSON costs more than the change it makes.
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
    pub(in crate::control) fn compiles_a_policy(&self) -> bool {
        matches!(
            self,
            Self::Apply { .. }
                | Self::Diff { .. }
                | Self::Rollback { .. }
                | Self::LimitSet { .. }
                | Self::UserSet { .. }
        )
    }

    /// Returns the text of an order that carries a policy or clients, and the number of bytes of it that follow the line.
    pub(in crate::control) fn text(&mut self) -> Option<(&mut String, &mut Option<u64>)> {
        match self {
            Self::Diff { text, text_follows, .. }
            | Self::Apply { text, text_follows, .. }
            | Self::KnownImport { text, text_follows, .. } => Some((text, text_follows)),
            _ => None,
        }
    }
}
