//! Where listeners get metrics from: a daemon makes them, or a service that guards nothing.

use std::{fmt, pin::Pin, sync::Arc};

/// The metrics now, in Prometheus' text format, or a sentence about why not.
type MetricsText = Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;

/// A function that makes the metrics.
#[derive(Clone)]
pub struct MetricsSource(Arc<dyn Fn() -> MetricsText + Send + Sync>);

impl MetricsSource {
    /// A source that makes metrics whenever it is asked.
    pub fn new<F>(make: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<String, String>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(make())))
    }

    /// The metrics now.
    pub async fn metrics(&self) -> Result<String, String> {
        (self.0)().await
    }
}

impl fmt::Debug for MetricsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsSource").finish_non_exhaustive()
    }
}
