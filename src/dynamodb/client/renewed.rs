//! Keeps credentials until they expire, or until AWS says that they have.

use std::sync::{Arc, Mutex, PoisonError};

use aws_sdk_dynamodb::config::interceptors::AfterDeserializationInterceptorContextRef;
use aws_sdk_dynamodb::config::{
    ConfigBag, IdentityCache, Intercept, RuntimeComponents, SharedIdentityCache,
};
use aws_sdk_dynamodb::error::BoxError;
use aws_smithy_runtime_api::client::identity::{
    IdentityFuture, ResolveCachedIdentity, SharedIdentityResolver,
};

/// The codes of DynamoDB and of S3.
const EXPIRED: &[u8] = b"ExpiredToken";

/// The SDK's cache, which is emptied when AWS refuses credentials as expired: their provider is
/// asked anew then, whatever time it gave them. Clones are one cache.
#[derive(Clone, Debug)]
pub(super) struct Renewed(Arc<Mutex<SharedIdentityCache>>);

impl Default for Renewed {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(empty())))
    }
}

impl Renewed {
    fn current(&self) -> SharedIdentityCache {
        let cache = self.0.lock();
        cache.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = empty();
    }
}

fn empty() -> SharedIdentityCache {
    IdentityCache::lazy().build()
}

impl ResolveCachedIdentity for Renewed {
    fn resolve_cached_identity<'a>(
        &'a self,
        resolver: SharedIdentityResolver,
        components: &'a RuntimeComponents,
        config: &'a ConfigBag,
    ) -> IdentityFuture<'a> {
        let cache = self.current();
        IdentityFuture::new(async move {
            cache
                .resolve_cached_identity(resolver, components, config)
                .await
        })
    }
}

impl Intercept for Renewed {
    fn name(&self) -> &'static str {
        "Renewed"
    }

    /// The reply's body was read by then.
    fn read_after_deserialization(
        &self,
        reply: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let reply = reply.response();
        let is_refusal = reply.status().is_client_error();
        let body = reply.body().bytes().filter(|_| is_refusal);
        if body.is_some_and(|body| body.windows(EXPIRED.len()).any(|part| part == EXPIRED)) {
            self.forget();
        }
        Ok(())
    }
}
