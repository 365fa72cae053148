//! Triton's statistics of a model, `GET /v2/models/M/stats`. In: the JSON of two readings. Out: the mean time of a
//! request between them, by part. Source: Triton's `extension_statistics.md`.

use serde_json::Value;

/// One reading: counts and nanoseconds since the model was loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Statistics {
    /// Number of good replies.
    pub requests: f64,
    /// Nanoseconds of all of them: queue, input, infer, output.
    pub parts_ns: [f64; 4],
}

/// Parts of `inference_stats`, in the order of [`Statistics::parts_ns`].
const PARTS: [&str; 4] = ["queue", "compute_input", "compute_infer", "compute_output"];

impl Statistics {
    /// Parses a document; `None` if it is invalid, or lacks the model.
    #[must_use]
    pub fn parse(model: &str, body: &[u8]) -> Option<Self> {
        let document: Value = serde_json::from_slice(body).ok()?;
        let versions = document.get("model_stats")?.as_array()?;
        let mut of_model = versions.iter().filter(|version| version["name"] == model).peekable();
        of_model.peek()?;
        let mut all = Self::default();
        for version in of_model {
            let counted = |part: &str, unit: &str| match &version["inference_stats"][part][unit] {
                Value::Null => Some(0),
                count => count.as_u64(),
            };
            all.requests += counted("success", "count")? as f64;
            for (sum, part) in all.parts_ns.iter_mut().zip(PARTS) {
                *sum += counted(part, "ns")? as f64;
            }
        }
        Some(all)
    }

    /// Adds the counts of another reading.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        for (sum, part) in self.parts_ns.iter_mut().zip(other.parts_ns) {
            *sum += part;
        }
    }

    /// Returns the difference to an earlier reading; `None` if a counter fell.
    #[must_use]
    pub fn since(&self, before: &Self) -> Option<Self> {
        let parts = std::array::from_fn(|at| self.parts_ns[at] - before.parts_ns[at]);
        let grown = Self {
            requests: self.requests - before.requests,
            parts_ns: parts,
        };
        (grown.requests >= 0.0 && grown.parts_ns.iter().all(|ns| *ns >= 0.0)).then_some(grown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(count: u32, queue_ns: u32) -> String {
        let counted = |ns| format!("{{\"count\":{count},\"ns\":{ns}}}");
        format!(
            "{{\"model_stats\":[{{\"name\":\"m\",\"version\":\"1\",\"last_inference\":1,\"inference_stats\":{{\"success\":{},\"queue\":{},\
             \"compute_infer\":{}}}}},{{\"name\":\"other\",\"inference_stats\":{{\"success\":{{\"count\":99,\"ns\":1}}}}}}]}}",
            counted(5),
            counted(queue_ns),
            counted(700)
        )
    }

    #[test]
    fn what_grew_between_two_readings_is_of_the_model() {
        let reading = |count, ns| Statistics::parse("m", text(count, ns).as_bytes()).unwrap();
        let grown = reading(15, 900).since(&reading(5, 100)).unwrap();
        assert_eq!(
            (grown.requests, grown.parts_ns[0], grown.parts_ns[2]),
            (10.0, 800.0, 0.0)
        );
        assert_eq!(reading(5, 100).since(&reading(15, 900)), None);
        assert_eq!(Statistics::parse("absent", text(1, 1).as_bytes()), None);
        assert_eq!(Statistics::parse("m", b"{}"), None);
    }

    proptest! {
        #[test]
        fn any_body_is_read_or_passed_over(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Statistics::parse("m", &body);
        }
    }
}
