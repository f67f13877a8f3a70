use aws_sdk_lambda::error::DisplayErrorContext;
use aws_sdk_lambda::primitives::Blob;
use aws_sdk_lambda::types::InvocationType;
use lambda_idempotency::Claim;

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the execution may have started or not: {0}")]
    NotStarted(String),
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
    let started = lambda
        .invoke()
        .function_name(function)
        .invocation_type(InvocationType::Event)
        // The same in every attempt, so that Lambda answers a repetition with the first one's execution.
        .durable_execution_name(claim.derive_key("execution"))
        .payload(Blob::new(payload))
        .send()
        .await
        .map_err(|error| StartError::NotStarted(DisplayErrorContext(error).to_string()))?;
    let arn = started
        .durable_execution_arn
        .ok_or(StartError::NotDurable)?;
    Ok(arn)
}
