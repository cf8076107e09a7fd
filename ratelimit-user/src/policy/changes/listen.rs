//! Listeners in words.

use std::fmt;

use super::{Fields, followed, restarted};
use crate::policy::{Listen, ListenTls, NONE};

/// A running daemon keeps the sockets that it has; whom it believes about addresses follows the policy.
pub(super) fn of_listen(listen: &Listen) -> Fields {
    let metrics: Vec<_> = listen.metrics().into_iter().collect();
    let token_file: Vec<_> = listen.token_file.iter().map(|path| path.display()).collect();
    let operator_token_file: Vec<_> = listen.operator_token_file.iter().map(|path| path.display()).collect();
    let tls: Vec<_> = listen.tls.iter().map(certificates).collect();
    let socket_group: Vec<_> = listen.socket_rights.group.iter().collect();
    let mut fields = restarted([
        ("http", all(&listen.http)),
        ("grpc", all(&listen.grpc)),
        ("resp", all(&listen.resp)),
        ("metrics", all(&metrics)),
        ("token_file", all(&token_file)),
        ("operator_token_file", all(&operator_token_file)),
        ("tls", all(&tls)),
        ("socket_mode", format!("{:04o}", listen.socket_rights.mode)),
        ("socket_group", all(&socket_group)),
    ]);
    fields.extend(followed([
        ("trusted_proxies", all(&listen.trusted_proxies)),
        ("metrics_top", listen.metrics_top.to_string()),
    ]));
    fields
}

fn certificates(tls: &ListenTls) -> String {
    let of_callers =
        tls.client_ca.as_ref().map_or_else(String::new, |ca| format!(", client_ca {}", ca.display()));
    format!("certificate {}, key {}{of_callers}", tls.certificate.display(), tls.key.display())
}

/// All of them, in an order that does not depend on the file's.
fn all<T: fmt::Display>(things: &[T]) -> String {
    let mut words: Vec<String> = things.iter().map(ToString::to_string).collect();
    words.sort();
    if words.is_empty() { NONE.to_owned() } else { words.join(", ") }
}
