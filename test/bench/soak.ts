import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { loadConfig } from '#infra/config.ts';
import { connectRedis } from '#infra/redis.ts';
import { createKeys } from '#scheduler/keys.ts';
import { Platform } from '#test/harness/platform.ts';
import type { Bench, BenchReport } from './bench.ts';
import { format, formatSpread, spread } from './statistics.ts';

/** Work and times of a run. */
interface Times {
  /** The longest retention: after it, Redis holds no data of a round. */
  readonly forgottenMs: number;
  readonly roundMs: number;
  /** Wait until Redis has dropped expired keys: each of its scans, ten a second, finds only some. */
  readonly settleMs: number;
  /** Invocations of a round. */
  readonly invocations: number;
}

const WHOLE: Times = { forgottenMs: 6000, roundMs: 2000, settleMs: 5000, invocations: 400 };
const QUICK: Times = { forgottenMs: 3000, roundMs: 1000, settleMs: 3000, invocations: 40 };
const LEAST_ROUNDS = 12;
const ROUNDS_PER_REPETITION = 4;
const WARM_INVOCATIONS = 20;
/** Invocations that run at once. */
const AT_ONCE = 16;
const MESSAGES = 8;
const LINES = 2;
const MIB = 2 ** 20;

/** The platform deletes all data of an invocation this long after its end. */
const retention = ({ forgottenMs }: Times): string => `[retention]
records = "${forgottenMs / 1000}s"
events = "3s"
files = "3s"
logs = "${forgottenMs / 1000}s"
idempotency = "3s"
`;

/** An inferlet that sends a few messages and logs a few lines. */
const SOURCE = `import { send } from 'pie:inferlet/session@0.1.0';
export async function run() {
  for (let i = 0; i < ${MESSAGES}; i++) send({ tag: 'text', val: 'a piece of text ' + i });
  for (let i = 0; i < ${LINES}; i++) console.log('a line of a log of usual length', i);
  return JSON.stringify({ done: true });
}
`;

interface EndedInvocation {
  readonly id: string;
  /** Idempotency key of the request. */
  readonly key: string;
}

/** Redis after a round. */
interface Round {
  readonly invocations: number;
  readonly usedBytes: number;
  readonly keys: number;
}

/** Redis memory while invocations start and expire: it must not grow once both rates are equal. */
export const soak: Bench = {
  name: 'soak',
  help: `Sends rounds of short invocations whose data the platform forgets within ${WHOLE.forgottenMs / 1000} s, and reads the memory of Redis
after each. The baseline of the last third of the rounds is the middle third: both are full, so a ratio above 1 is growth. Another ratio compares
Redis after all is forgotten with Redis before. Each repetition adds four rounds of ${WHOLE.roundMs / 1000} s to the least number, 12.`,
  quick: `The least number of rounds, of ${QUICK.invocations} invocations in ${QUICK.roundMs / 1000} s instead of ${WHOLE.invocations} in ${WHOLE.roundMs / 1000}, which are forgotten within ${QUICK.forgottenMs / 1000} s instead of ${WHOLE.forgottenMs / 1000}.`,
  summary: 'Redis memory under short invocations with a short retention, and what each of them costs',
  async run({ repetitions, quick, progress }) {
    const directory = await mkdtemp(path.join(os.tmpdir(), 'pie-soak-'));
    try {
      const times = quick ? QUICK : WHOLE;
      const { forgottenMs, roundMs, settleMs, invocations } = times;
      await using platform = await Platform.start({ functions: false, config: retention(times) });
      const config = loadConfig({ ...platform.environment });
      const redis = connectRedis(config);
      try {
        const file = path.join(directory, 'soak.ts');
        await writeFile(file, SOURCE);
        const deployment = await platform.pie(['deploy', file, '--name', 'soak', '--json']);
        if (deployment.code !== 0) throw new Error(deployment.stderr);
        await invokeMany(platform, WARM_INVOCATIONS, 0);
        await sleep(forgottenMs + settleMs);
        const base = await measure(redis, 0);
        const rounds: Round[] = [];
        let costs: Readonly<Record<string, number>> = {};
        // The report compares the last two thirds of the rounds. In these, Redis loses as many invocations as start, because the first third
        // outlasts the retention.
        const leastCount = Math.max(LEAST_ROUNDS, 2 * Math.ceil(forgottenMs / roundMs));
        const count = leastCount + ROUNDS_PER_REPETITION * (quick ? repetitions - 1 : repetitions);
        for (let i = 0; i < count; i++) {
          const ended = await invokeMany(platform, invocations, roundMs);
          costs = await costsOf(redis, ended.at(-1));
          rounds.push(await measure(redis, ended.length));
          progress(`round ${i + 1} of ${count}: ${format((rounds.at(-1)?.usedBytes ?? 0) / MIB)} MiB`);
        }
        await sleep(forgottenMs + settleMs);
        const after = await measure(redis, 0);
        return report(times, { base, rounds, after, costs });
      } finally {
        redis.disconnect();
      }
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  },
};

interface SoakResult {
  readonly base: Round;
  readonly rounds: readonly Round[];
  readonly after: Round;
  readonly costs: Readonly<Record<string, number>>;
}

function report({ forgottenMs }: Times, { base, rounds, after, costs }: SoakResult): BenchReport {
  const third = Math.floor(rounds.length / 3);
  const usedMib = (part: readonly Round[]) => spread(part.map(({ usedBytes }) => usedBytes / MIB));
  const plateau = usedMib(rounds.slice(third, 2 * third));
  const end = usedMib(rounds.slice(2 * third));
  const total = rounds.reduce((sum, { invocations }) => sum + invocations, 0);
  const row = (name: string, { invocations, usedBytes, keys }: Round) => [
    name,
    String(invocations),
    format(usedBytes / MIB),
    String(keys),
  ];
  return {
    title: `Redis memory over ${total} invocations that are forgotten within ${forgottenMs / 1000} s`,
    header: ['round', 'invocations', 'used, MiB', 'keys'],
    rows: [row('before', base), ...rounds.map((round, i) => row(String(i + 1), round)), row('all forgotten', after)],
    notes: [
      `Last third over middle third: ${format(end.median / plateau.median, 3)} (1 is flat), of ${formatSpread(end)} and ${formatSpread(plateau)} MiB.`,
      `All forgotten over before: ${format(after.usedBytes / base.usedBytes, 3)}.`,
      'The remainder is logs, which Redis trims in blocks of 1 KB, and expired keys that it has not dropped yet.',
      `One invocation with ${MESSAGES} messages and ${LINES} log lines, bytes by MEMORY USAGE: ${Object.entries(costs)
        .map(([name, bytes]) => `${name} ${Math.round(bytes)}`)
        .join(', ')}.`,
    ],
    data: { base, rounds, after, costs, flatness: end.median / plateau.median },
  };
}

/** Runs `count` invocations to their ends. Returns after `leastMs` at the earliest. */
async function invokeMany(platform: Platform, count: number, leastMs: number): Promise<EndedInvocation[]> {
  const untilMs = performance.now() + leastMs;
  const ended: EndedInvocation[] = [];
  let remaining = count;
  const work = async () => {
    while (remaining > 0) {
      remaining -= 1;
      const key = crypto.randomUUID();
      const response = await platform.fetch('/v1/functions/soak/invocations', {
        method: 'POST',
        body: '{}',
        headers: { 'content-type': 'application/json', 'idempotency-key': key },
      });
      const answer = (await response.json()) as { id?: string; status?: string; detail?: string };
      if (!response.ok || answer.id === undefined || answer.status !== 'succeeded')
        throw new Error(`${response.status} ${answer.status} ${answer.detail}`);
      ended.push({ id: answer.id, key });
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  await sleep(Math.max(0, untilMs - performance.now()));
  return ended;
}

async function measure(redis: Redis, invocations: number): Promise<Round> {
  const used = /used_memory:(\d+)/.exec(await redis.info('memory'))?.[1];
  return { invocations, usedBytes: Number(used), keys: await redis.dbsize() };
}

/** Redis memory of one invocation while Redis keeps its data, by kind of key. */
async function costsOf(
  redis: Redis,
  { id, key }: EndedInvocation = { id: '', key: '' },
): Promise<Record<string, number>> {
  const keys = createKeys();
  const size = async (name: string) => (await redis.memory('USAGE', name, 'SAMPLES', '0')) ?? 0;
  const logs = keys.logs('default', 'soak');
  const lists = [`${keys.listing('default')}:ended`, `${keys.listing('default')}:of:soak:ended`];
  const bytesInLists = await Promise.all(
    lists.map(async (list) => (await size(list)) / Math.max(1, await redis.zcard(list))),
  );
  return {
    record: await size(keys.invocation(id)),
    events: await size(keys.events(id)),
    'a log line': (await size(logs)) / Math.max(1, await redis.xlen(logs)),
    'in lists': bytesInLists.reduce((sum, bytes) => sum + bytes, 0),
    'idempotency key': await size(keys.idempotency('default', key)),
  };
}
