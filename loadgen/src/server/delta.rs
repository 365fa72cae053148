//! What a server counted over a step. In: two readings of `/metrics`. Out: their difference, as a [`ServerDelta`].

use super::gpu;
use super::scrape::Scrape;
use std::collections::BTreeMap;
use tierlab_analysis::record::ServerDelta;
use tierlab_protocol::metrics;

/// What a server counted for `model` between two readings. A counter that went down belongs to a server that
/// was started anew, and counts from zero.
#[must_use]
pub fn delta(before: &Scrape, after: &Scrape, model: &str) -> ServerDelta {
    delta_of(before, after, &[model])
}

/// The same for several models together, each named once.
#[must_use]
pub fn delta_of(before: &Scrape, after: &Scrape, models: &[&str]) -> ServerDelta {
    let between = |name: &str, labels: &[(&str, &str)]| {
        let (before, after) = (before.sum(name, labels), after.sum(name, labels));
        if after >= before { after - before } else { after }
    };
    let of_models = |name: &str| {
        models
            .iter()
            .map(|model| between(name, &[("model", model)]))
            .sum::<f64>()
    };
    let of_features: &[(&str, &str)] = &[("role", "feature")];
    let runs = of_models(&format!("{}_count", metrics::BATCH_ROWS));
    let rows = of_models(&format!("{}_sum", metrics::BATCH_ROWS));
    let mut session_seconds: BTreeMap<String, f64> = BTreeMap::new();
    for model in models {
        let of_model = &[("model", *model)];
        for state in after.label_values(metrics::SESSION_SECONDS, of_model, "state") {
            let labels = [("model", *model), ("state", state)];
            *session_seconds.entry(state.to_owned()).or_default() += between(metrics::SESSION_SECONDS, &labels);
        }
    }
    ServerDelta {
        inferences: of_models(metrics::INFERENCES),
        tier_requests: between(metrics::TIER_REQUESTS, of_features),
        tier_wire_bytes: between(metrics::TIER_WIRE_BYTES, of_features),
        tier_retries: between(metrics::TIER_RETRIES, of_features),
        cache_hits: between(metrics::CACHE_HITS, &[]),
        cache_misses: between(metrics::CACHE_MISSES, &[]),
        cache_capacity_bytes: after.sum(metrics::CACHE_CAPACITY_BYTES, &[]),
        session_seconds,
        mean_batch_rows: if runs > 0.0 { rows / runs } else { 0.0 },
        device_reads: gpu::device_reads(before, after),
        gpus: gpu::gpus(before, after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP tierlab_inferences_total Rows inferred\n# TYPE tierlab_inferences_total counter\n\
        tierlab_inferences_total{model=\"ctr\"} 10\n\
        tierlab_inferences_total{model=\"mlp\"} 99\n\
        tierlab_tier_requests_total{role=\"feature\",tier=\"s3\"} 4\n\
        tierlab_tier_requests_total{role=\"model\",tier=\"s3\"} 7\n\
        tierlab_session_seconds_total{model=\"ctr\",session=\"0\",state=\"compute\"} 1.5 1700000000\n\
        tierlab_batch_rows_sum{model=\"ctr\"} 10\ntierlab_batch_rows_count{model=\"ctr\"} 5\n\
        tierlab_batch_rows_bucket{model=\"ctr\",le=\"+Inf\"} 5\n";

    #[test]
    fn a_delta_counts_this_model_and_the_feature_role() {
        let after = Scrape::parse(
            &TEXT
                .replace("} 10", "} 30")
                .replace("_count{model=\"ctr\"} 5", "_count{model=\"ctr\"} 15"),
        )
        .unwrap();
        let delta = delta(&Scrape::parse(TEXT).unwrap(), &after, "ctr");
        assert_eq!(delta.inferences, 20.0);
        assert_eq!(delta.tier_requests, 0.0);
        assert_eq!(delta.mean_batch_rows, 2.0);
        assert_eq!(delta.session_seconds, BTreeMap::from([("compute".into(), 0.0)]));
        let fresh = super::delta(&Scrape::default(), &after, "ctr");
        assert_eq!(fresh.tier_requests, 4.0);
        assert_eq!(fresh.session_seconds["compute"], 1.5);
    }

    #[test]
    fn a_restarted_server_counts_from_zero() {
        let after = Scrape::parse(&TEXT.replace("} 10", "} 3")).unwrap();
        assert_eq!(delta(&Scrape::parse(TEXT).unwrap(), &after, "ctr").inferences, 3.0);
    }
}
