//! Makes the key of a message or an event, as its layer was told. Pure.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::{IntoToken, Key, KeyError, is_blank};

/// Holds the key, fingerprint and retention that a layer takes from a message.
#[derive(Default)]
pub(crate) struct Identity {
    pub(crate) key: Option<Key>,
    pub(crate) fingerprint: Option<Fingerprint>,
    /// `None` where it is the engine's.
    pub(crate) retention: Option<Duration>,
}

impl Identity {
    /// Takes the identity of a message. Where nothing is protected, it is empty if that fails or panics:
    /// the handler runs as if none were asked for.
    pub(crate) fn take<E>(
        is_passive: bool,
        identity: impl FnOnce() -> Result<Self, E>,
    ) -> Result<Self, E> {
        if !is_passive {
            return identity();
        }
        let caught = catch_unwind(AssertUnwindSafe(identity));
        Ok(caught.ok().and_then(Result::ok).unwrap_or_default())
    }
}

/// Finds a token, an id or a tenant in a decoded body, or in the message as it was delivered.
type Closure<T, R> = dyn Fn(&T, &R) -> Option<String> + Send + Sync;

/// Finds the token of a message. Its producer made it; it is never made here.
enum Token<T, R, Sel> {
    /// The one that the source gave the message, or the one in its envelope.
    Source,
    /// A value of the decoded body.
    Body(Box<Closure<T, R>>),
    /// A value of the message as it was received.
    Selected(Sel),
    /// The whole id of the record.
    RawId(Box<Closure<T, R>>),
}

/// Finds the token and the tenant of a message: in its body `T`, or in what was delivered, `R`. The
/// body of a single event is its payload.
pub(crate) struct KeySource<T, R, Sel> {
    token: Arc<Token<T, R, Sel>>,
    scope: Option<Arc<Closure<T, R>>>,
}

clone_fields!([T, R, Sel] KeySource<T, R, Sel> { token, scope });

impl<T, R, Sel: fmt::Display> KeySource<T, R, Sel> {
    pub(crate) fn of_source() -> Self {
        Self {
            token: Arc::new(Token::Source),
            scope: None,
        }
    }

    fn token(mut self, token: Token<T, R, Sel>) -> Self {
        self.token = Arc::new(token);
        self
    }

    pub(crate) fn body<V: IntoToken>(
        self,
        token: impl Fn(&T) -> V + Send + Sync + 'static,
    ) -> Self {
        let token = move |body: &T, _: &R| token(body).into_token();
        self.token(Token::Body(Box::new(token)))
    }

    pub(crate) fn selected(self, selector: Sel) -> Self {
        self.token(Token::Selected(selector))
    }

    pub(crate) fn raw_id<V: IntoToken>(
        self,
        id: impl Fn(&T, &R) -> V + Send + Sync + 'static,
    ) -> Self {
        let id = move |body: &T, message: &R| id(body, message).into_token();
        self.token(Token::RawId(Box::new(id)))
    }

    pub(crate) fn scope<V: IntoToken>(
        mut self,
        tenant: impl Fn(&T, &R) -> V + Send + Sync + 'static,
    ) -> Self {
        let scope = move |body: &T, message: &R| tenant(body, message).into_token();
        self.scope = Some(Arc::new(scope));
        self
    }

    /// Makes the key, where the message has a token. An empty token counts as none: it would make one
    /// request of all messages. `find` returns the token at the layer's place; without one, the source's
    /// own. `tenant` is the one that Lambda names for the invocation.
    pub(crate) fn key<E>(
        &self,
        operation: Arc<str>,
        body: &T,
        message: &R,
        tenant: Option<&str>,
        find: impl FnOnce(Option<&Sel>) -> Result<Option<String>, E>,
    ) -> Result<Option<Key>, E> {
        let token = match &*self.token {
            Token::Source => find(None)?,
            Token::Selected(selector) => find(Some(selector))?,
            Token::Body(token) | Token::RawId(token) => token(body, message),
        };
        let Some(token) = token.filter(|token| !token.is_empty()) else {
            return Ok(None);
        };
        let key = match &*self.token {
            Token::RawId(_) => Key::raw(&*operation, token),
            Token::Source => Key::of_source(operation, token),
            Token::Body(_) | Token::Selected(_) => Key::of_operation(operation, token),
        };
        let scope = self.scope.as_ref();
        let scope = scope.and_then(|scope| scope(body, message));
        Ok(Some(match confined(tenant, scope) {
            Some(scope) => key.scope(scope),
            None => key,
        }))
    }

    /// Says why a message has no key.
    pub(crate) fn absence(&self) -> KeyError {
        match &*self.token {
            Token::Selected(selector) => KeyError::MissingAt {
                place: selector.to_string(),
            },
            Token::Source | Token::Body(_) | Token::RawId(_) => KeyError::Missing,
        }
    }

    /// Returns whether the token is the source's own.
    #[cfg(feature = "invoke")]
    pub(crate) fn is_of_source(&self) -> bool {
        matches!(*self.token, Token::Source)
    }
}

/// Confines a scope to the tenant that Lambda names for the invocation. A blank one stays blank, so
/// that its key is refused.
fn confined(tenant: Option<&str>, scope: Option<String>) -> Option<String> {
    let Some(tenant) = tenant.filter(|tenant| !tenant.is_empty()) else {
        return scope;
    };
    Some(match scope {
        Some(scope) if is_blank(&scope) => scope,
        // It is never another tenant's own id: Lambda takes no bracket there.
        Some(scope) => Value::from(vec![tenant, scope.as_str()]).to_string(),
        None => tenant.to_owned(),
    })
}

impl<T, R, Sel: fmt::Debug> fmt::Debug for KeySource<T, R, Sel> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.token {
            Token::Source => f.write_str("Source"),
            Token::Body(_) => f.write_str("Body"),
            Token::Selected(selector) => selector.fmt(f),
            Token::RawId(_) => f.write_str("RawId"),
        }?;
        f.write_str(if self.scope.is_some() { ", scoped" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Keys<T> = KeySource<T, u8, String>;

    /// Makes the key of the message `9`, to which its source gave the token `m-1`. A selector finds its
    /// own text.
    fn key<T>(source: &Keys<T>, body: &T) -> Option<Key> {
        let find = |selector: Option<&String>| {
            let found = selector.map_or("m-1", String::as_str);
            Ok::<_, ()>(Some(found.to_owned()))
        };
        source.key("charge".into(), body, &9, None, find).ok()?
    }

    #[test]
    fn the_message_id_is_a_token_whatever_the_body() {
        let found = key(&Keys::of_source(), &"body");
        let expected = Key::of_source("charge".into(), "m-1".to_owned());
        assert_eq!(found, Some(expected));
    }

    #[test]
    fn a_closure_may_return_a_token_or_none() {
        let always = Keys::of_source().body(|body: &u32| body.to_string());
        assert_eq!(key(&always, &7), Some(Key::new("charge", "7")));
        let sometimes = Keys::of_source().body(|body: &Option<String>| body.clone());
        assert_eq!(key(&sometimes, &None), None);
    }

    #[test]
    fn a_raw_id_is_the_whole_key() {
        let source = Keys::of_source().raw_id(|body: &u32, _| format!("f.app.charge#{body}"));
        assert_eq!(key(&source, &7), Some(Key::raw("charge", "f.app.charge#7")));
        let again = source.clone();
        assert_eq!(key(&again, &7), Some(Key::raw("charge", "f.app.charge#7")));
        let beside = Keys::of_source().raw_id(|_: &u32, message| *message);
        assert_eq!(key(&beside, &7), Some(Key::raw("charge", "9")));
        let empty = Keys::of_source().raw_id(|_: &u32, _| String::new());
        assert_eq!(key(&empty, &7), None);
    }

    #[test]
    fn an_empty_token_is_none() {
        let empty = Keys::of_source().body(|(): &()| String::new());
        assert_eq!(key(&empty, &()), None);
        let unselected = Keys::of_source().selected(String::new());
        assert_eq!(key(&unselected, &()), None);
    }

    #[test]
    fn a_tenant_confines_the_key_whatever_was_said_first() {
        let tenant = |_: &u32, message: &u8| *message;
        let expected = Some(Key::new("charge", "7").scope("9"));
        let token_first = Keys::of_source().body(u32::to_string).scope(tenant);
        assert_eq!(key(&token_first, &7), expected);
        let tenant_first = Keys::of_source().scope(tenant).body(u32::to_string);
        assert_eq!(key(&tenant_first, &7), expected);
    }
}
