//! Where rows are read to, and what proves them there.

/// Where rows are read to, and what proves them there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowDestination {
    /// Host memory: each row is proven before it is used.
    Host,
    /// Device memory and nowhere else.
    Device {
        /// Of so many requests, one has its rows copied back and proven before they are used: 1 for all, 0 for none. Other
        /// than with 1, the whole table is proven when it is opened.
        prove_every: u32,
    },
}

impl RowDestination {
    /// Whether rows may be used that nothing has proven on their way, so that the table has to be proven as it lies.
    pub(super) fn trusts_the_table(self) -> bool {
        matches!(self, Self::Device { prove_every } if prove_every != 1)
    }

    /// Whether the rows of a request are to be proven, by its number.
    pub(super) fn proves(self, request: u64) -> bool {
        match self {
            Self::Host => true,
            Self::Device { prove_every } => prove_every != 0 && request.is_multiple_of(u64::from(prove_every)),
        }
    }

    /// What belongs beside every figure; none on the host, where every row is proven.
    pub(crate) fn note(self) -> Option<String> {
        let Self::Device { prove_every } = self else {
            return None;
        };
        Some(match prove_every {
            0 => "rows on the device: the table was proven when it was opened, no row on its way".to_owned(),
            1 => "rows on the device: each proven by a copy back".to_owned(),
            n => format!(
                "rows on the device: the table was proven when it was opened, and the rows of 1 request in {n} on their way"
            ),
        })
    }
}
