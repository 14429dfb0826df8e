import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createReferenceBackend } from '../../backends/reference/index.ts';
import type { LoadedAdapter } from '../../models/adapter.ts';
import { startTestHost } from '../../testing/host.ts';
import { Adapters } from './adapters.ts';
import { Meter } from './meter.ts';

const SPACE = { owner: { tenant: 'a' }, port: { meter: new Meter(() => undefined) } };

test('before an adapter is loaded, others leave until the bytes that it takes on the device fit', async () => {
  await using made = await startTestHost({ adapters: { pirate: { seed: 3, rank: 3 }, quiet: { seed: 4, rank: 1 } } });
  const [pirate, quiet] = [made.adapters.get('pirate')!, made.adapters.get('quiet')!];
  const backend = await createReferenceBackend(made.model, { pageSize: 8, pageCount: 1 });
  let resident = 0;
  const bytesAfterLoads: number[] = [];
  const padded = {
    adapterBytes: ({ bytes }: LoadedAdapter) => 2 * bytes,
    async loadAdapter(adapter: LoadedAdapter) {
      const bytes = 2 * adapter.bytes;
      resident += bytes;
      bytesAfterLoads.push(resident);
      const release = () => {
        resident -= bytes;
      };
      return { ...(await backend.loadAdapter(adapter)), bytes, release };
    },
  };
  // The files of both would fit, but on the device each adapter takes twice the bytes of its file.
  const adapters = new Adapters(padded, made.adapters, 2 * pirate.bytes + quiet.bytes);
  for (const name of ['pirate', 'quiet']) await adapters.load(name, SPACE);
  assert.deepEqual(bytesAfterLoads, [2 * pirate.bytes, 2 * quiet.bytes]);
  await adapters.close();
});
