//! The engine inside a Rust service: a tower layer that answers 429 before the service is called.
//!
//! ```text
//! cargo run -p ratelimit-user --example tower
//! ```
//!
//! No daemon, no socket: a decision is a function call. With `DecisionService::with(policy, Store::of(&policy, None)?)` instead of `DecisionService::new` the limits hold on all
//! hosts together.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use hyper::{Request, Response, StatusCode, header::RETRY_AFTER};
use ratelimit_user::{
    config,
    requests::{Outcome, Request as Question, asking::Asking, decision_service::DecisionService},
};
use tower_layer::Layer;
use tower_service::Service;

/// Puts limits in front of a service.
#[derive(Clone, Debug)]
struct RateLimit {
    decisions: Arc<DecisionService>,
    api: &'static str,
}

/// A service behind limits.
#[derive(Clone, Debug)]
struct Limited<S> {
    inner: S,
    limit: RateLimit,
}

impl<S> Layer<S> for RateLimit {
    type Service = Limited<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Limited { inner, limit: self.clone() }
    }
}

impl<S, B> Service<Request<B>> for Limited<S>
where
    S: Service<Request<B>, Response = Response<String>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = Response<String>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut inner, limit) = (self.inner.clone(), self.limit.clone());
        Box::pin(async move {
            // A service knows its users from their sessions; a header stands for that here.
            let user =
                request.headers().get("x-user").and_then(|value| value.to_str().ok()).unwrap_or("nobody");
            let question = Question::new(user, limit.api);
            let outcome =
                limit.decisions.check(&question, Asking::Counted, |decision| decision.outcome).await;
            match outcome {
                Ok(Outcome::Refused { retry_us }) => Ok(refusal(retry_us)),
                Ok(Outcome::Delayed { wait_us }) => {
                    tokio::time::sleep(Duration::from_micros(wait_us)).await;
                    inner.call(request).await
                }
                // A question that the policy has no answer to is the service's mistake, not its caller's.
                Ok(_) | Err(_) => inner.call(request).await,
            }
        })
    }
}

fn refusal(retry_us: Option<u64>) -> Response<String> {
    let mut response = Response::new("too many requests\n".to_owned());
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    if let Some(seconds) = retry_us.map(|us| us.div_ceil(1_000_000).max(1)) {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// The service itself.
#[derive(Clone, Debug)]
struct Hello;

impl<B> Service<Request<B>> for Hello {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        std::future::ready(Ok(Response::new("hello\n".to_owned())))
    }
}

const POLICY: &str = r#"
[source]
limits = ["1000 packets/s"]
[[api]]
name = "hello"
limits = ["3/min"]
algorithm = "sliding-window"
"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let policy = config::parse(POLICY, "the example's policy")?.policy;
    let limits = RateLimit { decisions: Arc::new(DecisionService::new(&policy)), api: "hello" };
    let mut service = limits.layer(Hello);
    for n in 1..=5 {
        let request = Request::builder().header("x-user", "alice").body(())?;
        let response = service.call(request).await?;
        println!("{n}: {} {:?}", response.status(), response.headers().get(RETRY_AFTER));
    }
    Ok(())
}
