//! The daemon's side of the control socket: reads orders of callers on this host and sends replies.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder},
    io,
    net::IpAddr,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::Path,
    sync::Arc,
    time::Duration,
};

use serde::de::IgnoredAny;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    net::{UnixListener, UnixStream},
    sync::{Semaphore, mpsc},
    time::{Interval, MissedTickBehavior, timeout},
};

use super::{
    admission::{Admission, CallerRights},
    feed,
    line::say,
    protocol::{Order, Reply},
};
use crate::{
    build::BUILD,
    config::MAX_BYTES,
    drops::Filter,
    failure::Failure,
    places::{ConnectionPlaces, Guest, PlaceRules},
};

/// File name of the socket in the state directory.
pub const SOCKET: &str = "control.sock";
/// The size in bytes up to which an order is small. Most orders are a line of JSON with a prefix and a reason.
const SMALL_REQUEST: u64 = 64 * 1024;
/// The size in bytes of the largest order, which has a policy in it. JSON makes a policy at most twice as long: every character
/// of TOML that must be escaped takes two characters in JSON.
pub const MAX_REQUEST: u64 = 2 * MAX_BYTES + SMALL_REQUEST;
/// The places for callers. If all are taken, the caller that has sent nothing for longest loses its place: an operator gets in, however many connections are idle.
const PLACES: PlaceRules =
    PlaceRules { own: 64, unproven: 48, first: PATIENCE, idle: PATIENCE, grace: GRACE };
/// How long a caller keeps its place at least. The command line sends its order at once.
const GRACE: Duration = Duration::from_millis(20);
/// A caller that sends nothing, or does not read its answer, for this long loses its connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers orders of callers.
pub trait Answer: Send + Sync + 'static {
    /// Returns the reply to one order.
    fn answer(&self, request: Order, caller: Caller) -> impl Future<Output = Reply> + Send;
    /// Returns a stream of refused packets that a filter wants, from now on; with their first bytes if frames are wanted.
    fn watch(&self, filter: Filter, frames: bool) -> mpsc::Receiver<Reply>;
}

/// The caller who gives an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A process on this host, over the control socket.
    Process {
        /// The user that the process runs as.
        uid: u32,
        /// The process id, if the kernel knows it.
        pid: Option<i32>,
    },
    /// An operator in the dashboard, who has shown the operator's token.
    Dashboard {
        /// The address of the operator's browser, if it is known.
        from: Option<IpAddr>,
    },
}

/// Makes the socket, for its owner only.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // The umask makes the mode right from the first moment: nobody can connect between bind and chmod.
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(before);
    let listener = listener?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Makes the socket again if it was removed, and returns the new listener; `None` if the socket is there. The umask belongs to all threads, so the socket is made
/// in a closed directory, where nobody reaches it before its mode is right, and then moved. Its name is short, because paths of sockets have at most 107 bytes.
fn bind_again(admission: &Admission) -> io::Result<Option<UnixListener>> {
    let path = admission.socket();
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        _ => return Ok(None),
    }
    let apart = path.with_file_name(".new");
    match fs::remove_dir_all(&apart) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    DirBuilder::new().mode(0o700).create(&apart)?;
    let made = apart.join("s");
    let listener = UnixListener::bind(&made);
    let done = listener.and_then(|listener| {
        fs::set_permissions(&made, fs::Permissions::from_mode(0o600))?;
        admission.let_in(&made)?;
        fs::rename(&made, path)?;
        Ok(Some(listener))
    });
    let _gone = fs::remove_dir_all(&apart);
    done
}

/// How often the server checks that the socket is still there.
const LOOK: Duration = Duration::from_secs(1);

/// Waits for the next caller. A socket that was removed meanwhile is made again; callers connected through the old one are still answered.
async fn next_caller(
    listener: &mut UnixListener,
    admission: &Admission,
    look: &mut Interval,
    failed: &mut bool,
) -> io::Result<UnixStream> {
    loop {
        tokio::select! {
            caller = listener.accept() => return caller.map(|(stream, _)| stream),
            _ = look.tick() => match bind_again(admission) {
                Ok(None) => {}
                Ok(Some(again)) => {
                    *listener = again;
                    *failed = false;
                    tracing::warn!("{} was removed; it is made again", admission.socket().display());
                }
                // The failure was logged already, when it began.
                Err(_) if *failed => {}
                Err(error) => {
                    *failed = true;
                    tracing::error!(
                        "{} was removed, and cannot be made again: {error}; the daemon goes on, and nobody can ask it",
                        admission.socket().display()
                    );
                }
            },
        }
    }
}

/// Answers orders for ever.
pub async fn serve<A: Answer>(mut listener: UnixListener, admission: Admission, answerer: Arc<A>) {
    let admission = Arc::new(admission);
    let places = ConnectionPlaces::new(PLACES, None);
    tokio::spawn(Arc::clone(&places).look_after());
    // At most one large order is read into memory at a time, however many callers there are.
    let large = Arc::new(Semaphore::new(1));
    let watchers = Arc::new(Semaphore::new(feed::MAX_WATCHERS));
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failed = false;
    loop {
        let caller = next_caller(&mut listener, &admission, &mut look, &mut failed).await;
        let Ok(stream) = caller else {
            // The process is out of file descriptors until other connections close.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (answerer, large, watchers) = (Arc::clone(&answerer), Arc::clone(&large), Arc::clone(&watchers));
        let admission = Arc::clone(&admission);
        let place = places.enter().await;
        let guest = Arc::clone(place.guest());
        place.host(async move {
            let conversation = converse(stream, (&admission, PATIENCE), &*answerer, &large, &guest);
            // Errors of the conversation are ignored: the caller has hung up or was too slow.
            if let Ok(Some((stream, filter, frames))) = conversation.await {
                // Callers that watch have places of their own, and leave this one.
                tokio::spawn(async move {
                    let _gone = feed::serve(stream, &watchers, || answerer.watch(filter, frames)).await;
                });
            }
        });
    }
}

/// Answers one order. For `watch` it returns the connection, the filter, and whether frames are wanted.
async fn converse<A: Answer>(
    mut stream: UnixStream,
    (admission, patience): (&Admission, Duration),
    answerer: &A,
    large: &Semaphore,
    guest: &Arc<Guest>,
) -> io::Result<Option<(UnixStream, Filter, bool)>> {
    // The order is read first even if the caller will be refused: closing a socket with unread data would lose the answer.
    let peer = stream.peer_cred()?;
    let caller = Caller::Process { uid: peer.uid(), pid: peer.pid() };
    let standing = admission.standing(peer.uid(), peer.gid());
    // Only operators may queue to send a large order.
    let large = (standing == CallerRights::Operator).then_some(large);
    let request = timeout(patience, read_request(&mut stream, large)).await??;
    // From here on the caller cannot lose its place to a new one: an order that is being carried out is not broken off.
    guest.is_proven_now();
    let Some(_answering) = guest.begin() else { return Ok(None) };
    let request = request.and_then(|request| admission.require(standing, &request).map(|()| request));
    let reply = match request {
        _ if standing == CallerRights::Outsider => Reply::Failed(admission.refuse_outsider()),
        Ok(Order::Watch { source, reason, frames }) => {
            match Filter::parse(source.as_deref(), reason.as_deref()) {
                Ok(filter) => return Ok(Some((stream, filter, frames))),
                Err(failure) => Reply::Failed(failure),
            }
        }
        // The answer has no timeout: a policy of a hundred thousand prefixes takes more than ten seconds on a busy host, and no order must be left half done.
        Ok(request) => answerer.answer(request, caller).await,
        Err(failure) => Reply::Failed(failure),
    };
    timeout(patience, say(&mut stream, &reply)).await??;
    Ok(None)
}

/// Reads one order. `large` is the queue for orders that are not small; a caller without it may send small ones only.
async fn read_request(
    stream: &mut UnixStream,
    large: Option<&Semaphore>,
) -> io::Result<Result<Order, Failure>> {
    let mut line = Vec::new();
    let mut reader = BufReader::with_capacity(SMALL_REQUEST as usize, stream);
    (&mut reader).take(SMALL_REQUEST).read_until(b'\n', &mut line).await?;
    let mut _turn = None;
    if let (true, Some(large)) = (is_cut(&line, SMALL_REQUEST), large) {
        _turn = large.acquire().await.ok();
        (&mut reader).take(MAX_REQUEST - SMALL_REQUEST).read_until(b'\n', &mut line).await?;
        if is_cut(&line, MAX_REQUEST) {
            return Ok(Err(Failure::usage(format!(
                "request is longer than {MAX_REQUEST} bytes; send one line, with a policy of at most {MAX_BYTES} bytes"
            ))));
        }
    }
    let mut request = match understand(&line) {
        Ok(request) => request,
        Err(failure) => return Ok(Err(failure)),
    };
    if let (Some((text, Some(bytes))), Some(large)) = (request.text(), large) {
        if *bytes > MAX_BYTES {
            return Ok(Err(Failure::usage(format!(
                "a text of {bytes} bytes is too long; use at most {MAX_BYTES}"
            ))));
        }
        if _turn.is_none() {
            _turn = large.acquire().await.ok();
        }
        let mut behind = vec![0; *bytes as usize];
        reader.read_exact(&mut behind).await?;
        match String::from_utf8(behind) {
            Ok(behind) => *text = behind,
            Err(_) => return Ok(Err(Failure::usage("the text is not UTF-8"))),
        }
    }
    Ok(Ok(request))
}

/// The beginning of the refusal that a caller of another build gets.
pub const NOT_UNDERSTOOD: &str = "request is not understood";

/// Parses a line into an order. An unknown part is an error, because the sender of an order would take a silently ignored part for done.
pub fn understand(line: &[u8]) -> Result<Order, Failure> {
    let not_understood =
        |why: String| Failure::usage(format!("{NOT_UNDERSTOOD}: {why}; the daemon is of build {BUILD}"));
    let mut request: Order =
        serde_json::from_slice(line).map_err(|error| not_understood(error.to_string()))?;
    let given: BTreeMap<String, IgnoredAny> =
        serde_json::from_slice(line).map_err(|error| not_understood(error.to_string()))?;
    // Only names are compared, so the text, which can be long, is taken out meanwhile.
    let text = request.text().map(|(text, _)| std::mem::take(text));
    let known = serde_json::to_value(&request).map_err(|error| not_understood(error.to_string()))?;
    if let (Some((place, _)), Some(text)) = (request.text(), text) {
        *place = text;
    }
    match given.keys().find(|name| known.get(name.as_str()).is_none()) {
        Some(name) => Err(not_understood(format!("{name:?} is nothing that {} has", known["verb"]))),
        None => Ok(request),
    }
}

/// Whether a line was cut off at the most bytes that were read.
fn is_cut(line: &[u8], at: u64) -> bool {
    line.len() as u64 == at && line.last() != Some(&b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::ExitCode;

    #[test]
    fn an_order_with_a_part_that_is_not_known_is_refused() {
        let known =
            br#"{"verb":"block-add","prefix":"192.0.2.1","for_ns":null,"reason":null,"cluster":true}"#;
        assert!(matches!(understand(known), Ok(Order::BlockAdd { cluster: true, .. })));
        let unknown =
            br#"{"verb":"block-add","prefix":"192.0.2.1","for_ns":null,"reason":null,"galaxy":true}"#;
        let failure = understand(unknown).unwrap_err();
        assert_eq!(failure.code, ExitCode::Usage);
        let expected = "request is not understood: \"galaxy\" is nothing that \"block-add\" has; the daemon is of build ";
        assert!(failure.message.starts_with(expected), "{failure}");
    }

    #[test]
    fn a_text_is_not_lost_when_its_request_is_looked_at() {
        let Ok(mut request) = understand(br#"{"verb":"diff","file":"p.toml","text":"[source]"}"#) else {
            panic!()
        };
        assert_eq!(request.text().unwrap().0, "[source]");
    }

    /// An answerer that takes longer for every order than a caller has to send one.
    struct Slow(Duration);

    impl Answer for Slow {
        async fn answer(&self, _: Order, _: Caller) -> Reply {
            tokio::time::sleep(self.0).await;
            Reply::Watching
        }
        fn watch(&self, _: Filter, _: bool) -> mpsc::Receiver<Reply> {
            mpsc::channel(1).1
        }
    }

    #[tokio::test]
    async fn an_order_that_takes_longer_than_a_caller_may_say_nothing_is_carried_out_and_answered() {
        let patience = Duration::from_millis(50);
        let admission = Admission::open(Path::new("unused"), None, None).unwrap();
        let places = ConnectionPlaces::new(PLACES, None);
        let large = Semaphore::new(1);
        for order in [
            &br#"{"verb":"status"}
"#[..],
            b"",
        ] {
            let (mut caller, stream) = UnixStream::pair().unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut caller, order).await.unwrap();
            let place = places.enter().await;
            let guest = Arc::clone(place.guest());
            let conversed =
                converse(stream, (&admission, patience), &Slow(patience * 4), &large, &guest).await;
            assert_eq!(conversed.is_ok(), !order.is_empty(), "a caller that says nothing is let go");
            let mut answer = String::new();
            let _bytes = caller.read_to_string(&mut answer).await.unwrap();
            assert_eq!(answer.contains("watching"), !order.is_empty(), "{answer:?}");
        }
    }
}
