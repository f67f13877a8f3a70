//! Defines what a handler of one event gets.

use std::fmt;

use lambda_runtime::Context;

use crate::engine::claim::Claim;

/// Holds one event: its decoded payload, the claim of its handler, and the invocation's context.
#[non_exhaustive]
pub struct Invocation<T> {
    /// The payload, decoded from JSON. It is the handler's own: changing it changes neither the key
    /// nor the fingerprint.
    pub payload: T,
    /// The right to run, with keys for effects outside and the time that is left.
    pub claim: Claim,
    /// The context of this invocation, as Lambda gives it.
    pub context: Context,
}

impl<T> Invocation<T> {
    pub(crate) fn new(payload: T, claim: Claim, context: Context) -> Self {
        Self {
            payload,
            claim,
            context,
        }
    }
}

clone_fields!([T: Clone] Invocation<T> { payload, claim, context });

/// Shows the request id and the claim: the payload is not for logs.
impl<T> fmt::Debug for Invocation<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invocation")
            .field("request_id", &self.context.request_id)
            .field("key", &self.claim.key_hash())
            .field("attempt", &self.claim.attempt())
            .finish_non_exhaustive()
    }
}
