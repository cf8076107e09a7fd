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

use std::{convert::Infallible, sync::Arc};

use http_body_util::Either;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap},
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
use super::{door::Door, listener::ClientStream};
use crate::requests::{Outcome, asking::Asking};

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
    let visit = Visit { door, pulse: Arc::clone(&pulse) };
    let service = service_fn(|request| visit.respond(request));
    let connection = http1::Builder::new()
        // Caches must not keep these answers.
        .auto_date_header(false)
        // Answers are short: one copy costs less than a second piece.
        .writev(false)
        .max_buf_size(MAX_HEAD)
        .max_header_size(MAX_HEAD)
        .serve_connection(TokioIo::new(Watched::new(stream, Arc::clone(&pulse))), service);
    tokio::select! {
        biased;
        // Callers that leave, or that do not speak HTTP, are of no interest.
        _ended = connection => {}
        () = pulse.until_it_stops() => {}
    }
}

/// The connection of one caller.
struct Visit {
    door: Door,
    pulse: Arc<Pulse>,
}

impl Visit {
    async fn respond(&self, request: Request<Incoming>) -> Result<Response<dashboard::PageBody>, Infallible> {
        let _busy = self.pulse.begin();
        self.pulse.until_answers_are_read().await;
        if dashboard::is_here(request.uri().path()) {
            return Ok(self.dashboard(request).await);
        }
        let answer = self.route(request).await.unwrap_or_else(|trouble| {
            if trouble.is_senseless() {
                self.door.decisions.complain(&trouble.detail);
            }
            trouble.into_answer()
        });
        Ok(answer.map(Either::Left))
    }

    async fn route(&self, request: Request<Incoming>) -> Result<HttpAnswer, Trouble> {
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
                None => Ok(answer::text("ok\n")),
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
