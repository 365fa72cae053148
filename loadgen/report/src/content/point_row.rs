//! A point as a row of a table: who it is in words, and its figures.

use super::words;
use crate::units::{NONE, percent, rate};
use tierlab_analysis::record::{Point, Run, Summary, Verdict};

/// A tier by name, and what stands behind it.
#[derive(Debug, Clone)]
pub(crate) struct Tier {
    /// As the run names it.
    pub(crate) name: String,
    /// As printed where nothing else says that it is emulated.
    pub(crate) printed: String,
    /// Its number among those of the run.
    pub(crate) number: usize,
    /// What stands behind it where that is not the real thing.
    pub(crate) origin: Option<Origin>,
}

/// What stands behind a tier that is not the real thing.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    /// `emulated` or `embedded`.
    pub(crate) kind: &'static str,
    /// The profile that an emulated variant follows; absent where only its kind is known.
    pub(crate) profile: Option<String>,
    /// All that is known of it.
    pub(crate) says: String,
}

impl Tier {
    /// A tier or variant of a run, by its label.
    pub(crate) fn of(run: &Run, name: &str) -> Self {
        let says = words::origin_text(run, name);
        let kind = if words::is_emulated(run, name) {
            Some("emulated")
        } else {
            says.contains("embedded").then_some("embedded")
        };
        Self {
            name: name.to_owned(),
            printed: words::tier(run, name),
            number: words::tiers(run).iter().position(|tier| *tier == name).unwrap_or(0),
            origin: kind.map(|kind| Origin {
                kind,
                profile: words::variant(run, name).and_then(|variant| variant.emulated.clone()),
                says: says.clone().into_owned(),
            }),
        }
    }

    /// The name with its label: `s3-express (emulated s3-express-2025)`, `nfs (embedded)`.
    pub(crate) fn labelled(&self) -> String {
        match &self.origin {
            Some(origin) => format!("{} ({})", self.name, origin.label()),
            None => self.name.clone(),
        }
    }
}

impl Origin {
    /// `emulated s3-express-2025`, `embedded`.
    pub(crate) fn label(&self) -> String {
        match &self.profile {
            Some(profile) => format!("{} {profile}", self.kind),
            None => self.kind.to_owned(),
        }
    }
}

/// A point as a row.
pub(crate) struct PointRow<'a> {
    /// Its full name within the run.
    pub(crate) name: String,
    /// Its tier.
    pub(crate) tier: Tier,
    /// Its cache state with its size.
    pub(crate) cache: String,
    /// Requests offered per second.
    pub(crate) offered: String,
    /// Its figures; absent where it was not summarised.
    pub(crate) figures: Option<Figures<'a>>,
}

/// The figures of a row: numbers with their intervals, which every renderer writes in its own way.
pub(crate) struct Figures<'a> {
    /// All of them.
    pub(crate) summary: &'a Summary,
    /// The verdict in one word.
    pub(crate) verdict: &'static str,
    /// What the verdict rests on; empty for a valid point.
    pub(crate) reasons: &'a [String],
}

/// True if any of the points has a goodput: runs without an objective have none.
pub(crate) fn has_goodput<'a>(points: impl IntoIterator<Item = &'a PointRow<'a>>) -> bool {
    let mut figures = points.into_iter().filter_map(|point| point.figures.as_ref());
    figures.any(|figures| figures.summary.goodput_rps.is_some())
}

impl Figures<'_> {
    /// Goodput per second and its share of the requests: `196 (98 %)`.
    pub(crate) fn goodput(&self) -> String {
        match (self.summary.goodput_rps, self.summary.goodput_share) {
            (Some(rps), Some(share)) => format!("{} ({})", rate(rps.value), percent(share)),
            _ => NONE.to_owned(),
        }
    }
}

impl<'a> PointRow<'a> {
    /// A point of a run.
    pub(crate) fn of(run: &Run, point: &'a Point) -> Self {
        let factors = &point.factors;
        Self {
            name: words::name(run, factors),
            tier: Tier::of(run, factors.label()),
            cache: words::cache(factors),
            offered: rate(factors.offered_rps),
            figures: point.summary.as_ref().map(|summary| Figures {
                summary,
                verdict: words::verdict(&summary.verdict),
                reasons: match &summary.verdict {
                    Verdict::Valid => &[],
                    Verdict::Saturated(reasons) | Verdict::Invalid(reasons) => reasons,
                },
            }),
        }
    }
}
