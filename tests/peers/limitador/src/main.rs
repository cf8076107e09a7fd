//! Limitador as an Envoy rate limit service, in memory.
//!
//! `limitador-server` is not on the registry; its library is. This does with it what that server does with a call (its
//! `envoy_rls/server.rs`): the same binding of descriptors, the same function, the same gRPC library, one thread. It leaves out
//! tracing and metrics, which makes it faster than the original, not slower.

use std::{
    collections::HashMap,
    convert::Infallible,
    env,
    error::Error,
    future::{Ready, ready},
    pin::Pin,
    sync::Arc,
    task::{self, Poll},
};

use limitador::{
    RateLimiter,
    limit::{Context, Limit},
};
use tonic::{
    Request, Response, Status,
    body::Body,
    codegen::{Service, http},
    server::{Grpc, NamedService, UnaryService},
    transport::Server,
};
use tonic_prost::ProstCodec;

/// As many counters as the server keeps by default on a machine with a few gigabytes.
const CACHE_SIZE: u64 = 1_000_000;
/// Never reached: everybody who is compared answers requests that conform.
const REQUESTS_PER_MINUTE: u64 = 1_000_000_000;
const OK: i32 = 1;
const OVER_LIMIT: i32 = 2;

#[derive(Clone, PartialEq, prost::Message)]
struct Question {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<Descriptor>,
    #[prost(uint32, tag = "3")]
    hits_addend: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<Entry>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Entry {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Answer {
    #[prost(int32, tag = "1")]
    overall_code: i32,
}

#[derive(Clone)]
struct Limiter(Arc<RateLimiter>);

impl Limiter {
    fn answer(&self, question: Question) -> Result<Response<Answer>, Status> {
        let values = question
            .descriptors
            .into_iter()
            .map(|descriptor| descriptor.entries.into_iter().map(|e| (e.key, e.value)).collect())
            .collect::<Vec<HashMap<String, String>>>();
        let mut context = Context::default();
        context.list_binding("descriptors".to_owned(), values);
        let hits = u64::from(question.hits_addend.max(1));
        let checked = self
            .0
            .check_rate_limited_and_update(&question.domain.into(), &context, hits)
            .map_err(|_| Status::unavailable("Service unavailable"))?;
        Ok(Response::new(Answer { overall_code: if checked.limited { OVER_LIMIT } else { OK } }))
    }
}

impl UnaryService<Question> for Limiter {
    type Response = Answer;
    type Future = Ready<Result<Response<Answer>, Status>>;

    fn call(&mut self, request: Request<Question>) -> Self::Future {
        ready(self.answer(request.into_inner()))
    }
}

impl NamedService for Limiter {
    const NAME: &'static str = "envoy.service.ratelimit.v3.RateLimitService";
}

impl Service<http::Request<Body>> for Limiter {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let limiter = self.clone();
        Box::pin(async move { Ok(Grpc::new(ProstCodec::default()).unary(limiter, request).await) })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = env::args().nth(1).ok_or("which address? limitador-rls ADDRESS:PORT")?.parse()?;
    let limiter = RateLimiter::new(CACHE_SIZE);
    let of_user = ["descriptors[0].user".try_into()?];
    limiter.add_limit(Limit::new("bench", REQUESTS_PER_MINUTE, 60, [], of_user));
    let server = Server::builder().add_service(Limiter(Arc::new(limiter)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(server.serve(address))?)
}
