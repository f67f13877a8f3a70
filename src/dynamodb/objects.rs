//! Keeps outcomes that no item takes as objects in a bucket.

use aws_sdk_s3::Client;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::primitives::ByteStream;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use tokio::time::{Instant, timeout_at};

use crate::dynamodb::error::{of_credentials, unreached, unsent};
use crate::protocol::causes::in_words;
use crate::protocol::key::RecordId;
use crate::protocol::packed::LargeOutcome;
use crate::protocol::record::Owner;
use crate::store::StoreError;

/// A bucket for outcomes too large for an item.
#[derive(Clone)]
pub(super) struct OutcomeBucket {
    pub(super) client: Client,
    pub(super) bucket: String,
    pub(super) prefix: String,
}

impl OutcomeBucket {
    /// Writes an outcome. A repeated call writes the same object again: its key has the owner.
    pub(super) async fn put(
        &self,
        outcome: &LargeOutcome,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let request = self
            .client
            .put_object()
            .bucket(&self.bucket)
            .key(self.key(&outcome.id, &outcome.owner))
            .content_type("application/octet-stream")
            .body(ByteStream::from(outcome.content.clone()));
        let reply = in_time(deadline, Box::pin(request.send())).await?;
        reply.map_err(|error| self.failure("s3:PutObject", &error))?;
        Ok(())
    }

    /// Reads an outcome; `None` where there is no such object.
    pub(super) async fn get(
        &self,
        id: &RecordId,
        owner: &Owner,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let request = self
            .client
            .get_object()
            .bucket(&self.bucket)
            .key(self.key(id, owner));
        let object = match in_time(deadline, Box::pin(request.send())).await? {
            Ok(object) => object,
            Err(error) if error.code() == Some("NoSuchKey") => return Ok(None),
            Err(error) => return Err(self.failure("s3:GetObject", &error)),
        };
        let body = in_time(deadline, object.body.collect()).await?;
        let body = body.map_err(|error| StoreError::Unavailable(in_words(&error).into()))?;
        Ok(Some(body.into_bytes().into()))
    }

    fn key(&self, id: &RecordId, owner: &Owner) -> String {
        format!("{}{}/{}", self.prefix, id.hash(), owner.as_str())
    }

    fn failure<E>(&self, action: &str, error: &SdkError<E, HttpResponse>) -> StoreError
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        let status = match error {
            SdkError::TimeoutError(_) => return StoreError::Timeout,
            SdkError::ServiceError(context) => context.raw().status().as_u16(),
            SdkError::DispatchFailure(failure) if !failure.is_io() && !failure.is_timeout() => {
                return unsent(in_words(error));
            }
            _ => return unreached(in_words(error)),
        };
        if let Some(refused) = error.code().and_then(of_credentials) {
            return refused;
        }
        let bucket = &self.bucket;
        match (error.code(), status) {
            (Some("SlowDown" | "TooManyRequests"), _) | (_, 429) => StoreError::Throttled(
                format!("bucket `{bucket}` asks for fewer requests on one prefix").into(),
            ),
            (Some("RequestTimeout" | "RequestTimeoutException"), _) | (_, 500..) => {
                StoreError::Unavailable(in_words(error).into())
            }
            (Some("AccessDenied"), _) => StoreError::Denied(
                format!(
                    "access denied to bucket `{bucket}`: allow the function {action} on it, or what S3 names: {}",
                    error.message().unwrap_or_default()
                )
                .into(),
            ),
            (Some("NoSuchBucket"), _) => StoreError::Misconfigured(
                format!("bucket `{bucket}` does not exist: create it, or correct its name").into(),
            ),
            (code, _) => {
                let code = code.unwrap_or("no reason given");
                StoreError::Rejected(format!("bucket `{bucket}` refused {action}: {code}").into())
            }
        }
    }
}

async fn in_time<T>(deadline: Instant, request: impl Future<Output = T>) -> Result<T, StoreError> {
    if Instant::now() >= deadline {
        return Err(StoreError::NotSent);
    }
    let reply = timeout_at(deadline, request).await;
    reply.map_err(|_| StoreError::Timeout)
}

#[cfg(test)]
mod tests {
    use aws_sdk_s3::config::BehaviorVersion;
    use aws_sdk_s3::error::ErrorMetadata;
    use aws_sdk_s3::operation::put_object::PutObjectError;
    use aws_sdk_s3::primitives::SdkBody;

    use super::*;

    fn bucket() -> OutcomeBucket {
        let config = aws_sdk_s3::Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .build();
        OutcomeBucket {
            client: Client::from_conf(config),
            bucket: "outcomes".to_owned(),
            prefix: String::new(),
        }
    }

    fn failure(error: &SdkError<PutObjectError, HttpResponse>) -> StoreError {
        bucket().failure("s3:PutObject", error)
    }

    fn refused(code: &str, status: u16) -> StoreError {
        let metadata = ErrorMetadata::builder().code(code).message("kms:Decrypt");
        let reply = HttpResponse::new(status.try_into().unwrap(), SdkBody::empty());
        failure(&SdkError::service_error(
            PutObjectError::generic(metadata.build()),
            reply,
        ))
    }

    #[test]
    fn what_may_pass_is_told_from_what_must_be_mended() {
        let late = SdkError::timeout_error("slow");
        assert_matches!(failure(&late), StoreError::Timeout);
        let unsent = SdkError::construction_failure("no region");
        assert_matches!(failure(&unsent), StoreError::Unavailable(_));
        for (code, status) in [("SlowDown", 503), ("TooManyRequests", 400), ("Other", 429)] {
            let error = refused(code, status);
            assert_matches!(error, StoreError::Throttled(_), "{code} {status}");
        }
        for (code, status) in [
            ("InternalError", 500),
            ("InternalError", 503),
            ("RequestTimeout", 400),
        ] {
            let error = refused(code, status);
            assert_matches!(error, StoreError::Unavailable(_), "{code} {status}");
        }
        let denied = refused("AccessDenied", 499);
        assert_matches!(denied, StoreError::Denied(_));
        let missing = refused("NoSuchBucket", 499);
        assert_matches!(missing, StoreError::Misconfigured(_));
        let invalid = refused("InvalidRequest", 499);
        assert_matches!(invalid, StoreError::Rejected(_));
        for (error, says) in [
            (
                denied,
                "allow the function s3:PutObject on it, or what S3 names: kms:Decrypt",
            ),
            (missing, "does not exist"),
            (invalid, "refused s3:PutObject: InvalidRequest"),
        ] {
            assert!(!error.is_transient(), "{error}");
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_outlasts_its_deadline_is_given_up() {
        let late = in_time(Instant::now(), async {}).await;
        assert_matches!(late, Err(StoreError::NotSent));
        let soon = Instant::now() + std::time::Duration::from_secs(1);
        let never = in_time(soon, std::future::pending::<()>()).await;
        assert_matches!(never, Err(StoreError::Timeout));
    }
}
