import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { before, describe, it } from 'node:test';
import { pathToFileURL } from 'node:url';
import { world } from '#wit/generated/world.ts';
import { type TestProgram, testArtifact, testComponent, testProgram } from '../testing/components.ts';
import { instantiateGlue } from '../testing/glue.ts';
import { recordingHost } from '../testing/recording-host.ts';
import { compileWorld } from './compile.ts';
import type { Ending } from './execution.ts';
import { withRelease } from './future-release.ts';
import { MAX_HANDLES } from './guest.ts';
import { instantiate } from './instance.ts';
import type { JcoInstantiate } from './record.ts';
import { SliceRunner } from './slices.ts';

const OPTIONS = { slices: new SliceRunner(), cpuLimitMs: 60_000 };

/** Runs a program once, by this folder (`lean`) or by jco's glue (`glue`), and returns all that can be observed. */
async function transcript(program: TestProgram, input: string, carrier: 'lean' | 'glue') {
  const { host, lines } = recordingHost();
  const compiled = compileWorld(host);
  const execution =
    carrier === 'lean'
      ? instantiate(program, compiled, OPTIONS)
      : await instantiateGlue(
          {
            instantiate: ((await import(pathToFileURL(program.artifact.glue).href)) as { instantiate: JcoInstantiate })
              .instantiate,
            modules: program.modules,
          },
          world,
          host,
        );
  const ending: Ending = await execution.start(input);
  execution.dispose();
  // The times of drops depend on the guest's garbage collector and on the cleanup at the end, so the lines about drops are left out.
  return { ending, lines: lines.filter((line) => !line.includes(' [resource-drop]')) };
}

/** An inferlet that reads as many futures as its input says, and drops none of them. */
const FORGETFUL = `
  import { Queue } from 'pie:inferlet/queue@0.1.0';
  export async function run(input) {
    const queue = new Queue('tiny');
    for (let i = 0; i < Number(input); i++) await queue.synchronize().read();
    return input;
  }`;

/** An inferlet with six futures. It reads 0 and 1, drops 2 (settled), 3 (unsettled) and 4 (after it has cancelled a read), and forgets 5. */
const HOLDER = `
  import { Queue } from 'pie:inferlet/queue@0.1.0';
  import { sleep } from 'pie:inferlet/runtime@0.1.0';
  export async function run() {
    const queue = new Queue('tiny');
    const read = queue.synchronize();
    await read.read();
    read.drop();
    await queue.synchronize().read();
    const settled = queue.synchronize();
    await sleep(1).read();
    settled.drop();
    queue.synchronize().drop();
    const waiting = queue.synchronize();
    const reading = waiting.read();
    waiting.cancelRead();
    const failure = await reading.catch((reason) => reason);
    waiting.drop();
    globalThis.kept = queue.synchronize();
    await sleep(1).read();
    return failure;
  }`;

describe('the lean lowering', () => {
  let program: TestProgram;
  before(async () => {
    const source = await readFile(new URL('./fixtures/everything.js', import.meta.url), 'utf8');
    // The glue needs every module, while a plan may omit some.
    const artifact = await testArtifact(await testComponent(source));
    const planned = await testProgram(artifact);
    const modules = await Promise.all(
      artifact.meta.coreModules.map(async (entry) => {
        const read = () => readFile(`${artifact.directory}/${entry.file}`);
        return [entry.file, await WebAssembly.compile(await read())] as const;
      }),
    );
    program = { ...planned, modules: new Map(modules) };
  });

  it('carries every call of the contract as the glue does', async () => {
    const lean = await transcript(program, '4', 'lean');
    const glue = await transcript(program, '4', 'glue');
    assert.deepEqual(lean.ending, { kind: 'returned', ok: true, text: '{"rounds":4}' });
    assert.deepEqual(lean.ending, glue.ending);
    lean.lines.forEach((line, i) => {
      assert.equal(line, glue.lines[i], `call ${i}`);
    });
    assert.equal(lean.lines.length, glue.lines.length);
    for (const entry of world.imports) {
      for (const fn of [...entry.functions, ...entry.resources.flatMap(({ functions }) => functions)]) {
        assert.ok(
          lean.lines.some((line) => line.startsWith(`${entry.name} ${fn.coreName}(`)),
          `${entry.name} ${fn.coreName} was not called`,
        );
      }
    }
  });

  it('releases futures that were read and never dropped', async () => {
    const forgetful = await testProgram(await testArtifact(await testComponent(FORGETFUL)));
    const execution = instantiate(forgetful, compileWorld(recordingHost().host), OPTIONS);
    const input = String(MAX_HANDLES + 100);
    assert.deepEqual(await execution.start(input), { kind: 'returned', ok: true, text: input });
    // These are the queue, and the waitable set on which the guest's JavaScript engine waits.
    assert.ok(execution.guest.handleCount <= 2, `${execution.guest.handleCount} handles are held`);
    execution.dispose();
  });

  it('reports each future that the guest has read or dropped to the host once', async () => {
    const reports: string[] = [];
    let count = 0;
    const { host } = recordingHost();
    const answers = [
      () => Promise.resolve({ tag: 'ok' }),
      () => new Promise((resolve) => setImmediate(resolve, { tag: 'ok' })),
      () => Promise.resolve({ tag: 'ok' }),
      () => new Promise(() => undefined),
      () => new Promise(() => undefined),
      () => Promise.resolve({ tag: 'ok' }),
    ];
    const synchronize = () => {
      const name = `future ${count}`;
      return withRelease(answers[count++]?.() ?? Promise.reject(new Error('too many calls')), (isRead) =>
        reports.push(`${name}: ${isRead ? 'read' : 'dropped'}`),
      );
    };
    const table = { ...host, queue: { ...host.queue, '[method]queue.synchronize': synchronize } };
    const holder = await testProgram(await testArtifact(await testComponent(HOLDER)));
    const execution = instantiate(holder, compileWorld(table), OPTIONS);
    assert.deepEqual(await execution.start(''), { kind: 'returned', ok: true, text: 'future read cancelled' });
    execution.dispose();
    // The last future is neither read nor dropped.
    const ends = ['read', 'read', 'dropped', 'dropped', 'dropped'];
    assert.deepEqual(
      reports,
      ends.map((end, i) => `future ${i}: ${end}`),
    );
  });

  it('passes on an exception of run as the glue does', async () => {
    const lean = await transcript(program, '0', 'lean');
    const glue = await transcript(program, '0', 'glue');
    assert.deepEqual(lean, glue);
    assert.equal(lean.ending.kind === 'returned' && !lean.ending.ok && /no rounds/.test(lean.ending.text), true);
  });
});
