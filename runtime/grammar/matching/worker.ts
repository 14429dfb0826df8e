/** The program of a grammar worker: answers requests one after the other. */
import { parentPort } from 'node:worker_threads';
import type { Reply, Request, Sent } from '../messages.ts';
import { Engine } from './engine.ts';

const port = parentPort;
if (!port) throw new Error('matching/worker.ts runs as a worker thread');
const engine = new Engine();
/** CPU time of this thread that was told of: its start is nobody's; what a coarse clock misses of one request is told with a later one. */
let toldMs = usedMs();

port.on('message', (request: Request) => {
  const reply = engine.answer(request);
  const cpuMs = usedMs();
  port.postMessage({ reply, cpuMs: cpuMs - toldMs } satisfies Sent, transferred(reply));
  toldMs = cpuMs;
});
port.postMessage({ reply: { tag: 'ok', val: undefined }, cpuMs: 0 } satisfies Sent);

function usedMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

/** A mask's memory goes over to the other side. */
function transferred({ val }: Reply): ArrayBuffer[] {
  return val instanceof Uint32Array ? [val.buffer] : [];
}
