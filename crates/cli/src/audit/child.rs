//! Effects that a command counts.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::Stdio;
use std::time::Duration;

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
    /// The time that each run may take.
    timeout: Duration,
}

impl ChildEffects {
    pub(super) fn new(command: &str, timeout: Duration) -> Self {
        Self {
            command: command.to_owned(),
            timeout,
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
        // Its standard error goes to the terminal. It is stopped together with all that it starts, in a
        // group that the terminal's Ctrl-C doesn't reach.
        shell.process_group(0);
        let mut child = shell.spawn().map_err(|error| self.failed(error))?;
        let group = Group(child.id());
        let stdin = child.stdin.take();
        let write = async move {
            if let Some(mut stdin) = stdin {
                // One that has read enough may close it: what it answers tells.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
        };
        let ended = tokio::select! {
            ended = async { tokio::join!(write, child.wait_with_output()) } => ended,
            () = tokio::time::sleep(self.timeout) => {
                let time = time::length(self.timeout);
                return Err(self.failed(format_args!(
                    "did not end within {time}, and was stopped: give it more by --timeout"
                )));
            }
        };
        group.has_ended();
        let ((), output) = ended;
        let output = output.map_err(|error| self.failed(error))?;
        if !output.status.success() {
            return Err(self.failed(format_args!("ended with {}", output.status)));
        }
        String::from_utf8(output.stdout).map_err(|_| self.failed("printed what is no UTF-8"))
    }
}

/// A process, and what it has started: stopped where it is dropped.
struct Group(Option<u32>);

impl Group {
    /// There is nothing to stop any more.
    fn has_ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let stop = ["-c", &format!("kill -KILL -{group}")];
            // One that has just ended can't be stopped.
            let _ = std::process::Command::new("/bin/sh").args(stop).output();
        }
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
        let mut counts: HashMap<&str, Option<u64>> =
            asked.iter().map(|one| (&*one.record.id, None)).collect();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let answer: Answer = serde_json::from_str(line).map_err(|error| {
                self.failed(format_args!(
                    "printed a line that is no {{\"id\", \"effects\"}} ({error}): {line}"
                ))
            })?;
            let Some(count) = counts.get_mut(answer.id.as_str()) else {
                return Err(self.failed(format_args!(
                    "printed a line for a record that it was not asked for: {}",
                    answer.id
                )));
            };
            // A line for each effect is as good as one for all: none may hide another.
            *count = Some(count.unwrap_or(0).saturating_add(answer.effects));
        }
        asked
            .iter()
            .map(|one| {
                let id = &one.record.id;
                let count = counts.get(&**id).copied().flatten();
                count
                    .ok_or_else(|| self.failed(format_args!("printed no line for the record {id}")))
            })
            .collect()
    }
}
