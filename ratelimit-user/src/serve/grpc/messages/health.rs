//! Messages of the package `grpc.health.v1`.

use prost::Message;

/// The message `grpc.health.v1.HealthCheckRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct HealthCheckRequest {
    /// A service by its full name; empty for all.
    #[prost(string, tag = "1")]
    pub service: String,
}

/// The message `grpc.health.v1.HealthCheckResponse`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct HealthCheckResponse {
    /// How the service is.
    #[prost(enumeration = "ServingStatus", tag = "1")]
    pub status: i32,
}

/// The enumeration `grpc.health.v1.HealthCheckResponse.ServingStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum ServingStatus {
    /// The state of the service is not said.
    Unknown = 0,
    /// The service answers.
    Serving = 1,
    /// The service does not answer.
    NotServing = 2,
    /// There is no service of that name; only watchers are told so.
    ServiceUnknown = 3,
}
