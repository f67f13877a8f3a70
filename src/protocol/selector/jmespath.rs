//! Compiles a JMESPath expression, and searches a JSON text with it.

use std::fmt;

use jmespath::{Expression, Variable, compile};

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

    /// Finds a value in a text, as JSON text.
    pub(super) fn find(&self, text: &str) -> Option<String> {
        let body = Variable::from_json(text).ok()?;
        let found = self.0.search(body).ok()?;
        (!found.is_expref())
            .then(|| serde_json::to_string(&found).ok())
            .flatten()
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
    use crate::protocol::selector::JsonSelector;

    fn find(expression: &str) -> Option<String> {
        let text =
            r#"{"detail": {"tenant": "t-1", "order": 17, "lines": [{"id": "a"}, {"id": "b"}]}}"#;
        Query::compile(expression).unwrap().find(text)
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
    fn an_expression_that_does_not_compile_says_where() {
        let error = JsonSelector::jmespath("detail.[").unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains("`detail.[`") && said.lines().count() == 1,
            "{said}"
        );
        assert!(said.contains("line 0, column"), "{said}");
    }
}
