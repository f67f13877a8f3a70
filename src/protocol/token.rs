//! A key's token, or its tenant, is made from text of any kind, from an integer or a UUID.

use std::borrow::Cow;
use std::sync::Arc;

/// Converts a value to a key's token: a string of any kind, an integer, which becomes its decimal
/// digits, a `Uuid` (feature `uuid`), which becomes its lower-case text with hyphens, or an `Option`
/// of one where it may be missing.
///
/// ```
/// use lambda_idempotency::IntoToken;
///
/// assert_eq!("order-17".into_token().as_deref(), Some("order-17"));
/// assert_eq!(Some(String::from("order-17")).into_token().as_deref(), Some("order-17"));
/// assert_eq!(17_u64.into_token().as_deref(), Some("17"));
/// assert_eq!(None::<&str>.into_token(), None);
/// ```
pub trait IntoToken {
    /// Returns the token; `None` where it is missing.
    fn into_token(self) -> Option<String>;
}

macro_rules! token_of {
    ($($value:ty),* $(,)?) => {$(
        impl IntoToken for $value {
            fn into_token(self) -> Option<String> {
                Some(self.to_string())
            }
        }

        impl IntoToken for Option<$value> {
            fn into_token(self) -> Option<String> {
                self.and_then(IntoToken::into_token)
            }
        }
    )*};
}

token_of!(String, &str, &String, Box<str>, Cow<'_, str>, Arc<str>);
token_of!(
    u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize
);

#[cfg(feature = "uuid")]
token_of!(uuid::Uuid);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_a_token_and_an_absent_one_is_none() {
        let shared: Arc<str> = "t".into();
        let tokens = [
            "t".into_token(),
            (&String::from("t")).into_token(),
            Some("t").into_token(),
            Some(Cow::from("t")).into_token(),
            Arc::clone(&shared).into_token(),
            Some(shared).into_token(),
        ];
        assert!(tokens.iter().all(|token| token.as_deref() == Some("t")));
        assert_eq!((-17_i64).into_token().as_deref(), Some("-17"));
        assert_eq!(Some(u128::MAX).into_token(), Some(u128::MAX.to_string()));
        assert_eq!(None::<u32>.into_token(), None);
        #[cfg(feature = "uuid")]
        {
            let text = "a1b2c3d4-0000-4000-8000-00000000000f";
            let uuid: uuid::Uuid = text.to_uppercase().parse().unwrap();
            assert_eq!(uuid.into_token().as_deref(), Some(text));
            assert_eq!(Some(uuid).into_token().as_deref(), Some(text));
        }
        assert_eq!(None::<String>.into_token(), None);
        assert_eq!(None::<Arc<str>>.into_token(), None);
    }
}
