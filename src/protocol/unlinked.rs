//! The text of an error inside of another error's text.

use std::fmt::Display;

/// Gives an error's text without the link to the guide that ends it: the error around it has a link
/// of its own, and a text has one link.
pub(crate) fn unlinked(error: &(impl Display + ?Sized)) -> String {
    let mut text = error.to_string();
    if let Some(end) = text.find(see!("")) {
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_loses_its_link_and_nothing_else() {
        let linked = concat!("throttled: slow down", see!("store-throttled"));
        assert_eq!(unlinked(linked), "throttled: slow down");
        assert_eq!(unlinked("See https://docs.rs."), "See https://docs.rs.");
    }
}
