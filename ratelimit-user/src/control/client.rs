//! The command line's side of the control socket: sends orders to the daemon and reads its replies.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{
    holder::holder,
    protocol::{DISK_PATIENCE, Order, Reply},
    server::{NOT_UNDERSTOOD, SOCKET},
};
use crate::{
    build::BUILD,
    failure::{ExitCode, Failure},
};

/// A daemon that does not answer within this time counts as not reachable.
const PATIENCE: Duration = Duration::from_secs(10);
/// A daemon that compiles a policy of a hundred thousand users on a host under attack takes longer, and must not look as if it were absent.
const PATIENCE_FOR_POLICIES: Duration = Duration::from_secs(60);

/// Sends one request and returns the answer.
pub(crate) fn ask(state: &Path, request: Order) -> Result<Reply, Failure> {
    let socket = state.join(SOCKET);
    let reply = converse(&socket, request).map_err(unreachable(&socket))?;
    match reply {
        Reply::Failed(failure) => Err(of_another_build(failure, &socket)),
        reply => Ok(reply),
    }
}

/// Sends a request that is answered line by line, and returns the answers after the first.
pub(crate) fn listen(state: &Path, request: Order) -> Result<ReplyStream, Failure> {
    let socket = state.join(SOCKET);
    let begun = send(&socket, request).and_then(|mut reader| Ok((read_reply(&mut reader)?, reader)));
    match begun.map_err(unreachable(&socket))? {
        (Reply::Failed(failure), _) => Err(failure),
        (Reply::Watching, reader) => Ok(ReplyStream { reader, socket, line: Vec::new() }),
        (other, _) => Err(unexpected(&other)),
    }
}

/// The replies of an order such as `watch`, which come one by one.
#[derive(Debug)]
pub(crate) struct ReplyStream {
    reader: BufReader<UnixStream>,
    socket: PathBuf,
    /// The part of the next line that has been read.
    line: Vec<u8>,
}

impl ReplyStream {
    /// Returns the next reply; `None` if none comes until the deadline.
    pub(crate) fn next(&mut self, deadline: Option<Instant>) -> Result<Option<Reply>, Failure> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(None);
        }
        let set = self.reader.get_ref().set_read_timeout(left);
        let read = set.and_then(|()| self.reader.read_until(b'\n', &mut self.line));
        match read.and_then(|_| parse_reply(&std::mem::take(&mut self.line))) {
            Ok(reply) => Ok(Some(reply)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(Failure::new(
                ExitCode::NoDaemon,
                format!("the daemon at {} has gone: {error}", self.socket.display()),
            )),
        }
    }
}

const START_IT: &str = "start it with: ratelimit run --policy FILE, or name its directory with --state";

/// Returns advice for a state directory where no daemon answers; a process may hold the directory all the same.
fn what_to_do(state: &Path) -> String {
    match holder(state) {
        None => START_IT.to_owned(),
        Some(pid) => format!(
            "process {pid} runs with this directory: a daemon makes its socket again within a second of its removal, and ratelimit serve has none, \
             ask it where it listens"
        ),
    }
}

/// Returns the sentence for a command that is answered without a daemon.
pub(crate) fn nobody_answers(state: &Path) -> String {
    format!("no daemon answers at {}; {}", state.join(SOCKET).display(), what_to_do(state))
}

/// Whether a process holds a state directory in which no daemon answers.
pub(crate) fn somebody_runs(state: &Path) -> bool {
    holder(state).is_some()
}

fn unreachable(socket: &Path) -> impl FnOnce(io::Error) -> Failure {
    move |error| {
        let code = match error.kind() {
            io::ErrorKind::PermissionDenied => ExitCode::NotPermitted,
            _ => ExitCode::NoDaemon,
        };
        if error.kind() == io::ErrorKind::InvalidData {
            let message = format!("the answer of the daemon is not understood: {error}; {}", builds(socket));
            return Failure::new(code, message);
        }
        if error.kind() == io::ErrorKind::WouldBlock {
            let message = format!(
                "the daemon at {} has not answered in time; it may still do what it was told: look at ratelimit status",
                socket.display()
            );
            return Failure::new(code, message);
        }
        if code == ExitCode::NotPermitted {
            let message = format!(
                "this user may not ask the daemon at {}: {error}; use sudo: only root, the daemon's own user and members of its group \
                 (run --group) may ask it",
                socket.display()
            );
            return Failure::new(code, message);
        }
        let hint = what_to_do(socket.parent().unwrap_or(Path::new("/")));
        Failure::new(code, format!("no daemon reachable at {}: {error}; {hint}", socket.display()))
    }
}

/// Whether nobody listens at the control socket. A daemon that is busy, stopped or of another version is not absent.
pub(crate) fn daemon_is_absent(state: &Path) -> bool {
    let absent = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
    UnixStream::connect(state.join(SOCKET)).is_err_and(|error| absent.contains(&error.kind()))
}

/// Returns the failure for a reply of the wrong kind, as a daemon of another build may send.
pub(crate) fn unexpected(reply: &Reply) -> Failure {
    Failure::new(
        ExitCode::NoDaemon,
        format!("the daemon is not of this build ({BUILD}): it answered {reply:?}"),
    )
}

/// Fails if the daemon is so old that its build has no name: such a daemon would carry out an order and silently leave out `part`.
pub(crate) fn require_this_build(state: &Path, part: &str) -> Result<(), Failure> {
    match build_of_daemon(&state.join(SOCKET)) {
        Some(build) if !build.contains('+') => Err(Failure::usage(format!(
            "the daemon is of build {build}, this command line of {BUILD}: it may not know {part}, and nothing was \
             done; restart it with this build"
        ))),
        _ => Ok(()),
    }
}

/// Returns the failure. If the daemon did not understand the order, the message also names the builds of both ends.
fn of_another_build(failure: Failure, socket: &Path) -> Failure {
    if !failure.message.starts_with(NOT_UNDERSTOOD) {
        return failure;
    }
    Failure::new(failure.code, format!("{}; {}", failure.message, builds(socket)))
}

/// Returns a phrase that names the builds of the daemon and of this command line.
fn builds(socket: &Path) -> String {
    match build_of_daemon(socket) {
        Some(build) if build == BUILD => format!("both ends are of build {BUILD}"),
        Some(build) => {
            format!(
                "the daemon is of build {build}, this command line of {BUILD}: use the command line of the daemon's build"
            )
        }
        None => format!("this command line is of build {BUILD}, and the daemon does not say which it is of"),
    }
}

/// Asks the daemon for its status and returns its build, even if this build cannot read the rest of the reply.
fn build_of_daemon(socket: &Path) -> Option<String> {
    let mut answer = String::new();
    send(socket, Order::Status).ok()?.read_line(&mut answer).ok()?;
    let answer: serde_json::Value = serde_json::from_str(&answer).ok()?;
    // Earlier daemons call the field `version`.
    let named =
        |inner: &serde_json::Value| inner.get("build").or(inner.get("version"))?.as_str().map(str::to_owned);
    answer.as_object()?.values().find_map(named)
}

fn converse(socket: &Path, request: Order) -> io::Result<Reply> {
    read_reply(&mut send(socket, request)?)
}

fn send(socket: &Path, request: Order) -> io::Result<BufReader<UnixStream>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(patience(&request)))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&request.into_message()?)?;
    Ok(BufReader::new(stream))
}

/// How long the daemon may take to answer an order.
fn patience(order: &Order) -> Duration {
    if order.compiles_a_policy() {
        PATIENCE_FOR_POLICIES
    } else if order.changes_lists() || order.changes_clients() {
        PATIENCE + DISK_PATIENCE
    } else {
        PATIENCE
    }
}

fn read_reply(reader: &mut BufReader<UnixStream>) -> io::Result<Reply> {
    let mut answer = Vec::new();
    reader.read_until(b'\n', &mut answer)?;
    parse_reply(&answer)
}

fn parse_reply(answer: &[u8]) -> io::Result<Reply> {
    if answer.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "it closed the connection without an answer",
        ));
    }
    Ok(serde_json::from_slice(answer)?)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::net::UnixListener, thread};

    use super::*;

    /// Answers each caller in turn, as a daemon of another build would.
    fn daemon(name: &str, answers: &'static [&'static str]) -> PathBuf {
        let state = std::env::temp_dir().join(format!("ratelimit-{name}-{}", std::process::id()));
        fs::create_dir_all(&state).unwrap();
        let _absent = fs::remove_file(state.join(SOCKET));
        let listener = UnixListener::bind(state.join(SOCKET)).unwrap();
        thread::spawn(move || {
            for answer in answers {
                let (mut caller, _) = listener.accept().unwrap();
                BufReader::new(&caller).read_line(&mut String::new()).unwrap();
                writeln!(caller, "{answer}").unwrap();
            }
        });
        state
    }

    #[test]
    fn a_caller_waits_longer_than_the_daemon_waits_for_a_disk() {
        let order = Order::AllowAdd { prefix: "192.0.2.1/32".to_owned() };
        assert!(patience(&order) > DISK_PATIENCE + Duration::from_secs(5));
        assert_eq!(patience(&Order::Status), PATIENCE);
        assert_eq!(patience(&Order::Confirm), PATIENCE);
    }

    #[test]
    fn a_line_that_comes_in_two_pieces_is_one_reply() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut stream =
            ReplyStream { reader: BufReader::new(ours), socket: PathBuf::new(), line: Vec::new() };
        let (first, second) = b"{\"reply\":\"lost\",\"data\":7}\n".split_at(9);
        theirs.write_all(first).unwrap();
        let deadline = Instant::now() + Duration::from_millis(10);
        assert_eq!(stream.next(Some(deadline)).unwrap(), None);
        theirs.write_all(second).unwrap();
        assert_eq!(stream.next(None).unwrap(), Some(Reply::Lost(7)));
    }

    const OLD_STATUS: &str = r#"{"reply":"status","data":{"version":"0.1.0","pid":7}}"#;

    #[test]
    fn a_part_of_an_order_that_an_older_daemon_would_leave_out_is_refused() {
        let state = daemon("older", &[OLD_STATUS]);
        let failure = require_this_build(&state, "--cluster").unwrap_err();
        assert_eq!(failure.code, ExitCode::Usage);
        let expected =
            format!("the daemon is of build 0.1.0, this command line of {BUILD}: it may not know --cluster");
        assert!(failure.message.starts_with(&expected), "{failure}");
        fs::remove_dir_all(state).unwrap();
    }

    #[test]
    fn an_answer_of_another_build_is_met_with_both_names() {
        let state = daemon("other", &[OLD_STATUS, OLD_STATUS]);
        let failure = ask(&state, Order::Status).unwrap_err();
        assert!(failure.message.contains("the daemon is of build 0.1.0"), "{failure}");
        assert!(failure.message.contains(BUILD), "{failure}");
        fs::remove_dir_all(state).unwrap();
    }
}
