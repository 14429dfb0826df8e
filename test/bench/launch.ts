import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { RUNTIME } from '#infra/runtimes.ts';
import { deploySource } from '#test/harness/deploy.ts';
import type { Client } from '#test/harness/events.ts';
import { Platform } from '#test/harness/platform.ts';
import { createTenant } from '#test/harness/tenants.ts';
import type { Bench } from './bench.ts';
import { timeFirstMessage } from './clients.ts';
import { cpuOfTrees, outsideEngine, rootsOf } from './process-usage.ts';
import { format, formatSpread, isEnoughFor, median, quantile, spread } from './statistics.ts';

/** An inferlet whose first statement sends a message. `salt` makes each build a different component. */
const source = (salt: string) =>
  `import { send } from 'pie:inferlet/session@0.1.0';\nexport async function run() { send({ tag: 'text', val: '${salt}' }); return 'null'; }\n`;

interface Launch {
  /** Time from the request to the first `message`. */
  readonly totalMs: number;
  readonly parts: Readonly<Record<string, number>>;
}

interface Round {
  readonly launches: readonly Launch[];
  /** CPU of all processes but the GPU host and the client, ms per invocation; undefined in cases that start or end processes. */
  readonly cpuMs?: number;
}

interface Case {
  readonly name: string;
  readonly rounds: readonly Round[];
}

const timeOf = ({ totalMs }: Launch): number => totalMs;
const formatPart = (ms: readonly number[]): string => (ms.length > 0 ? format(median(ms), 1) : '');

/** Rounds of one launch each. */
const roundPerLaunch = (launches: readonly Launch[]): Round[] => launches.map((launched) => ({ launches: [launched] }));

/** Inputs of the warm functions: one without a model, and a text completion of one token. */
const WARM = [
  { name: 'warm', input: {}, title: 'warm' },
  {
    name: 'text-completion',
    input: { prompt: 'Once upon a time', maxTokens: 1, temperature: 0 },
    title: 'a completion of one token',
  },
] as const;

async function launchOnce(client: Client, name: string, input: object = {}): Promise<Launch> {
  const { firstMs, events } = await timeFirstMessage(client, name, input);
  return { totalMs: firstMs, parts: events.find(({ event }) => event === 'metric')?.data ?? {} };
}

/** Pause before a tenant's first invocation, in which a spare sandbox starts and receives the components that tenants share. */
const SPARE_MS = 1500;
/** Launches in a round of a case with one invocation at a time. */
const ONE_BY_ONE = 20;
/** Unmeasured launches of each warm function. */
const WARM_LAUNCHES = 20;
/** Spare sandboxes receive a module only after components of this many tenants have used it. */
const SHARING_TENANTS = 2;
/** Numbers of warm launches at once. */
const AT_ONCE = [1, 256, 896];
const QUICK_AT_ONCE = [1, 32];

/** Time to first message: warm at 1, 256 and 896 at once, without a model and with one; a tenant's first; cold with and without an artifact. */
export const launch: Bench = {
  name: 'launch',
  help: `Measures at the HTTP client the time to the first message of an inferlet that only sends one: 1, 256 and 896 at once with its sandbox
warm, the first one of a tenant, a new component from its upload on, and one whose artifact is on disk right after the runtime was killed. The
warm cases repeat with text completions of one token. A round of a warm case is one burst (${ONE_BY_ONE} single launches); the spread is that of
the rounds' quantiles. There is no baseline.`,
  quick: `${QUICK_AT_ONCE.join(' and ')} warm launches at once instead of ${AT_ONCE.join(', ')}; one first launch of a tenant for each round instead of more.`,
  summary: "request to first message, warm at 1, 256 and 896 at once, a tenant's first, and cold",
  async run({ repetitions, quick, progress }) {
    const directory = await mkdtemp(path.join(os.tmpdir(), 'pie-launch-'));
    const cases: Case[] = [];
    try {
      await using platform = await Platform.start({ functions: ['text-completion'] });
      const deploy = async (name: string) => {
        const file = path.join(directory, `${name}.ts`);
        await writeFile(file, source(`${name} ${Math.random()}`));
        await deploySource(platform, file, { name });
      };
      await deploy('warm');
      const roots = rootsOf(platform);
      for (const { name, input, title } of WARM) {
        for (let i = 0; i < WARM_LAUNCHES; i++) await launchOnce(platform, name, input);
        for (const atOnce of quick ? QUICK_AT_ONCE : AT_ONCE) {
          const rounds: Round[] = [];
          for (let i = 0; i < repetitions; i++) {
            const before = cpuOfTrees(roots);
            const launches: Launch[] = [];
            for (let n = 0; n < (atOnce === 1 ? ONE_BY_ONE : 1); n++) {
              const burst = Array.from({ length: atOnce }, () => launchOnce(platform, name, input));
              launches.push(...(await Promise.all(burst)));
              await sleep(atOnce === 1 ? 10 : 1500); // Lets the pool of ready instances refill.
            }
            rounds.push({
              launches,
              cpuMs: outsideEngine(before, cpuOfTrees(roots)) / 1000 / launches.length,
            });
            progress(`${title}, ${atOnce} at once, round ${i + 1}: p50 ${format(median(launches.map(timeOf)), 1)} ms`);
          }
          cases.push({ name: `${title}, ${atOnce} at once`, rounds });
        }
      }
      const firstLaunches: Launch[] = [];
      for (let i = 0; i < (quick ? SHARING_TENANTS + repetitions : 4 * repetitions); i++) {
        const tenant = await createTenant(platform, `tenant-${i}`);
        const file = path.join(directory, `first-${i}.ts`);
        await writeFile(file, source(`first ${i} ${Math.random()}`));
        await deploySource(platform, file, { name: 'first', apiKey: tenant.apiKey });
        await sleep(SPARE_MS);
        const launched = await launchOnce(tenant, 'first');
        // The first tenants only let the spare sandboxes receive the modules that all these components share.
        if (i >= SHARING_TENANTS) firstLaunches.push(launched);
      }
      cases.push({ name: "a tenant's first, a spare sandbox", rounds: roundPerLaunch(firstLaunches) });
      progress(`a tenant's first: p50 ${format(median(firstLaunches.map(timeOf)), 1)} ms`);
      const freshLaunches: Launch[] = [];
      for (let i = 0; i < repetitions; i++)
        freshLaunches.push(await uploadAndLaunch(platform, directory, `fresh-${i}`));
      cases.push({ name: 'cold, new component uploaded', rounds: roundPerLaunch(freshLaunches) });
      progress(`cold, new component uploaded: p50 ${format(median(freshLaunches.map(timeOf)), 1)} ms`);
      const onDiskLaunches: Launch[] = [];
      for (let i = 0; i < repetitions; i++) {
        const restarted = platform.restarted(RUNTIME);
        process.kill(platform.pid(RUNTIME), 'SIGKILL');
        await restarted;
        onDiskLaunches.push(await launchOnce(platform, `fresh-${i}`));
      }
      cases.push({ name: 'cold, artifact on disk', rounds: roundPerLaunch(onDiskLaunches) });
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
    const launchesOf = ({ rounds }: Case) => rounds.flatMap(({ launches }) => launches);
    const parts = [
      ...new Set(
        cases.flatMap((launchCase) => launchesOf(launchCase).flatMap((launched) => Object.keys(launched.parts))),
      ),
    ];
    return {
      title: 'Launch: request to the first message, in ms',
      header: ['case', 'n', 'p50', 'p99', 'CPU outside the engine', ...parts.map((part) => `${part} p50`)],
      rows: cases.map((launchCase) => {
        const launches = launchesOf(launchCase);
        const cpuMs = launchCase.rounds.flatMap((round) => round.cpuMs ?? []);
        const ofRounds = (figureOf: (times: readonly number[]) => number) =>
          formatSpread(spread(launchCase.rounds.map((round) => figureOf(round.launches.map(timeOf)))), 1);
        const hasP99 = launchCase.rounds.every((round) => isEnoughFor(0.99, round.launches.length));
        return [
          launchCase.name,
          String(launches.length),
          ofRounds(median),
          hasP99 ? ofRounds((times) => quantile(times, 0.99)) : '',
          cpuMs.length > 0 ? formatSpread(spread(cpuMs)) : '',
          ...parts.map((part) => formatPart(launches.flatMap((launched) => launched.parts[part] ?? []))),
        ];
      }),
      notes: [
        "Each cell shows the median, minimum and maximum of the rounds' quantiles. CPU is in ms an invocation, without the client, and includes the idle platform.",
        'A round of too few launches has no p99. A part of a launch that a case does not have is empty.',
        'The clients run in one process on the same machine and share its cores.',
        'A new component is uploaded, checked, transpiled and metered by its deploy; that whole time is part of its launch.',
      ],
      data: cases,
    };
  },
};

/** Builds a new component, uploads and launches it; the time counts from the upload. */
async function uploadAndLaunch(platform: Platform, directory: string, name: string): Promise<Launch> {
  const file = path.join(directory, `${name}.ts`);
  const component = path.join(directory, `${name}.wasm`);
  await writeFile(file, source(`${name} ${Math.random()}`));
  const build = await platform.pie(['build', file, '--out', component]);
  if (build.code !== 0) throw new Error(build.stderr);
  const form = new FormData();
  form.set('manifest', JSON.stringify({ name }));
  form.set('component', new Blob([await readFile(component)], { type: 'application/wasm' }), 'component.wasm');
  const start = performance.now();
  const response = await platform.fetch(`/v1/functions/${name}`, { method: 'PUT', body: form });
  if (!response.ok) throw new Error(await response.text());
  await response.arrayBuffer();
  const uploadMs = performance.now() - start;
  const launched = await launchOnce(platform, name);
  return { totalMs: uploadMs + launched.totalMs, parts: { ...launched.parts, deployMs: uploadMs } };
}
