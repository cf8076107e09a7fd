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

use std::{future::poll_fn, io, pin::Pin, task::Poll, time::Duration};

use tokio::{
    io::{AsyncRead as _, AsyncReadExt as _, AsyncWriteExt as _, ReadBuf},
    time::timeout,
};

use self::{
    command::Verb,
    frame::Arguments,
    reply::Reply,
    scratch::Scratch,
    session::{After, Session},
};
use super::{listener::Stream, workers::Door};
use crate::decide::key::{self, plain};

/// Answers are sent when they are this long, and nothing more is done until they are.
const MAX_UNSENT: usize = 32 * 1024;
/// How long a caller may take no byte of its answers.
const PATIENCE: Duration = Duration::from_secs(60);
/// What is read and thrown away, and for how long, after a caller was told that it makes no sense: closing at once would take the answer
/// from it.
const LINGER_BYTES: u64 = 1024 * 1024;
const LINGER: Duration = Duration::from_secs(1);

/// Answers one connection until it ends.
pub async fn serve(stream: Stream, door: Door) {
    let mut connection = Connection { stream, session: Session::new(door), kept: Vec::new(), whole: false };
    // A caller that hangs up is its own problem.
    let _gone = connection.converse().await;
}

struct Connection {
    stream: Stream,
    session: Session,
    /// Input that was not answered yet.
    kept: Vec<u8>,
    /// Whether there may be whole requests in it.
    whole: bool,
}

/// Why answering stopped.
enum Pause {
    /// There is no whole request any more.
    Read,
    /// There is enough to send.
    Send,
    /// An answer is not to be sent before its time.
    Hold {
        /// Where it starts.
        at: usize,
        /// How long it is held.
        wait: Duration,
    },
    /// The caller is done.
    Close,
    /// The caller makes no sense.
    Refuse,
}

impl Connection {
    async fn converse(&mut self) -> io::Result<()> {
        loop {
            let Some(mut scratch) = self.receive().await? else { return Ok(()) };
            let (input, output) = scratch.split();
            let (used, pause) = answer(&mut self.session, input, output).await;
            self.keep(&input[used..]);
            self.whole = !matches!(pause, Pause::Read);
            match pause {
                Pause::Read | Pause::Send => self.send(&scratch.output).await?,
                Pause::Hold { at, wait } => {
                    self.send(&scratch.output[..at]).await?;
                    let held = scratch.output[at..].to_vec();
                    drop(scratch);
                    tokio::time::sleep(wait).await;
                    self.send(&held).await?;
                }
                Pause::Close => return self.send(&scratch.output).await,
                Pause::Refuse => {
                    self.send(&scratch.output).await?;
                    drop(scratch);
                    return self.linger().await;
                }
            }
        }
    }

    /// What is to be answered next; none when the caller has hung up.
    async fn receive(&mut self) -> io::Result<Option<Scratch>> {
        let kept = self.kept.len();
        if self.whole {
            let mut scratch = Scratch::borrow(kept);
            scratch.fill(&self.kept, 0);
            return Ok(Some(scratch));
        }
        let stream = &mut self.stream;
        let (mut scratch, read) = poll_fn(|cx| {
            // Back to the thread unless there is something to read.
            let mut scratch = Scratch::borrow(kept);
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

    fn keep(&mut self, rest: &[u8]) {
        if rest.is_empty() {
            // A long request leaves no long buffer behind.
            self.kept = Vec::new();
        } else {
            self.kept.clear();
            self.kept.extend_from_slice(rest);
        }
    }

    /// Sends answers, mostly at once; a caller that takes none of them for long is let go.
    async fn send(&mut self, mut answers: &[u8]) -> io::Result<()> {
        while !answers.is_empty() {
            let mut write = std::pin::pin!(self.stream.write(answers));
            let sent = match poll_fn(|cx| Poll::Ready(write.as_mut().poll(cx))).await {
                Poll::Ready(sent) => sent?,
                Poll::Pending => timeout(PATIENCE, write).await??,
            };
            if sent == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            answers = &answers[sent..];
        }
        match &mut self.stream {
            Stream::Tls(stream) => timeout(PATIENCE, stream.flush()).await?,
            Stream::Tcp(_) | Stream::Unix(_) => Ok(()),
        }
    }

    /// Reads on for a moment without listening.
    async fn linger(&mut self) -> io::Result<()> {
        self.stream.shutdown().await?;
        let mut rest = (&mut self.stream).take(LINGER_BYTES);
        timeout(LINGER, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await??;
        Ok(())
    }
}

/// Answers requests one after another, and says how much of the input that was, and why it stopped.
async fn answer(session: &mut Session, input: &[u8], output: &mut Vec<u8>) -> (usize, Pause) {
    let mut arguments = Arguments::default();
    let mut used = 0;
    loop {
        if output.len() >= MAX_UNSENT {
            return (used, Pause::Send);
        }
        match frame::parse(&input[used..], &mut arguments) {
            Ok(Some(length)) => used += length,
            Ok(None) => return (used, Pause::Read),
            Err(fault) => {
                let mut reply = Reply::new(output, session.version);
                reply.error(format_args!("ERR Protocol error: {fault}"));
                return (input.len(), Pause::Refuse);
            }
        }
        let at = output.len();
        let mut reply = Reply::new(output, session.version);
        let Some(verb) = session.command(&arguments, &mut reply) else { continue };
        let behind = &arguments[1..];
        // Names are text from here on, whatever bytes they are.
        let (named, renamed);
        let names = match verb {
            Verb::Check | Verb::Refund | Verb::ResetKey
                if behind.iter().any(|word| plain(word).is_none()) =>
            {
                named = behind.iter().map(|word| key::named(word)).collect::<Vec<_>>();
                renamed = named.iter().map(|word| word.as_bytes()).collect::<Vec<_>>();
                &renamed[..]
            }
            _ => behind,
        };
        let asked = match verb {
            Verb::Check => check::check(&session.door, names, &mut reply).await,
            Verb::Refund => check::refund(&session.door, names, &mut reply).await.map(|()| None),
            Verb::ResetKey => check::reset(&session.door, names, &mut reply).await.map(|()| None),
            _ => match session.obey(verb, behind, output) {
                After::Next => Ok(None),
                After::Close => return (used, Pause::Close),
            },
        };
        match asked {
            Ok(None) => {}
            Ok(Some(wait)) => return (used, Pause::Hold { at, wait }),
            Err(problem) => {
                let kind = problem.kind();
                Reply::new(output, session.version).error(format_args!("{kind} {problem}"));
            }
        }
    }
}
