// Powertools for AWS Lambda (TypeScript) around a handler of API Gateway's events, or that handler alone:
// `powertools-web.mjs ENDPOINT TABLE TEMPLATE bare|guarded`, then one job a line.
//
// As its documentation shows it: makeIdempotent around the handler, its key from the header. The payload is not validated, which
// spares it a second hash.

import assert from 'node:assert';
import { readFileSync } from 'node:fs';
import { connect, context, require, serve } from './jobs.mjs';

const { IdempotencyConfig, makeIdempotent } = require('@aws-lambda-powertools/idempotency');
const { DynamoDBPersistenceLayer } = require('@aws-lambda-powertools/idempotency/dynamodb');

const [endpoint, tableName, templatePath, mode] = process.argv.slice(2);
const template = readFileSync(templatePath, 'utf8');
const { client, counts } = connect(endpoint);

const pay = async (event, _context) => {
  counts.runs += 1;
  const payment = JSON.parse(event.body);
  return {
    statusCode: 201,
    headers: { 'content-type': 'application/json' },
    body: `{"receipt": "${payment.payment_id}"}`,
  };
};

const persistenceStore = new DynamoDBPersistenceLayer({ tableName, awsSdkV3Client: client });
const config = new IdempotencyConfig({
  eventKeyJmesPath: 'headers."idempotency-key"',
  throwOnNoIdempotencyKey: true,
  expiresAfterSeconds: 86_400,
});
const handler = mode === 'bare' ? pay : makeIdempotent(pay, { persistenceStore, config });

const requests = (ids) => ids.map((id) => JSON.parse(template.replaceAll('{id}', id)));

await serve(counts, requests, async (batch) => {
  for (const request of batch) {
    const answer = await handler(request, context);
    assert.strictEqual(answer.statusCode, 201);
  }
});
