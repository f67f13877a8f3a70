// What both contenders in TypeScript need: a client whose requests are counted, and the loop that takes jobs, one a line.

import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

// The packages lie where scripts/bench installed them, not beside this file.
export const require = createRequire(`${process.cwd()}/`);
const { DynamoDBClient } = require('@aws-sdk/client-dynamodb');

export const connect = (endpoint) => {
  const client = new DynamoDBClient({
    endpoint,
    region: 'eu-central-1',
    credentials: { accessKeyId: 'bench', secretAccessKey: 'bench' },
  });
  const counts = { requests: 0, runs: 0 };
  client.middlewareStack.add(
    (next) => (args) => {
      counts.requests += 1;
      return next(args);
    },
    { step: 'finalizeRequest', priority: 'low', name: 'count' }
  );
  return { client, counts };
};

export const context = {
  functionName: 'bench',
  memoryLimitInMB: '1769',
  invokedFunctionArn: 'arn:aws:lambda:eu-central-1:123456789012:function:bench',
  awsRequestId: 'bench',
  getRemainingTimeInMillis: () => 60_000,
};

export const ids = ({ prefix, size }, batch) =>
  Array.from(
    { length: size },
    (_, position) => `${prefix}-${String(batch).padStart(4, '0')}-${String(position).padStart(5, '0')}`
  );

// `input` makes one batch ready before the clock starts, `work` takes it through.
export const serve = async (counts, input, work) => {
  for await (const line of createInterface({ input: process.stdin })) {
    const job = JSON.parse(line);
    const inputs = Array.from({ length: job.batches }, (_, batch) => input(ids(job, batch), job));
    counts.requests = 0;
    counts.runs = 0;
    const walls = [];
    const before = process.cpuUsage();
    for (const one of inputs) {
      const start = process.hrtime.bigint();
      await work(one);
      walls.push(Number((process.hrtime.bigint() - start) / 1000n));
    }
    const used = process.cpuUsage(before);
    const { requests, runs } = counts;
    console.log(JSON.stringify({ cpu_us: used.user + used.system, wall_us: walls, ran: runs, requests }));
  }
  process.exit(0);
};
