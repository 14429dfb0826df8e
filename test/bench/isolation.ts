import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Client, invoke } from '#test/harness/events.ts';
import { Platform, ROOT } from '#test/harness/platform.ts';
import { createTenant } from '#test/harness/tenants.ts';
import type { Bench } from './bench.ts';
import { cancelAll } from './clients.ts';
import { format, formatSpread, mean, spread } from './statistics.ts';
import { inputsOf, receiveAll } from './streams.ts';

const STREAMS = 8;
const TOKENS = 100;
/** Rounds of streams under a disturbance, about a second each. The first round begins together with the disturbance. */
const ROUNDS = 4;
/** Pause between the failure of a misbehaving inferlet and its next invocation. */
const PAUSE_MS = 1000;
const LARGE_INPUT_BYTES = 4 * 2 ** 20;

interface Disturbance {
  readonly name: string;
  /** Concurrent invocations. */
  readonly atOnce: number;
  /** Runs one invocation from its submission to its end. */
  readonly runOnce: (tenant: Client) => Promise<unknown>;
}

const misdeed = (name: string): Disturbance => ({
  name,
  atOnce: 1,
  runOnce: async (tenant) => {
    await invoke(tenant, 'hostile', { misdeed: name });
    await sleep(PAUSE_MS);
  },
});

/** All requests share this body, because making one for each would slow the measuring thread. 100 bytes are left for the rest of the JSON. */
const LARGE_BODY = Buffer.from(JSON.stringify({ misdeed: 'throw', ballast: 'x'.repeat(LARGE_INPUT_BYTES - 100) }));

async function sendLargeInput(tenant: Client): Promise<void> {
  const response = await tenant.fetch('/v1/functions/hostile/invocations', {
    method: 'POST',
    headers: { 'content-type': 'application/json', prefer: 'respond-async' },
    body: LARGE_BODY,
  });
  await response.arrayBuffer();
  // The gateway refuses inputs once this tenant's share of Redis is full; other tenants keep their shares.
  if (!response.ok) await sleep(10);
}

const DISTURBANCES: readonly Disturbance[] = [
  ...['throw', 'garbage', 'spin', 'recurse', 'allocate', 'flood'].map(misdeed),
  { name: '64 that spin', atOnce: 64, runOnce: (tenant) => invoke(tenant, 'spinner', { misdeed: 'spin' }) },
  {
    name: '40 that touch 1 GiB each',
    atOnce: 40,
    runOnce: (tenant) => invoke(tenant, 'gigabyte', { misdeed: 'allocate' }),
  },
  {
    name: 'inputs of 4 MiB, 16 at once',
    atOnce: 16,
    runOnce: sendLargeInput,
  },
];

const QUICK: readonly string[] = ['spin', 'flood'];

/** Functions of the other tenant: the same code with different limits. */
const FUNCTIONS = [
  ['hostile', { cpuMs: 1000, memoryMb: 32 }],
  ['spinner', { cpuMs: 30_000, memoryMb: 32 }],
  ['gigabyte', { cpuMs: 30_000, memoryMb: 1024 }],
] as const;

/** Streams of one tenant at HTTP clients, in turn alone and beside another tenant's misbehaving inferlets. */
export const isolation: Bench = {
  name: 'isolation',
  summary: "time per token at one tenant's HTTP clients while another tenant's inferlets misbehave",
  help: `${STREAMS} HTTP clients of one tenant stream ${TOKENS} tokens each, ${ROUNDS} times, while another tenant's inferlets throw, spin,
recurse, allocate or flood. The baseline is the mean of two such rounds right before a disturbance and two right after it, when everything that it
left behind has ended. Each repetition has its own ratio.`,
  quick: `${QUICK.length} of ${DISTURBANCES.length} disturbances: inferlets that ${QUICK.join(' and ')}.`,
  async run({ repetitions, quick, progress }) {
    const directory = await mkdtemp(path.join(os.tmpdir(), 'pie-isolation-'));
    try {
      await using platform = await Platform.start({ functions: ['text-completion'] });
      const stranger = await createTenant(platform, 'stranger');
      for (const [name, limits] of quick ? FUNCTIONS.slice(0, 1) : FUNCTIONS) {
        const folder = path.join(directory, name);
        await cp(path.join(ROOT, 'test/inferlets/hostile'), folder, { recursive: true });
        const manifest = JSON.parse(await readFile(path.join(folder, 'pie.json'), 'utf8')) as object;
        await writeFile(path.join(folder, 'pie.json'), JSON.stringify({ ...manifest, name, limits }));
        const { code, stderr } = await platform.pie(['deploy', folder], { apiKey: stranger.apiKey });
        if (code !== 0) throw new Error(stderr);
      }
      for (let i = 0; i < 2; i++) await msOfRound(platform); // Warm-up.
      const results: { name: string; first: number[]; later: number[] }[] = [];
      let aloneBefore = await msAlone(platform);
      for (const disturbance of DISTURBANCES.filter(({ name }) => !quick || QUICK.includes(name))) {
        const { name } = disturbance;
        const first: number[] = [];
        const later: number[] = [];
        for (let i = 0; i < repetitions; i++) {
          const [begin = Number.NaN, ...rest] = await msBeside(platform, stranger, disturbance);
          await cancelAll(stranger, 'queued,running');
          await sleep(PAUSE_MS);
          const aloneAfter = await msAlone(platform);
          const base = mean([aloneBefore, aloneAfter]);
          aloneBefore = aloneAfter;
          first.push(begin / base);
          later.push(mean(rest) / base);
        }
        results.push({ name, first, later });
        progress(`${name}: ${format(spread(first).median)} in the first round, ${format(spread(later).median)} later`);
      }
      return {
        title: `Time per token of ${STREAMS} streams at HTTP clients beside another tenant's inferlets, relative to the streams running alone`,
        header: ['the other tenant', 'first round, median (min–max)', 'later rounds', 'aim'],
        rows: results.map(({ name, first, later }) => [
          name,
          formatSpread(spread(first)),
          formatSpread(spread(later)),
          'at most 1.10',
        ]),
        notes: [
          `A round is ${STREAMS} streams of ${TOKENS} tokens, about a second; the first begins together with the disturbance.`,
          'Each disturbance is compared with the mean of two undisturbed rounds before it and two after it.',
          `A single misbehaving inferlet is invoked again ${PAUSE_MS} ms after it has failed; launching it is part of what its neighbours feel.`,
        ],
        data: results,
      };
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  },
};

/** Milliseconds per token without a disturbance. */
const msAlone = async (platform: Platform): Promise<number> =>
  mean([await msOfRound(platform), await msOfRound(platform)]);

/** Milliseconds per token of each round beside a disturbance, which begins with the first round. */
async function msBeside(platform: Platform, stranger: Client, { atOnce, runOnce }: Disturbance): Promise<number[]> {
  const stop = new AbortController();
  const failure = Promise.withResolvers<never>();
  const client = {
    fetch: (route: string, init?: RequestInit) => stranger.fetch(route, { ...init, signal: stop.signal }),
  };
  const disturb = async () => {
    while (!stop.signal.aborted) await runOnce(client);
  };
  const disturbing = Array.from({ length: atOnce }, () =>
    disturb().catch((error) => stop.signal.aborted || failure.reject(error)),
  );
  const rounds: number[] = [];
  try {
    for (let r = 0; r < ROUNDS; r++) rounds.push(await Promise.race([msOfRound(platform), failure.promise]));
  } finally {
    stop.abort();
    await Promise.all(disturbing);
  }
  return rounds;
}

/** Milliseconds per token of one round of streams. */
async function msOfRound(platform: Platform): Promise<number> {
  const startMs = performance.now();
  const received = await receiveAll(platform, inputsOf(STREAMS, TOKENS));
  const elapsedMs = performance.now() - startMs;
  return elapsedMs / received.reduce((sum, parse) => sum + parse().tokens, 0);
}
