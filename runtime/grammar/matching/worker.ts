/** The program of a grammar worker: answers requests one at a time. */
import { parentPort } from 'node:worker_threads';
import type { Reply, Request, SentReply } from '../messages.ts';
import { Engine } from './engine.ts';

const port = parentPort;
if (!port) throw new Error('matching/worker.ts runs as a worker thread');
const engine = new Engine();
/** CPU time of this thread reported so far. Its start is not charged; time that a coarse clock misses is reported with a later request. */
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

/** Buffers to transfer: a mask's memory. */
function transferred({ val }: Reply): ArrayBuffer[] {
  return val instanceof Uint32Array ? [val.buffer] : [];
}
