//! Says in words what a request asks of DynamoDB, and what the answer is. Pure.
//!
//! Names and values of an expression are put in their places. What differs from run to run gets a name of its own: the first owner is
//! "owner 1", the second payload "payload 2"; times count from the beginning of the run.

use lambda_idempotency::EpochMillis;
use serde_json::{Map, Value};

const DAY: i64 = 86_400;

pub(super) struct Words {
    began: i64,
    shown: &'static [&'static str],
    owners: Vec<String>,
    payloads: Vec<String>,
}

/// An attribute of a statement, and its value.
struct Pair {
    is_condition: bool,
    words: String,
}

/// The name of a hexadecimal text, by the order in which such texts came.
fn named(known: &mut Vec<String>, text: &str, kind: &str) -> String {
    let place = known.iter().position(|own| own == text).unwrap_or_else(|| {
        known.push(text.to_owned());
        known.len() - 1
    });
    format!("{kind}\u{a0}{}", place + 1)
}

impl Words {
    pub(super) fn new(began: EpochMillis, shown: &'static [&'static str]) -> Self {
        Self {
            began: began.0,
            shown,
            owners: Vec::new(),
            payloads: Vec::new(),
        }
    }

    /// A time in milliseconds, counted from the beginning.
    pub(super) fn time(&self, millis: i64) -> String {
        let seconds = (millis - self.began) / 1_000;
        match seconds / DAY {
            0 => format!("{}:{:02}", seconds / 60, seconds % 60),
            days => format!("{days} days"),
        }
    }

    pub(super) fn request(&mut self, operation: &str, request: &Value) -> Vec<String> {
        match operation {
            "TransactWriteItems" => {
                let mut lines = vec![operation.to_owned()];
                for item in request["TransactItems"].as_array().unwrap() {
                    let (kind, write) = item.as_object().unwrap().iter().next().unwrap();
                    lines.extend(self.write(kind, write));
                }
                lines
            }
            "BatchExecuteStatement" => self.statements(operation, request),
            "GetItem" => {
                let consistent = request["ConsistentRead"] == true;
                vec![format!(
                    "GetItem{}",
                    if consistent { ", consistent read" } else { "" }
                )]
            }
            "BatchGetItem" => {
                let keys = request["RequestItems"].as_object().unwrap().values();
                let count: usize = keys
                    .map(|table| table["Keys"].as_array().unwrap().len())
                    .sum();
                vec![format!(
                    "BatchGetItem, {count} key{}",
                    if count == 1 { "" } else { "s" }
                )]
            }
            _ => self.write(operation, request),
        }
    }

    /// One conditional write.
    fn write(&mut self, kind: &str, write: &Value) -> Vec<String> {
        let table = write["TableName"].as_str().unwrap();
        let table = table.rsplit_once('-').map_or(table, |(name, _)| name);
        let business = if table == "idempotency" {
            String::new()
        } else {
            format!(" {table}")
        };
        let mut lines = Vec::new();
        let changes = match write.get("Item") {
            Some(Value::Object(item)) => self.attributes(item),
            _ => self.assignments(write),
        };
        let separator = if changes.is_empty() { "" } else { ": " };
        lines.push(format!("{kind}{business}{separator}{changes}"));
        if let Some(condition) = write["ConditionExpression"].as_str() {
            lines.push(format!("if {}", self.filled(condition, write)));
        }
        lines
    }

    /// Statements of PartiQL. An INSERT is conditional by nature: it is refused where the key exists.
    fn statements(&mut self, operation: &str, request: &Value) -> Vec<String> {
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

    pub(super) fn refused(status: u16, reply: &Value) -> bool {
        let has_failed = |answer: &Value| answer.get("Error").is_some();
        let mut answers = reply["Responses"].as_array().into_iter().flatten();
        status != 200 || answers.any(has_failed)
    }

    pub(super) fn reply(&mut self, operation: &str, status: u16, reply: &Value) -> Vec<String> {
        if status != 200 {
            let kind = reply["__type"]
                .as_str()
                .unwrap()
                .rsplit('#')
                .next()
                .unwrap();
            let mut line = kind.to_owned();
            if let Some(Value::Object(item)) = reply.get("Item") {
                line = format!("{line}: {}", self.attributes(item));
            }
            return vec![line];
        }
        if operation == "BatchExecuteStatement" {
            let answers = reply["Responses"].as_array().unwrap();
            let mut lines = Vec::new();
            for answer in answers {
                let code = answer["Error"]["Code"].as_str();
                let item = answer["Error"]["Item"].as_object();
                let mut line = code.unwrap_or("OK").to_owned();
                if let Some(item) = item {
                    line = format!("{line}: {}", self.attributes(item));
                }
                lines.push(line);
            }
            lines.dedup();
            return lines;
        }
        let item = ["Item", "Attributes"]
            .into_iter()
            .find_map(|name| reply.get(name)?.as_object());
        let Some(item) = item else {
            return vec!["OK".to_owned()];
        };
        vec![format!("OK: {}", self.attributes(item))]
    }

    /// The attributes that are shown, in the order in which they are.
    fn attributes(&mut self, item: &Map<String, Value>) -> String {
        let shown = self
            .shown
            .iter()
            .filter_map(|name| Some((*name, item.get(*name)?)));
        let said: Vec<_> = shown
            .map(|(name, value)| self.assignment(name, value))
            .collect();
        said.join(", ")
    }

    /// What an update expression sets and adds.
    fn assignments(&mut self, write: &Value) -> String {
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

    fn assignment(&mut self, name: &str, value: &Value) -> String {
        match name {
            "in_progress_expiration" => format!("lease\u{a0}until\u{a0}{}", self.value(value)),
            _ => format!("{name}\u{a0}=\u{a0}{}", self.value(value)),
        }
    }

    /// An expression with its names and values in their places.
    fn filled(&mut self, expression: &str, request: &Value) -> String {
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

    fn value(&mut self, value: &Value) -> String {
        let (kind, value) = value.as_object().unwrap().iter().next().unwrap();
        match (kind.as_str(), value) {
            ("M", Value::Object(entry)) => {
                let state = self.value(&entry["state"]);
                let result = entry
                    .get("result")
                    .map(|result| format!(", result {}", self.value(result)));
                format!("{state}{}", result.unwrap_or_default())
            }
            ("N", Value::String(number)) => match number.parse::<i64>() {
                Ok(millis) if millis > 1_000_000_000_000 => self.time(millis),
                Ok(seconds) if seconds > 1_000_000_000 => self.time(seconds * 1_000),
                _ => number.clone(),
            },
            ("S", Value::String(text)) => {
                let is_hex = text.chars().all(|c| c.is_ascii_hexdigit());
                match text.len() {
                    32 if is_hex => named(&mut self.owners, text, "owner"),
                    64 if is_hex => named(&mut self.payloads, text, "payload"),
                    _ => text.trim_matches('"').to_owned(),
                }
            }
            _ => value.to_string(),
        }
    }
}
