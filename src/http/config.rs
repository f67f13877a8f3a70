//! What can be wrong with a layer's configuration, found before the first request.

/// A setting that can't be used. Found when the layer is built, so that a mistake stops the start-up and not a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A route that can't be read, or whose method is safe.
    #[error("route `{route}`: {reason}; write it as `POST /orders/{{id}}`")]
    Route {
        /// As it was given.
        route: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A JSON pointer that can't be read, or that stands for the whole body.
    #[error(
        "`{pointer}` is not a JSON pointer to a field: write it as `/sent_at` or `/meta/trace`"
    )]
    Pointer {
        /// As it was given.
        pointer: String,
    },
    /// An address that can't stand in a `Link` header.
    #[error("`{url}` can't be linked to: give an absolute https address without a fragment")]
    Documentation {
        /// As it was given.
        url: String,
    },
}
