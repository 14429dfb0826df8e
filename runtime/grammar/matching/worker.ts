/** The program of a grammar worker, which answers requests one at a time. */
import { parentPort } from 'node:worker_threads';
import type { Reply, Request, SentReply } from '../messages.ts';
import { Engine } from './engine.ts';

const port = parentPort;
if (!port) throw new Error('matching/worker.ts runs as a worker thread');
const engine = new Engine();
/** CPU time of this thread up to the last reply. The thread's start is not reported. Time that a coarse clock misses counts for a later request. */
let reportedMs = usedMs();

port.on('message', (request: Request) => {
  const reply = engine.answer(request);
  const cpuMs = usedMs();
  port.postMessage({ reply, cpuMs: cpuMs - reportedMs } satisfies SentReply, transferred(reply));
  reportedMs = cpuMs;
});
port.postMessage({ reply: { tag: 'ok', val: undefined }, cpuMs: 0 } satisfies SentReply);

function usedMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

/** The memory of a mask, which is transferred instead of copied. */
function transferred({ val }: Reply): ArrayBuffer[] {
  return val instanceof Uint32Array ? [val.buffer] : [];
}
