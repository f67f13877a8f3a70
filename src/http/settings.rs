//! What the layer was told.

use std::sync::Arc;

use http::Method;
use http::header::HeaderName;
use http::request::Parts;

use super::header::{self, Form, IDEMPOTENCY_KEY};
use super::operation;
use super::problem::Problem;
use crate::key::Key;

pub(super) type Scope = dyn Fn(&Parts) -> Option<String> + Send + Sync;
pub(super) type Operation = dyn Fn(&Parts) -> String + Send + Sync;

#[derive(Clone)]
pub(super) struct Settings {
    pub(super) header: HeaderName,
    pub(super) form: Form,
    pub(super) methods: Vec<Method>,
    pub(super) scope: Option<Arc<Scope>>,
    pub(super) operation: Arc<Operation>,
    pub(super) body_limit: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            header: IDEMPOTENCY_KEY,
            form: Form::default(),
            methods: vec![Method::POST, Method::PATCH],
            scope: None,
            operation: Arc::new(operation::operation),
            body_limit: super::BODY_LIMIT,
        }
    }
}

impl Settings {
    /// Safe methods have no effect to be repeated, whatever the list says.
    pub(super) fn guards(&self, method: &Method) -> bool {
        !method.is_safe() && self.methods.contains(method)
    }

    /// The key that the request names; `None` where it names none.
    pub(super) fn key(&self, parts: &Parts) -> Result<Option<Key>, Problem> {
        let Some(token) = header::token(&parts.headers, &self.header, self.form)? else {
            return Ok(None);
        };
        let key = Key::new((self.operation)(parts), token);
        Ok(Some(
            match self.scope.as_ref().and_then(|scope| scope(parts)) {
                Some(tenant) => key.scope(tenant),
                None => key,
            },
        ))
    }
}
