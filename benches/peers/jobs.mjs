// What both contenders in TypeScript need: a client whose requests are counted, and the loop that takes jobs, one a line.

import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

// The packages lie where benches/run installed them, not beside this file.
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

// `input` makes a batch just before its clock starts, as the runtime has just parsed the event that it hands over; `work` takes it
// through.
export const serve = async (counts, input, work) => {
  for await (const line of createInterface({ input: process.stdin })) {
    const job = JSON.parse(line);
    counts.requests = 0;
    counts.runs = 0;
    const walls = [];
    let cpu = 0;
    for (let batch = 0; batch < job.batches; batch += 1) {
      const one = input(ids(job, batch), job);
      const before = process.cpuUsage();
      const start = process.hrtime.bigint();
      await work(one);
      walls.push(Number((process.hrtime.bigint() - start) / 1000n));
      const used = process.cpuUsage(before);
      cpu += used.user + used.system;
    }
    const { requests, runs } = counts;
    console.log(JSON.stringify({ cpu_us: cpu, wall_us: walls, ran: runs, requests }));
  }
  process.exit(0);
};
