//! `grpc.health.v1`.

use prost::Message;

/// `grpc.health.v1.HealthCheckRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct HealthCheckRequest {
    /// A service by its full name; empty for all.
    #[prost(string, tag = "1")]
    pub service: String,
}

/// `grpc.health.v1.HealthCheckResponse`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct HealthCheckResponse {
    /// How it is.
    #[prost(enumeration = "ServingStatus", tag = "1")]
    pub status: i32,
}

/// `grpc.health.v1.HealthCheckResponse.ServingStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum ServingStatus {
    /// Not said.
    Unknown = 0,
    /// It answers.
    Serving = 1,
    /// It does not.
    NotServing = 2,
    /// Nobody by that name; for watchers only.
    ServiceUnknown = 3,
}
