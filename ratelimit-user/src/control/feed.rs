//! Sends refused packets to callers that watch, one line each, until the caller hangs up.

use std::{io, time::Duration};

use tokio::{
    io::AsyncReadExt as _,
    net::UnixStream,
    sync::{Semaphore, mpsc},
    time::timeout,
};

use super::{line::say, protocol::Reply};
use crate::failure::{ExitCode, Failure};

/// The largest number of callers that watch at once. They take no places of other callers; one more is turned away.
pub(super) const MAX_WATCHERS: usize = 16;
/// A caller that reads nothing for this long is let go.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends refused packets to one caller if there is a place.
pub(super) async fn serve(
    mut stream: UnixStream,
    places: &Semaphore,
    subscribe: impl FnOnce() -> mpsc::Receiver<Reply>,
) -> io::Result<()> {
    let Ok(_place) = places.try_acquire() else { return turn_away(&mut stream).await };
    let mut replies = subscribe();
    let (mut reader, mut writer) = stream.split();
    let mut reply = Reply::Watching;
    loop {
        timeout(PATIENCE, say(&mut writer, &reply)).await??;
        reply = tokio::select! {
            _ = reader.read_u8() => return Ok(()),
            next = replies.recv() => match next {
                Some(reply) => reply,
                None => return Ok(()),
            },
        };
    }
}

async fn turn_away(stream: &mut UnixStream) -> io::Result<()> {
    let message = format!("{MAX_WATCHERS} callers watch already; end one of them");
    timeout(PATIENCE, say(stream, &Reply::Failed(Failure::new(ExitCode::Found, message)))).await?
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncBufReadExt as _, BufReader};

    use super::*;

    /// Waits for a future, and fails the test after ten seconds.
    async fn soon<T>(what: impl Future<Output = T>) -> T {
        timeout(Duration::from_secs(10), what).await.expect("it comes to an end")
    }

    async fn next(reader: &mut BufReader<UnixStream>) -> Reply {
        let mut line = String::new();
        soon(reader.read_line(&mut line)).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }

    #[tokio::test]
    async fn there_are_places_for_some_and_a_sentence_for_the_rest() {
        let places = Arc::new(Semaphore::new(1));
        let (_sender, receiver) = mpsc::channel(1);
        let (_other, second) = mpsc::channel(1);
        let watch = |receiver| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let places = Arc::clone(&places);
            let serving = tokio::spawn(async move { serve(ours, &places, || receiver).await });
            (BufReader::new(theirs), serving)
        };
        let (mut first, serving) = watch(receiver);
        assert_eq!(next(&mut first).await, Reply::Watching);
        let (mut turned_away, _) = watch(mpsc::channel(1).1);
        assert!(
            matches!(next(&mut turned_away).await, Reply::Failed(failure) if failure.message.contains("watch already"))
        );
        // A caller that hangs up frees its place, although no packet was refused meanwhile.
        drop(first);
        soon(serving).await.unwrap().unwrap();
        let (mut third, _) = watch(second);
        assert_eq!(next(&mut third).await, Reply::Watching);
    }
}
