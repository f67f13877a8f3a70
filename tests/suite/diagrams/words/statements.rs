//! What a batch of PartiQL statements asks.

use serde_json::Value;

use super::Words;

/// An attribute of a statement, and its value.
struct Pair {
    is_condition: bool,
    words: String,
}

impl Words {
    /// Statements of PartiQL. An INSERT is conditional by nature: it is refused where the key exists.
    pub(super) fn statements(&mut self, operation: &str, request: &Value) -> Vec<String> {
        let mut lines = vec![operation.to_owned()];
        for statement in request["Statements"].as_array().unwrap() {
            let text = statement["Statement"].as_str().unwrap();
            let parameters = statement["Parameters"].as_array().unwrap();
            let pairs = self.pairs(text, parameters);
            let said = |is_condition: bool, separator: &str| {
                let of_it = pairs
                    .iter()
                    .filter(|pair| pair.is_condition == is_condition);
                let words: Vec<_> = of_it.map(|pair| pair.words.clone()).collect();
                words.join(separator)
            };
            let verb = text.split(' ').next().unwrap();
            lines.push(format!("{verb}: {}", said(false, ", ")));
            lines.push(match verb {
                "INSERT" => "if the key is new".to_owned(),
                _ => format!("if {}", said(true, " AND ")),
            });
        }
        lines
    }

    /// The shown attributes of a statement with their values: `'name':value`, `"name"=value`, where `?` is the next parameter.
    fn pairs(&mut self, text: &str, parameters: &[Value]) -> Vec<Pair> {
        let conditions = text.find(" WHERE ").unwrap_or(text.len());
        let mut parameters = parameters.iter();
        let mut pairs = Vec::new();
        for (place, separator) in text.match_indices([':', '=']) {
            let before = text[..place].trim_end_matches(['\'', '"']);
            let name = before.rsplit(['\'', '"']).next().unwrap();
            let value = &text[place + separator.len()..];
            let words = if value.starts_with('?') {
                self.assignment(name, parameters.next().unwrap())
            } else {
                let end = value[1..]
                    .find(['\'', ',', '}', ' '])
                    .map_or(value.len(), |end| end + 1);
                format!("{name}\u{a0}=\u{a0}{}", value[..end].trim_matches('\''))
            };
            if self.shown.contains(&name) {
                let is_condition = place > conditions;
                pairs.push(Pair {
                    is_condition,
                    words,
                });
            }
        }
        pairs
    }
}
