//! A histogram of times that were counted elsewhere. The histogram of the crate takes times one by one.

use std::collections::HashMap;

use prometheus::{
    Error,
    core::{Collector, Desc},
    proto::{Bucket, Histogram, Metric, MetricFamily, MetricType},
};

use crate::requests::status::DecisionTimes;

const PER_SECOND: f64 = 1e6;

/// A histogram with given counts.
pub(super) struct Times {
    desc: Desc,
    histogram: Histogram,
}

impl Times {
    pub(super) fn new(name: &str, help: &str, times: &DecisionTimes) -> Result<Self, Error> {
        let desc = Desc::new(name.to_owned(), help.to_owned(), Vec::new(), HashMap::new())?;
        let mut histogram = Histogram::default();
        let (mut so_far, mut buckets) = (0, Vec::new());
        for count in &times.counts {
            so_far += count.decisions;
            // The text format adds the bucket for all times by itself.
            if let Some(at_most_us) = count.at_most_us {
                let mut bucket = Bucket::default();
                bucket.set_upper_bound(at_most_us as f64 / PER_SECOND);
                bucket.set_cumulative_count(so_far);
                buckets.push(bucket);
            }
        }
        histogram.set_bucket(buckets);
        histogram.set_sample_count(so_far);
        histogram.set_sample_sum(times.total_us as f64 / PER_SECOND);
        Ok(Self { desc, histogram })
    }
}

impl Collector for Times {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let (mut metric, mut family) = (Metric::default(), MetricFamily::default());
        metric.set_histogram(self.histogram.clone());
        family.set_name(self.desc.fq_name.clone());
        family.set_help(self.desc.help.clone());
        family.set_field_type(MetricType::HISTOGRAM);
        family.set_metric(vec![metric]);
        vec![family]
    }
}
