//! `grpc.health.v1.Health`: whoever gets an answer knows that this server gives them.

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

/// Answers `Watch`: nothing changes while the process lives, so one answer is all until the caller has enough.
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
