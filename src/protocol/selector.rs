//! Selects a value of a JSON text, and makes a token of it. Pure.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::protocol::pointer::{Pointer, PointerError};

#[cfg(feature = "jmespath")]
mod jmespath;
mod token;

#[cfg(feature = "jmespath")]
use self::jmespath::Query;

/// Selects a value of a JSON text.
#[derive(Clone, Debug)]
pub(crate) enum JsonSelector {
    Pointer(Arc<Pointer>),
    #[cfg(feature = "jmespath")]
    Jmespath(Arc<Query>),
}

/// Says why a selector can't be used. It is returned when the selector is made, before any message
/// or request arrives.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectorError {
    /// The text is no JSON pointer.
    #[error(transparent)]
    Pointer(#[from] PointerError),
    /// The expression doesn't compile.
    #[cfg(feature = "jmespath")]
    #[cfg_attr(docsrs, doc(cfg(feature = "jmespath")))]
    #[error("`{expression}` is no JMESPath expression: {reason}{}", see!("jmespath"))]
    Jmespath {
        /// The expression as it was given.
        expression: String,
        /// The compiler's reason.
        reason: String,
    },
}

debug_by_display!(SelectorError);

impl JsonSelector {
    pub(crate) fn pointer(pointer: &str) -> Result<Self, SelectorError> {
        Ok(Self::Pointer(Arc::new(pointer.parse::<Pointer>()?)))
    }

    #[cfg(feature = "jmespath")]
    pub(crate) fn jmespath(expression: &str) -> Result<Self, SelectorError> {
        let query = Query::compile(expression).map_err(|reason| SelectorError::Jmespath {
            expression: expression.to_owned(),
            reason,
        })?;
        Ok(Self::Jmespath(Arc::new(query)))
    }

    /// Finds the value in a text, as JSON text.
    pub(crate) fn find<'a>(&self, text: &'a str) -> Option<Cow<'a, str>> {
        match self {
            Self::Pointer(pointer) => pointer.find(text).map(Cow::Borrowed),
            #[cfg(feature = "jmespath")]
            Self::Jmespath(query) => query.find(text).map(Cow::Owned),
        }
    }

    /// Makes the token of the value in a text; `None` where there is none, or where it identifies
    /// nothing.
    pub(crate) fn token(&self, text: &str) -> Option<String> {
        token::of_json(&self.find(text)?)
    }
}

/// Writes the pointer or the expression as it was given.
impl fmt::Display for JsonSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pointer(pointer) => pointer.fmt(f),
            #[cfg(feature = "jmespath")]
            Self::Jmespath(query) => query.fmt(f),
        }
    }
}
