//! Update and condition expressions, with their names and values in their places.

use serde_json::Value;

use super::Words;

impl Words {
    /// What an update expression sets and adds.
    pub(super) fn assignments(&mut self, write: &Value) -> String {
        let Some(update) = write["UpdateExpression"].as_str() else {
            return String::new();
        };
        let set = update.split(" REMOVE ").next().unwrap();
        if let Some(added) = set.strip_prefix("ADD ") {
            return format!("ADD {}", self.filled(added, write));
        }
        let mut said = Vec::new();
        for assignment in set.trim_start_matches("SET ").split(", ") {
            let Some((name, value)) = assignment.split_once(" = ") else {
                continue;
            };
            let name = self.filled(name, write);
            if self.shown.contains(&name.as_str()) {
                let value = &write["ExpressionAttributeValues"][value];
                said.push(self.assignment(&name, value));
            }
        }
        // Where nothing that is set is shown, what is removed may be.
        let shown = self.shown;
        if let (true, Some((_, removed))) = (said.is_empty(), update.split_once(" REMOVE ")) {
            let removed = removed.split(", ").map(|name| self.filled(name, write));
            let removed = removed.filter(|name| shown.contains(&name.as_str()));
            said.extend(removed.map(|name| format!("REMOVE {name}")));
        }
        said.join(", ")
    }

    /// An expression with its names and values in their places.
    pub(super) fn filled(&mut self, expression: &str, request: &Value) -> String {
        let mut filled = String::new();
        let mut rest = expression;
        while let Some(start) = rest.find(['#', ':']) {
            let (before, token) = rest.split_at(start);
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let end = token[1..]
                .find(|c| !is_part(c))
                .map_or(token.len(), |end| end + 1);
            let (token, after) = token.split_at(end);
            filled.push_str(before);
            let word = if token.starts_with('#') {
                request["ExpressionAttributeNames"][token]
                    .as_str()
                    .unwrap()
                    .to_owned()
            } else {
                self.value(&request["ExpressionAttributeValues"][token])
            };
            filled.push_str(&word);
            rest = after;
        }
        filled.push_str(rest);
        // A comparison stays on one line.
        [" = ", " < ", " >= "].iter().fold(filled, |filled, sign| {
            filled.replace(sign, &sign.replace(' ', "\u{a0}"))
        })
    }
}
