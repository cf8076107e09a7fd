//! A gRPC client that shows how a call ended, and streams that are read one message at a time.

use std::{future::poll_fn, net::SocketAddr, time::Duration};

use bytes::Bytes;
use h2::{
    Ping, PingPong, SendStream,
    client::{ResponseFuture, SendRequest},
};
use http::{HeaderMap, Request};
use prost::Message;
use ratelimit_user::serve::grpc::framing::{MAX_STREAMED, MessageReader, Piece, framed};
use tokio::{net::TcpStream, runtime::Runtime};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// One connection of a gRPC client.
#[derive(Debug)]
pub struct Client {
    runtime: Runtime,
    calls: SendRequest<Bytes>,
    pings: PingPong,
    /// Calls that were begun and not ended.
    begun: Vec<(ResponseFuture, SendStream<Bytes>)>,
    /// Sent with every call.
    pub metadata: Vec<(&'static str, String)>,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// A code of gRPC.
    pub code: i32,
    /// The sentence, as it is on the wire.
    pub message: String,
}

/// A stream of messages in both directions.
#[derive(Debug)]
pub struct Stream {
    send: SendStream<Bytes>,
    receive: MessageReader,
}

impl Client {
    /// Connects to a server.
    pub fn connect(address: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (calls, pings) = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.expect("connect");
            stream.set_nodelay(true).expect("no delay");
            let (calls, mut connection) = h2::client::handshake(stream).await.expect("HTTP/2");
            let pings = connection.ping_pong().expect("pings");
            tokio::spawn(connection);
            (calls, pings)
        });
        Self { runtime, calls, pings, begun: Vec::new(), metadata: Vec::new() }
    }

    /// Calls a method with one message.
    pub fn call<A: Message + Default>(&mut self, path: &str, question: &impl Message) -> Result<A, Ending> {
        self.call_raw(path, framed(question)).map(|answer| A::decode(answer).expect("an answer of its kind"))
    }

    /// Calls a method with a body of any bytes, framed or not.
    pub fn call_raw(&mut self, path: &str, body: Bytes) -> Result<Bytes, Ending> {
        let request = self.request(path);
        self.runtime.block_on(async {
            let answered = async {
                let mut calls = self.calls.clone().ready().await.expect("a connection");
                let (response, mut send) = calls.send_request(request, false).expect("sent");
                // Who refuses at once does not wait for the message.
                let _refused = send.send_data(body, true);
                let response = response.await.expect("a head");
                if response.status() != 200 {
                    return Err(Ending {
                        code: -i32::from(response.status().as_u16()),
                        message: String::new(),
                    });
                }
                if let Some(ending) = ending(response.headers()) {
                    return Err(ending);
                }
                let mut body = response.into_body();
                let mut got = Vec::new();
                while let Some(data) = body.data().await {
                    got.extend_from_slice(&data.expect("data"));
                }
                let trailers = body.trailers().await.expect("trailers").expect("an end");
                match ending(&trailers).expect("a status") {
                    Ending { code: 0, .. } => Ok(Bytes::from(got).slice(5..)),
                    other => Err(other),
                }
            };
            tokio::time::timeout(PATIENCE, answered).await.expect("an answer in time")
        })
    }

    /// Opens a stream on which this message is the only one that is sent.
    pub fn watch(&mut self, path: &str, message: &impl Message) -> Stream {
        self.open_with(path, Some(framed(message)))
    }

    /// Opens a stream without sending anything.
    pub fn open(&mut self, path: &str) -> Stream {
        self.open_with(path, None)
    }

    fn open_with(&mut self, path: &str, only: Option<Bytes>) -> Stream {
        let request = self.request(path);
        self.runtime.block_on(async {
            let mut calls = self.calls.clone().ready().await.expect("a connection");
            let (response, mut send) = calls.send_request(request, false).expect("sent");
            if let Some(only) = only {
                send.send_data(only, true).expect("sent");
            }
            let response = tokio::time::timeout(PATIENCE, response).await.expect("in time").expect("a head");
            assert_eq!(ending(response.headers()), None);
            Stream { send, receive: MessageReader::new(response.into_body(), MAX_STREAMED) }
        })
    }

    /// Begins so many calls, each with these bytes of a message that does not end; whether the server has taken them all in.
    pub fn begin_calls(&mut self, path: &str, count: usize, part: &Bytes) -> bool {
        let requests: Vec<_> = (0..count).map(|_| self.request(path)).collect();
        self.runtime.block_on(async {
            let mut begun = Vec::new();
            for request in requests {
                let Ok(mut calls) = self.calls.clone().ready().await else { return false };
                let Ok((response, mut send)) = calls.send_request(request, false) else { return false };
                let mut part = part.clone();
                while !part.is_empty() {
                    send.reserve_capacity(part.len());
                    let room = tokio::time::timeout(PATIENCE, poll_fn(|cx| send.poll_capacity(cx))).await;
                    let Some(Ok(room)) = room.expect("room in time") else { return false };
                    if send.send_data(part.split_to(room.min(part.len())), false).is_err() {
                        return false;
                    }
                }
                begun.push((response, send));
            }
            // Dropped they would be reset.
            self.begun.extend(begun);
            true
        })
    }

    /// Whether the server still answers on this connection.
    pub fn is_open(&mut self) -> bool {
        self.runtime.block_on(async {
            let pong = tokio::time::timeout(PATIENCE, self.pings.ping(Ping::opaque())).await;
            pong.expect("an answer or an end in time").is_ok()
        })
    }

    /// Sends one message of a stream.
    pub fn send(&self, stream: &mut Stream, message: &impl Message) {
        self.runtime.block_on(async { stream.send.send_data(framed(message), false).expect("sent") });
    }

    /// The next message of a stream; none if it has ended.
    pub fn receive<A: Message + Default>(&self, stream: &mut Stream) -> Option<A> {
        let next = poll_fn(|cx| stream.receive.poll_next(cx));
        let next = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, next).await });
        match next.expect("an answer in time").expect("a message") {
            Piece::Message(message) => Some(A::decode(message).expect("an answer of its kind")),
            Piece::End | Piece::Gone => None,
        }
    }

    /// Ends our side of a stream, and sees the other end.
    pub fn end(&self, mut stream: Stream) {
        self.runtime.block_on(async { stream.send.send_data(Bytes::new(), true).expect("sent") });
        assert!(self.receive::<()>(&mut stream).is_none(), "the other side ends too");
    }

    fn request(&self, path: &str) -> Request<()> {
        let mut request =
            Request::post(format!("http://ratelimit{path}")).header("content-type", "application/grpc");
        for (name, value) in &self.metadata {
            request = request.header(*name, value);
        }
        request.header("te", "trailers").body(()).expect("a request")
    }
}

fn ending(fields: &HeaderMap) -> Option<Ending> {
    let code = fields.get("grpc-status")?.to_str().ok()?.parse().ok()?;
    let message = fields.get("grpc-message").map_or("", |message| message.to_str().expect("ASCII"));
    Some(Ending { code, message: message.to_owned() })
}

/// What a caller sends that makes so many calls of the health service, and gives the server no window to answer them in: heads of answers may be sent, and messages wait in
/// the server for as long as the connection lasts.
pub fn calls_without_a_window(count: u32) -> Vec<u8> {
    calls_to(HEALTH_CHECK, count)
}

/// The method that says whether a service is there.
pub const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";
/// The method that says it again whenever it changes.
pub const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";
/// The method of proxies that decide for themselves.
pub const QUOTAS: &str = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";

/// What a caller sends that makes so many calls of a method, each with an empty message, and gives the server no window to answer them in.
pub fn calls_to(path: &str, count: u32) -> Vec<u8> {
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    const INITIAL_WINDOW_SIZE: u16 = 4;
    let window = [&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &0u32.to_be_bytes()].concat();
    frame(&mut sent, SETTINGS, 0, 0, &window);
    let head = head(path);
    for stream in (0..count).map(|nth| 2 * nth + 1) {
        frame(&mut sent, HEADERS, END_HEADERS, stream, &head);
        frame(&mut sent, DATA, END_STREAM, stream, &[0; 5]);
    }
    sent
}

/// What a caller sends, behind so many calls, that opens a stream of a method and leaves it open.
pub fn opened_behind(path: &str, calls: u32) -> Vec<u8> {
    let mut sent = Vec::new();
    frame(&mut sent, HEADERS, END_HEADERS, 2 * calls + 1, &head(path));
    sent
}

/// Fields of the static table of HPACK (RFC 7541): POST, http, and names whose values follow.
fn head(path: &str) -> Vec<u8> {
    let mut head = vec![0x83, 0x86];
    for (name, value) in [(4, path), (1, "localhost"), (31, "application/grpc")] {
        // A field that is not to be kept, with a name of the table, in one byte or, above 14, in two.
        head.extend(if name < 15 { vec![name] } else { vec![15, name - 15] });
        text(&mut head, value);
    }
    head.push(0);
    text(&mut head, "te");
    text(&mut head, "trailers");
    head
}

/// Kinds and flags of frames (RFC 9113).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(sent: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    sent.extend(&(payload.len() as u32).to_be_bytes()[1..]);
    sent.extend([kind, flags]);
    sent.extend(stream.to_be_bytes());
    sent.extend(payload);
}

/// Appends a text of HPACK that is shorter than 127 bytes, as it is.
fn text(head: &mut Vec<u8>, text: &str) {
    head.push(text.len() as u8);
    head.extend(text.as_bytes());
}
