//! The text of a request to DynamoDB, and of its answer, in the few words that an arrow has room for. Pure.
//!
//! A value that differs from run to run gets a name: the first owner is "owner 1", the second payload "payload 2". Times are seconds since
//! the start.

use std::collections::BTreeSet;

use lambda_idempotency::EpochMillis;
use serde_json::Value;

pub(super) struct Words {
    began: EpochMillis,
    /// The attributes that are shown, in this order; no others are.
    shown: &'static [&'static str],
    owners: Vec<String>,
    payloads: Vec<String>,
}

/// A text's number, by the order in which such texts came.
pub(super) fn number(known: &mut Vec<String>, text: &str) -> usize {
    let place = known.iter().position(|own| own == text);
    place.unwrap_or_else(|| {
        known.push(text.to_owned());
        known.len() - 1
    }) + 1
}

/// The names, signs and placeholders of an expression.
fn tokens(expression: &str) -> Vec<&str> {
    let parts = expression.split([' ', ',', '(', ')']);
    parts.filter(|part| !part.is_empty()).collect()
}

impl Words {
    pub(super) fn new(began: EpochMillis, shown: &'static [&'static str]) -> Self {
        Self {
            began,
            shown,
            owners: Vec::new(),
            payloads: Vec::new(),
        }
    }

    pub(super) fn seconds(&self, time: EpochMillis) -> i64 {
        (time.0 - self.began.0) / 1_000
    }

    /// One line for the operation and what it changes, one for its condition; a transaction has both for each of its writes.
    pub(super) fn request(&mut self, operation: &str, request: &Value) -> Vec<String> {
        match operation {
            "TransactWriteItems" => {
                let items = request["TransactItems"].as_array().unwrap().iter();
                let writes = items.flat_map(|item| item.as_object().unwrap());
                let lines = writes.flat_map(|(kind, write)| self.write(kind, write));
                [operation.to_owned()].into_iter().chain(lines).collect()
            }
            "BatchExecuteStatement" => self.statements(operation, &request["Statements"]),
            "BatchGetItem" => vec![operation.to_owned()],
            _ => self.write(operation, request),
        }
    }

    /// Statements of PartiQL that differ in their values alone. An INSERT is refused where the key exists.
    fn statements(&self, operation: &str, statements: &Value) -> Vec<String> {
        let statements = statements.as_array().unwrap();
        let texts = statements
            .iter()
            .map(|one| one["Statement"].as_str().unwrap());
        let texts: BTreeSet<_> = texts.collect();
        assert_eq!(texts.len(), 1, "{texts:?}");
        let text = texts.first().unwrap();
        let verb = text.split(' ').next().unwrap();
        let condition = match text.split_once(" WHERE ") {
            None => "new".to_owned(),
            Some((_, condition)) => {
                let names = condition.split('"').skip(1).step_by(2);
                let shown: Vec<_> = names.filter(|name| self.shown.contains(name)).collect();
                format!("{} match", shown.join(" and "))
            }
        };
        let count = format!("{} × {verb}", statements.len());
        vec![operation.to_owned(), count, format!("each if {condition}")]
    }

    fn write(&mut self, kind: &str, write: &Value) -> Vec<String> {
        let table = write["TableName"].as_str().unwrap();
        let table = table.rsplit_once('-').map_or(table, |(name, _)| name);
        let kind = match table {
            "idempotency" => kind.to_owned(),
            _ => format!("{kind} {table}"),
        };
        let changes = match write["UpdateExpression"].as_str() {
            Some(update) => self.update(&tokens(update), write),
            None => self.attributes(&write["Item"]),
        };
        let condition = write["ConditionExpression"].as_str().unwrap_or_default();
        let conditions = match tokens(condition)[..] {
            ["attribute_not_exists", _] => vec!["new".to_owned()],
            ["attribute_exists", _] => vec!["there".to_owned()],
            ref tokens => self.comparisons(tokens, write),
        };
        let mut lines = vec![format!("{kind}: {}", changes.join(", "))];
        if !conditions.is_empty() {
            lines.push(format!("if {}", conditions.join(", ")));
        }
        lines
    }

    /// Returns the values that an update sets or adds; the attributes that it removes, where it has no such values to show.
    fn update(&mut self, tokens: &[&str], write: &Value) -> Vec<String> {
        if let ["ADD", name, value] = tokens {
            let value = &write["ExpressionAttributeValues"][value]["N"];
            return vec![format!("ADD\u{a0}{name}\u{a0}{}", value.as_str().unwrap())];
        }
        let said = self.comparisons(tokens, write);
        if !said.is_empty() {
            return said;
        }
        let removed = tokens.iter().skip_while(|token| **token != "REMOVE");
        let names = removed.map(|token| Self::name(token, write));
        let shown = names.filter(|name| self.shown.contains(&name.as_str()));
        shown.map(|name| format!("REMOVE {name}")).collect()
    }

    fn name(token: &str, write: &Value) -> String {
        let name = write["ExpressionAttributeNames"][token].as_str();
        name.unwrap_or(token).to_owned()
    }

    /// The comparisons and assignments of an expression whose attributes are shown.
    fn comparisons(&mut self, tokens: &[&str], write: &Value) -> Vec<String> {
        let mut said = Vec::new();
        for part in tokens.windows(3) {
            let (name, sign, value) = (Self::name(part[0], write), part[1], part[2]);
            if self.shown.contains(&name.as_str()) && value.starts_with(':') {
                let value = &write["ExpressionAttributeValues"][value];
                said.push(self.said(&name, value).replace('=', sign));
            }
        }
        said
    }

    /// The shown attributes of an item.
    fn attributes(&mut self, item: &Value) -> Vec<String> {
        let shown = self.shown.iter();
        let shown = shown.filter_map(|name| Some((name, item.get(name)?)));
        shown.map(|(name, value)| self.said(name, value)).collect()
    }

    /// An attribute, which stays on one line. A value that tells what it is has no name.
    fn said(&mut self, name: &str, value: &Value) -> String {
        let value = value.as_object().unwrap().values().next().unwrap();
        if let Some(step) = name.strip_prefix("step:") {
            let mut said = format!("{step}\u{a0}{}", self.said("status", &value["state"]));
            if let Some(result) = value.get("result").filter(|result| result["S"] != "null") {
                said = format!("{said}, {}", self.said("data", result));
            }
            return said;
        }
        let text = value.as_str().unwrap().trim_matches('"');
        let said = match name {
            "status" | "data" => text.to_owned(),
            "owner" => format!("owner {}", number(&mut self.owners, text)),
            "validation" => format!("payload {}", number(&mut self.payloads, text)),
            "in_progress_expiration" => {
                let end = EpochMillis(text.parse().unwrap());
                format!("lease until {} s", self.seconds(end))
            }
            _ => format!("{name} = {text}"),
        };
        said.replace(' ', "\u{a0}")
    }

    pub(super) fn is_refused(status: u16, reply: &Value) -> bool {
        let mut answers = reply["Responses"].as_array().into_iter().flatten();
        status != 200 || answers.any(|answer| answer.get("Error").is_some())
    }

    /// An answer: what it refuses with; or what it brings beside what was asked for.
    pub(super) fn reply(&mut self, sent: &[String], status: u16, reply: &Value) -> String {
        let is_refused = Self::is_refused(status, reply);
        let word = if is_refused { "refused" } else { "OK" };
        let item = ["Item", "Attributes"]
            .into_iter()
            .find_map(|name| reply.get(name));
        let mut said = item.map(|item| self.attributes(item)).unwrap_or_default();
        said.retain(|said| is_refused || !sent.iter().any(|line| line.contains(said)));
        if said.is_empty() {
            word.to_owned()
        } else {
            format!("{word}: {}", said.join(", "))
        }
    }
}
