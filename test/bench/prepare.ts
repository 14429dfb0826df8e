import { pullModel } from '#gpu-host/models/pull.ts';
import { installPeers } from './engine/install-peers.ts';

const MODELS = ['stories15m', 'minimind2-small'];

/** Fetches the peers (engines to compare with) and models that a machine does not have yet, so that no suite's time includes the downloads. */
export async function prepare(progress: (line: string) => void): Promise<void> {
  try {
    await installPeers(progress);
    for (const name of MODELS) await pullModel(name);
  } catch (error) {
    // The suites that need neither peers nor models can still run.
    progress(`Not all of the peers and models could be fetched: ${error instanceof Error ? error.message : error}`);
  }
}
