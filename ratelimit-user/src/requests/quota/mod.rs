//! Tokens that proxies are given ahead, to decide for themselves: what one proxy holds of a bucket, and what all proxies hold together.

pub mod proxy_quota;
mod quota_table;

pub use quota_table::{MAX_HELD, QuotaTable};
