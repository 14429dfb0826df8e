/** The program of an image worker: prepares pictures one after the other. */
import { parentPort } from 'node:worker_threads';
import { decode } from './decode.ts';
import { ImageFault } from './fault.ts';
import type { Request, Sent } from './messages.ts';
import { prepare } from './prepare.ts';

const port = parentPort;
if (!port) throw new Error('images/worker.ts runs as a worker thread');
/** CPU time of this thread that was told of: its start is nobody's. */
let toldMs = usedMs();

port.on('message', ({ image, preparation }: Request) => {
  let result: { readonly tag: 'ok'; readonly pixels: Uint8Array } | { readonly tag: 'refused'; readonly text: string };
  try {
    result = { tag: 'ok', pixels: prepare(decode(image), preparation) };
  } catch (error) {
    if (!(error instanceof ImageFault)) throw error;
    result = { tag: 'refused', text: error.message };
  }
  const cpuMs = usedMs();
  const sent: Sent = { ...result, cpuMs: cpuMs - toldMs };
  toldMs = cpuMs;
  port.postMessage(sent, result.tag === 'ok' ? [result.pixels.buffer as ArrayBuffer] : []);
});
port.postMessage({ tag: 'ready', cpuMs: 0 } satisfies Sent);

function usedMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}
