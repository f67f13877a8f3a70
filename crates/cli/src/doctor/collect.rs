//! Asks AWS's APIs for the facts. A question that the role may not ask is reported as not checked.

mod function;
mod queue;
mod role;
mod table;

use aws_config::SdkConfig;
use aws_sdk_dynamodb::error::ProvideErrorMetadata;

use super::Args;
use super::facts::Deployment;
use super::finding::NotChecked;
use crate::context::Context;
use crate::failure::Failure;

/// The settings that the questions are asked with, and the facts that could not be checked.
struct Asking {
    config: SdkConfig,
    namespace: Option<String>,
    /// AWS's own command line, with the flags that lead it to the deployment.
    aws: String,
    not_checked: Vec<NotChecked>,
}

impl Asking {
    /// Returns the reply to a question, or records that it was not answered. `action` is what the role
    /// needs for it; a refusal may name another one, such as on a key of KMS.
    fn answered<R, E>(
        &mut self,
        what: impl Into<String>,
        action: &str,
        answer: Result<R, E>,
    ) -> Option<R>
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        let error = match answer {
            Ok(reply) => return Some(reply),
            Err(error) => error,
        };
        let why = match error.code() {
            Some(code) if code.contains("AccessDenied") => {
                let named = error.message().unwrap_or_default();
                format!("access denied: allow your role {action}, or what AWS names: {named}")
            }
            Some(code) => format!("{action}: {code}: {}", error.message().unwrap_or_default()),
            None => Failure::service(action, &error).to_string(),
        };
        self.not_asked(what, why);
        None
    }

    fn not_asked(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.not_checked.push(NotChecked {
            what: what.into(),
            why: why.into(),
        });
    }
}

/// The service of an ARN.
fn service(arn: &str) -> &str {
    arn.split(':').nth(2).unwrap_or_default()
}

/// Collects what can be known.
pub(super) async fn deployment(
    args: &Args,
    context: &Context,
) -> Result<(Deployment, Vec<NotChecked>), Failure> {
    let place = context.table().await?;
    let mut asking = Asking {
        config: context.aws().await?,
        namespace: context.global().namespace.clone(),
        aws: context.global().aws(),
        not_checked: Vec::new(),
    };
    let (table, clock) = table::ask(&mut asking, &place, &context.global().layout).await?;
    let mut functions = Vec::new();
    for name in &args.function {
        functions.push(function::ask(&mut asking, args, name, table.arn.as_deref()).await?);
    }
    if functions.is_empty() {
        asking.not_asked("functions", "name them: --function NAME");
    }
    if args.cargo_lock.is_none() {
        asking.not_asked(
            "tls-stack",
            "give the functions' lock file: --cargo-lock Cargo.lock",
        );
    }
    let deployment = Deployment {
        aws: asking.aws,
        tables: vec![table],
        functions,
        settings: args.settings.clone(),
        clock_ahead_millis: clock,
        second_tls: None,
    };
    Ok((deployment, asking.not_checked))
}
