//! `ratelimit serve`: only the decision service, without the packet path.

use std::{
    io::{self, Write as _},
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    thread,
};

use clap::Args;
use tokio::{net::TcpListener, runtime::Runtime};

use crate::{
    cluster::address::StoreAddress,
    config,
    failure::{ExitCode, Failure},
    log, metrics,
    serve::{
        desk::Desk,
        http::{self, Metrics},
        store::Store,
        workers::Sockets,
    },
};

/// Answer questions about requests, without guarding any interface; prints "ready" when listening.
///
/// For hosts that are no edge, for trying a policy, and where the kernel program cannot be loaded. Needs no rights; callers that stay above
/// their limits are not blocked in the kernel, and the policy needs no [source]. `ratelimit run` does this and guards interfaces as well.
///
/// Example: ratelimit serve --policy /etc/ratelimit.toml
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Policy file
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// The store that hosts share, instead of [cluster] redis in the policy: redis://, rediss://, redis+sentinel://, redis+cluster://
    #[arg(long, value_name = "URL")]
    redis: Option<StoreAddress>,
}

impl Serve {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let loaded =
            config::load_for_requests(&self.policy).map_err(|error| Failure::usage(error.to_string()))?;
        let sockets = Sockets::bind(loaded.policy.listen()).map_err(Failure::usage)?;
        if sockets.is_empty() {
            return Err(Failure::usage(
                "the policy names nowhere to listen; add [listen] with http, grpc or resp = \"127.0.0.1:8080\"",
            ));
        }
        let scrapers = loaded.policy.listen().metrics().map(Scrapers::bind).transpose()?;
        for api in loaded.policy.requests().apis.iter().filter(|api| api.escalation.is_some()) {
            log::warning(format!(
                "api {:?}: escalate does nothing here, only in ratelimit run, which guards interfaces",
                api.name
            ));
        }
        let policy = loaded.policy.moved_to(self.redis.as_ref());
        let store = Store::of(&policy, None).map_err(no_threads)?;
        let desk = Arc::new(Desk::with(&policy, store));
        if let Some(scrapers) = scrapers {
            scrapers.serve(&desk)?;
        }
        let threads = sockets.serve(&desk, &policy).map_err(no_threads)?;
        let mut out = io::stdout().lock();
        let _unread = writeln!(out, "ready").and_then(|()| out.flush());
        drop(out);
        for thread in threads {
            if thread.join().is_err() {
                return Err(Failure::new(ExitCode::Unsupported, "a thread that answers has ended"));
            }
        }
        Ok(())
    }
}

/// Whoever asks for metrics, in a thread of its own: it takes no time from those who ask for decisions.
struct Scrapers {
    runtime: Runtime,
    listener: TcpListener,
}

impl Scrapers {
    fn bind(address: SocketAddr) -> Result<Self, Failure> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_threads)?;
        let listener = runtime.block_on(http::bind(address)).map_err(Failure::usage)?;
        Ok(Self { runtime, listener })
    }

    fn serve(self, desk: &Arc<Desk>) -> Result<(), Failure> {
        let Self { runtime, listener } = self;
        let answer = http::serve(listener, Arc::clone(desk));
        let thread = thread::Builder::new().name("metrics".to_owned());
        thread.spawn(move || runtime.block_on(answer)).map(drop).map_err(no_threads)
    }
}

impl Metrics for Desk {
    async fn metrics(&self) -> Result<String, String> {
        metrics::render_requests(&self.status()).map_err(|error| error.to_string())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "what map_err hands over")]
fn no_threads(error: io::Error) -> Failure {
    Failure::new(ExitCode::Unsupported, format!("cannot start threads: {error}"))
}
