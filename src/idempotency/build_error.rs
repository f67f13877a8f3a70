//! Says why an engine can't be built.

use crate::protocol::namespace::NamespaceError;

/// The error of an engine that can't be built.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// There is no namespace, and no Lambda function whose name could be it.
    #[error(
        "no namespace: call `.namespace(\"…\")`; only in a Lambda function is there a default, its name{}", see!("no-namespace")
    )]
    NoNamespace,
    /// The namespace is not usable.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// An outcome would be forgotten as soon as it is stored, and each duplicate would run again.
    #[error(
        "`{setting}` is zero, so that each duplicate would run again: keep outcomes for longer than the longest redelivery{}", see!("no-retention")
    )]
    NoRetention {
        /// The setting: `retention` or `failure_retention`.
        setting: &'static str,
    },
    /// The store can't be used as it is set up. The text says what to correct.
    #[error("{}{}", .0, see!("store-settings"))]
    Store(String),
}

debug_by_display!(BuildError);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idempotency::Idempotency;
    use crate::store::MemoryStore;

    #[test]
    fn what_main_prints_says_what_to_do() {
        let built = Idempotency::builder(MemoryStore::new())
            .namespace("")
            .build();
        for (error, advice) in [
            (BuildError::NoNamespace, "call `.namespace(\"…\")`"),
            (built.unwrap_err(), "call `.namespace(\"…\")`"),
            (
                BuildError::NoRetention {
                    setting: "retention",
                },
                "keep outcomes for longer",
            ),
            (BuildError::Store("two attributes".into()), "two attributes"),
        ] {
            // A `main` that returns this one, or a box of it.
            let boxed: Box<dyn std::error::Error + Send + Sync> = error.clone().into();
            for printed in [format!("{error:?}"), format!("{boxed:?}")] {
                assert_eq!(printed, error.to_string());
                assert!(printed.contains(advice), "{printed}");
            }
        }
    }
}
