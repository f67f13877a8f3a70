//! Makes the key of a message.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::batch::Source;
use crate::batch::content::Content;
use crate::batch::selector::Selector;
use crate::protocol::key::{IntoToken, Key, KeyError};

/// Finds the token in a decoded body.
type InBody<T> = dyn Fn(&T) -> Option<String> + Send + Sync;

/// Finds a tenant or an id in a decoded body, or in the message as it was delivered.
type InEither<S, T> = dyn Fn(&T, &<S as Source>::Record) -> Option<String> + Send + Sync;

/// Finds the token of a message. Its producer made it; it is never made here.
enum Token<S: Source, T> {
    /// The id that the source gave the message, or the one in its envelope.
    MessageId,
    /// A value of the decoded body.
    Body(Box<InBody<T>>),
    /// A value of the message as it was received.
    Selected(Selector),
    /// The whole id of the record.
    RawId(Box<InEither<S, T>>),
}

/// Finds the token and the tenant of a message.
pub(super) struct KeySource<S: Source, T> {
    token: Arc<Token<S, T>>,
    scope: Option<Arc<InEither<S, T>>>,
}

clone_fields!([S: Source, T] KeySource<S, T> { token, scope });

impl<S: Source, T> KeySource<S, T> {
    pub(super) fn message_id() -> Self {
        Self {
            token: Arc::new(Token::MessageId),
            scope: None,
        }
    }

    fn token(mut self, token: Token<S, T>) -> Self {
        self.token = Arc::new(token);
        self
    }

    pub(super) fn body<V: IntoToken>(
        self,
        token: impl Fn(&T) -> V + Send + Sync + 'static,
    ) -> Self {
        self.token(Token::Body(Box::new(move |body| token(body).into_token())))
    }

    pub(super) fn selected(self, selector: Selector) -> Self {
        self.token(Token::Selected(selector))
    }

    pub(super) fn raw_id<V: IntoToken>(
        self,
        id: impl Fn(&T, &S::Record) -> V + Send + Sync + 'static,
    ) -> Self {
        let id = move |body: &T, message: &S::Record| id(body, message).into_token();
        self.token(Token::RawId(Box::new(id)))
    }

    pub(super) fn scope<V: IntoToken>(
        mut self,
        tenant: impl Fn(&T, &S::Record) -> V + Send + Sync + 'static,
    ) -> Self {
        let scope = move |body: &T, message: &S::Record| tenant(body, message).into_token();
        self.scope = Some(Arc::new(scope));
        self
    }

    /// Makes the key, where the message has a token. An empty token counts as none: it would make
    /// one request of all messages.
    pub(super) fn key(
        &self,
        operation: Arc<str>,
        content: &Content<'_, S>,
        body: &T,
    ) -> Option<Key> {
        let token = match &*self.token {
            Token::MessageId => content.id().map(Cow::into_owned),
            Token::Body(token) => token(body),
            Token::RawId(id) => id(body, content.message()),
            Token::Selected(selector) => selector.token(content),
        };
        let token = token.filter(|token| !token.is_empty())?;
        let key = match &*self.token {
            Token::RawId(_) => Key::raw(&*operation, token),
            _ => Key::of_operation(operation, token),
        };
        let tenant = self.scope.as_ref();
        let tenant = tenant.and_then(|scope| scope(body, content.message()));
        Some(match tenant {
            Some(tenant) => key.scope(tenant),
            None => key,
        })
    }

    /// Says why a message has no key.
    pub(super) fn absence(&self) -> KeyError {
        match &*self.token {
            Token::Selected(selector) => KeyError::MissingAt {
                place: selector.to_string(),
            },
            Token::MessageId | Token::Body(_) | Token::RawId(_) => KeyError::Missing,
        }
    }
}

impl<S: Source, T> fmt::Debug for KeySource<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.token {
            Token::MessageId => f.write_str("MessageId"),
            Token::Body(_) => f.write_str("Body"),
            Token::Selected(selector) => selector.fmt(f),
            Token::RawId(_) => f.write_str("RawId"),
        }?;
        f.write_str(if self.scope.is_some() { ", scoped" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use aws_lambda_events::event::sqs::SqsMessage;

    use super::*;
    use crate::sqs::Sqs;

    fn message() -> SqsMessage {
        let mut message = SqsMessage::default();
        message.message_id = Some("m-1".to_owned());
        message.event_source = Some("t-9".to_owned());
        message
    }

    fn key<T>(source: &KeySource<Sqs, T>, body: &T) -> Option<Key> {
        let message = message();
        let content = Content::open(&message, b"{}", &[], None).ok()?;
        source.key("charge".into(), &content, body)
    }

    #[test]
    fn the_message_id_is_a_token_whatever_the_body() {
        let found = key(&KeySource::message_id(), &"body");
        assert_eq!(found, Some(Key::new("charge", "m-1")));
    }

    #[test]
    fn a_closure_may_return_a_token_or_none() {
        let always = KeySource::message_id().body(|body: &u32| body.to_string());
        assert_eq!(key(&always, &7), Some(Key::new("charge", "7")));
        let sometimes = KeySource::message_id().body(|body: &Option<String>| body.clone());
        assert_eq!(key(&sometimes, &None), None);
    }

    #[test]
    fn a_raw_id_is_the_whole_key() {
        let id = |body: &u32, _: &SqsMessage| format!("f.app.charge#{body}");
        let source = KeySource::message_id().raw_id(id);
        assert_eq!(key(&source, &7), Some(Key::raw("charge", "f.app.charge#7")));
        let again = source.clone();
        assert_eq!(key(&again, &7), Some(Key::raw("charge", "f.app.charge#7")));
        let beside = |_: &u32, message: &SqsMessage| message.message_id.clone();
        let beside = KeySource::message_id().raw_id(beside);
        assert_eq!(key(&beside, &7), Some(Key::raw("charge", "m-1")));
        let empty = KeySource::message_id().raw_id(|_: &u32, _: &SqsMessage| String::new());
        assert_eq!(key(&empty, &7), None);
    }

    #[test]
    fn an_empty_token_is_none() {
        let empty = KeySource::message_id().body(|(): &()| String::new());
        assert_eq!(key(&empty, &()), None);
        let unselected = KeySource::message_id().selected(Selector::attribute("none"));
        assert_eq!(key(&unselected, &()), None);
    }

    #[test]
    fn a_tenant_confines_the_key_whatever_was_said_first() {
        let tenant = |_: &u32, message: &SqsMessage| message.event_source.clone();
        let expected = Some(Key::new("charge", "7").scope("t-9"));
        let token_first = KeySource::message_id().body(u32::to_string).scope(tenant);
        assert_eq!(key(&token_first, &7), expected);
        let tenant_first = KeySource::message_id().scope(tenant).body(u32::to_string);
        assert_eq!(key(&tenant_first, &7), expected);
    }
}
