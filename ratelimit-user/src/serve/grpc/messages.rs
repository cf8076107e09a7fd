//! Messages as they are on the wire, with the numbers that their owners gave them. Text that is only read is kept as bytes of the frame it came
//! in: nothing is copied, and [`text`] checks whether it is text.

use bytes::Bytes;
use prost::Message;

use super::status::GrpcStatus;
use crate::requests::key::{named, plain};

pub mod health;
pub mod quota;
pub mod reflection;

/// The message `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Duration {
    /// The number of whole seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// The nanoseconds beside the whole seconds.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// `google.protobuf.UInt64Value` and, on the wire, `UInt32Value`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct NumberMessage {
    /// The wrapped number.
    #[prost(uint64, tag = "1")]
    pub value: u64,
}

/// The message `envoy.service.ratelimit.v3.RateLimitRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RateLimitRequest {
    /// The application that asks.
    #[prost(bytes = "bytes", tag = "1")]
    pub domain: Bytes,
    /// The descriptors that are to be counted, all or none.
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<Descriptor>,
    /// The units that each descriptor takes; 0 stands for 1.
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor`. Its `limit` is not read: the policy has the limits.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Descriptor {
    /// Names and values.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<DescriptorEntry>,
    /// The units that this descriptor takes.
    #[prost(message, optional, tag = "3")]
    pub hits_addend: Option<NumberMessage>,
}

/// The message `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DescriptorEntry {
    /// The name of the entry.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// The value of the entry.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// The message `envoy.service.ratelimit.v3.RateLimitResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RateLimitResponse {
    /// The verdict for all descriptors together.
    #[prost(enumeration = "LimitCode", tag = "1")]
    pub overall_code: i32,
    /// The answer to each descriptor.
    #[prost(message, repeated, tag = "2")]
    pub statuses: Vec<DescriptorStatus>,
    /// Fields to add to the answer that the client gets.
    #[prost(message, repeated, tag = "3")]
    pub response_headers_to_add: Vec<HeaderMessage>,
    /// Fields to add to the request on its way to the server.
    #[prost(message, repeated, tag = "4")]
    pub request_headers_to_add: Vec<HeaderMessage>,
    /// The body of the answer that the client gets, if its request is refused.
    #[prost(bytes = "bytes", tag = "5")]
    pub raw_body: Bytes,
}

/// The enumeration `envoy.service.ratelimit.v3.RateLimitResponse.Code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum LimitCode {
    /// The verdict is not said.
    Unknown = 0,
    /// The request is to be served.
    Ok = 1,
    /// The request is to be refused.
    OverLimit = 2,
}

/// The message `envoy.service.ratelimit.v3.RateLimitResponse.DescriptorStatus`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DescriptorStatus {
    /// The verdict for this descriptor.
    #[prost(enumeration = "LimitCode", tag = "1")]
    pub code: i32,
    /// The limit that decided, or that has least left.
    #[prost(message, optional, tag = "2")]
    pub current_limit: Option<RateLimit>,
    /// Units that are left of the limit.
    #[prost(uint32, tag = "3")]
    pub limit_remaining: u32,
    /// How long until the limit has its whole capacity again.
    #[prost(message, optional, tag = "4")]
    pub duration_until_reset: Option<Duration>,
}

/// The message `envoy.service.ratelimit.v3.RateLimitResponse.RateLimit`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RateLimit {
    /// How many requests there may be in the unit of time.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// The unit of time.
    #[prost(enumeration = "RateUnit", tag = "2")]
    pub unit: i32,
    /// Name of the limit.
    #[prost(bytes = "bytes", tag = "3")]
    pub name: Bytes,
}

/// The enumeration `envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum RateUnit {
    /// None of the units below.
    Unknown = 0,
    /// The limit is per second.
    Second = 1,
    /// The limit is per minute.
    Minute = 2,
    /// The limit is per hour.
    Hour = 3,
    /// The limit is per day.
    Day = 4,
    /// The limit is per month.
    Month = 5,
    /// The limit is per year.
    Year = 6,
}

/// The message `envoy.config.core.v3.HeaderValue`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct HeaderMessage {
    /// The name of the header field, in lower case.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// The value of the header field.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

impl Duration {
    /// Converts microseconds, without loss.
    pub fn from_us(us: u64) -> Self {
        Self { seconds: (us / 1_000_000) as i64, nanos: (us % 1_000_000 * 1_000) as i32 }
    }
}

impl HeaderMessage {
    /// A header field.
    pub fn new(key: &'static str, value: impl Into<Bytes>) -> Self {
        Self { key: Bytes::from_static(key.as_bytes()), value: value.into() }
    }
}

/// Makes text, for [`text`], of a value of any bytes. A value that is text already stays as it is.
pub fn readable(bytes: &mut Bytes) {
    if plain(bytes).is_none() {
        *bytes = Bytes::from(named(bytes).into_owned());
    }
}

/// Returns bytes as text. If they are no text, the error names `what`.
pub fn text<'m>(what: &str, bytes: &'m Bytes) -> Result<&'m str, GrpcStatus> {
    std::str::from_utf8(bytes).map_err(|_| GrpcStatus::invalid(format!("{what} is not UTF-8 text")))
}
