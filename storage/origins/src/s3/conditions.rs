//! Conditional requests. In: the conditions of a request and the stored object. Out: permission to go on.

use super::folder::{Condition, Stored};
use s3s::dto::{ETagCondition, Timestamp};
use s3s::{S3Result, s3_error};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The conditions of a GET or HEAD.
pub(super) struct ReadConditions {
    pub(super) matches: Option<ETagCondition>,
    pub(super) none_match: Option<ETagCondition>,
    pub(super) modified_since: Option<Timestamp>,
    pub(super) unmodified_since: Option<Timestamp>,
}

impl ReadConditions {
    /// In the order of RFC 9110, section 13.2.2.
    pub(super) fn check(&self, stored: &Stored) -> S3Result<()> {
        let names = |condition: &ETagCondition| match condition {
            ETagCondition::Any => true,
            ETagCondition::ETag(tag) => tag.value() == stored.version,
        };
        let modified = Timestamp::from(whole_seconds(stored.modified));
        let precondition = match (&self.matches, &self.unmodified_since) {
            (Some(condition), _) => names(condition),
            (None, Some(since)) => modified <= *since,
            (None, None) => true,
        };
        if !precondition {
            return Err(s3_error!(PreconditionFailed, "the object is another version"));
        }
        let unchanged = match (&self.none_match, &self.modified_since) {
            (Some(condition), _) => names(condition),
            (None, Some(since)) => modified <= *since,
            (None, None) => false,
        };
        if unchanged { Err(s3_error!(NotModified)) } else { Ok(()) }
    }
}

/// HTTP dates have no fractions.
fn whole_seconds(time: SystemTime) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
}

/// The condition of a write.
pub(super) fn write_condition(
    matches: Option<&ETagCondition>,
    none_match: Option<&ETagCondition>,
) -> S3Result<Condition> {
    match (matches, none_match) {
        (None, None) => Ok(Condition::Always),
        (None, Some(ETagCondition::Any)) => Ok(Condition::Absent),
        (Some(ETagCondition::Any), None) => Ok(Condition::Matches(None)),
        (Some(ETagCondition::ETag(tag)), None) => Ok(Condition::Matches(Some(tag.value().to_owned()))),
        _ => Err(s3_error!(NotImplemented, "this pair of conditions on a write")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use s3s::S3ErrorCode;
    use s3s::dto::ETag;

    fn stored() -> Stored {
        Stored {
            size: 10,
            modified: UNIX_EPOCH + Duration::from_millis(5_500),
            version: "v-1".to_owned(),
        }
    }

    fn conditions() -> ReadConditions {
        ReadConditions {
            matches: None,
            none_match: None,
            modified_since: None,
            unmodified_since: None,
        }
    }

    fn tag(value: &str) -> Option<ETagCondition> {
        Some(ETagCondition::ETag(ETag::Strong(value.to_owned())))
    }

    fn at(seconds: u64) -> Option<Timestamp> {
        Some((UNIX_EPOCH + Duration::from_secs(seconds)).into())
    }

    #[test]
    fn conditions_follow_the_rfc() {
        let code = |conditions: ReadConditions| conditions.check(&stored()).err().map(|e| e.code().clone());
        assert_eq!(code(conditions()), None);
        assert_eq!(
            code(ReadConditions {
                matches: tag("v-1"),
                ..conditions()
            }),
            None
        );
        assert_eq!(
            code(ReadConditions {
                matches: tag("v-2"),
                ..conditions()
            }),
            Some(S3ErrorCode::PreconditionFailed)
        );
        assert_eq!(
            code(ReadConditions {
                none_match: tag("v-1"),
                ..conditions()
            }),
            Some(S3ErrorCode::NotModified)
        );
        // The date of the last modification has no fraction, so it counts as unmodified since itself.
        assert_eq!(
            code(ReadConditions {
                unmodified_since: at(5),
                ..conditions()
            }),
            None
        );
        assert_eq!(
            code(ReadConditions {
                unmodified_since: at(4),
                ..conditions()
            }),
            Some(S3ErrorCode::PreconditionFailed)
        );
        assert_eq!(
            code(ReadConditions {
                modified_since: at(5),
                ..conditions()
            }),
            Some(S3ErrorCode::NotModified)
        );
        assert_eq!(
            code(ReadConditions {
                modified_since: at(4),
                ..conditions()
            }),
            None
        );
    }
}
