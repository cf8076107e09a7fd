//! The store that all hosts share: how it is reached, what is asked there, and what is answered.

pub mod ask;
pub mod backend;
pub mod breaker;
pub(crate) mod clock;
pub mod deadline;
pub mod exchange;
pub mod inquiry;
pub mod lease_batch;
pub mod record;
pub mod redis;
pub mod round_trip;
pub mod stretched_tick;
pub mod worker;

/// The store that addresses of the policy lead to: the one place that chooses a [`backend::Backend`]. With two kinds of address it would be a backend
/// that asks the address which of both it is.
pub type AddressedStore = redis::RedisLink;
