//! Questions in the protocol of Redis: any client of Redis can ask.
//!
//! ```text
//! read once -> every whole command in it, answered into one buffer -> write once
//! ```
//! Buffers belong to the thread and are lent for as long as one batch takes: a connection that is silent keeps only what it has sent of an
//! unfinished request. Nothing is read from a caller that does not read its answers.

pub mod check;
pub mod command;
pub mod frame;
pub mod reply;
mod scratch;
pub mod session;
pub mod throttle;
pub mod transaction;

use std::{future::poll_fn, io, pin::Pin, task::Poll, time::Duration};

use tokio::{
    io::{AsyncRead as _, AsyncReadExt as _, AsyncWriteExt as _, ReadBuf},
    time::timeout,
};

use self::{
    check::Hold,
    command::RespVerb,
    frame::{Arguments, FrameFault, MAX_FRAME},
    reply::RespReply,
    scratch::ScratchBuffers,
    session::{After, Called, Session},
    transaction::{Part, Transaction},
};
use super::{
    door::Door,
    listener::{ClientStream, linger},
};
use crate::{
    places::UNFINISHED,
    requests::{
        key::{self, plain},
        turns::Turn,
    },
};

/// Bytes of answers that are sent at once. No more requests are answered before they are sent.
const MAX_UNSENT: usize = 32 * 1024;
/// How long a caller may take to ask something, and to show the token where there is one.
pub(super) const FIRST: Duration = Duration::from_secs(30);
/// How long a caller may ask nothing. Libraries keep connections for half an hour, and do not always notice that one was closed.
pub(super) const IDLE: Duration = Duration::from_secs(3_600);
/// How long a transaction may wait for its next command: people type transactions, too.
const TRANSACTION: Duration = Duration::from_secs(300);
/// The longest request, in bytes, of a caller that has shown no token. A greeting with name and token has some hundred bytes.
const MAX_UNPROVEN_FRAME: usize = 4 * 1024;
/// Bytes that are read from a caller whose answer is held.
const READ_WHILE_HELD: usize = 1024;
/// How long a caller may take no byte of its answers.
const PATIENCE: Duration = Duration::from_secs(60);

/// Answers one connection until it ends.
pub async fn serve(stream: ClientStream, door: Door) {
    let session = Session::new(door);
    let mut connection = RespConnection { stream, session, kept: Vec::new(), whole: false, holds: false };
    // Errors of a caller that hangs up are ignored.
    let _gone = connection.converse().await;
}

struct RespConnection {
    stream: ClientStream,
    session: Session,
    /// Input that was not answered yet.
    kept: Vec<u8>,
    /// Whether there may be whole requests in `kept`.
    whole: bool,
    /// Whether the place of the connection was told of bytes of an unfinished request.
    holds: bool,
}

/// Why answering stopped.
enum Pause {
    /// There is no whole request left to answer: the connection is read again.
    Read,
    /// There are enough answers to send.
    Send,
    /// An answer is not to be sent before its time.
    Hold {
        /// The offset of the answer in the output.
        at: usize,
        /// How long the answer is held, and the turns that it is held for.
        hold: Hold,
    },
    /// The caller has asked to close the connection.
    Close,
    /// The caller does not speak this protocol.
    Refuse,
}

impl RespConnection {
    async fn converse(&mut self) -> io::Result<()> {
        loop {
            let Some(mut scratch) = self.receive().await? else { return Ok(()) };
            // A connection that has lost its place is about to be closed; none of its commands is carried out any more.
            let Some(busy) = self.session.door.guest.begin() else { return Ok(()) };
            let (input, output) = scratch.split();
            let (used, pause) = answer(&mut self.session, input, output).await;
            if used > 0 && self.session.is_known() {
                self.session.door.guest.is_proven_now();
            }
            self.keep(&input[used..], used > 0);
            self.whole = !matches!(pause, Pause::Read);
            match pause {
                Pause::Read | Pause::Send => {
                    drop(busy);
                    self.send(&scratch.output).await?;
                }
                Pause::Hold { at, hold: Hold { wait, turns } } => {
                    self.send(&scratch.output[..at]).await?;
                    let held = scratch.output[at..].to_vec();
                    drop(scratch);
                    if !self.waits(wait).await {
                        // The caller has hung up, so its turn goes to the next caller.
                        return Ok(());
                    }
                    turns.into_iter().for_each(Turn::serve);
                    drop(busy);
                    self.send(&held).await?;
                }
                Pause::Close => return self.send(&scratch.output).await,
                Pause::Refuse => {
                    self.send(&scratch.output).await?;
                    drop(scratch);
                    return linger(&mut self.stream).await;
                }
            }
            if !self.whole && self.session.door.draining.has_begun() {
                return linger(&mut self.stream).await;
            }
        }
    }

    /// Returns the input that is to be answered next; none when the caller has hung up.
    async fn receive(&mut self) -> io::Result<Option<ScratchBuffers>> {
        let kept = self.kept.len();
        if self.whole {
            let mut scratch = ScratchBuffers::borrow(kept);
            scratch.fill(&self.kept, 0);
            return Ok(Some(scratch));
        }
        let stream = &mut self.stream;
        let (mut scratch, read) = poll_fn(|cx| {
            // The buffers go back to the thread unless there is something to read.
            let mut scratch = ScratchBuffers::borrow(kept);
            let mut room = ReadBuf::new(scratch.room(kept));
            match Pin::new(&mut *stream).poll_read(cx, &mut room) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) => {
                    let read = room.filled().len();
                    Poll::Ready(Ok((scratch, read)))
                }
            }
        })
        .await?;
        scratch.fill(&self.kept, read);
        Ok((read > 0).then_some(scratch))
    }

    /// Waits, and returns whether the caller has waited as well. Keeps a little of what it sends meanwhile: only reading shows that it hangs up.
    async fn waits(&mut self, wait: Duration) -> bool {
        let most = self.kept.len() + READ_WHILE_HELD;
        let mut turn = std::pin::pin!(tokio::time::sleep(wait));
        loop {
            if self.kept.len() >= most {
                turn.await;
                return true;
            }
            let mut bytes = [0; 256];
            tokio::select! {
                biased;
                () = &mut turn => return true,
                read = self.stream.read(&mut bytes) => match read {
                    Ok(0) | Err(_) => return false,
                    Ok(read) => self.kept.extend_from_slice(&bytes[..read]),
                },
            }
        }
    }

    /// Keeps input that was not answered yet. `went_on` says that input before it was answered.
    fn keep(&mut self, rest: &[u8], went_on: bool) {
        let is_new = went_on || self.kept.is_empty();
        // Without spare room: the memory of unfinished requests is counted.
        self.kept = rest.to_vec();
        let waiting = self.session.transaction.as_ref().map_or(0, Transaction::len);
        let bytes = rest.len() + waiting;
        if bytes > 0 || self.holds {
            let time = if rest.is_empty() { TRANSACTION } else { UNFINISHED };
            self.session.door.guest.holds(bytes, is_new.then_some(time));
            self.holds = bytes > 0;
        }
    }

    /// Sends answers, mostly at once. A caller that takes none of them for long is disconnected; a caller without a token at once, so that it holds no memory.
    async fn send(&mut self, mut answers: &[u8]) -> io::Result<()> {
        while !answers.is_empty() {
            let mut write = std::pin::pin!(self.stream.write(answers));
            let sent = match poll_fn(|cx| Poll::Ready(write.as_mut().poll(cx))).await {
                Poll::Ready(sent) => sent?,
                Poll::Pending if !self.session.is_known() => return Err(io::ErrorKind::TimedOut.into()),
                Poll::Pending => timeout(PATIENCE, write).await??,
            };
            if sent == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            answers = &answers[sent..];
        }
        match &mut self.stream {
            ClientStream::Tls(stream) => timeout(PATIENCE, stream.flush()).await?,
            ClientStream::Tcp(_) | ClientStream::Unix(_) => Ok(()),
        }
    }
}

/// Answers requests one after another. Returns how much of the input was answered, and why it stopped.
async fn answer(session: &mut Session, input: &[u8], output: &mut Vec<u8>) -> (usize, Pause) {
    let mut arguments = Arguments::default();
    let mut used = 0;
    loop {
        if output.len() >= MAX_UNSENT {
            return (used, Pause::Send);
        }
        let rest = &input[used..];
        let fault = match frame::parse(rest, &mut arguments) {
            Ok(Some(length)) => {
                used += length;
                None
            }
            Ok(None) if session.is_known() || rest.len() <= MAX_UNPROVEN_FRAME => {
                return (used, Pause::Read);
            }
            Ok(None) => Some(FrameFault::BeforeToken),
            Err(fault) => Some(fault),
        };
        if let Some(fault) = fault {
            let mut reply = RespReply::new(output, session.version);
            reply.error(format_args!("ERR Protocol error: {fault}"));
            return (input.len(), Pause::Refuse);
        }
        let at = output.len();
        let verb = match session.command(&arguments, &mut RespReply::new(output, session.version)) {
            Called::Verb(verb) => verb,
            Called::Nothing => continue,
            Called::Wrong => {
                session.transaction.iter_mut().for_each(Transaction::spoil);
                continue;
            }
            Called::Http => return (input.len(), Pause::Close),
        };
        let request = &rest[..rest.len() - (input.len() - used)];
        if is_put_off(session, verb, request, output) {
            continue;
        }
        let done = match verb {
            // Boxed, so that a connection without a transaction is small.
            RespVerb::Exec => Box::pin(execute(session, output)).await,
            _ => carry_out(session, verb, &arguments[1..], output).await,
        };
        match done {
            Done::At(hold) if hold.wait.is_zero() => hold.turns.into_iter().for_each(Turn::serve),
            Done::At(hold) => return (used, Pause::Hold { at, hold }),
            Done::Close => return (used, Pause::Close),
        }
    }
}

/// Whether a request waits for `EXEC`, or is not possible before it. The caller has been told so then.
#[inline]
fn is_put_off(session: &mut Session, verb: RespVerb, request: &[u8], output: &mut Vec<u8>) -> bool {
    let Some(transaction) = &mut session.transaction else { return false };
    let mut reply = RespReply::new(output, session.version);
    match transaction::part(verb) {
        Part::AtOnce => return false,
        Part::Never => {
            transaction.spoil();
            reply.error(format_args!("ERR Command not allowed inside a transaction"));
        }
        Part::Waits => match transaction.keep(request) {
            true => reply.word("QUEUED"),
            false => reply.error(format_args!("ERR a transaction has at most {MAX_FRAME} bytes")),
        },
    }
    true
}

/// What came of a command.
enum Done {
    /// The answer may be sent after this wait.
    At(Hold),
    /// The connection ends.
    Close,
}

async fn carry_out(session: &mut Session, verb: RespVerb, behind: &[&[u8]], output: &mut Vec<u8>) -> Done {
    let door = &session.door;
    let mut reply = RespReply::new(output, session.version);
    // Names are text from here on, whatever bytes they are.
    let (named, renamed);
    let names = match verb {
        RespVerb::Check | RespVerb::Refund | RespVerb::ResetKey
            if behind.iter().any(|word| plain(word).is_none()) =>
        {
            named = behind.iter().map(|word| key::named(word)).collect::<Vec<_>>();
            renamed = named.iter().map(|word| word.as_bytes()).collect::<Vec<_>>();
            &renamed[..]
        }
        _ => behind,
    };
    let asked = match verb {
        RespVerb::Check => check::check(door, names, &mut reply).await,
        RespVerb::Refund => check::refund(door, names, &mut reply).await.map(|()| None),
        RespVerb::ResetKey => check::reset(door, names, &mut reply).await.map(|()| None),
        _ => match session.obey(verb, behind, output) {
            After::Next => Ok(None),
            After::Close => return Done::Close,
        },
    };
    match asked {
        Ok(hold) => Done::At(hold.unwrap_or_default()),
        Err(problem) => {
            let kind = problem.kind();
            RespReply::new(output, session.version).error(format_args!("{kind} {problem}"));
            Done::At(Hold::default())
        }
    }
}

/// Carries out a transaction: every request for itself, one after another. The answer waits for the last of their turns.
async fn execute(session: &mut Session, output: &mut Vec<u8>) -> Done {
    let transaction = session.transaction.take();
    let mut reply = RespReply::new(output, session.version);
    let Some(transaction) = transaction else {
        reply.error(format_args!("ERR EXEC without MULTI"));
        return Done::At(Hold::default());
    };
    let Some((mut rest, count)) = transaction.requests() else {
        reply.error(format_args!("EXECABORT Transaction discarded because of previous errors."));
        return Done::At(Hold::default());
    };
    reply.array(count);
    let mut arguments = Arguments::default();
    let mut longest = Hold::default();
    // Requests were whole, and commands, when they were kept.
    while let Ok(Some(length)) = frame::parse(rest, &mut arguments) {
        rest = &rest[length..];
        let Some(command) = arguments.first().and_then(|name| command::find(name)) else { continue };
        if let Done::At(hold) = carry_out(session, command.verb, &arguments[1..], output).await {
            longest.wait = longest.wait.max(hold.wait);
            longest.turns.extend(hold.turns);
        }
    }
    Done::At(longest)
}
