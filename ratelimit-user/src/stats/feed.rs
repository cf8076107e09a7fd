//! Views for everything that displays traffic: the terminal, the dashboard, attack reports.

use std::{fmt, sync::Arc};

use tokio::sync::watch;

use super::view::StatsView;

/// A receiver of the latest view; `None` before the first one.
pub type Views = watch::Receiver<Option<Arc<StatsView>>>;

/// Makes views on demand: once a second while somebody holds a receiver from [`ViewFeed::look`], and not otherwise.
#[derive(Clone)]
pub struct ViewFeed(Arc<dyn Fn() -> Views + Send + Sync>);

impl ViewFeed {
    /// A feed that calls `begin` to start making views.
    pub fn new(begin: impl Fn() -> Views + Send + Sync + 'static) -> Self {
        Self(Arc::new(begin))
    }

    /// A receiver of views from now on. An older view that is there already is marked as seen.
    pub fn look(&self) -> Views {
        let mut views = (self.0)();
        views.mark_unchanged();
        views
    }
}

impl fmt::Debug for ViewFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViewFeed").finish_non_exhaustive()
    }
}
