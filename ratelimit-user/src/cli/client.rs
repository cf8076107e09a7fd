//! Asking the daemon, over its control socket.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::{Duration, Instant},
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
    let reply = converse(&socket, request).map_err(unreachable(&socket))?;
    match reply {
        Reply::Failed(failure) => Err(failure),
        reply => Ok(reply),
    }
}

/// Sends a request that is answered line by line, and returns the answers after the first.
pub(super) fn listen(state: &Path, request: Request) -> Result<Answers, Failure> {
    let socket = state.join(SOCKET);
    let begun = send(&socket, request).and_then(|mut reader| Ok((read_reply(&mut reader)?, reader)));
    match begun.map_err(unreachable(&socket))? {
        (Reply::Failed(failure), _) => Err(failure),
        (Reply::Watching, reader) => Ok(Answers { reader, socket }),
        (other, _) => Err(unexpected(&other)),
    }
}

/// Answers that come when there is something to say.
#[derive(Debug)]
pub(super) struct Answers {
    reader: BufReader<UnixStream>,
    socket: PathBuf,
}

impl Answers {
    /// The next one; `None` if there is none until the deadline.
    pub(super) fn next(&mut self, deadline: Option<Instant>) -> Result<Option<Reply>, Failure> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(None);
        }
        let read = self.reader.get_ref().set_read_timeout(left).and_then(|()| read_reply(&mut self.reader));
        match read {
            Ok(reply) => Ok(Some(reply)),
            // What has been read of a line is lost, and nobody reads on after the deadline.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(Failure::new(
                ExitCode::NoDaemon,
                format!("the daemon at {} has gone: {error}", self.socket.display()),
            )),
        }
    }
}

const START_IT: &str = "start it with: ratelimit run --policy FILE, or name its directory with --state";

/// A sentence for who is answered without a daemon.
pub(super) fn nobody_answers(state: &Path) -> String {
    format!("no daemon answers at {}; {START_IT}", state.join(SOCKET).display())
}

fn unreachable(socket: &Path) -> impl FnOnce(io::Error) -> Failure {
    move |error| {
        let code = match error.kind() {
            io::ErrorKind::PermissionDenied => ExitCode::NotPermitted,
            _ => ExitCode::NoDaemon,
        };
        let hint = match code {
            ExitCode::NotPermitted => "only root and the daemon's own user may ask it",
            _ => START_IT,
        };
        Failure::new(code, format!("no daemon reachable at {}: {error}; {hint}", socket.display()))
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
    read_reply(&mut send(socket, request)?)
}

fn send(socket: &Path, request: Request) -> io::Result<BufReader<UnixStream>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&request.into_message()?)?;
    Ok(BufReader::new(stream))
}

fn read_reply(reader: &mut BufReader<UnixStream>) -> io::Result<Reply> {
    let mut answer = String::new();
    reader.read_line(&mut answer)?;
    if answer.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "it closed the connection without an answer",
        ));
    }
    Ok(serde_json::from_str(&answer)?)
}
