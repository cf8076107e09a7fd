//! `envoy.service.rate_limit_quota.v3`, and the strategies of `envoy.type.v3` that it assigns.

use std::collections::BTreeMap;

use prost::Message;

use super::{Duration, NumberMessage};

/// The message `RateLimitQuotaUsageReports`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct UsageReports {
    /// The application, in the first report.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// The use of each bucket.
    #[prost(message, repeated, tag = "2")]
    pub bucket_quota_usages: Vec<BucketUsage>,
}

/// The message `RateLimitQuotaUsageReports.BucketQuotaUsage`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BucketUsage {
    /// The bucket.
    #[prost(message, optional, tag = "1")]
    pub bucket_id: Option<BucketId>,
    /// The time since the last report.
    #[prost(message, optional, tag = "2")]
    pub time_elapsed: Option<Duration>,
    /// Requests that passed.
    #[prost(uint64, tag = "3")]
    pub num_requests_allowed: u64,
    /// Requests that were refused.
    #[prost(uint64, tag = "4")]
    pub num_requests_denied: u64,
}

/// The message `BucketId`. The order of names means nothing, so names are kept in one order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Message)]
pub struct BucketId {
    /// Names and values, as in a descriptor. Callers choose values, so a value that is no text is no reason to end a stream.
    #[prost(btree_map = "string, bytes", tag = "1")]
    pub bucket: BTreeMap<String, Vec<u8>>,
}

/// The message `RateLimitQuotaResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct QuotaResponse {
    /// What proxies are to do from now on.
    #[prost(message, repeated, tag = "1")]
    pub bucket_action: Vec<BucketAction>,
}

/// The message `RateLimitQuotaResponse.BucketAction`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BucketAction {
    /// The bucket.
    #[prost(message, optional, tag = "1")]
    pub bucket_id: Option<BucketId>,
    /// What Envoy is to do with the bucket.
    #[prost(oneof = "Action", tags = "2, 3")]
    pub bucket_action: Option<Action>,
}

/// What a proxy is to do with a bucket.
#[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
pub enum Action {
    /// Envoy is to decide by this assignment.
    #[prost(message, tag = "2")]
    Assign(QuotaAssignment),
    /// Envoy is to forget the bucket.
    #[prost(message, tag = "3")]
    Abandon(Abandon),
}

/// The message `RateLimitQuotaResponse.BucketAction.QuotaAssignmentAction`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct QuotaAssignment {
    /// How long the assignment is good for.
    #[prost(message, optional, tag = "2")]
    pub assignment_time_to_live: Option<Duration>,
    /// How Envoy decides.
    #[prost(message, optional, tag = "3")]
    pub rate_limit_strategy: Option<Strategy>,
}

/// The message `RateLimitQuotaResponse.BucketAction.AbandonAction`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Abandon {}

/// The message `envoy.type.v3.RateLimitStrategy`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Strategy {
    /// The strategy, which is one of several.
    #[prost(oneof = "QuotaStrategy", tags = "1, 3")]
    pub strategy: Option<QuotaStrategy>,
}

/// How a proxy decides.
#[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
pub enum QuotaStrategy {
    /// All requests are treated alike.
    #[prost(enumeration = "Blanket", tag = "1")]
    BlanketRule(i32),
    /// Each request takes a token from a bucket.
    #[prost(message, tag = "3")]
    TokenBucket(TokenBucket),
}

/// The enumeration `envoy.type.v3.RateLimitStrategy.BlanketRule`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Blanket {
    /// Every request passes.
    AllowAll = 0,
    /// No request passes.
    DenyAll = 1,
}

/// The message `envoy.type.v3.TokenBucket`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct TokenBucket {
    /// The tokens that the bucket holds when it is full, as it is at first.
    #[prost(uint32, tag = "1")]
    pub max_tokens: u32,
    /// The tokens that each fill adds.
    #[prost(message, optional, tag = "2")]
    pub tokens_per_fill: Option<NumberMessage>,
    /// How often tokens are added.
    #[prost(message, optional, tag = "3")]
    pub fill_interval: Option<Duration>,
}
