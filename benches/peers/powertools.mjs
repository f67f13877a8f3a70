// Powertools for AWS Lambda (TypeScript) as a contender: `powertools.mjs ENDPOINT TABLE TEMPLATE`, then one job a line.
//
// As its documentation shows it: BatchProcessor, which runs the messages of a batch side by side, and makeIdempotent around the work.
// The payload is not validated, which spares it a second hash.

import assert from 'node:assert';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

// The packages lie where scripts/bench installed them, not beside this file.
const require = createRequire(`${process.cwd()}/`);
const { BatchProcessor, EventType, processPartialResponse } = require('@aws-lambda-powertools/batch');
const { IdempotencyConfig, makeIdempotent } = require('@aws-lambda-powertools/idempotency');
const { DynamoDBPersistenceLayer } = require('@aws-lambda-powertools/idempotency/dynamodb');
const { DynamoDBClient } = require('@aws-sdk/client-dynamodb');

const [endpoint, tableName, templatePath] = process.argv.slice(2);
const template = readFileSync(templatePath, 'utf8');

const client = new DynamoDBClient({
  endpoint,
  region: 'eu-central-1',
  credentials: { accessKeyId: 'bench', secretAccessKey: 'bench' },
});
let requests = 0;
let runs = 0;
client.middlewareStack.add(
  (next) => (args) => {
    requests += 1;
    return next(args);
  },
  { step: 'finalizeRequest', priority: 'low', name: 'count' }
);

const persistenceStore = new DynamoDBPersistenceLayer({ tableName, awsSdkV3Client: client });
const config = new IdempotencyConfig({ eventKeyJmesPath: 'payment_id', expiresAfterSeconds: 7 * 86_400 });
const processor = new BatchProcessor(EventType.SQS);

const charge = makeIdempotent(
  async (_payment) => {
    runs += 1;
    return 'done';
  },
  { persistenceStore, config }
);
const handle = async (record) => charge(JSON.parse(record.body));

const context = {
  functionName: 'bench',
  memoryLimitInMB: '1769',
  invokedFunctionArn: 'arn:aws:lambda:eu-central-1:123456789012:function:bench',
  awsRequestId: 'bench',
  getRemainingTimeInMillis: () => 60_000,
};

const event = ({ prefix, size, receives }, batch) => ({
  Records: Array.from({ length: size }, (_, position) => {
    const id = `${prefix}-${String(batch).padStart(4, '0')}-${String(position).padStart(5, '0')}`;
    return JSON.parse(template.replaceAll('{id}', id).replaceAll('{receives}', String(receives)));
  }),
});

const run = async (job) => {
  const events = Array.from({ length: job.batches }, (_, batch) => event(job, batch));
  config.registerLambdaContext(context);
  requests = 0;
  runs = 0;
  const walls = [];
  const before = process.cpuUsage();
  for (const one of events) {
    const start = process.hrtime.bigint();
    const reply = await processPartialResponse(one, handle, processor, { context });
    walls.push(Number((process.hrtime.bigint() - start) / 1000n));
    assert.deepStrictEqual(reply, { batchItemFailures: [] });
  }
  const used = process.cpuUsage(before);
  return { cpu_us: used.user + used.system, wall_us: walls, ran: runs, requests };
};

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await run(JSON.parse(line))));
}
process.exit(0);
