//! Where a message's token comes from.

use std::fmt;
use std::sync::Arc;

/// Finds the token in a decoded body.
type InBody<T> = dyn Fn(&T) -> Option<String> + Send + Sync;

/// Where the token is found. It is never made here: its producer made it.
pub(super) enum KeySource<T> {
    /// The id that SQS gave the message.
    MessageId,
    /// Something in the decoded body.
    Body(Arc<InBody<T>>),
}

impl<T> KeySource<T> {
    pub(super) fn body<V>(token: impl Fn(&T) -> V + Send + Sync + 'static) -> Self
    where
        V: Into<Option<String>>,
    {
        Self::Body(Arc::new(move |body| token(body).into()))
    }

    /// The token, where there is one. An empty one is none: no producer means all its messages to be the same request.
    pub(super) fn token(&self, message_id: &str, body: &T) -> Option<String> {
        let token = match self {
            Self::MessageId => Some(message_id.to_owned()),
            Self::Body(token) => token(body),
        };
        token.filter(|token| !token.is_empty())
    }
}

impl<T> Clone for KeySource<T> {
    fn clone(&self) -> Self {
        match self {
            Self::MessageId => Self::MessageId,
            Self::Body(token) => Self::Body(Arc::clone(token)),
        }
    }
}

impl<T> fmt::Debug for KeySource<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MessageId => "MessageId",
            Self::Body(_) => "Body",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_id_is_a_token_whatever_the_body() {
        let token = KeySource::MessageId.token("m-1", &"body");
        assert_eq!(token.as_deref(), Some("m-1"));
    }

    #[test]
    fn a_closure_may_return_a_token_or_none() {
        let always = KeySource::body(|body: &u32| body.to_string());
        assert_eq!(always.token("m-1", &7).as_deref(), Some("7"));
        let sometimes = KeySource::body(|body: &Option<String>| body.clone());
        assert_eq!(sometimes.token("m-1", &None), None);
    }

    #[test]
    fn an_empty_token_is_none() {
        let empty = KeySource::body(|(): &()| String::new());
        assert_eq!(empty.token("m-1", &()), None);
    }
}
