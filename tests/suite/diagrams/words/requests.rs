//! What a request asks: a read, or conditional writes.

use serde_json::Value;

use super::Words;

impl Words {
    pub(in crate::diagrams) fn request(&mut self, operation: &str, request: &Value) -> Vec<String> {
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
}
