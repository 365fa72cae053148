//! Build information, as one metric with the value 1.

/// Labels of the `tierlab_build_info` metric.
#[derive(Debug)]
pub(crate) struct BuildInfo {
    pub(crate) version: &'static str,
    pub(crate) onnxruntime: String,
    pub(crate) providers: String,
    pub(crate) model_tier: String,
    pub(crate) feature_tier: String,
    pub(crate) feature_location: String,
    pub(crate) feature_notes: String,
}

impl BuildInfo {
    pub(super) const LABELS: [&'static str; 7] = [
        "version",
        "onnxruntime",
        "providers",
        "model_tier",
        "feature_tier",
        "feature_location",
        "feature_notes",
    ];

    /// The labels' values, in the order of [`BuildInfo::LABELS`].
    pub(super) fn values(&self) -> [&str; 7] {
        [
            self.version,
            &self.onnxruntime,
            &self.providers,
            &self.model_tier,
            &self.feature_tier,
            &self.feature_location,
            &self.feature_notes,
        ]
    }
}
