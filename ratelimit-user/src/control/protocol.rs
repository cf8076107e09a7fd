//! What is said over the control socket: one JSON order per line, one JSON reply per line; to `watch` many. The text of a policy may
//! follow its order as it is.

mod lists;
mod order;
mod reply;
mod requests;
mod status;
mod users;

pub use self::{
    lists::{Block, FirstListed},
    order::{Operator, Order},
    reply::{EarlierStats, Reply, StatsReply},
    requests::{DecisionInfo, TestQuestion},
    status::{
        ActiveAttack, AttacksStatus, ClusterStatus, HeadroomStatus, InterfaceStatus, LaneState, LaneStatus,
        Status, StatusWarning, Unconfirmed, all_protected,
    },
    users::{LimitInfo, UserBucket, UserInfo, UserOrder},
};
