//! Compiles a JMESPath expression, and searches a JSON text with it.

use std::fmt;

use jmespath::{Expression, Variable, compile};

use crate::protocol::selector::is_json;

/// Holds a compiled expression.
pub(crate) struct Query(Expression<'static>);

impl Query {
    /// Compiles an expression; an error is the compiler's reason, in one line.
    pub(super) fn compile(expression: &str) -> Result<Self, String> {
        compile(expression).map(Self).map_err(|error| {
            // The other lines draw the expression once more.
            let reason = error.to_string();
            reason.lines().next().unwrap_or_default().to_owned()
        })
    }

    /// Finds a value in a text, as JSON text. An error is the parser's reason, which quotes nothing: the
    /// text is JSON, but not all of it can be decoded.
    pub(super) fn find(&self, text: &str) -> Result<Option<String>, String> {
        let body = match Variable::from_json(text) {
            Ok(body) => body,
            Err(reason) if is_json(text) => return Err(reason),
            Err(_) => return Ok(None),
        };
        let found = self.0.search(body).ok().filter(|found| !found.is_expref());
        Ok(found.and_then(|found| serde_json::to_string(&found).ok()))
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::selector::Selector;

    fn find(expression: &str) -> Option<String> {
        let text =
            r#"{"detail": {"tenant": "t-1", "order": 17, "lines": [{"id": "a"}, {"id": "b"}]}}"#;
        Query::compile(expression).unwrap().find(text).unwrap()
    }

    #[test]
    fn an_expression_finds_and_composes() {
        assert_eq!(find("detail.order").as_deref(), Some("17"));
        assert_eq!(
            find("[detail.tenant, detail.order]").as_deref(),
            Some(r#"["t-1",17]"#)
        );
        assert_eq!(find("detail.lines[].id").as_deref(), Some(r#"["a","b"]"#));
        assert_eq!(
            find("join('-', [detail.tenant, 'x'])").as_deref(),
            Some(r#""t-1-x""#)
        );
    }

    #[test]
    fn what_is_not_there_is_null_or_nothing() {
        assert_eq!(find("detail.nothing").as_deref(), Some("null"));
        assert_eq!(find("join('-', [detail.tenant, detail.nothing])"), None);
        assert_eq!(find("&detail"), None);
    }

    #[test]
    fn json_that_cannot_be_decoded_is_not_taken_for_one_without_the_value() {
        let id = Query::compile("id").unwrap();
        let deep = format!(r#"{{"id":7,"a":{}{}}}"#, "[".repeat(200), "]".repeat(200));
        for text in [
            r#"{"id":7,"a":"\ud83d"}"#,
            r#"{"id":7,"\ud83d":1}"#,
            r#"{"id":7,"a":1e400}"#,
            &deep,
        ] {
            assert!(id.find(text).is_err(), "{text}");
        }
        assert_eq!(id.find("id=7"), Ok(None));
    }

    #[test]
    fn an_expression_that_does_not_compile_says_where() {
        let error = Selector::jmespath("detail.[").unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains("`detail.[`") && said.lines().count() == 1,
            "{said}"
        );
        assert!(said.contains("line 0, column"), "{said}");
    }
}
