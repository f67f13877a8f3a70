//! Checks the address of an API's own documentation.

use std::str::FromStr;

use http::Uri;

/// Holds the page where an API documents its idempotency keys: an absolute address without a
/// fragment, for [`IdempotencyLayer::documentation`](super::IdempotencyLayer::documentation).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentationUrl(String);

/// Reports an address that can't be the target of a `Link` header.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{url}` can't be linked to: give an absolute https address without a fragment{}", see!("documentation-address"))]
pub struct DocumentationUrlError {
    url: String,
}

debug_by_display!(DocumentationUrlError);

impl FromStr for DocumentationUrl {
    type Err = DocumentationUrlError;

    fn from_str(text: &str) -> Result<Self, DocumentationUrlError> {
        let url = text.to_owned();
        let is_absolute = |uri: &Uri| uri.scheme().is_some() && uri.authority().is_some();
        // `Uri` takes nothing else that could end the angle brackets of a `Link` header.
        match text.parse::<Uri>() {
            Ok(uri) if is_absolute(&uri) && !url.contains(['#', '<', '>', '"']) => Ok(Self(url)),
            _ => Err(DocumentationUrlError { url }),
        }
    }
}

impl DocumentationUrl {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absolute_address_is_kept_as_it_is() {
        for url in [
            "https://docs.example.com",
            "https://docs.example.com/retries?v=2",
        ] {
            assert_eq!(url.parse::<DocumentationUrl>().unwrap().as_str(), url);
        }
    }

    #[test]
    fn what_cannot_be_linked_to_is_refused() {
        for url in [
            "",
            "/retries",
            "docs.example.com",
            "https://a.example/x#y",
            "https://a.example/>;",
            "https://a b",
        ] {
            let error = url.parse::<DocumentationUrl>().unwrap_err().to_string();
            assert!(error.contains("give an absolute https address"), "{error}");
        }
    }
}
