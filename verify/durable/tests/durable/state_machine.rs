use aws_sdk_sfn::error::DisplayErrorContext;
use aws_sdk_sfn::operation::start_execution::StartExecutionError;
use lambda_idempotency::Claim;

#[derive(Debug, thiserror::Error)]
#[error("the execution may have started or not: {0}")]
pub struct NotStarted(String);

/// Starts an execution of this Standard state machine, and returns the execution's ARN.
pub async fn start(
    states: &aws_sdk_sfn::Client,
    machine: &str,
    claim: &Claim,
    input: String,
) -> Result<String, NotStarted> {
    let name = claim.derive_key("execution");
    // An execution's ARN has no version or alias.
    let machine_alone: Vec<&str> = machine.split(':').take(7).collect();
    let execution = machine_alone
        .join(":")
        .replacen(":stateMachine:", ":execution:", 1);
    let start = states.start_execution().state_machine_arn(machine);
    match start.name(&name).input(input).send().await {
        Ok(started) => Ok(started.execution_arn),
        Err(error) => match error.as_service_error() {
            // An earlier attempt started it, and it has ended.
            Some(StartExecutionError::ExecutionAlreadyExists(_)) => {
                Ok(format!("{execution}:{name}"))
            }
            _ => Err(NotStarted(DisplayErrorContext(error).to_string())),
        },
    }
}
