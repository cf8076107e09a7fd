//! The HTTP listener: metrics for Prometheus.

use std::{convert::Infallible, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode, Version,
    body::{Body as _, Bytes, Incoming},
    header::{CONNECTION, CONTENT_TYPE, HOST, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::listener::linger;
use crate::{
    places::{ConnectionPlaces, Guest, PlaceRules},
    web::metrics_source::MetricsSource,
};

/// Scrapers at once. One more takes the place of a scraper that has asked nothing yet, or that has asked nothing for longest.
const PLACES: PlaceRules = PlaceRules { own: 64, unproven: 32, first: HEAD, idle: PATIENCE, grace: GRACE };
/// How long a scraper has its place at least.
const GRACE: Duration = Duration::from_millis(100);
/// How long the head of a connection's first request may take.
const HEAD: Duration = Duration::from_secs(10);
/// A connection is closed after this long, so that nobody holds one of the places for ever.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long the last answer on a connection may take.
const LAST_ANSWER: Duration = Duration::from_secs(5);

/// Binds the listener, or says why that is not possible.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(address)
        .await
        .map_err(|error| format!("cannot listen for metrics on {address}: {error}"))
}

/// Serves `/metrics` for ever.
pub async fn serve(listener: TcpListener, source: MetricsSource) {
    let places = ConnectionPlaces::new(PLACES, None);
    tokio::spawn(Arc::clone(&places).look_after());
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let source = source.clone();
        let place = places.enter().await;
        let guest = Arc::clone(place.guest());
        place.host(async move {
            let service = service_fn(|request| respond(request, source.clone(), Arc::clone(&guest)));
            let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            if tokio::time::timeout(PATIENCE, &mut connection).await.is_err() {
                // A request that is being answered still gets its answer, with a word that the connection ends.
                Pin::new(&mut connection).graceful_shutdown();
                let _gone = tokio::time::timeout(LAST_ANSWER, &mut connection).await;
            }
            let _left = linger(&mut connection.into_parts().io.into_inner()).await;
        });
    }
}

async fn respond(
    request: Request<Incoming>,
    source: MetricsSource,
    guest: Arc<Guest>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    guest.is_proven_now();
    // A scraper that has lost its place is about to be hung up on.
    let Some(_answering) = guest.begin() else { return std::future::pending().await };
    let has_body = !request.body().is_end_stream();
    let mut response = answer(request, source).await;
    if has_body {
        // A body that is not read stands between this request and the next.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

async fn answer(request: Request<Incoming>, source: MetricsSource) -> Response<Full<Bytes>> {
    if let Err(problem) = require_host(&request) {
        return text(StatusCode::BAD_REQUEST, format!("{problem}\n"));
    }
    if request.uri().path() != "/metrics" {
        return text(StatusCode::NOT_FOUND, "not found; metrics are at /metrics\n".into());
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n".into());
    }
    match source.metrics().await {
        Ok(body) => text(StatusCode::OK, body),
        Err(reason) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{reason}\n")),
    }
}

/// Requires the one Host field that HTTP/1.1 wants. Of two fields, two servers could read different ones.
pub(super) fn require_host<B>(request: &Request<B>) -> Result<(), &'static str> {
    match request.headers().get_all(HOST).iter().count() {
        0 if request.version() == Version::HTTP_11 => Err("the Host field is missing; HTTP/1.1 needs one"),
        0 | 1 => Ok(()),
        _ => Err("there is more than one Host field; send one"),
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(prometheus::TEXT_FORMAT);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
