//! The text of an error and of its causes.

use std::any::Any;
use std::error::Error;
use std::fmt::Display;

/// The most causes that a text names: a chain may go in a circle.
const MOST: usize = 16;

/// Joins an error and its causes in one line. A cause whose text is there already is left out. Their
/// `Debug` may hold an item, so it is not used.
pub(crate) fn in_words(error: &(dyn Error + 'static)) -> String {
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

/// Gives the text of an error that is known to be `Display` alone, with its causes where they can be
/// found: of a boxed error, and of one that shows them in its alternate form, as `anyhow`'s does.
pub(crate) fn text_of<E: Display + 'static>(error: &E) -> String {
    let error_as: &dyn Any = error;
    if let Some(boxed) = error_as.downcast_ref::<Box<dyn Error + Send + Sync>>() {
        in_words(&**boxed)
    } else if let Some(boxed) = error_as.downcast_ref::<Box<dyn Error>>() {
        in_words(&**boxed)
    } else {
        format!("{error:#}")
    }
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

    #[test]
    fn a_boxed_error_has_its_causes_and_a_text_is_itself() {
        assert_eq!(
            text_of::<Box<dyn Error + Send + Sync>>(&failed().into()),
            TEXT
        );
        assert_eq!(text_of::<Box<dyn Error>>(&failed().into()), TEXT);
        assert_eq!(text_of(&"card refused"), "card refused");
        let reported = anyhow::Error::new(failed()).context("order A-17");
        assert!(text_of(&reported).starts_with("order A-17: the charge failed: no connection"));
    }
}
