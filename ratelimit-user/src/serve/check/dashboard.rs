//! The dashboard over HTTP: which path means what, who may look, and who may change something.
//!
//! The page itself is open: it holds no data. Data is for callers that may ask the listener anything, changes are for callers that show the operator's
//! token.

use std::{net::IpAddr, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream};
use http_body_util::{BodyExt as _, Either, Full, Limited, StreamBody};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::{Bytes, Frame, Incoming},
    header::{
        AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderName, HeaderValue,
        ORIGIN, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
    },
};
use serde::Serialize;

use super::{
    Visit,
    answer::{self, HttpAnswer, Trouble},
    bearer, forwarded, is_json,
    patience::OpenAnswer,
};
use crate::{
    control::protocol::{MOST_LISTED, Order, Reply},
    failure::ExitCode,
    places::Busy,
    serve::{credentials::Token, drain::Draining, http},
    web::{
        asset::{Asset, BELOW, PAGE},
        gallery::{Gallery, MAX_VIEWERS, Viewer},
        guard, order, picture,
    },
};

/// A body that is sent whole or piece by piece.
pub(super) type PageBody = Either<Full<Bytes>, Pictures>;
/// A body that is sent piece by piece.
pub(super) type Pictures =
    StreamBody<stream::BoxStream<'static, Result<Frame<Bytes>, std::convert::Infallible>>>;

/// The path of the metrics. Callers that may look at the dashboard may read them: the dashboard shows more.
const METRICS: &str = "/metrics";
/// The longest order, in bytes.
const MAX_ORDER: usize = 4 * 1024;
/// How long an order may take to arrive.
const ORDER: Duration = Duration::from_secs(5);
/// How long the stream waits for a picture before it sends a sign of life instead.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

/// What browsers let the page do: run its own scripts, and talk to the host that it came from.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const OPENER: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

/// Whether a path is the dashboard's.
pub(super) fn is_here(path: &str) -> bool {
    path == PAGE || path == METRICS || path.starts_with(BELOW)
}

/// What a caller has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DashboardRole {
    /// The caller may look.
    Viewer,
    /// The caller has shown the operator's token, and may change something.
    Operator,
}

/// What the stream tells the page first.
#[derive(Debug, Serialize)]
struct DashboardSession<'s> {
    /// Whether there is a daemon that guards interfaces.
    guards: bool,
    /// `never`: there is no operator's token; `locked`: it has not been shown; `unlocked`.
    changes: &'s str,
    /// The address of the caller, as far as it is known.
    address: Option<IpAddr>,
}

impl Visit {
    /// Answers a request for the dashboard.
    pub(super) async fn dashboard(&self, request: Request<Incoming>) -> Response<PageBody> {
        let answered = self.dashboard_or_trouble(request).await;
        let mut answer = answered.unwrap_or_else(|trouble| trouble.into_answer().map(Either::Left));
        let fields = answer.headers_mut();
        for (name, value) in [
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (X_FRAME_OPTIONS, "DENY"),
            (REFERRER_POLICY, "no-referrer"),
            (CACHE_CONTROL, "no-store"),
            (OPENER, "same-origin"),
            (RESOURCE, "same-origin"),
        ] {
            fields.insert(name, HeaderValue::from_static(value));
        }
        answer
    }

    async fn dashboard_or_trouble(&self, request: Request<Incoming>) -> Result<Response<PageBody>, Trouble> {
        http::require_host(&request).map_err(Trouble::bad)?;
        let Some(gallery) = self.door.gallery.clone() else {
            return Err(Trouble::path(request.uri().path()));
        };
        let host = self.own_host(request.headers())?;
        let path = request.uri().path();
        let asks = matches!(*request.method(), Method::GET | Method::HEAD);
        if let Some(asset) = Asset::at(path) {
            let answer =
                if asks { Ok(file(asset)) } else { Err(Trouble::method(request.method(), "GET, HEAD")) };
            return answer.map(|answer| answer.map(Either::Left));
        }
        own_page(host.as_deref(), request.headers())?;
        let shown = self.shown(request.headers())?;
        self.door.guest.is_proven_now();
        // A caller that has lost its place is about to be hung up on.
        let Some(answering) = self.door.guest.begin() else { return std::future::pending().await };
        if path == METRICS {
            let answer = if asks {
                metrics(&gallery).await
            } else {
                Err(Trouble::method(request.method(), "GET, HEAD"))
            };
            return answer.map(|answer| answer.map(Either::Left));
        }
        let from = forwarded::origin(&self.door, None, request.headers()).ip;
        let answer = match path.strip_prefix(BELOW).unwrap_or_default() {
            "stream" if request.method() == Method::GET => {
                return self.stream(&gallery, shown, from, answering);
            }
            "explain" if asks => {
                let order = Order::Explain { address: asked_address(request.uri().query())?, service: None };
                told(gallery.ask(order, from).await)
            }
            "attack" if asks => {
                let order = Order::AttackShow { number: asked_number(request.uri().query())? };
                told(gallery.ask(order, from).await)
            }
            "lists" if asks => lists(&gallery, from).await,
            "history" if asks => match gallery.ask(Order::History, from).await {
                Reply::History(seconds) => json(&seconds),
                other => told(other),
            },
            "order" if request.method() == Method::POST => {
                no_form(request.headers())?;
                if shown != DashboardRole::Operator {
                    return Err(self.not_an_operator());
                }
                let token = request.headers().get(AUTHORIZATION).and_then(|field| bearer(field.as_bytes()));
                let token = token.map(|token| String::from_utf8_lossy(token).into_owned());
                let text = read(request.into_body()).await?;
                self.body_was_read();
                let order = order::read(&text, from)?;
                told(gallery.order(order, from, token).await)
            }
            "stream" | "explain" | "attack" | "lists" | "history" => {
                Err(Trouble::method(request.method(), "GET"))
            }
            "order" => Err(Trouble::method(request.method(), "POST")),
            _ => Err(Trouble::path(path)),
        };
        answer.map(|answer| answer.map(Either::Left))
    }

    /// Returns the host name that the caller asks under. Where callers show nothing, it must be a name that no other site can have.
    fn own_host(&self, headers: &HeaderMap) -> Result<Option<String>, Trouble> {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let own = host.is_some_and(guard::is_own_name);
        if own || self.door.is_shown {
            return Ok(host.map(str::to_owned));
        }
        let detail =
            "the dashboard is shown under an address or localhost; other names need a token_file in [listen]";
        Err(Trouble::new(StatusCode::MISDIRECTED_REQUEST, detail))
    }

    /// Returns what a caller has shown. Trouble if it has to show more before it may look, or has shown a wrong token.
    fn shown(&self, headers: &HeaderMap) -> Result<DashboardRole, Trouble> {
        let Some(field) = headers.get(AUTHORIZATION) else {
            return if self.door.viewer_token.is_none() {
                Ok(DashboardRole::Viewer)
            } else {
                Err(Trouble::unauthorised(false))
            };
        };
        let is = |token: &Option<Arc<Token>>| {
            token.as_ref().is_some_and(|token| bearer(field.as_bytes()).is_some_and(|given| token.is(given)))
        };
        match (is(&self.door.operator_token), is(&self.door.viewer_token)) {
            (true, _) => Ok(DashboardRole::Operator),
            (false, true) => Ok(DashboardRole::Viewer),
            (false, false) => Err(Trouble::unauthorised(true)),
        }
    }

    fn not_an_operator(&self) -> Trouble {
        let detail = match self.door.operator_token {
            Some(_) => "changes need the operator's token; send Authorization: Bearer TOKEN",
            None => "this dashboard changes nothing; name an operator_token_file in [listen] for that",
        };
        Trouble::new(StatusCode::FORBIDDEN, detail)
    }

    /// Streams pictures until the caller hangs up, reads too slowly, its token is no longer the right one, or the service ends.
    fn stream(
        &self,
        gallery: &Gallery,
        shown: DashboardRole,
        from: Option<IpAddr>,
        answering: Busy,
    ) -> Result<Response<PageBody>, Trouble> {
        let Some(viewer) = gallery.look(shown == DashboardRole::Operator) else {
            let detail = format!("{MAX_VIEWERS} dashboards look already; close one of them");
            return Err(Trouble::new(StatusCode::SERVICE_UNAVAILABLE, detail));
        };
        let changes = match (&self.door.operator_token, shown) {
            _ if !gallery.guards() => "never",
            (None, _) => "never",
            (Some(_), DashboardRole::Viewer) => "locked",
            (Some(_), DashboardRole::Operator) => "unlocked",
        };
        let session =
            picture::event("session", &DashboardSession { guards: gallery.guards(), changes, address: from });
        let tokens = [&self.door.viewer_token, &self.door.operator_token];
        let viewing = Viewing {
            viewer,
            tokens: tokens
                .into_iter()
                .flatten()
                .map(|token| (Arc::clone(token), token.generation()))
                .collect(),
            draining: self.door.draining.clone(),
            _answering: answering,
            _held: self.pulse.hold(),
        };
        let first = stream::iter(session.map(|event| Ok(Frame::data(event))));
        let rest = stream::unfold(viewing, |mut viewing| async move {
            let event = viewing.next().await?;
            Some((Ok(Frame::data(event)), viewing))
        });
        let mut answer = Response::new(Either::Right(StreamBody::new(first.chain(rest).boxed())));
        answer.headers_mut().insert(CONTENT_TYPE, EVENTS);
        Ok(answer)
    }
}

/// A browser that looks, and what is held for it meanwhile.
struct Viewing {
    viewer: Viewer,
    /// The tokens that a caller could show, and the generation of each when the stream began.
    tokens: Vec<(Arc<Token>, u64)>,
    /// Whether the service ends, and the stream with it.
    draining: Draining,
    /// Keeps the place of the connection.
    _answering: Busy,
    /// Keeps the connection from counting as idle.
    _held: OpenAnswer,
}

impl Viewing {
    async fn next(&mut self) -> Option<Bytes> {
        let event = match tokio::time::timeout(SIGN_OF_LIFE, self.viewer.next()).await {
            Ok(event) => event?,
            Err(_) => Bytes::from_static(b": nothing new\n\n"),
        };
        let is_admitted = self.tokens.iter().all(|(token, generation)| token.generation() == *generation);
        (is_admitted && !self.draining.has_begun()).then_some(event)
    }
}

fn file(asset: Asset) -> HttpAnswer {
    let mut answer = Response::new(Full::new(Bytes::from_static(asset.text.as_bytes())));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(asset.kind));
    answer
}

/// The address of `address=A`.
fn asked_address(query: Option<&str>) -> Result<IpAddr, Trouble> {
    let given = query.unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("address="));
    let Some(given) = given else { return Err(Trouble::bad("name an address: ?address=203.0.113.7")) };
    let text = given.replace("%3A", ":").replace("%3a", ":");
    text.parse().map_err(|_| {
        let shown: String = text.chars().take(64).collect();
        Trouble::bad(format!("{shown:?} is no address; use one such as 203.0.113.7 or 2001:db8::7"))
    })
}

/// The number of `number=N`.
fn asked_number(query: Option<&str>) -> Result<u64, Trouble> {
    let given = query.unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("number="));
    given.and_then(|text| text.parse().ok()).ok_or_else(|| Trouble::bad("name an attack: ?number=7"))
}

async fn read(body: Incoming) -> Result<Bytes, Trouble> {
    let all = tokio::time::timeout(ORDER, Limited::new(body, MAX_ORDER).collect()).await;
    match all {
        Ok(Ok(all)) => Ok(all.to_bytes()),
        Ok(Err(_)) => {
            let detail = format!("the order cannot be read; send at most {MAX_ORDER} bytes");
            Err(Trouble::new(StatusCode::PAYLOAD_TOO_LARGE, detail))
        }
        Err(_) => Err(Trouble::new(StatusCode::REQUEST_TIMEOUT, "the order has not come in time")),
    }
}

/// Refuses requests that a page of another site sends. Questions too: that page would not see the answer, but the host would have the work.
fn own_page(host: Option<&str>, headers: &HeaderMap) -> Result<(), Trouble> {
    let field = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if guard::is_own_page(host.unwrap_or_default(), field(&ORIGIN), field(&FETCH_SITE)) {
        return Ok(());
    }
    Err(Trouble::new(StatusCode::FORBIDDEN, "the dashboard answers its own page alone"))
}

/// Refuses bodies that a form of another site could have sent.
fn no_form(headers: &HeaderMap) -> Result<(), Trouble> {
    match headers.get(&CONTENT_TYPE).map(|value| value.to_str().unwrap_or("?")) {
        Some(kind) if is_json(kind) => Ok(()),
        _ => Err(Trouble::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, answer::NO_JSON)),
    }
}

/// Answers with the metrics, as Prometheus reads them.
async fn metrics(gallery: &Gallery) -> Result<HttpAnswer, Trouble> {
    let text = gallery.metrics().await.map_err(|why| Trouble::new(StatusCode::SERVICE_UNAVAILABLE, why))?;
    let mut answer = Response::new(Full::new(Bytes::from(text)));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(prometheus::TEXT_FORMAT));
    Ok(answer)
}

/// Answers with both lists, each up to [`MOST_LISTED`] entries.
async fn lists(gallery: &Gallery, from: Option<IpAddr>) -> Result<HttpAnswer, Trouble> {
    match gallery.ask(Order::Lists { most: MOST_LISTED }, from).await {
        Reply::Lists(lists) => json(&lists),
        other => told(other),
    }
}

/// Makes the answer of a reply of the daemon.
fn told(reply: Reply) -> Result<HttpAnswer, Trouble> {
    #[derive(Serialize)]
    struct DoneMessage {
        message: String,
    }
    match reply {
        Reply::Done(message) => json(&DoneMessage { message }),
        Reply::Explanation(explanation) => json(&explanation),
        Reply::Attack(report) => json(&report),
        Reply::Failed(failure) => {
            let status = match failure.code {
                ExitCode::Usage => StatusCode::BAD_REQUEST,
                ExitCode::Found => StatusCode::CONFLICT,
                ExitCode::NotPermitted => StatusCode::FORBIDDEN,
                ExitCode::NoDaemon => StatusCode::SERVICE_UNAVAILABLE,
                ExitCode::Unsupported => StatusCode::NOT_IMPLEMENTED,
            };
            Err(Trouble::new(status, failure.message))
        }
        _ => Err(Trouble::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the daemon gave an answer to something else",
        )),
    }
}

fn json(value: &impl Serialize) -> Result<HttpAnswer, Trouble> {
    let mut body = Vec::new();
    answer::write(&mut body, value);
    Ok(answer::json(StatusCode::OK, body))
}
