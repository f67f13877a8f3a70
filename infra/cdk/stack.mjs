// functions/payments-worker with its queue, as an AWS CDK stack. The table of the records, the policy and the alarms are the templates
// of infra/, as nested stacks.
import { fileURLToPath } from "node:url";

import { CfnOutput, CfnStack, Duration, RemovalPolicy, Stack } from "aws-cdk-lib";
import * as dynamodb from "aws-cdk-lib/aws-dynamodb";
import * as iam from "aws-cdk-lib/aws-iam";
import * as lambda from "aws-cdk-lib/aws-lambda";
import { SqsEventSource } from "aws-cdk-lib/aws-lambda-event-sources";
import * as logs from "aws-cdk-lib/aws-logs";
import { Asset } from "aws-cdk-lib/aws-s3-assets";
import * as sqs from "aws-cdk-lib/aws-sqs";

// The engine's, in the function's `main`.
const NAMESPACE = "payments-worker";
const TIMEOUT = Duration.seconds(20);
const LONGEST = Duration.days(14);

export class PaymentsStack extends Stack {
  constructor(scope, id, { program, architecture, deletionProtection, alarmTopicArn }) {
    super(scope, id);
    // Each stack has its own metrics: the alarms are given the same name.
    const metricNamespace = `LambdaIdempotency/${this.stackName}`;
    const nest = (name, file, parameters) => {
      const template = new Asset(this, `${name}Template`, { path: fileURLToPath(new URL(`../${file}`, import.meta.url)) });
      const nested = new CfnStack(this, name, { templateUrl: template.httpUrl, parameters });
      return (output) => nested.getAtt(`Outputs.${output}`).toString();
    };

    const records = nest("Idempotency", "table.yaml", {
      DeletionProtection: deletionProtection,
      AlarmTopicArn: alarmTopicArn,
    });
    const ledger = new dynamodb.TableV2(this, "Ledger", {
      partitionKey: { name: "entry_id", type: dynamodb.AttributeType.STRING },
      billing: dynamodb.Billing.onDemand(),
      pointInTimeRecoverySpecification: { pointInTimeRecoveryEnabled: true },
      deletionProtection: deletionProtection === "true",
      removalPolicy: RemovalPolicy.RETAIN,
    });

    const deadLetters = new sqs.Queue(this, "DeadLetters", {
      encryption: sqs.QueueEncryption.SQS_MANAGED,
      retentionPeriod: LONGEST,
      removalPolicy: RemovalPolicy.RETAIN,
    });
    const queue = new sqs.Queue(this, "Queue", {
      encryption: sqs.QueueEncryption.SQS_MANAGED,
      retentionPeriod: LONGEST,
      // A message doesn't come back while an attempt runs.
      visibilityTimeout: Duration.seconds(6 * TIMEOUT.toSeconds()),
      deadLetterQueue: { queue: deadLetters, maxReceiveCount: 5 },
      // A replaced queue keeps its messages, and `cdk destroy` leaves it.
      removalPolicy: RemovalPolicy.RETAIN,
    });

    const worker = new lambda.Function(this, "Worker", {
      runtime: lambda.Runtime.PROVIDED_AL2023,
      handler: "bootstrap",
      code: lambda.Code.fromAsset(program),
      architecture: architecture === "arm64" ? lambda.Architecture.ARM_64 : lambda.Architecture.X86_64,
      memorySize: 256,
      timeout: TIMEOUT,
      tracing: lambda.Tracing.ACTIVE,
      logGroup: new logs.LogGroup(this, "Log", {
        retention: logs.RetentionDays.ONE_MONTH,
        removalPolicy: RemovalPolicy.DESTROY,
      }),
      environment: {
        IDEMPOTENCY_TABLE: records("TableName"),
        LEDGER_TABLE: ledger.tableName,
        // Longer than a message can be delivered again: 14 days in each queue, and a redrive.
        RETENTION_DAYS: "56",
        METRIC_NAMESPACE: metricNamespace,
        RUST_LOG: "info",
      },
    });
    // The reply names the messages to be delivered again; without `reportBatchItemFailures`, one failure redelivers the whole batch.
    worker.addEventSource(
      new SqsEventSource(queue, { batchSize: 10, maxConcurrency: 5, reportBatchItemFailures: true }),
    );

    const policy = nest("Records", "policy.yaml", {
      TableArn: records("TableArn"),
      Adapter: "sqs",
      Namespace: NAMESPACE,
    });
    worker.role.addManagedPolicy(iam.ManagedPolicy.fromManagedPolicyArn(this, "RecordsPolicy", policy("PolicyArn")));
    ledger.grant(worker, "dynamodb:PutItem");

    nest("Alarms", "alarms.yaml", {
      Namespace: NAMESPACE,
      MetricNamespace: metricNamespace,
      AlarmTopicArn: alarmTopicArn,
    });
    nest("QueueAlarms", "queue-alarms.yaml", {
      QueueName: queue.queueName,
      DeadLetterQueueName: deadLetters.queueName,
      AlarmTopicArn: alarmTopicArn,
    });

    const outputs = {
      QueueUrl: queue.queueUrl,
      DeadLettersUrl: deadLetters.queueUrl,
      LedgerTable: ledger.tableName,
      IdempotencyTable: records("TableName"),
      FunctionName: worker.functionName,
    };
    for (const [name, value] of Object.entries(outputs)) {
      new CfnOutput(this, name, { value });
    }
  }
}
