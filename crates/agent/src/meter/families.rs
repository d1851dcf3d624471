//! Building what Prometheus' text format is encoded from.

use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram as ProtoHistogram, LabelPair, Metric, MetricFamily,
    MetricType,
};

use super::histogram::Histogram;

/// Names and values of labels.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// Metrics in the order in which they are added; a family without any is left out.
#[derive(Default)]
pub(super) struct Families {
    made: Vec<MetricFamily>,
}

/// One family that is being filled.
pub(super) struct Family<'a> {
    families: &'a mut Families,
    kind: MetricType,
    name: String,
    help: String,
    metrics: Vec<Metric>,
}

impl Families {
    pub(super) fn gauge(&mut self, name: &str, help: &str) -> Family<'_> {
        self.family(MetricType::GAUGE, name, help)
    }

    /// `name` without `_total`.
    pub(super) fn counter(&mut self, name: &str, help: &str) -> Family<'_> {
        self.family(MetricType::COUNTER, &format!("{name}_total"), help)
    }

    pub(super) fn histogram(&mut self, name: &str, help: &str) -> Family<'_> {
        self.family(MetricType::HISTOGRAM, name, help)
    }

    pub(super) fn made(self) -> Vec<MetricFamily> {
        self.made
    }

    fn family(&mut self, kind: MetricType, name: &str, help: &str) -> Family<'_> {
        Family {
            families: self,
            kind,
            name: format!("sluicegate_{name}"),
            help: help.to_owned(),
            metrics: Vec::new(),
        }
    }
}

impl Family<'_> {
    /// A value of a gauge or a counter.
    pub(super) fn value(&mut self, labels: Labels<'_>, value: f64) -> &mut Self {
        let mut metric = labelled(labels);
        if self.kind == MetricType::COUNTER {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        self.metrics.push(metric);
        self
    }

    pub(super) fn distribution(&mut self, labels: Labels<'_>, from: &Histogram) -> &mut Self {
        let mut histogram = ProtoHistogram::default();
        histogram.set_sample_count(from.count());
        histogram.set_sample_sum(from.sum());
        let buckets = from.cumulative().map(|(bound, count)| {
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(bound);
            bucket.set_cumulative_count(count);
            bucket
        });
        histogram.set_bucket(buckets.collect());
        let mut metric = labelled(labels);
        metric.set_histogram(histogram);
        self.metrics.push(metric);
        self
    }
}

impl Drop for Family<'_> {
    fn drop(&mut self) {
        if self.metrics.is_empty() {
            return;
        }
        let mut family = MetricFamily::default();
        family.set_name(std::mem::take(&mut self.name));
        family.set_help(std::mem::take(&mut self.help));
        family.set_field_type(self.kind);
        family.set_metric(std::mem::take(&mut self.metrics));
        self.families.made.push(family);
    }
}

fn labelled(labels: Labels<'_>) -> Metric {
    let pairs = labels.iter().map(|(name, value)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    });
    Metric::from_label(pairs.collect())
}
