//! Labels of requests in metrics and spans.

/// Real-time requests infer one row, batch requests several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Realtime,
    Batch,
}

impl Mode {
    pub(crate) const fn of_rows(rows: usize) -> Self {
        if rows == 1 { Self::Realtime } else { Self::Batch }
    }

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Realtime => "realtime",
            Self::Batch => "batch",
        }
    }
}

/// The protocol by which a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Front {
    Http,
    Grpc,
}

impl Front {
    pub(super) const ALL: [Self; 2] = [Self::Http, Self::Grpc];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Grpc => "grpc",
        }
    }
}

/// Point where a request waits and its client may cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitPoint {
    /// Its body is arriving.
    Body,
    /// Its rows are being read.
    Tier,
    /// Queued, or in a run that continues without it.
    Batch,
}

impl WaitPoint {
    /// Every point.
    pub(crate) const ALL: [Self; 3] = [Self::Body, Self::Tier, Self::Batch];

    /// The name in metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Body => "body",
            Self::Tier => "tier",
            Self::Batch => "batch",
        }
    }
}
