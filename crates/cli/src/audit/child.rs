//! Effects that a command counts.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::Stdio;

use lambda_idempotency_audit::{Asked, AuditError, Effects};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::time;

/// A line of the command's input.
#[derive(Serialize)]
struct Question<'a> {
    id: &'a str,
    key: &'a str,
    completed_at: Option<String>,
    outcome: Option<&'a str>,
}

/// A line of its output.
#[derive(Deserialize)]
struct Answer {
    id: String,
    effects: u64,
}

/// Counts by a command, which is started anew for the records of each call: it may read all of its
/// input before it answers.
pub(super) struct ChildEffects {
    command: String,
}

impl ChildEffects {
    pub(super) fn new(command: &str) -> Self {
        Self {
            command: command.to_owned(),
        }
    }

    fn failed(&self, words: impl std::fmt::Display) -> AuditError {
        AuditError::Effects(format!("`{}` {words}", self.command))
    }

    async fn run(&self, input: String) -> Result<String, AuditError> {
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", &self.command])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        // What it says to the person goes to the terminal.
        let mut child = shell
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| self.failed(error))?;
        let stdin = child.stdin.take();
        let write = async move {
            if let Some(mut stdin) = stdin {
                // One that has read enough may close it: what it answers tells.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
        };
        let ((), output) = tokio::join!(write, child.wait_with_output());
        let output = output.map_err(|error| self.failed(error))?;
        if !output.status.success() {
            return Err(self.failed(format_args!("ended with {}", output.status)));
        }
        String::from_utf8(output.stdout).map_err(|_| self.failed("printed what is no UTF-8"))
    }
}

impl Effects for ChildEffects {
    async fn count(&mut self, asked: &[Asked]) -> Result<Vec<u64>, AuditError> {
        let mut input = String::new();
        for one in asked {
            let question = Question {
                id: &one.record.id,
                key: &one.key,
                completed_at: one.record.completed_at.map(time::text),
                outcome: one.record.outcome.as_deref(),
            };
            let line = serde_json::to_string(&question).unwrap_or_default();
            let _ = writeln!(input, "{line}");
        }
        let text = self.run(input).await?;
        let mut counts = HashMap::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let answer: Answer = serde_json::from_str(line).map_err(|error| {
                self.failed(format_args!(
                    "printed a line that is no {{\"id\", \"effects\"}} ({error}): {line}"
                ))
            })?;
            counts.insert(answer.id, answer.effects);
        }
        let missing = |id: &str| self.failed(format_args!("printed no line for the record {id}"));
        asked
            .iter()
            .map(|one| {
                counts
                    .get(&one.record.id)
                    .copied()
                    .ok_or_else(|| missing(&one.record.id))
            })
            .collect()
    }
}
