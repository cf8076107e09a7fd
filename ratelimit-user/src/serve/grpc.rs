//! Questions over gRPC: Envoy's rate limit services, and the services that every gRPC server has.
//!
//! ```text
//! connection -> calls that are being read -> an answer, in the same task
//!                                         -> a task, for what waits and for streams
//! ```
//! One task has a connection. It takes in all calls that have come and answers them; answers to calls that came together go out together.

pub mod backlog;
pub mod descriptor;
pub mod framing;
pub mod health;
pub mod messages;
pub mod reflection;
pub mod rlqs;
pub mod rls;
pub mod status;

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use h2::{
    Ping, PingPong, RecvStream,
    server::{Builder, Connection, SendResponse},
};
use http::{Method as Verb, Request, Response, StatusCode, header};
use tokio::time::{Instant, Interval, MissedTickBehavior};

use self::{
    backlog::{Backlog, BacklogShare, CALL},
    framing::{MAX_MESSAGE, MessageReader, Piece},
    status::{Code, GrpcStatus},
};
use super::{credentials::Token, door::Door, listener::ClientStream};
use crate::requests::{decision_service::DecisionService, turns::Turn};

/// Calls that one connection may have open. A proxy that has more waits a moment.
const MAX_CALLS: u32 = 256;
/// Bytes that the header fields of a call may have. Those of proxies have some hundred.
const MAX_FIELDS: u32 = 16 * 1024;
/// Bytes that the calls of a connection may have sent and that nobody has read yet.
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// How long a caller may take to say that it speaks HTTP/2.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// The time between two checks whether the other end is still there. A call has at least one such interval, and at most two, to arrive.
const TICK: Duration = Duration::from_secs(30);

/// The methods that can be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    ShouldRateLimit,
    StreamRateLimitQuotas,
    CheckHealth,
    WatchHealth,
    Reflect,
}

impl Method {
    fn of(path: &str) -> Option<Self> {
        match path {
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" => Some(Self::ShouldRateLimit),
            "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas" => {
                Some(Self::StreamRateLimitQuotas)
            }
            "/grpc.health.v1.Health/Check" => Some(Self::CheckHealth),
            "/grpc.health.v1.Health/Watch" => Some(Self::WatchHealth),
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
            | "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo" => Some(Self::Reflect),
            _ => None,
        }
    }

    /// Whether the method is for everybody: a supervisor of processes has no token.
    fn is_open(self) -> bool {
        matches!(self, Self::CheckHealth | Self::WatchHealth)
    }
}

/// A call of one message that has not arrived yet.
#[derive(Debug)]
struct GrpcCall {
    method: Method,
    message: MessageReader,
    respond: SendResponse<Bytes>,
    /// Ticks since the call began.
    age: u8,
}

/// Answers one connection until it ends.
pub async fn serve(stream: ClientStream, door: Door) {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(MAX_CALLS)
        .max_header_list_size(MAX_FIELDS)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(MAX_MESSAGE);
    let greeted = tokio::time::timeout(HANDSHAKE, builder.handshake(stream)).await;
    let Ok(Ok(mut connection)) = greeted else { return };
    let Some(pings) = connection.ping_pong() else { return };
    let mut tick = tokio::time::interval_at(Instant::now() + TICK, TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let backlog = Backlog::new(Arc::clone(&door.guest), Arc::clone(&door.streams));
    let unread = backlog.hold(0);
    let (calls, life) = (Vec::new(), Life::Heard);
    let is_dismissed = false;
    let mut session =
        GrpcSession { connection, door, calls, backlog, unread, tick, pings, life, is_dismissed };
    poll_fn(|cx| session.poll(cx)).await;
}

/// The state of one gRPC connection.
struct GrpcSession {
    connection: Connection<ClientStream, Bytes>,
    door: Door,
    calls: Vec<GrpcCall>,
    backlog: Arc<Backlog>,
    /// The share of calls that have not arrived completely.
    unread: BacklogShare,
    tick: Interval,
    pings: PingPong,
    life: Life,
    /// Whether the other end was told that the service ends.
    is_dismissed: bool,
}

/// Whether the other end is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// The other end has asked something since the last tick.
    Heard,
    /// The other end has asked nothing since the last tick.
    Silent,
    /// The other end was asked whether it is there.
    Pinged,
}

impl GrpcSession {
    /// Works on the connection. Ready when the connection has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_dismissed && self.door.draining.has_begun() {
            self.is_dismissed = true;
            self.connection.graceful_shutdown();
        }
        loop {
            // Reads what has come, and writes what was answered.
            match self.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    self.life = Life::Heard;
                    self.take_in(request, respond);
                    continue;
                }
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(()),
                Poll::Pending => {}
            }
            if !self.answer(cx) {
                break;
            }
        }
        // Everything that could be written has been written.
        self.unread.resize(self.calls.iter().map(|call| CALL + call.message.len()).sum());
        self.backlog.tell();
        if self.pings.poll_pong(cx).is_ready() {
            self.life = Life::Heard;
        }
        while self.tick.poll_tick(cx).is_ready() {
            if !self.look_after() {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    /// Takes in a call of which only the head is there.
    fn take_in(&mut self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        // Errors of sending are ignored: a caller that has hung up needs no answer.
        let method = match admitted(&request, self.door.token.as_deref()) {
            Ok(method) => method,
            Err(Rejection::Http(status)) => {
                let mut head = Response::new(());
                *head.status_mut() = status;
                // Fields that these refusals have anyway carry the share of the call.
                let (name, value) = match status {
                    StatusCode::METHOD_NOT_ALLOWED => (header::ALLOW, "POST"),
                    _ => (header::ACCEPT, "application/grpc"),
                };
                head.headers_mut().insert(name, self.backlog.ending(value, 0));
                let _gone = respond.send_response(head, true);
                return;
            }
            Err(Rejection::Grpc(status)) => {
                let _gone = framing::refuse(&mut respond, &status, &self.backlog);
                return;
            }
        };
        let body = request.into_body();
        if !method.is_open() || self.door.token.is_none() {
            self.door.guest.is_proven_now();
        }
        let backlog = Arc::clone(&self.backlog);
        match method {
            Method::StreamRateLimitQuotas => {
                let Some(open) = backlog.open_stream() else { return self.too_many_streams(respond) };
                let (decisions, quotas) = (Arc::clone(&self.door.decisions), Arc::clone(&self.door.quotas));
                // As long as a proxy holds quotas its connection is in use, however rarely it reports.
                let Some(busy) = self.door.guest.begin() else { return };
                let draining = self.door.draining.clone();
                tokio::spawn(async move {
                    rlqs::converse(decisions, quotas, body, respond, backlog, draining).await;
                    drop((busy, open));
                });
            }
            Method::Reflect => {
                let Some(open) = backlog.open_stream() else { return self.too_many_streams(respond) };
                tokio::spawn(async move {
                    reflection::converse(body, respond, backlog).await;
                    drop(open);
                });
            }
            Method::ShouldRateLimit | Method::CheckHealth | Method::WatchHealth => {
                self.calls.push(GrpcCall {
                    method,
                    message: MessageReader::new(body, MAX_MESSAGE),
                    respond,
                    age: 0,
                });
            }
        }
    }

    /// Refuses a stream for which there is no room.
    fn too_many_streams(&self, mut respond: SendResponse<Bytes>) {
        let message = "as many streams are open as there is room for; close others or try again later";
        let full = GrpcStatus::new(Code::ResourceExhausted, message);
        let _gone = framing::refuse(&mut respond, &full, &self.backlog);
    }

    /// Answers calls that have arrived, and returns whether there was one.
    fn answer(&mut self, cx: &mut Context<'_>) -> bool {
        let (mut at, mut answered) = (0, false);
        while let Some(call) = self.calls.get_mut(at) {
            let Poll::Ready(piece) = call.message.poll_only(cx) else {
                at += 1;
                continue;
            };
            let GrpcCall { method, mut respond, .. } = self.calls.swap_remove(at);
            answered = true;
            match piece {
                Ok(Piece::Message(message)) => self.reply(method, message, respond, cx),
                Ok(Piece::End | Piece::Gone) => {}
                // A caller of a proxy can make its question this long on purpose. An error would let the request pass, so it is refused.
                Err(status)
                    if method == Method::ShouldRateLimit && status.code == Code::ResourceExhausted =>
                {
                    let answer = rls::senseless(&self.door.decisions, 1, &status);
                    let _gone = framing::answer(&mut respond, answer.frame, &self.backlog);
                }
                Err(status) => _ = framing::refuse(&mut respond, &status, &self.backlog),
            }
        }
        answered
    }

    fn reply(&self, method: Method, message: Bytes, mut respond: SendResponse<Bytes>, cx: &mut Context<'_>) {
        match method {
            Method::CheckHealth => {
                let _gone = match health::check(message) {
                    Ok(answer) => framing::answer(&mut respond, answer, &self.backlog),
                    Err(status) => framing::refuse(&mut respond, &status, &self.backlog),
                };
            }
            Method::WatchHealth => {
                let backlog = Arc::clone(&self.backlog);
                let Some(open) = backlog.open_stream() else { return self.too_many_streams(respond) };
                tokio::spawn(async move {
                    health::watch(message, respond, backlog).await;
                    drop(open);
                });
            }
            // `ShouldRateLimit`. The other methods are streams, which have a task from the start.
            _ => {
                let Some(busy) = self.door.guest.begin() else { return };
                let (decisions, vouched) = (Arc::clone(&self.door.decisions), self.door.vouches());
                let backlog = Arc::clone(&self.backlog);
                let mut work = Box::pin(async move {
                    rate_limit(decisions, message, vouched, respond, backlog).await;
                    drop(busy);
                });
                // Mostly the answer is there at once, and needs no task.
                if work.as_mut().poll(cx).is_pending() {
                    tokio::spawn(work);
                }
            }
        }
    }

    /// Looks at every tick whether the other end is there. Returns whether the connection goes on.
    fn look_after(&mut self) -> bool {
        for call in &mut self.calls {
            call.age += 1;
        }
        for mut call in self.calls.extract_if(.., |call| call.age > 1) {
            let late = GrpcStatus::new(Code::DeadlineExceeded, "the message did not arrive in time");
            let _gone = framing::refuse(&mut call.respond, &late, &self.backlog);
        }
        self.life = match self.life {
            Life::Heard => Life::Silent,
            Life::Silent if self.pings.send_ping(Ping::opaque()).is_ok() => Life::Pinged,
            Life::Silent | Life::Pinged => return false,
        };
        true
    }
}

/// Why a call is not taken in.
enum Rejection {
    /// The request is no gRPC call: it is answered as HTTP.
    Http(StatusCode),
    /// The request is a gRPC call: it is answered as one.
    Grpc(GrpcStatus),
}

fn admitted(request: &Request<RecvStream>, token: Option<&Token>) -> Result<Method, Rejection> {
    if request.method() != Verb::POST {
        return Err(Rejection::Http(StatusCode::METHOD_NOT_ALLOWED));
    }
    let kind = request.headers().get(header::CONTENT_TYPE);
    if !kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc")) {
        return Err(Rejection::Http(StatusCode::UNSUPPORTED_MEDIA_TYPE));
    }
    let path = request.uri().path();
    let method = Method::of(path).ok_or_else(|| {
        let path: String = path.chars().take(200).collect();
        Rejection::Grpc(GrpcStatus::new(Code::Unimplemented, format!("there is no method {path:?}")))
    })?;
    let shown = || request.headers().get(header::AUTHORIZATION)?.as_bytes().strip_prefix(b"Bearer ");
    match token {
        Some(token) if !method.is_open() && !shown().is_some_and(|shown| token.is(shown)) => {
            let message = "show the token in the metadata, as authorization: Bearer TOKEN";
            Err(Rejection::Grpc(GrpcStatus::new(Code::Unauthenticated, message)))
        }
        _ => Ok(method),
    }
}

/// Answers the method `ShouldRateLimit`.
async fn rate_limit(
    decisions: Arc<DecisionService>,
    message: Bytes,
    vouched: bool,
    mut respond: SendResponse<Bytes>,
    backlog: Arc<Backlog>,
) {
    let _gone = match rls::answer(&decisions, message.clone(), vouched).await {
        Ok(rls::RlsAnswer { frame, wait, turns, paid }) => {
            if wait > Duration::ZERO && !held(&mut respond, wait).await {
                drop(turns);
                rls::give_back(&decisions, message, &paid).await;
                return;
            }
            turns.into_iter().for_each(Turn::serve);
            framing::answer(&mut respond, frame, &backlog)
        }
        Err(status) => framing::refuse(&mut respond, &status, &backlog),
    };
}

/// Waits, and returns whether the caller has waited as well.
async fn held(respond: &mut SendResponse<Bytes>, wait: Duration) -> bool {
    tokio::select! {
        () = tokio::time::sleep(wait) => true,
        _reset = poll_fn(|cx| respond.poll_reset(cx)) => false,
    }
}
