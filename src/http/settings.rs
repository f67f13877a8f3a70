//! What the layer was told.

use std::sync::Arc;

use http::Method;
use http::header::HeaderName;
use http::request::Parts;

use super::fingerprint::Sight;
use super::header::{self, Form, IDEMPOTENCY_KEY};
use super::kept::LEFT_OUT;
use super::operation;
use super::problem::Problem;
use super::refusals::Refusals;
use super::response::Captured;
use super::route::{Pattern, Route, Routes};
use super::verdict::verdict;
use crate::key::Key;
use crate::outcome::Verdict;

pub(super) type Scope = dyn Fn(&Parts) -> Option<String> + Send + Sync;
pub(super) type Operation = dyn Fn(&Parts) -> String + Send + Sync;

#[derive(Clone)]
pub(super) struct Settings {
    pub(super) header: HeaderName,
    pub(super) form: Form,
    pub(super) methods: Vec<Method>,
    pub(super) routes: Routes,
    pub(super) scope: Option<Arc<Scope>>,
    pub(super) needs_scope: bool,
    pub(super) operation: Option<Arc<Operation>>,
    pub(super) sight: Sight,
    pub(super) body_limit: usize,
    pub(super) answer_limit: usize,
    pub(super) keep_server_errors: bool,
    pub(super) left_out: Vec<HeaderName>,
    pub(super) refusals: Refusals,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            header: IDEMPOTENCY_KEY,
            form: Form::default(),
            methods: vec![Method::POST, Method::PATCH],
            routes: Routes::default(),
            scope: None,
            needs_scope: false,
            operation: None,
            sight: Sight::default(),
            body_limit: super::BODY_LIMIT,
            answer_limit: super::BODY_LIMIT,
            keep_server_errors: false,
            left_out: LEFT_OUT.to_vec(),
            refusals: Refusals::default(),
        }
    }
}

/// What is to be done with one request that is guarded.
pub(super) struct Plan<'a> {
    pub(super) route: Route,
    pattern: Option<&'a Pattern>,
}

impl Settings {
    /// `None` where the request passes through. Safe methods have no effect to be repeated, whatever the settings say.
    pub(super) fn plan(&self, parts: &Parts) -> Option<Plan<'_>> {
        if parts.method.is_safe() {
            return None;
        }
        let (pattern, route) = match self.routes.find(parts) {
            Some((pattern, route)) => (Some(pattern), route),
            None => (None, self.routes.other),
        };
        let is_named = pattern.is_some_and(Pattern::names_a_method);
        let is_guarded = is_named || self.methods.contains(&parts.method);
        (is_guarded && !route.is_off()).then_some(Plan { route, pattern })
    }

    /// The handler's own wish comes first.
    pub(super) fn verdict(&self, response: &Captured) -> Verdict {
        let usual = || verdict(response.status, self.keep_server_errors);
        response.wish.unwrap_or_else(usual)
    }

    /// The key that the request names; `None` where it names none.
    pub(super) fn key(&self, parts: &Parts, plan: &Plan<'_>) -> Result<Option<Key>, Problem> {
        let Some(token) = header::token(&parts.headers, &self.header, self.form)? else {
            return Ok(None);
        };
        let declared = plan.pattern.and_then(Pattern::template);
        let operation = match &self.operation {
            Some(closure) => closure(parts),
            None => operation::operation(parts, declared),
        };
        let key = Key::new(operation, token).labelled(match &self.operation {
            Some(_) => None,
            None => operation::label(parts, declared),
        });
        match self.scope.as_ref().and_then(|scope| scope(parts)) {
            Some(tenant) => Ok(Some(key.scope(tenant))),
            None if self.needs_scope => Err(Problem::ScopeMissing),
            None => Ok(Some(key)),
        }
    }
}
