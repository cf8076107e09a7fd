//! One POST to a webhook: making it ready and sending it. Errors name the server but never the path, which is often a secret.

use std::{
    env,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::Duration,
};

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

use super::{
    posting::{Authorities, Post, Posted, Posting},
    tls,
    undelivered::Undelivered,
};
use crate::{build::BUILD, policy::WebhookUrl};

/// The environment variable with the secret of webhooks that have no `secret_file`.
pub(super) const SECRET_VARIABLE: &str = "RATELIMIT_NOTIFY_SECRET";
/// The header with the signature of the body.
const SIGNATURE: &str = "X-RateLimit-Signature";
/// Bytes of a secret file that are read at most.
const LONGEST_SECRET: u64 = 64 * 1024;
/// The largest size of a `ca_file` in bytes, larger than the list of all authorities that a system trusts.
const LONGEST_AUTHORITIES: u64 = 4 << 20;

/// Makes a message ready: reads its files, and signs its body.
pub(super) async fn prepare(
    url: &WebhookUrl,
    secret_file: Option<&Path>,
    ca_file: Option<&Path>,
    body: &[u8],
) -> Result<Posting, Undelivered> {
    // A disk that hangs must not hold up the messages of other notifiers.
    let (secret_file, ca_file) = (secret_file.map(Path::to_owned), ca_file.map(Path::to_owned));
    let read =
        move || Ok::<_, String>((secret(secret_file.as_deref())?, ca_file.map(authorities).transpose()?));
    let read = tokio::task::spawn_blocking(read);
    let (secret, authorities) = read.await.map_err(|error| format!("its files were not read: {error}"))??;
    Ok(Posting {
        url: url.clone(),
        signature: secret.map(|secret| signature(secret.as_bytes(), body)),
        authorities,
        body: String::from_utf8_lossy(body).into_owned(),
    })
}

impl Posting {
    /// Sends the message from this process, and waits for at most `patience` until the receiver has accepted it.
    pub async fn send(&self, patience: Duration) -> Result<(), Undelivered> {
        let late = || format!("{} did not answer within {} s", self.url, patience.as_secs_f64());
        tokio::time::timeout(patience, send(self)).await.unwrap_or_else(|_| Err(late().into()))
    }
}

/// Sends each message from the process that has made it.
#[derive(Clone, Copy, Debug)]
pub struct FromHere;

impl Post for FromHere {
    fn post(&self, posting: Posting, patience: Duration) -> Posted {
        Box::pin(async move { posting.send(patience).await })
    }
}

async fn send(posting: &Posting) -> Result<(), Undelivered> {
    let url = &posting.url;
    let stream = TcpStream::connect((url.host.as_str(), url.port))
        .await
        .map_err(|error| format!("cannot reach {url}: {error}"))?;
    if !url.tls {
        return exchange(stream, posting).await;
    }
    exchange(tls::greet(stream, url, posting.authorities.as_ref()).await?, posting).await
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Posting { url, signature, body, .. }: &Posting,
) -> Result<(), Undelivered> {
    let failed = |error: hyper::Error| format!("{url} did not answer: {error}");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    // The connection ends with the answer: none is kept open between attacks.
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
        .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
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
        // Request timeout, too early, too many requests, and errors of the server: a later attempt may succeed.
        408 | 425 | 429 | 500.. => refused(format!("{url} answered {status}"), false),
        _ => refused(format!("{url} answered {status}"), true),
    }
}

/// Reads the secret as it is now, from the file or the environment, if there is one.
fn secret(file: Option<&Path>) -> Result<Option<String>, String> {
    let Some(file) = file else {
        return Ok(env::var(SECRET_VARIABLE).ok().filter(|secret| !secret.is_empty()));
    };
    let wrong = |why: &dyn std::fmt::Display| format!("secret_file {}: {why}", file.display());
    let mut text = String::new();
    let opened = File::open(file).map_err(|error| wrong(&error))?;
    opened.take(LONGEST_SECRET + 1).read_to_string(&mut text).map_err(|error| wrong(&error))?;
    if text.len() as u64 > LONGEST_SECRET {
        return Err(wrong(&format!("it has more than {LONGEST_SECRET} bytes")));
    }
    match text.lines().next().unwrap_or_default() {
        "" => Err(wrong(&"there is no secret in its first line")),
        line => Ok(Some(line.to_owned())),
    }
}

/// Reads the certificates of authorities from a file.
fn authorities(file: PathBuf) -> Result<Authorities, String> {
    let mut text = String::new();
    let read = File::open(&file).and_then(|opened| match opened.metadata()?.len() {
        0..=LONGEST_AUTHORITIES => opened.take(LONGEST_AUTHORITIES).read_to_string(&mut text),
        _ => Err(io::Error::other(format!("it has more than {LONGEST_AUTHORITIES} bytes"))),
    });
    match read {
        Ok(_) => Ok(Authorities { file, text }),
        Err(error) => Err(format!("ca_file {}: {error}", file.display())),
    }
}

/// Returns `sha256=` and the HMAC of the body in hexadecimal digits.
pub(super) fn signature(secret: &[u8], body: &[u8]) -> String {
    use std::fmt::Write as _;
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), body);
    tag.as_ref().iter().fold("sha256=".to_owned(), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}
