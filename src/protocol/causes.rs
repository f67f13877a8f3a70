//! Writes the text of an error with its causes, without links and without the user's data.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Display;
use std::sync::{PoisonError, RwLock};

/// The most causes that a text names: a chain may go in a circle.
const MOST: usize = 16;

/// Joins an error and its causes in one line: the SDK's own error says "service error", and keeps what the
/// service said behind it. A cause whose text is there already is left out. Their `Debug` may hold an item,
/// so it is not used.
pub fn in_words(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    for cause in causes.take(MOST).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// The error of a handler: any [`std::error::Error`], a boxed one, `anyhow`'s and `eyre`'s, or a text.
///
/// `M` is inferred. Logs, hooks and the stored failure have the error's text with those of its
/// [causes](Error::source), 16 at the most.
///
/// ```
/// use lambda_idempotency::{Error, HandlerError, Idempotency, Key, store::MemoryStore};
///
/// async fn count<E: HandlerError<M>, M>(once: &Idempotency, line: impl AsyncFnOnce() -> Result<u32, E>) -> Result<u32, Error<E>> {
///     let counted = once.run(Key::new("line", "17"), None, async |_| line().await);
///     Ok(counted.await?.into_inner())
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no error of a handler",
    note = "implement `std::error::Error` for it, or return a boxed error or a text"
)]
pub trait HandlerError<M>: Display + 'static {
    /// Returns the error whose sources are its causes; `None` for a text, which has none.
    fn as_error(&self) -> Option<&(dyn Error + 'static)>;
}

/// The ways in which a type is a [`HandlerError`].
#[doc(hidden)]
#[expect(missing_debug_implementations, reason = "they are never made")]
pub mod marker {
    pub enum Typed {}
    pub enum Boxed {}
    pub enum Text {}
}

impl<E: Error + 'static> HandlerError<marker::Typed> for E {
    fn as_error(&self) -> Option<&(dyn Error + 'static)> {
        Some(self)
    }
}

impl<E> HandlerError<marker::Boxed> for E
where
    E: AsRef<dyn Error + Send + Sync + 'static> + Display + 'static,
{
    fn as_error(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.as_ref())
    }
}

impl HandlerError<marker::Text> for Box<dyn Error> {
    fn as_error(&self) -> Option<&(dyn Error + 'static)> {
        Some(&**self)
    }
}

impl HandlerError<marker::Text> for String {
    fn as_error(&self) -> Option<&(dyn Error + 'static)> {
        None
    }
}

impl HandlerError<marker::Text> for &'static str {
    fn as_error(&self) -> Option<&(dyn Error + 'static)> {
        None
    }
}

type AsError = fn(&dyn Any) -> Option<&(dyn Error + 'static)>;

/// The error types whose causes [`text_of`] names: a `tower` service or stored failure knows an
/// error only as `Display`.
static KNOWN: RwLock<BTreeMap<TypeId, AsError>> = RwLock::new(BTreeMap::new());

/// Has [`text_of`] name the causes of such errors.
pub(crate) fn name_causes_of<E: HandlerError<M>, M>() {
    if as_error_of::<E>().is_none() {
        let as_error: AsError = |error| error.downcast_ref::<E>().and_then(HandlerError::as_error);
        let mut types = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
        types.insert(TypeId::of::<E>(), as_error);
    }
}

fn as_error_of<E: 'static>() -> Option<AsError> {
    let types = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    types.get(&TypeId::of::<E>()).copied()
}

/// Returns the text of an error that is known to be `Display` alone, with its causes where they can be
/// found: of a type that [is known](name_causes_of), of a boxed error, and of one that shows them in
/// its alternate form, as `anyhow`'s does.
pub(crate) fn text_of<E: Display + 'static>(error: &E) -> String {
    let error_as: &dyn Any = error;
    if let Some(error) = as_error_of::<E>().and_then(|as_error| as_error(error_as)) {
        in_words(error)
    } else if let Some(boxed) = error_as.downcast_ref::<Box<dyn Error + Send + Sync>>() {
        in_words(&**boxed)
    } else if let Some(boxed) = error_as.downcast_ref::<Box<dyn Error>>() {
        in_words(&**boxed)
    } else {
        format!("{error:#}")
    }
}

/// Returns the causes of an error as they follow its own text.
pub(crate) fn causes_of<E: Display + 'static>(error: &E) -> String {
    let text = text_of(error);
    let causes = text.strip_prefix(error.to_string().as_str());
    causes.unwrap_or_default().to_owned()
}

/// Returns an error's text without the link to the guide that ends it: the error around it has a link
/// of its own, and a text has one link.
pub(crate) fn unlinked(error: &(impl Display + ?Sized)) -> String {
    let mut text = error.to_string();
    if let Some(end) = text.find(see!("")) {
        text.truncate(end);
    }
    text
}

/// Returns the place of the error, and its kind or the field that is missing. The parser's own
/// message is not fit for logs, because it quotes the text.
pub(crate) fn unquoted(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let what = match missing_field(&message) {
        Some(name) => format!("missing field `{name}`"),
        None => format!("{:?} error", error.classify()),
    };
    let (line, column) = (error.line(), error.column());
    format!("{what} at line {line}, column {column}")
}

/// Returns the parser's own message, cut, where `quotes` says that logs may hold the text; else as
/// [`unquoted`].
#[cfg(any(feature = "batch", feature = "invoke"))]
pub(crate) fn of_parser(error: &serde_json::Error, quotes: bool) -> String {
    if quotes {
        cut(&error.to_string())
    } else {
        unquoted(error)
    }
}

/// Takes the first 1,000 characters of an error's text, which may quote a whole payload.
pub(crate) fn cut(text: &str) -> String {
    text.chars().take(1_000).collect()
}

/// Finds the field that a text lacks. Its name is one of the decoded type, not of the text; a name
/// that no Rust field has may be a part of the text in a message of the caller's own code.
fn missing_field(message: &str) -> Option<&str> {
    let (name, place) = message.strip_prefix("missing field `")?.split_once('`')?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    (place.starts_with(" at line ") && name.chars().all(is_name)).then_some(name)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the charge failed")]
    struct Failed(#[source] Refused);

    #[derive(Debug, thiserror::Error)]
    #[error("no connection: {0}")]
    struct Refused(#[source] io::Error);

    fn failed() -> Failed {
        Failed(Refused(io::Error::other("the host has no address")))
    }

    const TEXT: &str = "the charge failed: no connection: the host has no address";

    #[test]
    fn an_error_names_each_cause_once_down_to_the_first() {
        assert_eq!(in_words(&failed()), TEXT);
    }

    #[derive(Debug, thiserror::Error)]
    #[error("<{0}>")]
    struct Link(u8, #[source] Option<Box<Link>>);

    #[test]
    fn of_a_long_chain_sixteen_causes_are_named() {
        let longer = |inner, number| Some(Box::new(Link(number, inner)));
        let chain = (0..18).fold(None, longer).unwrap();
        let text = in_words(&*chain);
        assert!(text.starts_with("<17>: <16>: "), "{text}");
        assert!(text.ends_with(": <2>: <1>"), "{text}");
    }

    #[test]
    fn an_error_of_a_known_type_has_its_causes() {
        assert_eq!(text_of(&failed()), "the charge failed");
        name_causes_of::<Failed, _>();
        assert_eq!(text_of(&failed()), TEXT);
    }

    #[test]
    fn a_boxed_error_has_its_causes_and_a_text_is_itself() {
        assert_eq!(
            text_of::<Box<dyn Error + Send + Sync>>(&failed().into()),
            TEXT
        );
        assert_eq!(text_of::<Box<dyn Error>>(&failed().into()), TEXT);
        name_causes_of::<Box<dyn Error>, _>();
        assert_eq!(text_of::<Box<dyn Error>>(&failed().into()), TEXT);
        assert_eq!(text_of(&"card refused"), "card refused");
        name_causes_of::<&str, _>();
        assert_eq!(text_of(&"card refused"), "card refused");
        let reported = anyhow::Error::new(failed()).context("order A-17");
        assert!(text_of(&reported).starts_with("order A-17: the charge failed: no connection"));
    }

    #[test]
    fn a_text_loses_its_link_and_nothing_else() {
        let linked = concat!("throttled: slow down", see!("store-throttled"));
        assert_eq!(unlinked(linked), "throttled: slow down");
        assert_eq!(unlinked("See https://docs.rs."), "See https://docs.rs.");
    }
}
