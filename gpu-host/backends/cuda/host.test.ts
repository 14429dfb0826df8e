import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createWriteStream, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import { GREEDY, generate, must, NONE, range } from '#gpu-host/testing/host.ts';
import { Child, type ChildSpec } from '#infra/supervisor/child.ts';
import { Supervisor, type SupervisorEvent } from '#infra/supervisor/supervisor.ts';
import { silentLog } from '#scheduler/testing/log.ts';
import { randomModel } from '../../models/testing/random-model.ts';
import { testAddon } from '../testing/cuda.ts';
import { loadAddon } from './addon.ts';

/*
 * Tests a GPU host process under its supervisor, with a model on an (emulated) card that fails.
 */

let directory: string;
let addon: string;
let emulated: boolean;
before(async () => {
  directory = mkdtempSync(join(tmpdir(), 'pie-c-'));
  await randomModel(join(directory, 'model'), { heads: 4, kvHeads: 2, headDim: 8 }, 3);
  addon = await testAddon();
  ({ emulated } = loadAddon(addon));
});
after(() => rmSync(directory, { recursive: true, force: true }));

/** A host that serves the model `tiny` on a card; `more` adds settings to the model's entry, and `env` environment variables. */
function spec(name: string, more: object, env: NodeJS.ProcessEnv): ChildSpec & { readonly address: string } {
  const address = join(directory, name);
  const model = {
    name: 'tiny',
    source: `file:${join(directory, 'model')}`,
    backend: 'cuda',
    bits: 32,
    headBits: 32,
    threads: 0,
    pages: 16,
    pageSize: 8,
    maxBatchTokens: 64,
    maxBatchSequences: 8,
    swapMemoryMb: 1,
    ...more,
  };
  const config = join(directory, `${name}.json`);
  writeFileSync(config, JSON.stringify({ name, address, models: [model], encoders: [] }));
  return {
    address,
    name,
    command: process.execPath,
    args: [join(import.meta.dirname, '../../main.ts')],
    env: { ...process.env, PIE_GPU_HOST_CONFIG: config, PIE_CUDA_ADDON: addon, ...env },
    ready: 'line',
    readyTimeoutMs: 120_000,
    stop: 'signal',
    stopTimeoutMs: 30_000,
  };
}

function supervise() {
  const events: SupervisorEvent[] = [];
  const eventTarget = new EventTarget();
  const supervisor = new Supervisor({
    log: silentLog,
    logsDirectory: join(directory, 'logs'),
    report: (event) => {
      events.push(event);
      eventTarget.dispatchEvent(new Event('event'));
    },
  });
  const nthEvent = async <K extends SupervisorEvent['kind']>(kind: K, count: number) => {
    for (;;) {
      const found = events.filter((event): event is Extract<SupervisorEvent, { kind: K }> => event.kind === kind)[
        count - 1
      ];
      if (found) return found;
      await once(eventTarget, 'event');
    }
  };
  return { supervisor, nthEvent };
}

test('a failing card ends the host, which reports why; calls fail with the cause, and the restarted host computes the same', async (context) => {
  if (!emulated) return context.skip('only an emulated card fails on demand');
  const { supervisor, nthEvent } = supervise();
  // Each run of the host fails at the same launch: after the story, and before the test takes long.
  const host = spec('fails', { precision: 'bf16' }, { PIE_EMULATED_FAULT: 'cudaGraphLaunch:40' });
  try {
    await supervisor.start([host]);
    const connection = await GpuHostConnection.connect(host.address);
    const { pageCount, bits, backend, precision, device } = connection.models[0]!;
    assert.deepEqual([pageCount, bits, backend, precision], [16, 16, 'cuda', 'bf16']);
    assert.deepEqual([device.name, device.index], ['Emulated device', 0]);
    const { takenBytes, totalBytes } = device.memory!;
    assert.ok(0 < takenBytes && takenBytes < totalBytes, JSON.stringify(device));
    const story = async () => {
      const inferlet = connection.openInferlet({ id: 'story', maxPages: 16, arrival: 1 });
      const tokens = await generate(inferlet, inferlet.createQueue('tiny'), [1, 5, 9], 6);
      await inferlet.close();
      return tokens;
    };
    const first = await story();
    assert.deepEqual((await connection.stats()).models[0]?.backend, 'cuda');

    const inferlet = connection.openInferlet({ id: 'unlucky', maxPages: 16, arrival: 1 });
    const queue = inferlet.createQueue('tiny');
    const pages = must(inferlet.allocatePages(queue, 16));
    const lost = new Promise<string>((resolve) => connection.onLost(resolve));
    const again = new Promise<void>((resolve) => connection.onReady(resolve));
    const run = inferlet.run(queue, {
      token: 1,
      position: 0,
      pages,
      maxTokens: 100,
      sampler: GREEDY,
      stopTokens: NONE,
    });
    let outcome = await run.next();
    while (outcome.tag === 'ok' && outcome.val.finished === undefined) outcome = await run.next();
    assert.ok(outcome.tag === 'err' && outcome.val.tag === 'unavailable', JSON.stringify(outcome));
    const cause = /the device of the model "tiny" failed \(step \d+.*\); the GPU host starts again/;
    assert.match(outcome.val.val, cause);
    assert.match(await lost, cause);
    const after = await inferlet.ask(queue, {
      op: 'step',
      request: {
        tokens: range(1, 2),
        positions: range(0, 1),
        inPages: NONE,
        outPages: NONE,
        mask: undefined,
        rows: 1,
        output: { tag: 'sample', val: GREEDY },
      },
    });
    assert.ok(after.tag === 'err' && after.val.tag === 'unavailable');

    const { why, tail } = await nthEvent('died', 1);
    assert.equal(why, 'exit code 1');
    assert.match(tail, / error fails: the device failed model=tiny why="step \d+/);
    assert.match(
      tail,
      /device="device 0 \(Emulated device; \d\.\d GiB, of which .* are taken, with 16 pages; driver for CUDA 13\.0/,
    );
    assert.ok((await nthEvent('ready', 2)).restarted);
    await again;
    assert.deepEqual(await story(), first);
    connection.close();
  } finally {
    await supervisor.stop([]);
  }
});

test('a hanging card does not keep the host from ending', async (context) => {
  if (!emulated) return context.skip('only an emulated card hangs on demand');
  const hold = join(directory, 'hangs.hold');
  const host = { ...spec('hangs', {}, { PIE_EMULATED_HOLD: hold }), stopTimeoutMs: 60_000 };
  const child = await Child.spawn(host, createWriteStream(join(directory, 'hangs.log')));
  try {
    await child.whenReady();
    writeFileSync(hold, '');
    const connection = await GpuHostConnection.connect(host.address);
    const inferlet = connection.openInferlet({ id: 'patient', maxPages: 16, arrival: 1 });
    const story = generate(inferlet, inferlet.createQueue('tiny'), [1, 5, 9], 40);
    const ended = assert.rejects(story);
    // The host still answers while the step hangs. A call on its way to the batcher does not count as waiting yet, so only many answers in a
    // row without a waiting call show that the step has started.
    for (let answers = 0; answers < 20; ) {
      const waiting = (await connection.stats()).models[0]?.waitingCalls ?? 0;
      answers = waiting > 0 ? 0 : answers + 1;
      await sleep(10);
    }
    const startedMs = performance.now();
    await child.stop();
    const stoppedMs = performance.now() - startedMs;
    assert.equal(await child.exited, 'exit code 0', 'the host ends without being killed');
    assert.ok(1000 < stoppedMs, `${stoppedMs} ms: not at once`);
    await ended;
    connection.close();
  } finally {
    child.kill();
  }
});

test('a hanging card ends the host after the deadline; the host and its calls report it', async (context) => {
  if (!emulated) return context.skip('only an emulated card hangs on demand');
  const { supervisor, nthEvent } = supervise();
  const hold = join(directory, 'hung.hold');
  // The deadline must exceed the pauses of a busy machine, because it also bounds the steps that the host computes before it is ready.
  const host = spec('hung', { stepDeadlineS: 5 }, { PIE_EMULATED_HOLD: hold });
  try {
    await supervisor.start([host]);
    writeFileSync(hold, '');
    const connection = await GpuHostConnection.connect(host.address);
    const inferlet = connection.openInferlet({ id: 'patient', maxPages: 16, arrival: 1 });
    await assert.rejects(
      generate(inferlet, inferlet.createQueue('tiny'), [1, 5, 9], 40),
      /the device of the model "tiny" failed \(a step has not ended for 5 s: the card hangs\); the GPU host starts again/,
    );
    const { why, tail } = await nthEvent('died', 1);
    assert.equal(why, 'exit code 1');
    rmSync(hold);
    assert.match(
      tail,
      / error hung: the device failed model=tiny why="a step .* hangs" device="device 0 \(Emulated device/,
    );
    assert.ok((await nthEvent('ready', 2)).restarted);
    connection.close();
  } finally {
    await supervisor.stop([]);
  }
});

test('a host logs that cuBLASLt is missing, and the graphs that it captures before it is ready', async (t) => {
  const log = join(directory, 'warm.log');
  const warm = spec('warm', { warmUpS: 600, maxBatchSequences: 2 }, {});
  const child = await Child.spawn(warm, createWriteStream(log));
  try {
    await child.whenReady();
    await child.stop();
    assert.equal(await child.exited, 'exit code 0');
    // The log is written in the background.
    while (!/captured the graphs of all 6 batch shapes in .* model=tiny/.test(readFileSync(log, 'utf8')))
      await sleep(10);
    // The emulation has no cuBLASLt; a card's machine may have it.
    if (!emulated) t.diagnostic('cuBLASLt may be there');
    else assert.match(readFileSync(log, 'utf8'), / warn warm: cuBLASLt was not found .* PIE_CUBLASLT.* model=tiny/);
  } finally {
    child.kill();
  }
});

test('a host without the card or enough memory does not start and states what to do', async () => {
  const { supervisor } = supervise();
  try {
    for (const [name, more, env, text] of [
      [
        'none',
        {},
        { PIE_CUDA_ADDON: join(directory, 'none.node') },
        /PIE_CUDA_ADDON names .*none\.node, which is not there/,
      ],
      ['ninth', { device: 9 }, {}, /no CUDA device 9; the devices here are: 0/],
      ['full', { memoryMb: 1, pages: 100_000 }, {}, /pages would fit.*Lower "pages"/],
    ] as const)
      await assert.rejects(supervisor.start([spec(name, more, env)]), (error) => text.test(String(error)), name);
  } finally {
    await supervisor.stop([]);
  }
});
