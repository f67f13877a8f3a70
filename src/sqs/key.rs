//! Where a message's key comes from.

use std::fmt;
use std::sync::Arc;

use aws_lambda_events::event::sqs::SqsMessage;

use crate::key::Key;
use crate::sqs::selector::Selector;

/// Finds the token in a decoded body.
type InBody<T> = dyn Fn(&T) -> Option<String> + Send + Sync;

/// Finds the tenant in a decoded body, or in the message around it.
type Scope<T> = dyn Fn(&T, &SqsMessage) -> Option<String> + Send + Sync;

/// Where the token is found. It is never made here: its producer made it.
enum Token<T> {
    /// The id that SQS gave the message.
    MessageId,
    /// Something in the decoded body.
    Body(Arc<InBody<T>>),
    /// Something in the message as it was received.
    Selected(Selector),
    /// The whole id of the record, from the decoded body.
    RawId(Arc<InBody<T>>),
}

/// Where token and tenant are found.
pub(super) struct KeySource<T> {
    token: Token<T>,
    scope: Option<Arc<Scope<T>>>,
}

impl<T> KeySource<T> {
    pub(super) fn message_id() -> Self {
        Self {
            token: Token::MessageId,
            scope: None,
        }
    }

    pub(super) fn body<V>(self, token: impl Fn(&T) -> V + Send + Sync + 'static) -> Self
    where
        V: Into<Option<String>>,
    {
        Self {
            token: Token::Body(Arc::new(move |body| token(body).into())),
            ..self
        }
    }

    pub(super) fn selected(self, selector: Selector) -> Self {
        Self {
            token: Token::Selected(selector),
            ..self
        }
    }

    pub(super) fn raw_id<V>(self, id: impl Fn(&T) -> V + Send + Sync + 'static) -> Self
    where
        V: Into<Option<String>>,
    {
        Self {
            token: Token::RawId(Arc::new(move |body| id(body).into())),
            ..self
        }
    }

    pub(super) fn scope<V>(
        self,
        tenant: impl Fn(&T, &SqsMessage) -> V + Send + Sync + 'static,
    ) -> Self
    where
        V: Into<Option<String>>,
    {
        Self {
            scope: Some(Arc::new(move |body, message| tenant(body, message).into())),
            ..self
        }
    }

    /// The key, where there is one. An empty token is none: no producer means all its messages to be the same request.
    pub(super) fn key(
        &self,
        operation: Arc<str>,
        message: &SqsMessage,
        text: &str,
        body: &T,
    ) -> Option<Key> {
        let token = match &self.token {
            Token::MessageId => message.message_id.clone(),
            Token::Body(token) | Token::RawId(token) => token(body),
            Token::Selected(selector) => selector.token(message, text),
        };
        let token = token.filter(|token| !token.is_empty())?;
        let key = match &self.token {
            Token::RawId(_) => Key::raw(&*operation, token),
            _ => Key::of_operation(operation, token),
        };
        let tenant = self.scope.as_ref().and_then(|scope| scope(body, message));
        Some(match tenant {
            Some(tenant) => key.scope(tenant),
            None => key,
        })
    }
}

impl<T> Clone for KeySource<T> {
    fn clone(&self) -> Self {
        Self {
            token: match &self.token {
                Token::MessageId => Token::MessageId,
                Token::Body(token) => Token::Body(Arc::clone(token)),
                Token::Selected(selector) => Token::Selected(selector.clone()),
                Token::RawId(id) => Token::RawId(Arc::clone(id)),
            },
            scope: self.scope.clone(),
        }
    }
}

impl<T> fmt::Debug for KeySource<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.token {
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
    use super::*;

    fn message() -> SqsMessage {
        let mut message = SqsMessage::default();
        message.message_id = Some("m-1".to_owned());
        message.event_source = Some("t-9".to_owned());
        message
    }

    fn key<T>(source: &KeySource<T>, body: &T) -> Option<Key> {
        source.key("charge".into(), &message(), "{}", body)
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
        let source = KeySource::message_id().raw_id(|body: &u32| format!("f.app.charge#{body}"));
        assert_eq!(key(&source, &7), Some(Key::raw("charge", "f.app.charge#7")));
        let again = source.clone();
        assert_eq!(key(&again, &7), Some(Key::raw("charge", "f.app.charge#7")));
        let empty = KeySource::message_id().raw_id(|_: &u32| String::new());
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
