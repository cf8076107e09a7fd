//! The edges that answer somebody: thin translations, no decisions.
//!
//! Prometheus asks over `http`. Web servers and proxies ask about requests, in three protocols: [`check`] over HTTP, [`grpc`] and [`resp`], on the
//! sockets and threads of [`workers`]. All of them ask the one [`crate::requests::decision_service`].

pub mod check;
pub mod credentials;
mod dealer;
pub(crate) mod descriptors;
pub mod door;
pub mod drain;
pub mod grpc;
pub mod http;
pub mod listener;
pub mod protocol;
pub mod resp;
mod socket_file;
mod tls;
pub mod workers;
