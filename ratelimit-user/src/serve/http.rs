//! The HTTP listener: metrics for Prometheus.

use std::{convert::Infallible, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::CONTENT_TYPE,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

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
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            let mut connection = pin!(connection);
            if tokio::time::timeout(PATIENCE, connection.as_mut()).await.is_err() {
                // A request that is being answered still gets its answer, with a word that the connection ends.
                connection.as_mut().graceful_shutdown();
                let _gone = tokio::time::timeout(LAST_ANSWER, connection).await;
            }
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
    if request.uri().path() != "/metrics" {
        return Ok(text(StatusCode::NOT_FOUND, "not found; metrics are at /metrics\n".into()));
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return Ok(text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n".into()));
    }
    Ok(match source.metrics().await {
        Ok(body) => text(StatusCode::OK, body),
        Err(reason) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{reason}\n")),
    })
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static(prometheus::TEXT_FORMAT);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
