//! One POST. What is said about a failure names the server and never the path, which is often a secret.

use std::{env, fs::File, io::Read as _, path::Path, sync::Arc};

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use ring::hmac;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use super::{tls, undelivered::Undelivered};
use crate::{build::BUILD, policy::WebhookUrl};

/// The secret of webhooks without a file for it.
pub(super) const SECRET_VARIABLE: &str = "RATELIMIT_NOTIFY_SECRET";
/// The header with the signature of the body.
const SIGNATURE: &str = "X-RateLimit-Signature";
/// Longer than any secret: the wrong file was named.
const LONGEST_SECRET: u64 = 64 * 1024;

/// Sends a body, and waits for an answer that says that it was taken.
pub(super) async fn post(
    url: &WebhookUrl,
    secret_file: Option<&Path>,
    ca_file: Option<&Path>,
    body: &Arc<[u8]>,
) -> Result<(), Undelivered> {
    // A disk that hangs must not hold up those who have no file on it.
    let file = secret_file.map(Path::to_owned);
    let read = tokio::task::spawn_blocking(move || secret(file.as_deref()));
    let secret = read.await.map_err(|error| format!("the secret was not read: {error}"))??;
    let signature = secret.map(|secret| signature(secret.as_bytes(), body));
    let stream = TcpStream::connect((url.host.as_str(), url.port))
        .await
        .map_err(|error| format!("cannot reach {url}: {error}"))?;
    if !url.tls {
        return exchange(stream, url, signature, body).await;
    }
    exchange(tls::greet(stream, url, ca_file).await?, url, signature, body).await
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    url: &WebhookUrl,
    signature: Option<String>,
    body: &Arc<[u8]>,
) -> Result<(), Undelivered> {
    let failed = |error: hyper::Error| format!("{url} did not answer: {error}");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    // The connection ends with the answer: nothing is kept open between attacks.
    let connection = tokio::spawn(connection);
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(&url.path)
        .header(header::HOST, url.authority())
        .header(header::USER_AGENT, format!("ratelimit/{BUILD}"))
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONNECTION, "close");
    if let Some(signature) = signature {
        request = request.header(SIGNATURE, signature);
    }
    let request = request
        .body(Full::new(Bytes::copy_from_slice(body)))
        .map_err(|_| format!("{url}: its path cannot be asked for"))?;
    let answer = sender.send_request(request).await.map_err(failed);
    connection.abort();
    let status = answer?.status();
    let refused = |why: String, is_final| Err(Undelivered { why, is_final });
    match status.as_u16() {
        200..=299 => Ok(()),
        300..=399 => {
            let why = "redirects are not followed, name the address itself";
            refused(format!("{url} answered {status}: {why}"), true)
        }
        // Too late, too early, too many: another time.
        408 | 425 | 429 | 500.. => refused(format!("{url} answered {status}"), false),
        _ => refused(format!("{url} answered {status}"), true),
    }
}

/// The secret of the moment, if there is one.
fn secret(file: Option<&Path>) -> Result<Option<String>, String> {
    let Some(file) = file else {
        return Ok(env::var(SECRET_VARIABLE).ok().filter(|secret| !secret.is_empty()));
    };
    let wrong = |why: &dyn std::fmt::Display| format!("secret_file {}: {why}", file.display());
    let mut text = String::new();
    let opened = File::open(file).map_err(|error| wrong(&error))?;
    opened.take(LONGEST_SECRET).read_to_string(&mut text).map_err(|error| wrong(&error))?;
    match text.lines().next().unwrap_or_default() {
        "" => Err(wrong(&"there is no secret in its first line")),
        line => Ok(Some(line.to_owned())),
    }
}

/// `sha256=` and the HMAC of the body in hexadecimal digits.
pub(super) fn signature(secret: &[u8], body: &[u8]) -> String {
    use std::fmt::Write as _;
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), body);
    tag.as_ref().iter().fold("sha256=".to_owned(), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}
