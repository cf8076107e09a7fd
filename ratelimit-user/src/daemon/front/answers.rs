//! The daemon's answers to its front process. Nothing that the front sends is trusted.

use std::{
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{Mutex as AsyncMutex, Semaphore},
    time::Instant,
};

use super::named_files::NamedFiles;
use crate::{
    compile::lists::Prefix,
    control::protocol::{MOST_LISTED, Order, Reply},
    daemon::{
        line::message::{FileError, FrontAsks, HostAnswers, MetricsPage},
        orders::offenders::follow_offence,
        service::{Daemon, dashboard::HostCamera},
    },
    failure::{ExitCode, Failure},
    policy::{Policy, address::StoreAddress},
    requests::escalation::Offence,
    secret_file,
    stamp::Stamp,
    web::{gallery::Camera as _, order_queues::OrderQueues},
};

/// A camera that was not asked for a picture for this long is dropped, because packets are sampled as long as there is one.
const PUT_AWAY_AFTER: Duration = Duration::from_secs(3);

/// How many pages of metrics are made or wait for the front to read them. A page grows with what the front reports. A front shares one page among all scrapes
/// that wait for one, so it asks for the next one when it has read the last.
const METRICS_AT_A_TIME: usize = 1;

/// Answers questions of the front process, on the daemon's own runtime.
#[derive(Clone)]
pub(in crate::daemon) struct DaemonAnswers(Arc<AnswerSources>);

struct AnswerSources {
    daemon: Arc<Daemon>,
    runtime: Handle,
    /// Carries out orders and questions of the dashboard, one of each at a time.
    orders: OrderQueues,
    camera: AsyncMutex<Option<HostCamera>>,
    /// Places of the pages of metrics that wait for the front to read them.
    pages: Arc<Semaphore>,
    /// When a picture was last asked for.
    pictured: Mutex<Instant>,
    /// Files that the policy named when the sockets were bound.
    bound_with: NamedFiles,
    redis: Option<StoreAddress>,
}

impl fmt::Debug for DaemonAnswers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DaemonAnswers").finish_non_exhaustive()
    }
}

impl DaemonAnswers {
    /// Makes the answers of a daemon whose sockets were bound under this policy.
    pub(in crate::daemon) fn new(
        daemon: Arc<Daemon>,
        orders: OrderQueues,
        policy: &Policy,
        redis: Option<&StoreAddress>,
    ) -> Self {
        Self(Arc::new(AnswerSources {
            daemon,
            runtime: Handle::current(),
            orders,
            camera: AsyncMutex::default(),
            pages: Arc::new(Semaphore::new(METRICS_AT_A_TIME)),
            pictured: Mutex::new(Instant::now()),
            bound_with: NamedFiles::of(&policy.clone().moved_to(redis)),
            redis: redis.cloned(),
        }))
    }

    /// Answers a question.
    pub(super) async fn answer(self, question: FrontAsks) -> HostAnswers {
        let runtime = self.0.runtime.clone();
        // The runtime of a daemon that ends drops the task.
        runtime.spawn(self.answer_here(question)).await.unwrap_or(HostAnswers::Done)
    }

    async fn answer_here(self, question: FrontAsks) -> HostAnswers {
        match question {
            FrontAsks::Picture => HostAnswers::Picture(self.picture().await),
            FrontAsks::Metrics => {
                let place = Arc::clone(&self.0.pages).acquire_owned().await.ok();
                HostAnswers::Metrics(MetricsPage::new(self.0.daemon.metrics().await, place))
            }
            FrontAsks::Order { order, from, token } => {
                HostAnswers::Reply(Box::new(self.order(order, from, token).await))
            }
            FrontAsks::File(path) => HostAnswers::File(self.file(path).await),
            FrontAsks::Token { key, file } => {
                let may = self.named_files().has_token(&file);
                let refused = || format!("{key} {} is not what the policy names", file.display());
                HostAnswers::Token(if may { secret_file::token_here(&key, &file) } else { Err(refused()) })
            }
            FrontAsks::Stamps(paths) => {
                let named = self.named_files();
                let stamp = |path: &PathBuf| if named.has(path) { Stamp::of(path) } else { Stamp::NONE };
                HostAnswers::Stamps(paths.iter().map(stamp).collect())
            }
            FrontAsks::Offence { prefix, for_ns, reason } => {
                if let Some(prefix) = prefix.parse().ok().filter(is_a_callers) {
                    follow_offence(&mut self.0.daemon.host(), &Offence { prefix, for_ns, reason });
                }
                HostAnswers::Done
            }
        }
    }

    /// Whether the front may connect to this path: it is a socket of the store.
    pub(super) fn may_connect(&self, path: &Path) -> bool {
        self.named_files().has_socket(path)
    }

    /// Returns the files that the policy in force names, and those that the policy named when sockets were bound.
    fn named_files(&self) -> NamedFiles {
        let policy = self.0.daemon.host().policy().clone().moved_to(self.0.redis.as_ref());
        NamedFiles::of(&policy).and(self.0.bound_with.clone())
    }

    async fn file(&self, path: PathBuf) -> Result<String, FileError> {
        if !self.named_files().has_text(&path) {
            return Err(FileError { number: None, why: "the policy does not name this file".to_owned() });
        }
        let read = tokio::task::spawn_blocking(move || secret_file::read_here(&path)).await;
        let read = read.map_err(std::io::Error::other).flatten();
        read.map_err(|error| FileError { number: error.raw_os_error(), why: error.to_string() })
    }

    /// Takes the next picture for the dashboard.
    async fn picture(&self) -> Option<String> {
        let asked = Instant::now();
        *self.0.pictured.lock().unwrap_or_else(PoisonError::into_inner) = asked;
        let mut camera = self.0.camera.lock().await;
        let picture = camera.get_or_insert_with(|| HostCamera::new(&self.0.daemon)).take().await;
        drop(camera);
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            tokio::time::sleep(PUT_AWAY_AFTER).await;
            if *shared.pictured.lock().unwrap_or_else(PoisonError::into_inner) == asked {
                shared.camera.lock().await.take();
            }
        });
        picture.and_then(|picture| String::from_utf8(picture.to_vec()).ok())
    }

    /// Carries out an order of the dashboard: questions for everybody, changes only with the operator's token.
    async fn order(&self, order: Order, from: Option<IpAddr>, token: Option<String>) -> Reply {
        let refused = |why: &str| Reply::Failed(Failure::new(ExitCode::NotPermitted, why));
        match kind(&order) {
            OrderKind::Change if !self.is_operator(token.as_deref()) => {
                refused("changes need the operator's token")
            }
            OrderKind::Question | OrderKind::Change => {
                self.0.orders.hand_over(within_bounds(order), from, None).await
            }
            OrderKind::Other => refused("the dashboard cannot order this"),
        }
    }

    /// Whether this is the operator's token that is in its file now.
    fn is_operator(&self, token: Option<&str>) -> bool {
        let listen = self.0.daemon.host().policy().listen().clone();
        let read = |file: &Path| secret_file::token_here("operator_token_file", file).ok();
        let [right, of_programs] =
            [&listen.operator_token_file, &listen.token_file].map(|file| file.as_deref().and_then(read));
        match (token, right) {
            // Files change while the daemon runs. If both files have one token, which every program knows, it gives no right to change anything.
            (Some(_), Some(right)) if of_programs == Some(right) => false,
            (Some(given), Some(right)) => right.is_of(given.as_bytes()),
            _ => false,
        }
    }
}

/// Whether a prefix is narrow enough for one caller. Escalations never have wider ones, but a front that was taken over might send one.
fn is_a_callers(prefix: &Prefix) -> bool {
    prefix.len() >= if prefix.is_v4() { 24 } else { 48 }
}

/// Asks for no more than the dashboard shows: answers wait in memory for a front that does not read them.
fn within_bounds(order: Order) -> Order {
    match order {
        Order::Lists { most } => Order::Lists { most: most.min(MOST_LISTED) },
        order => order,
    }
}

/// The kind of an order, as far as the dashboard may give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OrderKind {
    /// The order reads.
    Question,
    /// The order changes the lists.
    Change,
    /// The order is not for the dashboard.
    Other,
}

fn kind(order: &Order) -> OrderKind {
    match order {
        Order::Explain { .. } | Order::AttackShow { .. } | Order::Lists { .. } | Order::History => {
            OrderKind::Question
        }
        // The dashboard must not force an order that cuts somebody off.
        Order::BlockAdd { operator, .. } | Order::AllowDel { operator, .. } if operator.force => {
            OrderKind::Other
        }
        order if order.changes_lists() => OrderKind::Change,
        _ => OrderKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::protocol::Operator;

    #[test]
    fn the_dashboard_asks_changes_with_a_token_and_orders_nothing_else() {
        let block = |force| Order::BlockAdd {
            prefix: "203.0.113.7".to_owned(),
            for_ns: None,
            reason: None,
            cluster: false,
            operator: Operator { force, ..Operator::default() },
        };
        assert_eq!(kind(&Order::Lists { most: 9 }), OrderKind::Question);
        assert_eq!(kind(&Order::History), OrderKind::Question);
        assert_eq!(
            [9, u32::MAX].map(|most| within_bounds(Order::Lists { most })),
            [9, MOST_LISTED].map(|most| Order::Lists { most })
        );
        assert_eq!((kind(&block(false)), kind(&block(true))), (OrderKind::Change, OrderKind::Other));
        for order in [
            Order::Rollback { operator: Operator::default() },
            Order::Confirm,
            Order::LimitList,
            Order::Status,
        ] {
            assert_eq!(kind(&order), OrderKind::Other, "{order:?}");
        }
    }

    #[test]
    fn what_the_front_gets_blocked_is_one_caller() {
        for (prefix, may) in [
            ("203.0.113.7/32", true),
            ("203.0.113.0/24", true),
            ("203.0.0.0/16", false),
            ("0.0.0.0/0", false),
            ("2001:db8:0:1::/64", true),
            ("2001:db8::/32", false),
        ] {
            assert_eq!(is_a_callers(&prefix.parse().unwrap()), may, "{prefix}");
        }
    }
}
