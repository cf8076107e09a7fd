//! Messages within an HTTP/2 stream: five bytes before each, one that says whether it is compressed and four of its length.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use h2::{RecvStream, SendStream, server::SendResponse};
use http::{HeaderMap, HeaderValue, Response, header::CONTENT_TYPE};
use prost::Message;

use super::{
    backlog::{Backlog, BacklogShare},
    status::{Code, GrpcStatus},
};

/// The longest message of a call that has one message, in bytes. Questions have some hundred bytes.
pub const MAX_MESSAGE: usize = 64 * 1024;
/// The longest message of a stream, in bytes: a report has all buckets of a proxy in it.
pub const MAX_STREAMED: usize = 2 * 1024 * 1024;
const PREFIX: usize = 5;

/// Reads messages of one call, as they come.
#[derive(Debug)]
pub struct MessageReader {
    body: RecvStream,
    got: BytesMut,
    /// The first piece, which is mostly all there is: it is not copied.
    first: Bytes,
    /// The longest message, in bytes.
    longest: usize,
}

/// What was read.
#[derive(Debug)]
pub enum Piece {
    /// A whole message.
    Message(Bytes),
    /// The caller will send no more.
    End,
    /// The caller has gone away.
    Gone,
}

impl MessageReader {
    /// Makes a reader of a body whose messages have at most `longest` bytes.
    pub fn new(body: RecvStream, longest: usize) -> Self {
        Self { body, got: BytesMut::new(), first: Bytes::new(), longest }
    }

    /// Reads the next message of a stream.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, GrpcStatus>> {
        loop {
            if let Some(message) = self.take()? {
                return Poll::Ready(Ok(Piece::Message(message)));
            }
            match self.poll_more(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(More::Some) => {}
                Poll::Ready(More::Gone) => return Poll::Ready(Ok(Piece::Gone)),
                Poll::Ready(More::End) if self.is_empty() => return Poll::Ready(Ok(Piece::End)),
                Poll::Ready(More::End) => {
                    return Poll::Ready(Err(GrpcStatus::invalid("the message is cut short")));
                }
            }
        }
    }

    /// Reads the only message of a call, which is complete when the caller has ended the stream.
    pub fn poll_only(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, GrpcStatus>> {
        loop {
            if self.len() > PREFIX + self.longest {
                return Poll::Ready(Err(too_long(self.len() - PREFIX, self.longest)));
            }
            match self.poll_more(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(More::Some) => {}
                Poll::Ready(More::Gone) => return Poll::Ready(Ok(Piece::Gone)),
                Poll::Ready(More::End) => break,
            }
        }
        Poll::Ready(match self.take()? {
            Some(message) if self.is_empty() => Ok(Piece::Message(message)),
            Some(_) => Err(GrpcStatus::invalid("this method takes one message")),
            None => Err(GrpcStatus::invalid("the message is cut short")),
        })
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<More> {
        let Poll::Ready(data) = self.body.poll_data(cx) else { return Poll::Pending };
        let Some(Ok(data)) = data else {
            return Poll::Ready(if data.is_none() { More::End } else { More::Gone });
        };
        // A stream that has ended needs no room to send more.
        if !self.body.is_end_stream() && self.body.flow_control().release_capacity(data.len()).is_err() {
            return Poll::Ready(More::Gone);
        }
        if self.is_empty() {
            self.first = data;
        } else {
            if !self.first.is_empty() {
                self.got.extend_from_slice(&std::mem::take(&mut self.first));
            }
            self.got.extend_from_slice(&data);
        }
        Poll::Ready(More::Some)
    }

    /// Reads the next message of a stream, and holds a share of the backlog for as long as the message is not complete.
    pub async fn next(&mut self, share: &mut BacklogShare) -> Result<Piece, GrpcStatus> {
        poll_fn(|cx| {
            let next = self.poll_next(cx);
            // If nothing more is read, the bytes that are there are dropped.
            let goes_on = matches!(next, Poll::Pending | Poll::Ready(Ok(Piece::Message(_))));
            share.resize_and_tell(if goes_on { self.len() } else { 0 });
            next
        })
        .await
    }

    /// The number of bytes that have come and are no whole message yet.
    pub fn len(&self) -> usize {
        self.first.len() + self.got.len()
    }

    /// Whether no bytes have come.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the first message out, if it is there as a whole.
    fn take(&mut self) -> Result<Option<Bytes>, GrpcStatus> {
        let seen: &[u8] = if self.first.is_empty() { &self.got } else { &self.first };
        let Some(length) = length(seen, self.longest)? else { return Ok(None) };
        if seen.len() < PREFIX + length {
            return Ok(None);
        }
        if self.first.is_empty() {
            self.got.advance(PREFIX);
            return Ok(Some(self.got.split_to(length).freeze()));
        }
        self.first.advance(PREFIX);
        Ok(Some(self.first.split_to(length)))
    }
}

enum More {
    Some,
    End,
    Gone,
}

/// Returns the length of a message by its five bytes, if they are there.
fn length(seen: &[u8], longest: usize) -> Result<Option<usize>, GrpcStatus> {
    let Some([compressed, length @ ..]) = seen.first_chunk::<PREFIX>() else { return Ok(None) };
    if *compressed != 0 {
        return Err(GrpcStatus::new(
            Code::Unimplemented,
            "compressed messages are not read; send them as they are",
        ));
    }
    let length = u32::from_be_bytes(*length) as usize;
    if length > longest { Err(too_long(length, longest)) } else { Ok(Some(length)) }
}

fn too_long(length: usize, longest: usize) -> GrpcStatus {
    let message = format!("a message of {length} bytes is too long; use at most {longest}");
    GrpcStatus::new(Code::ResourceExhausted, message)
}

/// Returns a message with its five bytes in front.
pub fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut out = BytesMut::with_capacity(PREFIX + length);
    out.put_u8(0);
    out.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // Cannot fail: there is room for the whole message.
    let _room = message.encode(&mut out);
    out.freeze()
}

/// Decodes a message.
pub fn decoded<M: Message + Default>(message: Bytes) -> Result<M, GrpcStatus> {
    M::decode(message).map_err(|error| GrpcStatus::invalid(format!("the message is not understood: {error}")))
}

fn head() -> Response<()> {
    let mut head = Response::new(());
    head.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    head
}

/// Begins an answer of several messages.
pub fn begin(respond: &mut SendResponse<Bytes>) -> Result<SendStream<Bytes>, h2::Error> {
    respond.send_response(head(), false)
}

/// Answers with one message.
pub fn answer(
    respond: &mut SendResponse<Bytes>,
    message: Bytes,
    backlog: &Arc<Backlog>,
) -> Result<(), h2::Error> {
    let mut stream = begin(respond)?;
    let bytes = message.len();
    stream.send_data(message, false)?;
    send_end(&mut stream, &GrpcStatus::OK, backlog, bytes)
}

/// Sends one of several messages, as the caller has room for it. Bytes without room have a share of the backlog. Returns whether the caller is still there.
pub async fn send(stream: &mut SendStream<Bytes>, mut message: Bytes, backlog: &Arc<Backlog>) -> bool {
    let mut share = backlog.hold(0);
    while !message.is_empty() {
        stream.reserve_capacity(message.len());
        let room = poll_fn(|cx| {
            let room = stream.poll_capacity(cx);
            share.resize_and_tell(if room.is_pending() { message.len() } else { 0 });
            room
        });
        let Some(Ok(room)) = room.await else { return false };
        let piece = message.split_to(room.min(message.len()));
        if stream.send_data(piece, false).is_err() {
            return false;
        }
    }
    true
}

/// Ends an answer of several messages.
pub fn end(
    stream: &mut SendStream<Bytes>,
    status: &GrpcStatus,
    backlog: &Arc<Backlog>,
) -> Result<(), h2::Error> {
    send_end(stream, status, backlog, 0)
}

fn send_end(
    stream: &mut SendStream<Bytes>,
    status: &GrpcStatus,
    backlog: &Arc<Backlog>,
    bytes: usize,
) -> Result<(), h2::Error> {
    let mut fields = HeaderMap::with_capacity(2);
    status.write(&mut fields, backlog, bytes);
    stream.send_trailers(fields)
}

/// Answers with a status and no message.
pub fn refuse(
    respond: &mut SendResponse<Bytes>,
    status: &GrpcStatus,
    backlog: &Arc<Backlog>,
) -> Result<(), h2::Error> {
    let mut head = head();
    status.write(head.headers_mut(), backlog, 0);
    respond.send_response(head, true).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_says_how_long_a_message_is() {
        assert_eq!(length(&[0, 0, 0, 1], 9), Ok(None), "four bytes are not enough");
        assert_eq!(length(&[0, 0, 0, 1, 2, 9], MAX_MESSAGE), Ok(Some(258)));
        assert_eq!(length(&[1, 0, 0, 0, 0], 9).unwrap_err().code, Code::Unimplemented);
        let long = length(&[0, 0, 1, 0, 1], MAX_MESSAGE).unwrap_err();
        assert_eq!(long.message, "a message of 65537 bytes is too long; use at most 65536");
        assert_eq!(length(&[0, 0, 1, 0, 0], MAX_MESSAGE), Ok(Some(MAX_MESSAGE)));
    }
}
