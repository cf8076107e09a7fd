//! Writes replies to a caller, each as one line of JSON.

use std::io;

use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use super::protocol::Reply;

/// Sends one reply as a line.
pub(super) async fn say(to: &mut (impl AsyncWrite + Unpin), reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    to.write_all(&line).await
}
