//! Makes the key of an event.

use std::fmt;
use std::sync::Arc;

use super::kind::{Content, Kind, KindError};
use super::selector::Selector;
use crate::protocol::key::{IntoToken, Key, KeyError};

type InPayload<T> = dyn Fn(&T) -> Option<String> + Send + Sync;

/// Finds the token of an event. Its caller made it; it is never made here.
enum Token<T> {
    /// The source's own. A direct event has none.
    Source,
    /// A value of the decoded payload.
    Payload(Box<InPayload<T>>),
    /// A value of the event as it was received.
    Selected(Selector),
    /// The whole id of the record, from the decoded payload.
    RawId(Box<InPayload<T>>),
}

/// Finds the token and the tenant of an event.
pub(super) struct KeySource<T> {
    token: Arc<Token<T>>,
    scope: Option<Arc<InPayload<T>>>,
}

clone_fields!([T] KeySource<T> { token, scope });

impl<T> KeySource<T> {
    pub(super) fn of_source() -> Self {
        Self {
            token: Arc::new(Token::Source),
            scope: None,
        }
    }

    fn token(mut self, token: Token<T>) -> Self {
        self.token = Arc::new(token);
        self
    }

    pub(super) fn payload<V: IntoToken>(
        self,
        token: impl Fn(&T) -> V + Send + Sync + 'static,
    ) -> Self {
        let token = move |payload: &T| token(payload).into_token();
        self.token(Token::Payload(Box::new(token)))
    }

    pub(super) fn selected(self, selector: Selector) -> Self {
        self.token(Token::Selected(selector))
    }

    pub(super) fn raw_id<V: IntoToken>(self, id: impl Fn(&T) -> V + Send + Sync + 'static) -> Self {
        let id = move |payload: &T| id(payload).into_token();
        self.token(Token::RawId(Box::new(id)))
    }

    pub(super) fn scope<V: IntoToken>(
        mut self,
        tenant: impl Fn(&T) -> V + Send + Sync + 'static,
    ) -> Self {
        let scope = move |payload: &T| tenant(payload).into_token();
        self.scope = Some(Arc::new(scope));
        self
    }

    /// Says why an event has no key.
    pub(super) fn absence(&self) -> KeyError {
        match &*self.token {
            Token::Selected(selector) => KeyError::MissingAt {
                place: selector.to_string(),
            },
            Token::Source | Token::Payload(_) | Token::RawId(_) => KeyError::Missing,
        }
    }

    /// Tells whether no key can be found in any event of this source.
    pub(super) fn is_unset(&self, kind: Kind) -> bool {
        kind == Kind::Direct && matches!(*self.token, Token::Source)
    }

    /// Makes the key, where the event has a token. An empty token counts as none: it would make one
    /// request of all events.
    pub(super) fn key(
        &self,
        operation: Arc<str>,
        kind: Kind,
        content: &Content<'_>,
        payload: &T,
    ) -> Result<Option<Key>, KindError> {
        let token = match &*self.token {
            Token::Source => kind.token(content)?,
            Token::Payload(token) | Token::RawId(token) => token(payload),
            Token::Selected(selector) => selector.token(&content.text),
        };
        let Some(token) = token.filter(|token| !token.is_empty()) else {
            return Ok(None);
        };
        let key = match &*self.token {
            Token::RawId(_) => Key::raw(&*operation, token),
            _ => Key::of_operation(operation, token),
        };
        let tenant = self.scope.as_ref().and_then(|scope| scope(payload));
        Ok(Some(match tenant {
            Some(tenant) => key.scope(tenant),
            None => key,
        }))
    }
}

impl<T> fmt::Debug for KeySource<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.token {
            Token::Source => f.write_str("Source"),
            Token::Payload(_) => f.write_str("Payload"),
            Token::Selected(selector) => selector.fmt(f),
            Token::RawId(_) => f.write_str("RawId"),
        }?;
        f.write_str(if self.scope.is_some() { ", scoped" } else { "" })
    }
}
