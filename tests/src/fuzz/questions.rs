//! Questions of web servers and proxies.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use ratelimit_user::{
    config,
    requests::decision_service::DecisionService,
    serve::{
        check,
        grpc::{
            descriptor, framing, health,
            messages::{RateLimitRequest, readable},
            reflection, rlqs,
        },
    },
};

use super::replies::at_once;

/// A query, lines of header fields, an empty line and a body: each is a question or answered with a sentence.
pub(super) fn http(bytes: &[u8]) {
    let (head, body) = match bytes.windows(2).position(|pair| pair == b"\n\n") {
        Some(at) => (&bytes[..at], &bytes[at + 2..]),
        None => (bytes, &[][..]),
    };
    let mut lines = head.split(|byte| *byte == b'\n');
    let query = std::str::from_utf8(lines.next().unwrap_or_default()).ok();
    let mut headers = HeaderMap::new();
    for line in lines {
        let Some(at) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..at]);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(&line[at + 1..])) {
            headers.append(name, value);
        }
    }
    for trouble in check::read_any_question(query, &headers, body) {
        assert!(!trouble.is_empty(), "refused without a sentence");
    }
}

/// A message of Envoy's is read or answered with a sentence, and so is each of its descriptors.
pub(super) fn grpc(bytes: &[u8]) {
    let message = Bytes::copy_from_slice(bytes);
    let _maybe_refused = health::check(message.clone());
    let _maybe_refused = reflection::answer_any(message.clone());
    reports(&message);
    let Ok(mut request) = framing::decoded::<RateLimitRequest>(message) else { return };
    readable(&mut request.domain);
    let Ok(domain) = std::str::from_utf8(&request.domain) else { return };
    for one in &request.descriptors {
        let entries = one.entries.iter().map(|entry| (&entry.key, &entry.value));
        match descriptor::DescriptorQuery::read(domain, entries, 1, false) {
            Ok(question) => assert!(question.request().parts.len() <= one.entries.len()),
            Err(status) => assert!(!format!("{status:?}").is_empty()),
        }
    }
}

/// Where quotas are asked for.
static DECISIONS: LazyLock<Arc<DecisionService>> = LazyLock::new(|| {
    let text = "[source]\nlimits = [\"1/s\"]\n[requests]\nkeys = 1000\n[[api]]\nname = \"*\"\nlimits = [\"100/min\"]\n";
    Arc::new(DecisionService::new(&config::parse(text, "p.toml").expect("a policy").policy))
});

/// Reports of a proxy about its quotas, one in each half and both together, are answered or end the stream.
fn reports(message: &Bytes) {
    let half = message.len() / 2;
    for messages in [vec![message.clone()], vec![message.slice(..half), message.slice(half..)]] {
        let count = messages.len();
        let answered = at_once(rlqs::answer_any(&DECISIONS, messages.into_iter()));
        assert!(answered <= count);
    }
}
