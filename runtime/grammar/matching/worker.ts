/** The program of a grammar worker: answers requests one after the other. */
import { parentPort } from 'node:worker_threads';
import type { Reply, Request } from '../messages.ts';
import { Engine } from './engine.ts';

const port = parentPort;
if (!port) throw new Error('matching/worker.ts runs as a worker thread');
const engine = new Engine();

port.on('message', (request: Request) => {
  const reply = engine.answer(request);
  port.postMessage(reply, transferred(reply));
});
port.postMessage({ tag: 'ok', val: undefined } satisfies Reply);

/** A mask's memory goes over to the other side. */
function transferred({ val }: Reply): ArrayBuffer[] {
  return val instanceof Uint32Array ? [val.buffer] : [];
}
