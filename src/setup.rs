//! Reports what can't be set up. Every part that is set up at start-up returns this error, so this file imports nothing.

/// Reports what can't be set up: an engine, a store, a layer, a route, a pointer. It comes at
/// start-up, before any request or message; `main` may return it, and Rust prints its text.
///
/// ```
/// use lambda_idempotency::{BuildError, Idempotency, store::MemoryStore};
///
/// let built = Idempotency::builder(MemoryStore::new()).namespace("a#b").build();
/// assert!(matches!(built, Err(BuildError::Namespace(name)) if name == "a#b"));
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// There is no namespace, and no Lambda function whose name could be it.
    #[error(
        "no namespace: call `.namespace(\"…\")`; only in a Lambda function is there a default, its name{}", see!("no-namespace")
    )]
    NoNamespace,
    /// This name can't be a namespace.
    #[error("{}{}", namespace_advice(.0), see!("namespace"))]
    Namespace(String),
    /// An outcome would be forgotten as soon as it is stored, and each duplicate would run again.
    #[error(
        "`{setting}` is zero, so that each duplicate would run again: keep outcomes for longer than the longest redelivery{}", see!("no-retention")
    )]
    NoRetention {
        /// The setting: `retention` or `failure_retention`.
        setting: &'static str,
    },
    /// The time of every attempt would be over before it begins.
    #[error(
        "`{setting}` is zero, so that no request would ever run: give it more than the longest request takes{}", see!("no-lease")
    )]
    NoLease {
        /// The setting: `lease`, `renewed_lease` or `max_duration`.
        setting: &'static str,
    },
    /// The store can't be used as it is set up. The text says what to correct.
    #[error("{}{}", .0, see!("store-settings"))]
    Store(String),
    /// The environment names no table: `DynamoDbStore::from_env` takes it from `IDEMPOTENCY_TABLE`.
    #[error("set the environment variable IDEMPOTENCY_TABLE to the name of the idempotency table{}", see!("table-not-named"))]
    TableNotNamed,
    /// This text is no JSON pointer.
    #[error(
        "`{pointer}` is no JSON pointer: it starts with `/`, as in `/detail/order_id`, and a `~` in a name is written `~0`, a `/` `~1`{see}", pointer = .0, see = see!("pointer")
    )]
    Pointer(String),
    /// The expression doesn't compile.
    #[error("`{expression}` is no JMESPath expression: {reason}{}", see!("jmespath"))]
    Jmespath {
        /// The expression as it was given.
        expression: String,
        /// The compiler's reason.
        reason: String,
    },
    /// The text is no route, its method is safe, or its path lacks the key's parameter.
    #[error("route `{route}`: {reason}; write it as `POST /orders/{{id}}`{}", see!("route"))]
    Route {
        /// The route as it was given.
        route: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// This address can't be the target of a `Link` header.
    #[error("`{url}` can't be linked to: give an absolute address without a fragment{see}", url = .0, see = see!("documentation-address"))]
    Documentation(String),
    /// A window can't have this number of keys: zero, or too many.
    #[error("a window of {keys} keys can't be made: choose 1 to 134217728{see}", keys = .0, see = see!("window"))]
    WindowKeys(usize),
    /// This number is no rate of a window.
    #[error(
        "{rate} is no share of keys to be wrong about: choose more than 0, and at most 0.1{see}", rate = .0, see = see!("window")
    )]
    WindowRate(String),
}

debug_by_display!(BuildError);

fn namespace_advice(name: &str) -> String {
    if name.is_empty() {
        return "the namespace is empty: call `.namespace(\"…\")` with the name of the service"
            .to_owned();
    }
    format!("the namespace `{name}` must have 1 to 255 bytes, without `#` and control characters")
}
