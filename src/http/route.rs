//! Parses routes as an API's author writes them, matches requests, and keeps the policy of each. Pure.

use std::str::FromStr;

use http::Method;

use crate::setup::BuildError;

#[cfg(test)]
mod tests;

/// Holds a route, as [`IdempotencyLayer::route`](super::IdempotencyLayer::route) describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) method: Option<Method>,
    pub(super) path: String,
}

/// The methods of requests that may have an effect.
const WITH_EFFECT: [Method; 4] = [Method::POST, Method::PATCH, Method::PUT, Method::DELETE];

const NO_METHOD: &str = "the method is POST, PATCH, PUT, DELETE or ANY";

impl FromStr for Route {
    type Err = BuildError;

    fn from_str(text: &str) -> Result<Self, BuildError> {
        let fail = |reason| BuildError::Route {
            route: text.to_owned(),
            reason,
        };
        let (method, path) = match text.trim().split_once(char::is_whitespace) {
            None => (None, text.trim()),
            Some((any, path)) if any.eq_ignore_ascii_case("any") => (None, path.trim()),
            Some((method, path)) => (
                Some(method.to_ascii_uppercase().parse::<Method>()),
                path.trim(),
            ),
        };
        let method = method.transpose().map_err(|_| fail(NO_METHOD))?;
        if let Some(method) = &method {
            if method.is_safe() {
                return Err(fail("a safe method has no effect to be repeated"));
            }
            if !WITH_EFFECT.contains(method) {
                return Err(fail(NO_METHOD));
            }
        }
        if !path.starts_with('/') || path.contains([' ', '?', '#']) {
            let reason = "the path must start with a slash, and be nothing but a path";
            return Err(fail(reason));
        }
        if segments(path).rev().skip(1).any(is_rest) {
            return Err(fail("only the last segment may stand for several"));
        }
        if let Some(reason) = segments(path).find_map(fault) {
            return Err(fail(reason));
        }
        let path = path.to_owned();
        Ok(Self { method, path })
    }
}

impl Route {
    /// Returns the template, where it is that of one operation.
    pub(super) fn template(&self) -> Option<&str> {
        is_template(&self.path).then_some(&self.path)
    }

    /// Says whether a request is one of this route's, by the template that the gateway or axum
    /// matched, or else by its path.
    pub(super) fn matches(&self, method: &Method, template: Option<&str>, path: &str) -> bool {
        let own = self.method.as_ref();
        own.is_none_or(|own| own == method)
            && (template == Some(self.path.as_str()) || self.matches_path(path))
    }

    fn matches_path(&self, path: &str) -> bool {
        let mut wanted = segments(&self.path);
        let mut given = segments(path);
        loop {
            match (wanted.next(), given.next()) {
                (None, None) => return true,
                (Some(wanted), Some(first)) if is_rest(wanted) => {
                    // Of several segments the first may be empty: `/files//a`.
                    return !first.is_empty() || given.next().is_some();
                }
                (Some(wanted), Some(given)) if is_parameter(wanted) && !given.is_empty() => {}
                (Some(wanted), Some(given)) if wanted == given => {}
                _ => return false,
            }
        }
    }
}

/// Says whether a path is the template of one operation: a greedy parameter covers many.
pub(super) fn is_template(path: &str) -> bool {
    path.starts_with('/') && !segments(path).any(is_rest)
}

/// Fills a template with the values of its parameters; `None` where one is missing, or it is no
/// template.
#[cfg(feature = "lambda-http")]
pub(super) fn filled<'a>(
    template: &str,
    value: impl Fn(&str) -> Option<&'a str>,
) -> Option<String> {
    if !template.starts_with('/') {
        return None;
    }
    let mut path = String::new();
    for segment in segments(template) {
        path.push('/');
        path.push_str(if is_parameter(segment) {
            value(parameter(segment))?
        } else {
            segment
        });
    }
    Some(path)
}

/// The position of a parameter's segment in a path.
#[derive(Clone, Copy)]
pub(super) enum Position {
    /// Counted from the start: a greedy parameter follows.
    FromStart(usize),
    /// Counted from the end: a base path may stand before the template.
    FromEnd(usize),
    /// From this segment to the end.
    Rest(usize),
}

/// Finds the parameters of a template; `None` where none of them has this name.
pub(super) fn positions(template: &str, name: &str) -> Option<Vec<Position>> {
    let all: Vec<&str> = segments(template.trim_end_matches('/')).collect();
    let last = all.len() - 1;
    let has_rest = all.last().is_some_and(|last| is_rest(last));
    let is_wanted = |text: &&str| is_parameter(text) && parameter(text) == name;
    let parameters = all.iter().enumerate();
    let parameters = parameters.filter(|(_, text)| is_parameter(text));
    let found = parameters.map(|(index, _)| match has_rest {
        true if index == last => Position::Rest(index),
        true => Position::FromStart(index),
        false => Position::FromEnd(last - index),
    });
    all.iter().any(is_wanted).then(|| found.collect())
}

impl Position {
    /// Returns what a path has in this position.
    pub(super) fn of(self, path: &str) -> Option<&str> {
        match self {
            Self::FromStart(index) => segments(path).nth(index),
            // The gateway ignores a slash at the end.
            Self::FromEnd(index) => segments(path.trim_end_matches('/')).rev().nth(index),
            Self::Rest(index) => {
                let path = path.trim_start_matches('/');
                path.splitn(index + 1, '/').nth(index)
            }
        }
    }
}

fn parameter(segment: &str) -> &str {
    let name = segment.trim_start_matches('{').trim_end_matches('}');
    name.trim_start_matches('*').trim_end_matches('+')
}

/// Says why a segment of a route is neither text nor a parameter: taken for text, it would match no
/// request.
fn fault(segment: &str) -> Option<&'static str> {
    let name = if is_parameter(segment) {
        parameter(segment)
    } else {
        segment
    };
    if segment.starts_with([':', '<']) {
        Some("a parameter stands in braces")
    } else if segment == "*" {
        Some("`{name+}` or `{*name}` stands for all that follows")
    } else if name.is_empty() && !segment.is_empty() {
        Some("a parameter has a name")
    } else if name.contains(['{', '}', '*', '<', '>']) {
        Some("a parameter is a whole segment, in a pair of braces")
    } else {
        None
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
