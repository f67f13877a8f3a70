//! A namespace is the boundary between services that share a store.

/// The first part of every id that an engine writes: the boundary between services that share a
/// store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Namespace {
    name: String,
    is_observed: bool,
}

impl Namespace {
    /// # Errors
    ///
    /// When it is empty, longer than 255 bytes, holds a `#` (which would let it reach past the
    /// prefix that a permission confines it to) or a control character.
    pub(crate) fn new(name: impl Into<String>) -> Result<Self, NamespaceError> {
        let name = name.into();
        let allowed = |c: char| c != '#' && !c.is_control();
        if name.is_empty() || name.len() > 255 || !name.chars().all(allowed) {
            return Err(NamespaceError { name });
        }
        Ok(Self {
            name,
            is_observed: false,
        })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.name
    }

    pub(crate) fn is_observed(&self) -> bool {
        self.is_observed
    }

    /// Makes the namespace of the records that are kept while an engine only observes: raw ids,
    /// too, differ in it.
    pub(crate) fn observed(&self) -> Result<Self, NamespaceError> {
        Ok(Self {
            is_observed: true,
            ..Self::new(format!("{}.observed", self.name))?
        })
    }
}

/// A name that can't be a namespace.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}", advice(.name), see!("namespace"))]
#[non_exhaustive]
pub struct NamespaceError {
    /// The name as given.
    pub name: String,
}

debug_by_display!(NamespaceError);

fn advice(name: &str) -> String {
    if name.is_empty() {
        return "the namespace is empty: call `.namespace(\"…\")` with the name of the service"
            .to_owned();
    }
    format!("the namespace `{name}` must have 1 to 255 bytes, without `#` and control characters")
}
