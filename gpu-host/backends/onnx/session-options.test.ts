import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { ElementType, GraphBuilder } from './graph-builder.ts';
import { InferenceSession, Tensor } from './library.ts';
import { sessionOptions } from './sessions.ts';

const SIZE = 512;
const STEPS = 60;
const THREADS = '/proc/self/task';

const threads = () => new Set(readdirSync(THREADS));

/** Number of times that a thread has gone to sleep. */
function sleepsOf(thread: string): number {
  const status = readFileSync(`${THREADS}/${thread}/status`, 'utf8');
  return Number(/^voluntary_ctxt_switches:\s*(\d+)/m.exec(status)?.[1]);
}

/** How often a session's own thread goes to sleep in steps without pauses between them. */
async function sleepsInSteps(options: InferenceSession.SessionOptions): Promise<number> {
  const graph = new GraphBuilder();
  const x = graph.input('x', ElementType.float32, [SIZE, SIZE]);
  graph.node('MatMul', [x, x], 'y');
  graph.output('y', ElementType.float32, [SIZE, SIZE]);
  const feeds = { x: new Tensor('float32', new Float32Array(SIZE * SIZE), [SIZE, SIZE]) };
  const others = threads();
  const session = await InferenceSession.create(graph.encode(), options);
  try {
    const own = [...threads().difference(others)];
    await session.run(feeds);
    const sleeps = () => own.reduce((sum, thread) => sum + sleepsOf(thread), 0);
    const before = sleeps();
    for (let i = 0; i < STEPS; i++) await session.run(feeds);
    return sleeps() - before;
  } finally {
    await session.release();
  }
}

test('threads of a session do not spin between steps: the option reaches ONNX Runtime', {
  skip: !existsSync(THREADS) && 'no /proc here',
}, async () => {
  // The first session starts the threads of libuv, which must not count as the second session's.
  await sleepsInSteps(sessionOptions(2));
  // On a busy machine, a thread may get its next work before it sleeps. Threads that spin sleep rarely in every try.
  let sleeps = 0;
  for (let attempt = 0; attempt < 10 && sleeps < STEPS / 2; attempt++) sleeps = await sleepsInSteps(sessionOptions(2));
  assert.ok(sleeps >= STEPS / 2, `${sleeps} sleeps in ${STEPS} steps`);
});
