//! Views as they are made, for whoever looks: the terminal, the dashboard, attack reports.

use std::{fmt, sync::Arc};

use tokio::sync::watch;

use super::view::StatsView;

/// The last view; `None` before the first.
pub type Views = watch::Receiver<Option<Arc<StatsView>>>;

/// A way to look. Views are made once a second while somebody holds what [`ViewFeed::look`] answers, and not otherwise.
#[derive(Clone)]
pub struct ViewFeed(Arc<dyn Fn() -> Views + Send + Sync>);

impl ViewFeed {
    /// A feed that begins to make views when it is asked.
    pub fn new(begin: impl Fn() -> Views + Send + Sync + 'static) -> Self {
        Self(Arc::new(begin))
    }

    /// Views from now on. The first that is there may be of before, and is marked as seen.
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
