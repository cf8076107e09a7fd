//! The front process: everything that reads what comes over the network, as a user without any rights.
//!
//! ```text
//! daemon (maps, links, lists, control socket)          front (HTTP, gRPC, RESP, metrics, dashboard, Redis)
//!        policies, leases to renew, orders to test --->
//!        <--- answers of the store, counters           one stream: the daemon asks
//!        <--- pictures, metrics, orders, files         another stream: the front asks
//!        ---> answers
//! ```
//! The daemon binds every socket, starts the front with the sockets, and starts another one when the front has ended. What the front says is
//! believed as little as what the network says: each message has a largest size and a type, files are read only if the policy names them, and
//! an order has to bring the operator's token, which the front itself does not know.

mod answers;
mod asking;
mod confinement;
mod frame;
mod handles;
mod keeper;
mod line;
mod message;
mod named_files;
mod process;
mod renewal;
mod silence;
mod store;
mod store_socket;
mod user;
mod worker;

pub use process::FrontProcess;

use crate::failure::Failure;

pub(super) use self::{
    answers::DaemonAnswers,
    keeper::{FrontKeeper, FrontStart},
    line::Front,
    message::SocketUse,
    store::FrontStore,
};

/// The number of the user that the front process runs as. Refuses one that it cannot run as, before anything is attached.
pub(super) fn require_user(name: Option<&str>) -> Result<u32, Failure> {
    user::find(name).map(|user| user.user).map_err(Failure::usage)
}
