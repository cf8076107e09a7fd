//! Requests: every protocol of the decision service, real proxies in front of it, and hosts that count together.

mod cluster;
mod daemon;
mod dashboard;
mod drain;
mod front;
mod grpc;
mod http;
mod proxies;
mod resp;
mod script;
mod slow_readers;
