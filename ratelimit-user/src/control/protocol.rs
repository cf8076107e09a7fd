//! The protocol of the control socket: an order is one line of JSON, a reply is one line, and `watch` gets many. The text of a policy
//! or of known clients may follow the line of its order, unquoted.

mod known;
mod lists;
mod order;
mod reply;
mod requests;
mod status;
mod users;

pub use self::{
    known::{ClientAtService, KnownClient, KnownPage, KnownSummary, TotalOfClients},
    lists::{Block, FirstListed},
    order::{DISK_PATIENCE, MOST_LISTED, Operator, Order},
    reply::{EarlierStats, Reply, StatsReply},
    requests::{DecisionInfo, TestQuestion},
    status::{
        ActiveAttack, AttacksStatus, ClusterStatus, HeadroomStatus, InterfaceStatus, LaneState, LaneStatus,
        Status, StatusWarning, Unconfirmed, all_protected,
    },
    users::{LimitInfo, UserBucket, UserInfo, UserOrder},
};
