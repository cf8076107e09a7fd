//! `grpc.health.v1.Health`: any answer tells the caller that this server gives answers.

use std::{future::poll_fn, sync::Arc};

use bytes::Bytes;
use h2::server::SendResponse;

use super::{
    backlog::Backlog,
    framing::{self, decoded, framed},
    messages::health::{HealthCheckRequest, HealthCheckResponse, ServingStatus},
    reflection,
    status::{Code, GrpcStatus},
};

/// Answers the method `Check`.
pub fn check(message: Bytes) -> Result<Bytes, GrpcStatus> {
    let HealthCheckRequest { service } = decoded(message)?;
    if !is_known(&service) {
        let service: String = service.chars().take(200).collect();
        return Err(GrpcStatus::new(Code::NotFound, format!("there is no service {service:?}")));
    }
    Ok(framed(&HealthCheckResponse { status: ServingStatus::Serving.into() }))
}

/// Answers `Watch`. The state of a service does not change while the process lives, so there is one answer, and the stream lasts until the caller ends it.
pub async fn watch(message: Bytes, mut respond: SendResponse<Bytes>, backlog: Arc<Backlog>) {
    let status = match decoded::<HealthCheckRequest>(message) {
        Ok(request) if is_known(&request.service) => ServingStatus::Serving,
        Ok(_) => ServingStatus::ServiceUnknown,
        Err(status) => {
            let _gone = framing::refuse(&mut respond, &status, &backlog);
            return;
        }
    };
    let Ok(mut stream) = framing::begin(&mut respond) else { return };
    let answer = framed(&HealthCheckResponse { status: status.into() });
    if framing::send(&mut stream, answer, &backlog).await {
        let _reset = poll_fn(|cx| stream.poll_reset(cx)).await;
    }
}

fn is_known(service: &str) -> bool {
    service.is_empty() || reflection::services().iter().any(|known| known == service)
}
