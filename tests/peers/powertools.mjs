// Powertools for AWS Lambda (TypeScript), for the tests: `powertools.mjs ENDPOINT TABLE SCENARIO` plays one and says what it saw as JSON.

import { createRequire } from 'node:module';

// The packages lie where `scripts/with` installed them, not beside this file.
const require = createRequire(`${process.cwd()}/`);
const { DynamoDBClient } = require('@aws-sdk/client-dynamodb');
const { BatchProcessor, EventType, processPartialResponse } = require('@aws-lambda-powertools/batch');
const { IdempotencyConfig, makeIdempotent } = require('@aws-lambda-powertools/idempotency');
const { DynamoDBPersistenceLayer } = require('@aws-lambda-powertools/idempotency/dynamodb');

const [endpoint, tableName, scenario] = process.argv.slice(2);
const context = {
  functionName: 'payments-prod',
  memoryLimitInMB: '128',
  invokedFunctionArn: 'arn:aws:lambda:eu-central-1:123456789012:function:payments-prod',
  awsRequestId: 'request',
  getRemainingTimeInMillis: () => 60_000,
};
const client = new DynamoDBClient({
  endpoint,
  region: 'eu-central-1',
  credentials: { accessKeyId: 'test', secretAccessKey: 'test' },
});
const persistenceStore = new DynamoDBPersistenceLayer({ tableName, awsSdkV3Client: client });
const config = new IdempotencyConfig({ eventKeyJmesPath: 'order_id', lambdaContext: context });
const guard = (work, keyPrefix) => makeIdempotent(work, { persistenceStore, config, keyPrefix });
const attempt = (promise) => promise.catch((error) => error.name);

const scenarios = {
  // Two messages that are the same payment. The processor runs a batch's messages side by side; the work ends when both have asked.
  async twice_in_a_batch() {
    let [runs, asked] = [0, 0];
    const count = (next, { commandName }) => async (args) => {
      try {
        return await next(args);
      } finally {
        if (commandName === 'PutItemCommand') asked += 1;
      }
    };
    client.middlewareStack.add(count, { step: 'initialize' });
    const charge = guard(async () => {
      runs += 1;
      while (asked < 2) await new Promise((resolve) => setTimeout(resolve, 10));
      return 'done';
    }, 'charges');
    const processor = new BatchProcessor(EventType.SQS);
    const Records = ['m-1', 'm-2'].map((messageId) => ({ messageId, body: '{"order_id":"o-1"}', attributes: {} }));
    const handle = async (record) => charge(JSON.parse(record.body));
    const { batchItemFailures } = await processPartialResponse({ Records }, handle, processor, { context });
    return { runs, reported: batchItemFailures.length };
  },

  // A call that ran.
  async done() {
    return guard(async () => ({ receipt: 'r-1' }), 'charges')({ order_id: 'o-1' });
  },

  // Two operations that share a store, one called by the other.
  async nested() {
    const inner = guard(async () => 'inner result', 'inner');
    const outer = guard(async (payment) => ['outer result', await inner(payment)], 'outer');
    const first = await outer({ order_id: 'o-1' });
    return { first, inner: await attempt(inner({ order_id: 'o-1' })), outer: await attempt(outer({ order_id: 'o-1' })) };
  },

  // A function that changes what it was given.
  async mutated() {
    const charge = guard(async (payment) => {
      payment.order_id = 'other';
      return 'done';
    }, 'charges');
    const first = await charge({ order_id: 'o-1' });
    return { first, again: await attempt(charge({ order_id: 'o-1' })) };
  },
};

console.log(JSON.stringify(await scenarios[scenario]()));
