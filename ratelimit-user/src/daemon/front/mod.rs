//! The front process: everything that reads bytes from the network, as a user without any rights.
//!
//! ```text
//! daemon (maps, links, lists, control socket)          front (HTTP, gRPC, RESP, metrics, dashboard, Redis, webhooks)
//!        policies, leases to renew, messages to send, orders to test --->
//!        <--- answers of the store, counters           one stream: the daemon asks
//!        <--- pictures, metrics, orders, files         another stream: the front asks
//!        ---> answers
//! ```
//! The daemon binds every socket, starts the front with the sockets, and starts another one when the front has ended. The front is trusted as
//! little as the network: each message has a largest size and a type, files are read only if the policy names them, and an order needs the
//! operator's token, which the front itself does not know.

mod answers;
mod confinement;
mod handles;
mod keeper;
mod named_files;
mod process;
mod renewal;
mod silence;
mod store_socket;
mod user;
mod worker;

pub use process::FrontProcess;

use super::line::{frame, message};
use crate::{failure::Failure, store::round_trip::RoundTrip};

pub(super) use self::{
    answers::DaemonAnswers,
    keeper::{FrontKeeper, FrontStart},
};

/// Reads bytes as the daemon reads those of a front process: first as a stream of questions, then as a stream of answers. Returns how many messages were
/// understood. Panics if a message cannot be written and read again.
pub async fn read_any_messages(bytes: &[u8]) -> usize {
    let (mut questions, mut answers) = (bytes, bytes);
    let mut count = 0;
    while let Ok(Some(question)) =
        frame::read::<message::FrontAsks>(&mut questions, keeper::LARGEST_QUESTION).await
    {
        said_again(&question).await;
        count += 1;
    }
    while let Ok(Some(answer)) =
        frame::read::<message::FrontAnswers>(&mut answers, keeper::LARGEST_ANSWER).await
    {
        said_again(&answer).await;
        if let message::FrontAnswers::Met { round_trip, .. }
        | message::FrontAnswers::Exchanged { round_trip, .. } = &answer
        {
            let (tick, lease) = (std::time::Duration::from_millis(50), std::time::Duration::from_secs(1));
            let mut believed = RoundTrip::new(tick, lease).believed(*round_trip);
            believed.took(believed.last(), count);
            believed.missed();
            assert!(believed.deadline() <= lease && believed.stretched_by() <= lease, "{believed:?}");
            let _finite = (believed.connecting(), believed.beyond_tick());
        }
        count += 1;
    }
    count
}

async fn said_again<T: serde::Serialize + serde::de::DeserializeOwned>(message: &T) {
    let mut bytes = Vec::new();
    frame::write(&mut bytes, message).await.expect("a message can be written");
    let again: Option<T> = frame::read(&mut bytes.as_slice(), bytes.len()).await.expect("and be understood");
    let text = |message: &T| serde_json::to_string(message).expect("a message can be written");
    assert_eq!(again.as_ref().map(text), Some(text(message)), "it says something else");
}

/// Returns the number of the user that the front process runs as. Refuses an unsuitable user before anything is attached.
pub(super) fn require_user(name: Option<&str>) -> Result<u32, Failure> {
    user::find(name).map(|user| user.user).map_err(Failure::usage)
}
