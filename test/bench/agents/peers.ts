import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { loadModel } from '#gpu-host/models/load.ts';
import { pullModel } from '#gpu-host/models/pull.ts';
import { writeGguf } from '../engine/gguf.ts';
import { installPeers } from '../engine/install-peers.ts';
import { ChildServer } from './child-server.ts';

/** Most tokens of one sequence of the peer; a model may allow fewer. */
const CONTEXT = 1024;

/** node-llama-cpp behind HTTP with one number of threads. */
export interface Peer {
  readonly model: string;
  readonly threads: number;
  readonly server: ChildServer;
}

export interface PeerSettings {
  /** Maximum requests that the peer computes at once; others wait. */
  readonly sequences: number;
  /** Further sequences that guess tokens from the prompt, for requests with `lookup`; none by default. */
  readonly guessing?: number;
}

/** Starts node-llama-cpp for each model with one thread and with one per core: on some machines, threads contend. `stack` ends the peers. */
export async function startPeers(
  models: readonly string[],
  { sequences, guessing = 0 }: PeerSettings,
  stack: AsyncDisposableStack,
  progress: (line: string) => void,
): Promise<Peer[]> {
  await installPeers(progress);
  const directory = await mkdtemp(path.join(os.tmpdir(), 'pie-peers-'));
  stack.defer(() => rm(directory, { recursive: true, force: true }));
  const peers: Peer[] = [];
  for (const name of models) {
    const model = await loadModel((await pullModel(name)).directory);
    const file = path.join(directory, `${name}.gguf`);
    await writeGguf(model, 32, file);
    const context = Math.min(model.config.contextLength, CONTEXT);
    for (const threads of new Set([1, os.availableParallelism()])) {
      const args = [file, threads, context, sequences, guessing].map(String);
      peers.push({ model: name, threads, server: stack.use(await ChildServer.start('llama-process.ts', args)) });
    }
  }
  return peers;
}

/** A peer is cut off when its two runs of the work take this many times as long as one run of the fastest peer so far. */
const HOPELESS_FACTOR = 6;

/**
 * Returns, for each model, the peer that does the work in the shortest time, and ends the other peers. Each peer does the work twice; the first
 * run warms it up. More threads than free cores can take a hundred times as long.
 */
export async function fastestPeers(
  peers: readonly Peer[],
  work: (peer: Peer) => Promise<unknown>,
): Promise<Map<string, Peer>> {
  const fastest = new Map<string, { readonly peer: Peer; readonly tookMs: number }>();
  for (const peer of peers) {
    const best = fastest.get(peer.model);
    const tookMs = await timeOf(() => work(peer), best && HOPELESS_FACTOR * best.tookMs);
    if (best && tookMs >= best.tookMs) await peer.server[Symbol.asyncDispose]();
    else {
      await best?.peer.server[Symbol.asyncDispose]();
      fastest.set(peer.model, { peer, tookMs });
    }
  }
  return new Map([...fastest].map(([model, { peer }]) => [model, peer]));
}

/** Time of the second of two runs of the work, or infinity when both together take longer than `limitMs`. */
async function timeOf(work: () => Promise<unknown>, limitMs?: number): Promise<number> {
  const twice = async () => {
    await work();
    const startMs = performance.now();
    await work();
    return performance.now() - startMs;
  };
  if (limitMs === undefined) return twice();
  const limitTimer = new AbortController();
  try {
    return await Promise.race([twice(), sleep(limitMs, Number.POSITIVE_INFINITY, { signal: limitTimer.signal })]);
  } finally {
    limitTimer.abort();
  }
}
