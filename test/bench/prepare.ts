import { pullModel } from '#gpu-host/models/pull.ts';
import { installPeers } from './engine/install-peers.ts';

const MODELS = ['stories15m', 'minimind2-small'];

/** Fetches the files that the suites need, on a machine that runs them for the first time, so that no suite's time includes it. */
export async function prepare(progress: (line: string) => void): Promise<void> {
  try {
    await installPeers(progress);
    for (const name of MODELS) await pullModel(name);
  } catch (error) {
    // Suites that need none of it can run.
    progress(`Not all of the peers and models could be fetched: ${error instanceof Error ? error.message : error}`);
  }
}
