//! Questions over HTTP/1.1: connections, who may ask, and which path means what.
//!
//! ```text
//! request -> question (query, header fields or JSON) -> decision service -> answer (200 or 429, header fields, JSON)
//! ```

mod answer;
mod batch;
mod dashboard;
mod forwarded;
mod hold;
mod json;
mod openapi;
mod patience;
mod question;
mod shown;

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http_body_util::Either;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body as _, Incoming},
    header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HeaderMap, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;

use self::{
    answer::{HttpAnswer, Trouble},
    batch::Errand,
    json::RequestBody,
    patience::{Pulse, Watched},
    question::Question,
};
use super::{
    door::Door,
    http,
    listener::{ClientStream, linger},
};
use crate::{
    requests::{Outcome, asking::Asking},
    store::worker::Store,
};

/// A request's line and header fields are no longer than this.
const MAX_HEAD: usize = 64 * 1024;

/// Reads a question from a query and header fields, and questions from a body. Returns the sentences that refuse what is no question.
pub fn read_any_question(query: Option<&str>, headers: &HeaderMap, body: &[u8]) -> Vec<String> {
    let by_line = Question::read(query, headers).err().map(|trouble| trouble.detail);
    let by_body = match RequestBody::parse(body) {
        Ok(RequestBody::One(question)) => vec![question],
        Ok(RequestBody::Many(questions)) => questions,
        Err(sentence) => vec![Err(sentence)],
    };
    by_line.into_iter().chain(by_body.into_iter().filter_map(Result::err)).collect()
}

/// Answers one connection until it ends, or is given up (`patience`).
pub async fn serve(stream: ClientStream, door: Door) {
    let pulse = Arc::new(Pulse::default());
    let visit = Visit { door, pulse: Arc::clone(&pulse), has_unread_body: AtomicBool::new(false) };
    let service = service_fn(|request| visit.respond(request));
    let mut connection = http1::Builder::new()
        // Caches must not keep these answers.
        .auto_date_header(false)
        // Answers are short: one copy costs less than a second piece.
        .writev(false)
        .max_buf_size(MAX_HEAD)
        .max_header_size(MAX_HEAD)
        .serve_connection(TokioIo::new(Watched::new(stream, Arc::clone(&pulse))), service);
    let ended = tokio::select! {
        biased;
        ended = &mut connection => ended,
        () = pulse.until_it_stops() => return,
    };
    // The caller may still send: the body of a refused question, or what is no HTTP. What becomes of a caller that leaves is of no interest.
    if ended.is_err() || visit.is_last() {
        let mut stream = connection.into_parts().io.into_inner();
        let _left = Box::pin(linger(&mut stream)).await;
    }
}

/// The connection of one caller.
struct Visit {
    door: Door,
    pulse: Arc<Pulse>,
    /// Whether the question that is being answered has a body that was not read to its end.
    has_unread_body: AtomicBool,
}

impl Visit {
    async fn respond(&self, request: Request<Incoming>) -> Result<Response<dashboard::PageBody>, Infallible> {
        let _busy = self.pulse.begin();
        self.pulse.until_answers_are_read().await;
        self.has_unread_body.store(!request.body().is_end_stream(), Ordering::Relaxed);
        let mut answer = match dashboard::is_here(request.uri().path()) {
            true => self.dashboard(request).await,
            false => self.route_or_trouble(request).await.map(Either::Left),
        };
        if self.is_last() {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(answer)
    }

    /// Whether the connection ends with the answer to the latest question: its body stands between this question and the next, or the service ends.
    fn is_last(&self) -> bool {
        self.has_unread_body.load(Ordering::Relaxed) || self.door.draining.has_begun()
    }

    /// Records that the body of the question was read to its end.
    fn body_was_read(&self) {
        self.has_unread_body.store(false, Ordering::Relaxed);
    }

    async fn route_or_trouble(&self, request: Request<Incoming>) -> HttpAnswer {
        self.route(request).await.unwrap_or_else(|trouble| {
            if trouble.is_senseless() {
                self.door.decisions.complain(&trouble.detail);
            }
            trouble.into_answer()
        })
    }

    async fn route(&self, request: Request<Incoming>) -> Result<HttpAnswer, Trouble> {
        http::require_host(&request).map_err(Trouble::bad)?;
        let path = request.uri().path();
        let is_open = matches!(path, "/healthz" | "/readyz");
        match path {
            "/healthz" | "/readyz" => {}
            "/v1/reset" => self.admit_reset(request.headers())?,
            _ => self.admit(request.headers())?,
        }
        // A question whether the service lives proves nothing about a caller where callers must show a token.
        if !is_open || self.door.token.is_none() {
            self.door.guest.is_proven_now();
        }
        // A caller that has lost its place is about to be hung up on.
        let Some(_answering) = self.door.guest.begin() else { return std::future::pending().await };
        let asks = matches!(*request.method(), Method::GET | Method::HEAD);
        match path {
            "/v1/check" if asks => self.check(&request).await,
            "/v1/check" if request.method() == Method::POST => self.errand(request, Errand::Check).await,
            "/v1/refund" if request.method() == Method::POST => self.errand(request, Errand::Refund).await,
            "/v1/reset" if request.method() == Method::POST => self.errand(request, Errand::Reset).await,
            "/healthz" if asks => Ok(answer::text("ok\n")),
            "/readyz" if asks => match self.door.decisions.unready() {
                Some(why) => Err(Trouble::new(StatusCode::SERVICE_UNAVAILABLE, why)),
                None => Ok(answer::text(match self.door.decisions.store().and_then(Store::clock_step) {
                    Some(step) => format!("ok\n{step}\n"),
                    None => "ok\n".to_owned(),
                })),
            },
            "/openapi.json" if asks => Ok(answer::json(StatusCode::OK, openapi::DOCUMENT)),
            "/v1/check" => Err(Trouble::method(request.method(), "GET, HEAD, POST")),
            "/v1/refund" | "/v1/reset" => Err(Trouble::method(request.method(), "POST")),
            "/healthz" | "/readyz" | "/openapi.json" => Err(Trouble::method(request.method(), "GET, HEAD")),
            _ => Err(Trouble::path(path)),
        }
    }

    /// Admits callers that show the token, if there is one.
    fn admit(&self, headers: &HeaderMap) -> Result<(), Trouble> {
        let Some(token) = &self.door.token else { return Ok(()) };
        let shown = headers.get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        match shown {
            Some(shown) if token.is(shown) => Ok(()),
            _ => Err(Trouble::unauthorised(headers.contains_key(AUTHORIZATION))),
        }
    }

    /// Admits a reset. Where operators have a token, every caller of every socket has to show it: a reset gives a whole limit again, and a caller that
    /// may only ask could otherwise ask without end.
    fn admit_reset(&self, headers: &HeaderMap) -> Result<(), Trouble> {
        let Some(operator_token) = &self.door.operator_token else { return self.admit(headers) };
        let shown = headers.get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        if shown.is_some_and(|shown| operator_token.is(shown)) {
            return Ok(());
        }
        self.admit(headers)?;
        Err(Trouble::new(StatusCode::FORBIDDEN, answer::NO_RESET))
    }

    /// Admits a change by a caller that has shown more than that it is on this host, and that is no page in somebody's browser: a page can send JSON to
    /// another site only if that site permits it.
    fn admit_change(&self, errand: Errand, headers: &HeaderMap) -> Result<(), Trouble> {
        // Where operators have a token, a reset has been admitted with this token already.
        let is_operator = errand == Errand::Reset && self.door.operator_token.is_some();
        if !self.door.is_shown && !is_operator {
            return Err(Trouble::new(StatusCode::FORBIDDEN, answer::NO_CHANGE));
        }
        match headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()) {
            Some(kind) if is_json(kind) => Ok(()),
            _ => Err(Trouble::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, answer::NO_JSON)),
        }
    }

    /// Answers one question without a body.
    async fn check(&self, request: &Request<Incoming>) -> Result<HttpAnswer, Trouble> {
        let question = Question::read(request.uri().query(), request.headers())?;
        let origin = forwarded::origin(&self.door, question.ip, request.headers());
        let parts = question.parts();
        let asked = question.request(origin, &parts);
        let asking = question.asking;
        let decisions = &self.door.decisions;
        let decided =
            decisions.check(&asked, asking, |decision| (decision.outcome, answer::decided(decision)));
        let (outcome, answer) = decided.await?;
        if let (Outcome::Delayed { wait_us }, Asking::Counted) = (outcome, asking) {
            hold::until_its_turn(decisions, &asked, wait_us).await;
        }
        Ok(answer)
    }

    /// Answers a body of JSON with one question or many.
    async fn errand(&self, request: Request<Incoming>, errand: Errand) -> Result<HttpAnswer, Trouble> {
        // The header fields that proxies add hold for all questions of the body.
        let (head, body) = request.into_parts();
        if errand.is_change() {
            self.admit_change(errand, &head.headers)?;
        }
        let text = batch::read(body).await?;
        self.body_was_read();
        let origin = |claimed| forwarded::origin(&self.door, claimed, &head.headers);
        batch::answer(&self.door.decisions, errand, &text, origin).await
    }
}

/// Whether a content type is `application/json`, with any parameters.
fn is_json(kind: &str) -> bool {
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// Returns the token of `Bearer TOKEN`.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}
