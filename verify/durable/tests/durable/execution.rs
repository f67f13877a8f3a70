use aws_sdk_lambda::error::DisplayErrorContext;
use aws_sdk_lambda::primitives::Blob;
use aws_sdk_lambda::types::InvocationType;
use lambda_idempotency::Claim;

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the execution may have started or not: {0}")]
    NotStarted(String),
    /// It has run as a plain function, and runs again with each retry.
    #[error("the function is not durable")]
    NotDurable,
}

/// Starts an execution of this function, which is named with its version or alias, and returns the execution's ARN.
pub async fn start(
    lambda: &aws_sdk_lambda::Client,
    function: &str,
    claim: &Claim,
    payload: String,
) -> Result<String, StartError> {
    // The same in every attempt and version: Lambda answers a repetition with the first execution. Another one for each function: a name
    // is one execution in an account and region.
    let function_name = function
        .split_once(":function:")
        .map_or(function, |(_, name)| name);
    let function_name = function_name.split(':').next().unwrap_or(function_name);
    let name = claim.derive_key(&format!("execution of {function_name}"));
    let started = lambda
        .invoke()
        .function_name(function)
        .invocation_type(InvocationType::Event)
        .durable_execution_name(name)
        .payload(Blob::new(payload))
        .send()
        .await
        .map_err(|error| StartError::NotStarted(DisplayErrorContext(error).to_string()))?;
    let arn = started
        .durable_execution_arn
        .ok_or(StartError::NotDurable)?;
    Ok(arn)
}
