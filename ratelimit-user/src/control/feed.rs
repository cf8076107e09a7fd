//! Sends refused packets to callers that watch, one line each, until the caller hangs up.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    io::AsyncReadExt as _,
    net::UnixStream,
    sync::{Semaphore, broadcast, mpsc},
    time::timeout,
};

use super::{line::say, protocol::Reply};
use crate::{
    drops::{Filter, Sighting},
    failure::{ExitCode, Failure},
};

/// The largest number of callers that watch at once. They take no places of other callers; one more is turned away.
pub(super) const MAX_WATCHERS: usize = 16;
/// A caller that reads nothing for this long is let go.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends drop events to one caller if there is a place.
pub(super) async fn serve(
    mut stream: UnixStream,
    filter: &Filter,
    places: &Semaphore,
    subscribe: impl FnOnce() -> broadcast::Receiver<Arc<Sighting>>,
) -> io::Result<()> {
    let Ok(_place) = places.try_acquire() else { return turn_away(&mut stream).await };
    tell(stream, filter, subscribe()).await
}

/// Sends frames of refused packets to one caller if there is a place.
pub(super) async fn serve_frames(
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

async fn tell(
    mut stream: UnixStream,
    filter: &Filter,
    mut sightings: broadcast::Receiver<Arc<Sighting>>,
) -> io::Result<()> {
    let (mut reader, mut writer) = stream.split();
    let mut reply = Reply::Watching;
    loop {
        // While a line is sent, drop events wait in the channel; when it is full, the oldest are lost.
        timeout(PATIENCE, say(&mut writer, &reply)).await??;
        reply = loop {
            let next = tokio::select! {
                // A caller has nothing to send after its order, so any byte, or the end of the stream, ends the conversation.
                _ = reader.read_u8() => return Ok(()),
                next = sightings.recv() => next,
            };
            match next {
                Ok(sighting) if filter.wants(&sighting) => break Reply::Dropped(sighting.dropped()),
                Ok(_) => {}
                Err(broadcast::error::RecvError::Lagged(lost)) => break Reply::Lost(lost),
                Err(broadcast::error::RecvError::Closed) => return Ok(()),
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use ratelimit_common::abi::{Reason, counter::Fate};
    use tokio::io::{AsyncBufReadExt as _, BufReader};

    use super::*;

    fn packet(port: u16) -> Arc<Sighting> {
        Arc::new(Sighting {
            time_ns: 0,
            unix_ms: 0,
            source: "203.0.113.7".parse().unwrap(),
            reason: Reason::LimitPackets,
            fate: Fate::Decided,
            service: None,
            port,
            len: 60,
        })
    }

    /// Waits for a future, and fails the test after ten seconds.
    async fn soon<T>(what: impl Future<Output = T>) -> T {
        timeout(Duration::from_secs(10), what).await.expect("it comes to an end")
    }

    async fn next(reader: &mut BufReader<UnixStream>) -> Reply {
        let mut line = String::new();
        soon(reader.read_line(&mut line)).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn port(reply: &Reply) -> u16 {
        match reply {
            Reply::Dropped(packet) => packet.port.unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn who_does_not_read_in_time_is_told_how_many_were_lost_and_goes_on_with_the_newest() {
        let (sender, receiver) = broadcast::channel(16);
        let (ours, theirs) = UnixStream::pair().unwrap();
        for port in 1..=100 {
            sender.send(packet(port)).unwrap();
        }
        let filter = Filter::default();
        let telling = tokio::spawn(async move { tell(ours, &filter, receiver).await });
        let mut reader = BufReader::new(theirs);
        assert_eq!(next(&mut reader).await, Reply::Watching);
        assert_eq!(next(&mut reader).await, Reply::Lost(84));
        for expected in 85..=100 {
            assert_eq!(port(&next(&mut reader).await), expected);
        }
        drop(reader);
        soon(telling).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn who_stops_reading_keeps_nobody_else_from_being_told() {
        let (sender, _) = broadcast::channel(16);
        let (ours, _never_read) = UnixStream::pair().unwrap();
        let filter = Filter::default();
        let stuck = tokio::spawn({
            let receiver = sender.subscribe();
            async move { tell(ours, &filter, receiver).await }
        });
        let (ours, theirs) = UnixStream::pair().unwrap();
        let receiver = sender.subscribe();
        tokio::spawn(async move { tell(ours, &filter, receiver).await });
        let mut reader = BufReader::new(theirs);
        assert_eq!(next(&mut reader).await, Reply::Watching);
        // This is far more than the buffer of a socket holds.
        for number in 1..=20_000 {
            sender.send(packet(number)).unwrap();
            assert_eq!(port(&next(&mut reader).await), number);
        }
        assert!(!stuck.is_finished(), "it may read on later");
    }

    #[tokio::test]
    async fn there_are_places_for_some_and_a_sentence_for_the_rest() {
        let places = Arc::new(Semaphore::new(1));
        let (sender, _) = broadcast::channel(16);
        let watch = || {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let (places, receiver) = (Arc::clone(&places), sender.subscribe());
            let serving =
                tokio::spawn(async move { serve(ours, &Filter::default(), &places, || receiver).await });
            (BufReader::new(theirs), serving)
        };
        let (mut first, serving) = watch();
        assert_eq!(next(&mut first).await, Reply::Watching);
        let (mut second, _) = watch();
        assert!(
            matches!(next(&mut second).await, Reply::Failed(failure) if failure.message.contains("watch already"))
        );
        // A caller that hangs up frees its place, although no packet was refused meanwhile.
        drop(first);
        soon(serving).await.unwrap().unwrap();
        let (mut third, _) = watch();
        assert_eq!(next(&mut third).await, Reply::Watching);
    }
}
