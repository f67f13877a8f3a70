//! Asks IAM, by its simulation, which actions a role lacks.

use aws_sdk_iam::Client;
use aws_sdk_iam::types::{
    ContextEntry, ContextKeyTypeEnum, PolicyEvaluationDecisionType as Decision,
};

use super::Asking;
use crate::doctor::Adapter;

/// The actions that every adapter needs on the table.
const ALWAYS: [&str; 2] = ["dynamodb:PutItem", "dynamodb:UpdateItem"];
/// The actions that batches need, too. Others read only where they wait for an attempt, or keep large
/// outcomes, which nothing tells here.
const BATCHES: [&str; 4] = [
    "dynamodb:GetItem",
    "dynamodb:PartiQLInsert",
    "dynamodb:PartiQLUpdate",
    "dynamodb:BatchGetItem",
];

/// The actions that the adapter needs, as `docs/reference/iam.md` has them.
pub(super) fn needed(adapter: Adapter) -> Vec<&'static str> {
    let batches = if adapter == Adapter::Batch {
        &BATCHES[..]
    } else {
        &[]
    };
    ALWAYS.iter().chain(batches).copied().collect()
}

pub(super) async fn missing(
    asking: &mut Asking,
    adapter: Adapter,
    function: &str,
    role: &str,
    table: &str,
) -> Option<Vec<String>> {
    let client = Client::new(&asking.config);
    let actions = needed(adapter).into_iter().map(str::to_owned).collect();
    let simulate = client
        .simulate_principal_policy()
        .policy_source_arn(role)
        .set_action_names(Some(actions))
        .resource_arns(table)
        .set_context_entries(asking_for_namespace(asking));
    let (what, answer) = (format!("permissions of {function}"), simulate.send().await);
    let reply = asking.answered(what, "iam:SimulatePrincipalPolicy", answer)?;
    let results = reply.evaluation_results.unwrap_or_default();
    let denied = results
        .into_iter()
        .filter(|result| result.eval_decision != Decision::Allowed);
    Some(denied.map(|result| result.eval_action_name).collect())
}

/// A role that is confined to a namespace is allowed its keys alone.
fn asking_for_namespace(asking: &Asking) -> Option<Vec<ContextEntry>> {
    let namespace = asking.namespace.as_deref()?;
    let entry = ContextEntry::builder()
        .context_key_name("dynamodb:LeadingKeys")
        .context_key_type(ContextKeyTypeEnum::StringList)
        .context_key_values(format!("{namespace}#any"));
    Some(vec![entry.build()])
}
