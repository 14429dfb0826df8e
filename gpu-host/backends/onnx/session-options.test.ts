import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { ElementType, GraphBuilder } from './graph-builder.ts';
import { InferenceSession, Tensor } from './library.ts';
import { sessionOptions } from './session-options.ts';

const SIZE = 512;
const STEPS = 60;
/** Longer than a step, and than the time that ONNX Runtime's threads spin by default. */
const PAUSE_MS = 5;

/** CPU time of this process, µs, over steps with pauses between them. */
async function spacedSteps(options: InferenceSession.SessionOptions): Promise<number> {
  const graph = new GraphBuilder();
  const x = graph.input('x', ElementType.float32, [SIZE, SIZE]);
  graph.node('MatMul', [x, x], 'y');
  graph.output('y', ElementType.float32, [SIZE, SIZE]);
  const session = await InferenceSession.create(graph.encode(), options);
  try {
    const feeds = { x: new Tensor('float32', new Float32Array(SIZE * SIZE), [SIZE, SIZE]) };
    await session.run(feeds);
    const before = process.cpuUsage();
    for (let i = 0; i < STEPS; i++) {
      await sleep(PAUSE_MS);
      await session.run(feeds);
    }
    const { user, system } = process.cpuUsage(before);
    return user + system;
  } finally {
    await session.release();
  }
}

test('threads of a session do not spin between steps: the option reaches ONNX Runtime', async () => {
  const options = sessionOptions(2);
  const honoured = options.extra?.session as Record<string, string> | undefined;
  assert.ok(honoured);
  const { 'intra_op.spin_duration_us': spin, ...session } = honoured;
  assert.ok(spin !== undefined);
  const ignored = { ...options, extra: { session: { ...session, 'session.intra_op.spin_duration_us': spin } } };
  const byDefault = await spacedSteps(ignored);
  const ours = await spacedSteps(options);
  assert.ok(ours < 0.8 * byDefault, `${ours} µs of CPU; ${byDefault} with a key that ONNX Runtime ignores`);
});
