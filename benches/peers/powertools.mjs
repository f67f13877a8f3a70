// Powertools for AWS Lambda (TypeScript) as a contender: `powertools.mjs ENDPOINT TABLE TEMPLATE`, then one job a line.
//
// As its documentation shows it: BatchProcessor, which runs the messages of a batch side by side, and makeIdempotent around the work.
// The payload is not validated, which spares it a second hash.

import assert from 'node:assert';
import { readFileSync } from 'node:fs';
import { connect, context, require, serve } from './jobs.mjs';

const { BatchProcessor, EventType, processPartialResponse } = require('@aws-lambda-powertools/batch');
const { IdempotencyConfig, makeIdempotent } = require('@aws-lambda-powertools/idempotency');
const { DynamoDBPersistenceLayer } = require('@aws-lambda-powertools/idempotency/dynamodb');

const [endpoint, tableName, templatePath] = process.argv.slice(2);
const template = readFileSync(templatePath, 'utf8');
const { client, counts } = connect(endpoint);

const persistenceStore = new DynamoDBPersistenceLayer({ tableName, awsSdkV3Client: client });
const config = new IdempotencyConfig({ eventKeyJmesPath: 'payment_id', expiresAfterSeconds: 7 * 86_400 });
const processor = new BatchProcessor(EventType.SQS);

const charge = makeIdempotent(
  async (_payment) => {
    counts.runs += 1;
    return 'done';
  },
  { persistenceStore, config }
);
const handle = async (record) => charge(JSON.parse(record.body));

const event = (ids, { receives }) => ({
  Records: ids.map((id) => JSON.parse(template.replaceAll('{id}', id).replaceAll('{receives}', String(receives)))),
});

await serve(counts, event, async (batch) => {
  config.registerLambdaContext(context);
  const reply = await processPartialResponse(batch, handle, processor, { context });
  assert.deepStrictEqual(reply, { batchItemFailures: [] });
});
