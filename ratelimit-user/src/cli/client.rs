//! Asking the daemon, over its control socket.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use super::output::{Output, print_done};
use crate::{
    failure::{ExitCode, Failure},
    serve::{
        control::SOCKET,
        protocol::{Reply, Request},
    },
};

/// A daemon that does not answer within this time counts as not reachable.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends one request and returns the answer.
pub(super) fn ask(state: &Path, request: Request) -> Result<Reply, Failure> {
    let socket = state.join(SOCKET);
    let reply = converse(&socket, request).map_err(|error| {
        let code = match error.kind() {
            io::ErrorKind::PermissionDenied => ExitCode::NotPermitted,
            _ => ExitCode::NoDaemon,
        };
        let hint = match code {
            ExitCode::NotPermitted => "only root and the daemon's own user may ask it",
            _ => "start it with: ratelimit run --policy FILE, or name its directory with --state",
        };
        Failure::new(code, format!("no daemon reachable at {}: {error}; {hint}", socket.display()))
    })?;
    match reply {
        Reply::Failed(failure) => Err(failure),
        reply => Ok(reply),
    }
}

/// Whether nobody listens there. A daemon that is busy, stopped or of another version is not absent.
pub(super) fn daemon_is_absent(state: &Path) -> bool {
    let absent = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
    UnixStream::connect(state.join(SOCKET)).is_err_and(|error| absent.contains(&error.kind()))
}

/// Sends an order and prints the sentence that comes back.
pub(super) fn order(state: &Path, request: Request, output: Output) -> Result<(), Failure> {
    match ask(state, request)? {
        Reply::Done(message) => print_done(output, &message),
        other => Err(unexpected(&other)),
    }
}

/// A daemon of another version may answer something else.
pub(super) fn unexpected(reply: &Reply) -> Failure {
    let version = env!("CARGO_PKG_VERSION");
    Failure::new(
        ExitCode::NoDaemon,
        format!("the daemon does not speak version {version}: it answered {reply:?}"),
    )
}

fn converse(socket: &Path, request: Request) -> io::Result<Reply> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&request.into_message()?)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    if answer.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "it closed the connection without an answer",
        ));
    }
    Ok(serde_json::from_str(&answer)?)
}
