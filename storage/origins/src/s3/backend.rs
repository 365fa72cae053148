//! S3's calls on a [`Folder`]. In: decoded requests. Out: decoded replies. Independent of sockets and signatures.

use super::body::{self, CHUNK_BYTES, FileStream};
use super::folder::{Condition, Folder, FolderError, Stored};
use super::listing::Query;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::dto::{ETagCondition, Timestamp, *};
use s3s::{Body, S3, S3Error, S3ErrorCode, S3Request, S3Response, S3Result, s3_error};
use std::io;
use std::ops::Range as Span;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Default and maximum number of keys per page.
const PAGE_KEYS: i32 = 1000;
/// Maximum attempts to open an object for one GET while a writer changes it in place.
const OPENINGS: u32 = 4;

/// Receiver of the calls.
pub(super) struct Backend {
    pub(super) folder: Arc<Folder>,
}

impl From<FolderError> for S3Error {
    fn from(error: FolderError) -> Self {
        let code = match &error {
            FolderError::NoSuchBucket => S3ErrorCode::NoSuchBucket,
            FolderError::BucketExists => S3ErrorCode::BucketAlreadyOwnedByYou,
            FolderError::NoSuchKey => S3ErrorCode::NoSuchKey,
            FolderError::NoSuchUpload => S3ErrorCode::NoSuchUpload,
            FolderError::BadKey(_) => S3ErrorCode::InvalidArgument,
            FolderError::Precondition => S3ErrorCode::PreconditionFailed,
            FolderError::BadPart(_) => S3ErrorCode::InvalidPart,
            FolderError::PartOrder => S3ErrorCode::InvalidPartOrder,
            FolderError::PartTooSmall(_) => S3ErrorCode::EntityTooSmall,
            FolderError::Io(e) if e.kind() == io::ErrorKind::PermissionDenied => S3ErrorCode::AccessDenied,
            FolderError::Io(e) => {
                tracing::error!("S3 origin: {e}");
                S3ErrorCode::InternalError
            }
        };
        Self::with_message(code, error.to_string())
    }
}

/// Bytes of an object that a GET or HEAD asks for. The origin keeps no part of an upload apart.
fn span(range: Option<&Range>, part: Option<PartNumber>, size: u64) -> S3Result<Span<u64>> {
    if part.is_some() {
        return Err(s3_error!(NotImplemented, "reads by part number"));
    }
    range.map_or(Ok(0..size), |range| Ok(range.check(size)?))
}

fn content_range(range: Option<&Range>, span: &Span<u64>, size: u64) -> Option<String> {
    // A suffix of an empty object is all of it.
    let is_part = range.is_some() && !span.is_empty();
    is_part.then(|| format!("bytes {}-{}/{size}", span.start, span.end - 1))
}

fn length(bytes: u64) -> Option<i64> {
    i64::try_from(bytes).ok()
}

fn etag(stored: &Stored) -> Option<ETag> {
    Some(ETag::Strong(stored.version.clone()))
}

/// For `encoding-type=url`: everything but unreserved characters and `/`.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'/');

fn url_encode(key: &str) -> String {
    utf8_percent_encode(key, ENCODED).to_string()
}

impl Backend {
    /// Runs a call on the folder off the async threads.
    async fn run<T: Send + 'static>(&self, call: impl FnOnce(&Folder) -> S3Result<T> + Send + 'static) -> S3Result<T> {
        let folder = Arc::clone(&self.folder);
        tokio::task::spawn_blocking(move || call(&folder))
            .await
            .map_err(S3Error::internal_error)?
    }
}

#[async_trait::async_trait]
impl S3 for Backend {
    async fn get_object(&self, req: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let input = req.input;
        let conditions = ReadConditions {
            matches: input.if_match,
            none_match: input.if_none_match,
            modified_since: input.if_modified_since,
            unmodified_since: input.if_unmodified_since,
        };
        let range = input.range;
        let opened = self.run(move |folder| {
            let mut opened = 0;
            loop {
                opened += 1;
                let (file, stored) = folder.get(&input.bucket, &input.key)?;
                conditions.check(&stored)?;
                let span = span(range.as_ref(), input.part_number, stored.size)?;
                let end = span.end.min(span.start + CHUNK_BYTES);
                match body::read_version(&file, span.start..end, &stored) {
                    Ok(first) => {
                        let more = (end < span.end).then_some(file);
                        return Ok((stored, span, first, more));
                    }
                    // Changed meanwhile: the current version may not meet the conditions.
                    Err(e) if opened == OPENINGS => return Err(FolderError::Io(e).into()),
                    Err(_) => {}
                }
            }
        });
        // The first chunk, and the file if more follows.
        let (stored, span, first, more) = opened.await?;
        let content_range = content_range(range.as_ref(), &span, stored.size);
        let content_length = length(span.end - span.start);
        let body = match more {
            Some(file) => {
                let rest = span.start + first.len() as u64..span.end;
                StreamingBlob::new(FileStream::new(file, stored.clone(), first, rest))
            }
            None => StreamingBlob::new(Body::from(first)),
        };
        Ok(S3Response::new(GetObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            body: Some(body),
            content_length,
            content_range,
            e_tag: etag(&stored),
            last_modified: Some(stored.modified.into()),
            ..GetObjectOutput::default()
        }))
    }

    async fn head_object(&self, req: S3Request<HeadObjectInput>) -> S3Result<S3Response<HeadObjectOutput>> {
        let input = req.input;
        let conditions = ReadConditions {
            matches: input.if_match,
            none_match: input.if_none_match,
            modified_since: input.if_modified_since,
            unmodified_since: input.if_unmodified_since,
        };
        let stored = self.run(move |folder| {
            let (_, stored) = folder.get(&input.bucket, &input.key)?;
            conditions.check(&stored)?;
            Ok(stored)
        });
        let stored = stored.await?;
        let span = span(input.range.as_ref(), input.part_number, stored.size)?;
        Ok(S3Response::new(HeadObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            content_length: length(span.end - span.start),
            content_range: content_range(input.range.as_ref(), &span, stored.size),
            e_tag: etag(&stored),
            last_modified: Some(stored.modified.into()),
            ..HeadObjectOutput::default()
        }))
    }

    async fn put_object(&self, req: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let input = req.input;
        let condition = write_condition(input.if_match.as_ref(), input.if_none_match.as_ref())?;
        let announced = input.content_length.and_then(|len| u64::try_from(len).ok());
        let staged = body::receive(&self.folder, input.body, announced, input.content_md5.as_deref()).await?;
        let commit = self.run(move |folder| Ok(folder.commit(staged, &input.bucket, &input.key, &condition)?));
        let stored = commit.await?;
        Ok(S3Response::new(PutObjectOutput {
            e_tag: etag(&stored),
            ..PutObjectOutput::default()
        }))
    }

    async fn delete_object(&self, req: S3Request<DeleteObjectInput>) -> S3Result<S3Response<DeleteObjectOutput>> {
        let input = req.input;
        self.run(move |folder| Ok(folder.delete(&input.bucket, &input.key)?))
            .await?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(&self, req: S3Request<DeleteObjectsInput>) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let DeleteObjectsInput { bucket, delete, .. } = req.input;
        let quiet = delete.quiet.unwrap_or_default();
        let results = self.run(move |folder| {
            folder.bucket(&bucket)?;
            let one =
                |object: ObjectIdentifier| (folder.delete(&bucket, &object.key).map_err(S3Error::from), object.key);
            Ok(delete.objects.into_iter().map(one).collect::<Vec<_>>())
        });
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        for (result, key) in results.await? {
            match result {
                Ok(()) if quiet => {}
                Ok(()) => deleted.push(DeletedObject {
                    key: Some(key),
                    ..DeletedObject::default()
                }),
                Err(e) => errors.push(Error {
                    code: Some(e.code().as_str().to_owned()),
                    key: Some(key),
                    message: e.message().map(str::to_owned),
                    ..Error::default()
                }),
            }
        }
        Ok(S3Response::new(DeleteObjectsOutput {
            deleted: Some(deleted),
            errors: Some(errors),
            ..DeleteObjectsOutput::default()
        }))
    }

    async fn list_objects_v2(&self, req: S3Request<ListObjectsV2Input>) -> S3Result<S3Response<ListObjectsV2Output>> {
        let input = req.input;
        let max_keys = input.max_keys.unwrap_or(PAGE_KEYS).min(PAGE_KEYS);
        let query = Query {
            prefix: input.prefix.clone().unwrap_or_default(),
            delimiter: input.delimiter.clone(),
            start_after: input.start_after.clone(),
            token: input.continuation_token.clone(),
            max_keys: usize::try_from(max_keys).map_err(|_| s3_error!(InvalidArgument, "max-keys is negative"))?,
        };
        let bucket = input.bucket.clone();
        let page = self.run(move |folder| Ok(folder.list(&bucket, &query)?)).await?;
        let encoded = input.encoding_type.as_ref().map(EncodingType::as_str) == Some(EncodingType::URL);
        let name = |key: &str| if encoded { url_encode(key) } else { key.to_owned() };
        let object = |(key, stored): &(String, Stored)| Object {
            key: Some(name(key)),
            size: length(stored.size),
            e_tag: etag(stored),
            last_modified: Some(stored.modified.into()),
            ..Object::default()
        };
        let contents: Vec<Object> = page.objects.iter().map(object).collect();
        let rolled_up = |prefix: &String| CommonPrefix {
            prefix: Some(name(prefix)),
        };
        let prefixes: Vec<CommonPrefix> = page.prefixes.iter().map(rolled_up).collect();
        Ok(S3Response::new(ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: input.prefix.as_deref().map(name),
            delimiter: input.delimiter.as_deref().map(name),
            start_after: input.start_after.as_deref().map(name),
            encoding_type: input.encoding_type,
            max_keys: Some(max_keys),
            key_count: i32::try_from(contents.len() + prefixes.len()).ok(),
            is_truncated: Some(page.next.is_some()),
            continuation_token: input.continuation_token,
            next_continuation_token: page.next,
            contents: Some(contents),
            common_prefixes: Some(prefixes),
            ..ListObjectsV2Output::default()
        }))
    }

    async fn list_buckets(&self, _: S3Request<ListBucketsInput>) -> S3Result<S3Response<ListBucketsOutput>> {
        let buckets = self.run(|folder| Ok(folder.buckets()?)).await?;
        let buckets = buckets
            .into_iter()
            .map(|(name, created)| Bucket {
                name: Some(name),
                creation_date: Some(created.into()),
                ..Bucket::default()
            })
            .collect();
        Ok(S3Response::new(ListBucketsOutput {
            buckets: Some(buckets),
            ..ListBucketsOutput::default()
        }))
    }

    async fn create_bucket(&self, req: S3Request<CreateBucketInput>) -> S3Result<S3Response<CreateBucketOutput>> {
        let location = format!("/{}", req.input.bucket);
        self.run(move |folder| Ok(folder.create_bucket(&req.input.bucket)?))
            .await?;
        Ok(S3Response::new(CreateBucketOutput {
            location: Some(location),
        }))
    }

    async fn head_bucket(&self, req: S3Request<HeadBucketInput>) -> S3Result<S3Response<HeadBucketOutput>> {
        self.run(move |folder| Ok(folder.bucket(&req.input.bucket)?)).await?;
        Ok(S3Response::new(HeadBucketOutput::default()))
    }

    async fn create_multipart_upload(
        &self,
        req: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let CreateMultipartUploadInput { bucket, key, .. } = req.input;
        let upload = self.run(move |folder| Ok((folder.begin_upload(&bucket, &key)?, bucket, key)));
        let (id, bucket, key) = upload.await?;
        Ok(S3Response::new(CreateMultipartUploadOutput {
            bucket: Some(bucket),
            key: Some(key),
            upload_id: Some(id),
            ..CreateMultipartUploadOutput::default()
        }))
    }

    async fn upload_part(&self, req: S3Request<UploadPartInput>) -> S3Result<S3Response<UploadPartOutput>> {
        let input = req.input;
        let announced = input.content_length.and_then(|len| u64::try_from(len).ok());
        let staged = body::receive(&self.folder, input.body, announced, input.content_md5.as_deref()).await?;
        let part = self.run(move |folder| {
            Ok(folder.store_part(&input.bucket, &input.key, &input.upload_id, input.part_number, staged)?)
        });
        let stored = part.await?;
        Ok(S3Response::new(UploadPartOutput {
            e_tag: etag(&stored),
            ..UploadPartOutput::default()
        }))
    }

    async fn complete_multipart_upload(
        &self,
        req: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let input = req.input;
        let condition = write_condition(input.if_match.as_ref(), input.if_none_match.as_ref())?;
        let listed = input.multipart_upload.and_then(|upload| upload.parts);
        let named = |part: CompletedPart| Some((part.part_number?, part.e_tag?.into_value()));
        let parts: Option<Vec<_>> = listed.unwrap_or_default().into_iter().map(named).collect();
        let Some(parts) = parts.filter(|parts| !parts.is_empty()) else {
            return Err(s3_error!(
                MalformedXML,
                "missing list of parts with PartNumber and ETag"
            ));
        };
        let (bucket, key) = (input.bucket.clone(), input.key.clone());
        let done = self.run(move |folder| {
            Ok(folder.complete_upload(&input.bucket, &input.key, &input.upload_id, &parts, &condition)?)
        });
        let stored = done.await?;
        Ok(S3Response::new(CompleteMultipartUploadOutput {
            bucket: Some(bucket),
            key: Some(key),
            e_tag: etag(&stored),
            ..CompleteMultipartUploadOutput::default()
        }))
    }

    async fn abort_multipart_upload(
        &self,
        req: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let input = req.input;
        self.run(move |folder| Ok(folder.abort_upload(&input.bucket, &input.key, &input.upload_id)?))
            .await?;
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }
}

/// Conditions of a GET or HEAD.
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

/// Returns the condition of a write.
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

    #[test]
    fn keys_are_encoded_for_urls() {
        assert_eq!(url_encode("a b/ü+%.rows"), "a%20b/%C3%BC%2B%25.rows");
    }
}

#[cfg(test)]
mod conditions_tests {
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
