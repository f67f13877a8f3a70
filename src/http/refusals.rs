//! How refusals are put: with the library's documentation or the API's own, in its words or in the closure's.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Response, Uri};

use super::config::ConfigError;
use super::details::ProblemDetails;
use super::problem::Problem;

type Closure = dyn Fn(&ProblemDetails) -> Response<Bytes> + Send + Sync;

/// Problem in, answer out.
#[derive(Clone, Default)]
pub(super) struct Refusals {
    documentation: Option<String>,
    closure: Option<Arc<Closure>>,
}

impl Refusals {
    /// Where this API documents its keys.
    pub(super) fn documented_at(&mut self, url: &str) -> Result<(), ConfigError> {
        // `Uri` takes nothing that could end the angle brackets of a `Link` header.
        let is_absolute = |uri: &Uri| uri.scheme().is_some() && uri.authority().is_some();
        match url.parse::<Uri>() {
            Ok(uri) if is_absolute(&uri) && !url.contains(['#', '<', '>', '"']) => {
                self.documentation = Some(url.to_owned());
                Ok(())
            }
            _ => Err(ConfigError::Documentation {
                url: url.to_owned(),
            }),
        }
    }

    pub(super) fn written_by(&mut self, closure: Arc<Closure>) {
        self.closure = Some(closure);
    }

    pub(super) fn answer(&self, problem: Problem) -> Response<Bytes> {
        let details = problem.details(self.documentation.as_deref());
        match &self.closure {
            Some(closure) => closure(&details),
            None => details.to_response(),
        }
    }
}

impl fmt::Debug for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refusals")
            .field("documentation", &self.documentation)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use http::header::LINK;

    use super::*;

    #[test]
    fn the_apis_own_documentation_is_linked_to() {
        let mut refusals = Refusals::default();
        refusals
            .documented_at("https://docs.example.com/retries?v=2")
            .unwrap();
        let answer = refusals.answer(Problem::KeyMissing);
        assert_eq!(
            answer.headers()[LINK],
            r#"<https://docs.example.com/retries?v=2>; rel="describedby"; type="text/html""#
        );
        let document: serde_json::Value = serde_json::from_slice(answer.body()).unwrap();
        assert_eq!(
            document["type"],
            "https://docs.example.com/retries?v=2#key-missing"
        );
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
            let refused = Refusals::default().documented_at(url);
            assert!(
                matches!(refused, Err(ConfigError::Documentation { .. })),
                "{url}"
            );
        }
    }
}
