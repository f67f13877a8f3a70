//! Which requests need a key, route by route. Pure.

use std::time::Duration;

use http::Method;
use http::request::Parts;

use super::config::ConfigError;
use super::operation::{path, template};
use crate::settings::MissingKey;

/// How the requests of one route are treated; given to [`IdempotencyLayer::route`](super::IdempotencyLayer::route).
///
/// ```
/// use std::time::Duration;
/// use lambda_idempotency::{Idempotency, http::{IdempotencyLayer, Route}, store::MemoryStore};
///
/// let once = Idempotency::builder(MemoryStore::new()).namespace("shop").build()?;
/// let layer = IdempotencyLayer::new(once)
///     .route("POST /payments", Route::required().retention(Duration::from_secs(30 * 86_400)))?
///     .route("PUT /carts/{cart}", Route::optional())?
///     .other_routes(Route::off());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a route does nothing until a layer is given it"]
pub struct Route {
    need: Need,
    retention: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// What the engine's [`MissingKey`] policy says.
    Engine,
    Required,
    Optional,
    Off,
}

impl Route {
    /// A request without a key is refused, whatever the engine's [`MissingKey`] policy says.
    pub const fn required() -> Self {
        Self::new(Need::Required)
    }

    /// A request without a key runs unprotected, and its answer says so; one with a key is protected.
    pub const fn optional() -> Self {
        Self::new(Need::Optional)
    }

    /// Requests pass through untouched, with a key or without; their answers aren't buffered.
    pub const fn off() -> Self {
        Self::new(Need::Off)
    }

    /// How long this route's outcomes are kept, whatever the engine's [`retention`](crate::Builder::retention) says.
    pub const fn retention(mut self, retention: Duration) -> Self {
        self.retention = Some(retention);
        self
    }

    const fn new(need: Need) -> Self {
        Self {
            need,
            retention: None,
        }
    }

    pub(super) fn is_off(self) -> bool {
        self.need == Need::Off
    }

    /// Where it differs from the engine's.
    pub(super) fn missing_key(self) -> Option<MissingKey> {
        match self.need {
            Need::Required => Some(MissingKey::Refuse),
            Need::Optional => Some(MissingKey::RunUnprotected),
            Need::Engine | Need::Off => None,
        }
    }

    pub(super) fn kept_for(self) -> Option<Duration> {
        self.retention
    }
}

/// The routes that were declared, and what holds for all others.
#[derive(Clone, Debug)]
pub(super) struct Routes {
    declared: Vec<(Pattern, Route)>,
    pub(super) other: Route,
}

impl Default for Routes {
    fn default() -> Self {
        Self {
            declared: Vec::new(),
            other: Route::new(Need::Engine),
        }
    }
}

impl Routes {
    pub(super) fn declare(&mut self, text: &str, route: Route) -> Result<(), ConfigError> {
        self.declared.push((Pattern::parse(text)?, route));
        Ok(())
    }

    /// The first that matches.
    pub(super) fn find(&self, parts: &Parts) -> Option<(&Pattern, Route)> {
        let mut declared = self.declared.iter();
        let (pattern, route) = declared.find(|(pattern, _)| pattern.matches(parts))?;
        Some((pattern, *route))
    }
}

/// `POST /orders/{id}`.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    method: Option<Method>,
    template: String,
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, ConfigError> {
        let fail = |reason| ConfigError::Route {
            route: text.to_owned(),
            reason,
        };
        let (method, template) = match text.trim().split_once(' ') {
            None => (None, text.trim()),
            Some(("ANY", template)) => (None, template.trim()),
            Some((method, template)) => (Some(method), template.trim()),
        };
        let method = match method.map(|name| Method::from_bytes(name.as_bytes())) {
            None => None,
            Some(Ok(method)) if method.is_safe() => {
                return Err(fail("a safe method has no effect to be repeated"));
            }
            Some(Ok(method)) => Some(method),
            Some(Err(_)) => return Err(fail("that is no method")),
        };
        if !template.starts_with('/') || template.contains([' ', '?', '#']) {
            return Err(fail(
                "the path must start with a slash, and be nothing but a path",
            ));
        }
        if segments(template).rev().skip(1).any(is_rest) {
            return Err(fail("only the last segment may stand for several"));
        }
        Ok(Self {
            method,
            template: template.to_owned(),
        })
    }

    /// Whether its method was named: then the request is guarded for that.
    pub(super) fn names_a_method(&self) -> bool {
        self.method.is_some()
    }

    /// The template, where it stands for one operation.
    pub(super) fn template(&self) -> Option<&str> {
        (!segments(&self.template).any(is_rest)).then_some(&self.template)
    }

    fn matches(&self, parts: &Parts) -> bool {
        let method = self.method.as_ref();
        method.is_none_or(|method| parts.method == *method)
            && (template(parts) == Some(&self.template) || self.matches_path(path(parts)))
    }

    fn matches_path(&self, path: &str) -> bool {
        let mut wanted = segments(&self.template);
        let mut given = segments(path);
        loop {
            match (wanted.next(), given.next()) {
                (None, None) => return true,
                (Some(wanted), Some(given)) if is_rest(wanted) => return !given.is_empty(),
                (Some(wanted), Some(given)) if is_parameter(wanted) && !given.is_empty() => {}
                (Some(wanted), Some(given)) if wanted == given => {}
                _ => return false,
            }
        }
    }
}

fn segments(path: &str) -> std::str::Split<'_, char> {
    path.trim_start_matches('/').split('/')
}

fn is_parameter(segment: &str) -> bool {
    segment.starts_with('{') && segment.ends_with('}')
}

/// `{proxy+}` as API Gateway writes it, `{*rest}` as axum does.
fn is_rest(segment: &str) -> bool {
    is_parameter(segment) && (segment.starts_with("{*") || segment.ends_with("+}"))
}

#[cfg(test)]
mod tests;
