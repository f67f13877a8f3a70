//! Says why an event is not one of its source.

/// Says why an event is not one of its source, without any of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::invoke) enum KindError {
    #[error(
        "the event is no SNS notification (JSON with `Records`, and in its one record `Sns` with the texts `Type`, `MessageId`, `TopicArn` and `Message`)"
    )]
    Sns,
    #[error("the SNS event has another number of records than one")]
    SnsRecords,
    #[error(
        "the event is none of an EventBridge bus (JSON with `id`, `source`, `detail-type` and `detail`): where the rule's target has an input path or a transformer, use `InvokeLayer::new` with a key"
    )]
    EventBridge,
    #[error(
        "the event doesn't name its schedule and its time: put \"schedule_arn\": \"<aws.scheduler.schedule-arn>\" and \"scheduled_time\": \"<aws.scheduler.scheduled-time>\" into the schedule's input, or set a key"
    )]
    Scheduler,
    #[error(
        "a placeholder of the event was not replaced: EventBridge Scheduler replaces `<aws.scheduler.schedule-arn>` and `<aws.scheduler.scheduled-time>` in a schedule's input; a rule of EventBridge doesn't"
    )]
    SchedulerPlaceholder,
    #[error("the event's \"schedule_arn\" is no ARN: fill it from <aws.scheduler.schedule-arn>")]
    SchedulerArn,
    #[error(
        "the payload doesn't name the execution and its state: put \"idempotency\": {{\"execution\": …, \"state\": …}} into it, from `$$.Execution.Id` and `$$.State.Name` in JSONPath, or from `$states.context.Execution.Id` and `$states.context.State.Name` in JSONata; or set a key"
    )]
    StepFunctions,
    #[error(
        "a value of the payload's \"idempotency\" is a path that Step Functions did not evaluate: in JSONPath the member's name ends with `.$`, in JSONata the value is in `{{% … %}}` and the state's query language is JSONata"
    )]
    StepFunctionsPath,
    #[error(
        "`execution` of the payload's \"idempotency\" is no ARN: fill it from `$$.Execution.Id` in JSONPath, from `$states.context.Execution.Id` in JSONata; an execution's name may be used again"
    )]
    StepFunctionsArn,
    #[error(
        "`index` and `iteration` of the payload's \"idempotency\" are texts or numbers: leave out what a state doesn't have"
    )]
    StepFunctionsPart,
    #[error(
        "the event invokes a durable execution, and its answer holds for this invocation alone: take the layer off the durable function, and call `Idempotency::run` inside of `ctx.step`, with a key of the execution or of the work; `derive_key` of the step's claim is for the effect"
    )]
    Durable,
    #[error(
        "the event is none of an S3 Batch Operations job (JSON with `invocationSchemaVersion`, `invocationId`, `job.id`, and in its one task `taskId`, `s3Key`, and `s3BucketArn` or `s3Bucket`)"
    )]
    S3Batch,
    #[error("the event of the S3 Batch Operations job has another number of tasks than one")]
    S3BatchTasks,
    #[error("the object's key is no UTF-8 when it is URL-decoded")]
    S3BatchKey,
}
