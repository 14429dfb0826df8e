/**
 * Measures the cost of a call: `node runtime/lowering/bench.ts [--json]`. It prints the wall time in microseconds of a guest's call of an empty host
 * function, at 1, 100 and 900 instances on one thread. There are four kinds of calls: without lists (`plain`), with lists (`lists`), with a future
 * that completes in the next turn of the event loop (`future`), and a call of `step`, which returns such a future (`step`). It also prints the
 * milliseconds to make an instance. Each figure is the median of five runs, with the smallest and the largest. At 100 instances, a ratio compares
 * the cost with that of jco's glue, whose calls run only twice; the slower run counts.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { world } from '#wit/generated/world.ts';
import { testArtifact, testComponent, testProgram } from '../testing/components.ts';
import { instantiateGlue } from '../testing/glue.ts';
import { recordingHost } from '../testing/recording-host.ts';
import { compileWorld, type HostTable } from './compile.ts';
import type { Execution } from './execution.ts';
import { instantiate } from './instance.ts';
import type { JcoInstantiate } from './record.ts';
import { SliceRunner } from './slices.ts';

const SOURCE = `
import { pageSize } from 'pie:inferlet/allocate@0.1.0';
import { step } from 'pie:inferlet/fused@0.1.0';
import { embedText } from 'pie:inferlet/input-text@0.1.0';
import { Queue } from 'pie:inferlet/queue@0.1.0';
const list = new Uint32Array([1, 2, 3]);
const sampler = { temperature: 0, topK: 0, topP: 1, minP: 0, seed: 1 };
export async function run(input) {
  const [kind, count] = JSON.parse(input);
  const queue = new Queue('m');
  if (kind === 'plain') for (let i = 0; i < count; i++) pageSize(queue);
  if (kind === 'lists') for (let i = 0; i < count; i++) embedText(queue, list, list, list);
  if (kind === 'future') for (let i = 0; i < count; i++) await queue.synchronize().read();
  if (kind === 'step') for (let i = 0; i < count; i++) await step(queue, { tokens: [1], positions: [i], inPages: list, outPages: list, mask: undefined, rows: 1, output: { tag: 'sample', val: sampler } }).read();
  return 'null';
}`;

const REPEATS = 5;
const COUNTS = { plain: 100_000, lists: 50_000, future: 4000, step: 4000 };
const options = { slices: new SliceRunner(), cpuLimitMs: 600_000 };

interface Figure {
  readonly median: number;
  readonly least: number;
  readonly most: number;
}

/** A host that returns at once. Futures complete in the next turn of the event loop, like results that come through a socket. */
function idleHost(): HostTable {
  const { host } = recordingHost();
  const okResult = { tag: 'ok', val: undefined };
  const stepped = { tag: 'ok', val: { tokens: new Uint32Array([5]), distributions: [] } };
  let resolvers: ((turn: undefined) => void)[] = [];
  const later = (value: unknown) => {
    if (resolvers.length === 0) {
      setImmediate(() => {
        const wake = resolvers;
        resolvers = [];
        for (const resolve of wake) resolve(undefined);
      });
    }
    return new Promise<undefined>((resolve) => resolvers.push(resolve)).then(() => value);
  };
  return {
    ...host,
    allocate: { ...host.allocate, 'page-size': () => 16 },
    'input-text': { 'embed-text': () => undefined },
    queue: { ...host.queue, '[method]queue.synchronize': () => later(okResult) },
    fused: { ...host.fused, step: () => later(stepped) },
  };
}

async function main(): Promise<void> {
  const host = idleHost();
  const compiled = compileWorld(host);
  const artifact = await testArtifact(await testComponent(SOURCE));
  const program = await testProgram(artifact);
  const compiledModules = await Promise.all(
    artifact.meta.coreModules.map(
      async (entry) =>
        [entry.file, await WebAssembly.compile(await readFile(join(artifact.directory, entry.file)))] as const,
    ),
  );
  const glue = ((await import(pathToFileURL(artifact.glue).href)) as { instantiate: JcoInstantiate }).instantiate;
  const make = {
    lean: async () => instantiate(program, compiled, options),
    glue: () => instantiateGlue({ instantiate: glue, modules: new Map(compiledModules) }, world, host),
  };

  const rows: Record<string, unknown>[] = [];
  for (const instances of [1, 100, 900]) {
    for (const kind of ['plain', 'lists', 'future', 'step'] as const) {
      const calls = Math.max(20, Math.ceil(COUNTS[kind] / instances));
      const lean = await measure(() => perCall(make.lean, instances, kind, calls));
      rows.push({ what: `${kind} call`, instances, unit: 'µs', lean });
      if (instances !== 100) continue;
      const slow = await measure(() => perCall(make.glue, instances, kind, Math.ceil(calls / 10)), 2);
      Object.assign(rows.at(-1) ?? {}, { glue: slow, ratio: round(slow.median / lean.median) });
    }
  }
  for (const [carrier, makeInstance] of Object.entries(make)) {
    const figure = await measure(async () => {
      const from = performance.now();
      for (let i = 0; i < 100; i++) await makeInstance();
      return (performance.now() - from) / 100;
    });
    rows.push({ what: `instance (${carrier})`, instances: 100, unit: 'ms', lean: figure });
  }
  if (process.argv.includes('--json')) console.log(JSON.stringify(rows));
  else for (const row of rows) console.log(describe(row as unknown as Row));
}

interface Row {
  readonly what: string;
  readonly instances: number;
  readonly unit: string;
  readonly lean: Figure;
  readonly glue?: Figure;
  readonly ratio?: number;
}

function describe({ what, instances, unit, lean, glue, ratio }: Row): string {
  const figure = `${lean.median} ${unit} (${lean.least} to ${lean.most})`;
  const against = glue ? `   glue ${glue.median} ${unit}, ${ratio} times as much` : '';
  return `${what.padEnd(18)} ${String(instances).padStart(4)} instances   ${figure}${against}`;
}

async function perCall(
  make: () => Promise<Pick<Execution, 'start' | 'dispose'>>,
  instances: number,
  kind: string,
  calls: number,
): Promise<number> {
  const executions = await Promise.all(Array.from({ length: instances }, make));
  const from = performance.now();
  const endings = await Promise.all(executions.map((execution) => execution.start(JSON.stringify([kind, calls]))));
  const took = performance.now() - from;
  const bad = endings.find((ending) => ending.kind !== 'returned' || !ending.ok);
  if (bad) throw new Error(`a guest failed: ${JSON.stringify(bad)}`);
  for (const execution of executions) execution.dispose();
  return (took * 1000) / calls / instances;
}

async function measure(runOnce: () => Promise<number>, repeats = REPEATS): Promise<Figure> {
  await runOnce();
  const values: number[] = [];
  for (let i = 0; i < repeats; i++) values.push(await runOnce());
  values.sort((a, b) => a - b);
  const at = (index: number): number => round(values[index] ?? 0);
  return { median: at(Math.floor(values.length / 2)), least: at(0), most: at(values.length - 1) };
}

const round = (value: number): number => Number(value.toPrecision(3));

await main();
