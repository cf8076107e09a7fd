//! The edges that answer somebody: thin translations, no decisions.
//!
//! Operators ask on the `control` socket and Prometheus over `http`. Web servers and proxies ask about requests, in three protocols, and all
//! of them at one [`desk`]: [`check`] over HTTP, [`grpc`] and [`resp`], on the sockets and threads of [`workers`].

pub mod check;
mod complaints;
pub mod control;
pub mod credentials;
mod descriptors;
pub mod desk;
pub mod escalation;
mod feed;
pub mod grpc;
pub mod http;
mod latency;
pub mod listener;
pub mod places;
pub mod protocol;
mod renewals;
pub mod resp;
mod socket_file;
pub mod store;
mod tls;
mod together;
mod turns;
pub mod workers;
