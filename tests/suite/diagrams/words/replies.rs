//! What an answer says, and whether it refuses.

use serde_json::Value;

use super::Words;

impl Words {
    pub(in crate::diagrams) fn refused(status: u16, reply: &Value) -> bool {
        let has_failed = |answer: &Value| answer.get("Error").is_some();
        let mut answers = reply["Responses"].as_array().into_iter().flatten();
        status != 200 || answers.any(has_failed)
    }

    pub(in crate::diagrams) fn reply(
        &mut self,
        operation: &str,
        status: u16,
        reply: &Value,
    ) -> Vec<String> {
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
}
