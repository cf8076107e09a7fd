//! The control socket: requests from the CLI on the same host.

use std::{fs, io, os::unix::fs::PermissionsExt as _, path::Path, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixListener, UnixStream},
    sync::Semaphore,
};

use super::protocol::{Reply, Request};
use crate::failure::{ExitCode, Failure};

/// File name of the socket in the state directory.
pub const SOCKET: &str = "control.sock";
/// A request is a line of JSON with a prefix and a reason in it.
const MAX_REQUEST: u64 = 64 * 1024;
/// More callers than this wait in the listen queue.
const MAX_CONNECTIONS: usize = 64;
/// A caller that says nothing for this long is let go.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whoever answers requests.
pub trait Answer: Send + Sync + 'static {
    /// The reply to one request.
    fn answer(&self, request: Request) -> impl Future<Output = Reply> + Send;
}

/// Makes the socket, for its owner only.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // The mode is right from the first moment: there is no time between bind and chmod to slip in.
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(before);
    let listener = listener?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Answers requests for ever.
pub async fn serve<A: Answer>(listener: UnixListener, answerer: Arc<A>) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors: others will be closed.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let answerer = Arc::clone(&answerer);
        tokio::spawn(async move {
            // A caller that hangs up is its own problem.
            let _gone = tokio::time::timeout(PATIENCE, converse(stream, &*answerer)).await;
            drop(slot);
        });
    }
}

async fn converse<A: Answer>(mut stream: UnixStream, answerer: &A) -> io::Result<()> {
    // Read first, also from somebody who will be refused: closing with unread data would cost them the answer.
    let request = read_request(&mut stream).await?;
    let reply = match request {
        _ if !is_trusted(&stream)? => {
            let message = "only root and the daemon's own user may use the control socket";
            Reply::Failed(Failure::new(ExitCode::NotPermitted, message))
        }
        Ok(request) => answerer.answer(request).await,
        Err(failure) => Reply::Failed(failure),
    };
    let mut line = serde_json::to_vec(&reply)?;
    line.push(b'\n');
    stream.write_all(&line).await
}

/// The file mode keeps strangers out; this holds even where somebody changed it.
fn is_trusted(stream: &UnixStream) -> io::Result<bool> {
    let peer = stream.peer_cred()?.uid();
    Ok(peer == 0 || peer == rustix::process::geteuid().as_raw())
}

async fn read_request(stream: &mut UnixStream) -> io::Result<Result<Request, Failure>> {
    let mut line = Vec::new();
    BufReader::new(stream.take(MAX_REQUEST)).read_until(b'\n', &mut line).await?;
    if line.len() as u64 == MAX_REQUEST && line.last() != Some(&b'\n') {
        return Ok(Err(Failure::usage(format!("request is longer than {MAX_REQUEST} bytes; send one line"))));
    }
    Ok(serde_json::from_slice(&line)
        .map_err(|error| Failure::usage(format!("request is not understood: {error}"))))
}
