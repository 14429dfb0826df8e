import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { randomAdapter, randomModel } from '../../models/testing/random-model.ts';
import { testAddon } from '../testing/cuda.ts';
import { loadAddon } from './addon.ts';

/** Far longer than the script takes; a call that waits for the held card never returns. */
const TIME_LIMIT_MS = 120_000;

test('while the card stands still, no call blocks the thread, except calls for unpinned pages', async (t) => {
  const addon = await testAddon();
  if (!loadAddon(addon).emulated) return t.skip('only an emulated card stands still on demand');
  const directory = await mkdtemp(join(tmpdir(), 'pie-free-'));
  try {
    const model = await randomModel(join(directory, 'model'), { layers: 1 }, 5);
    await randomAdapter(join(directory, 'adapter'), model.config, 3, { rank: 2 });
    const script = `
      const { rmSync, writeFileSync } = await import('node:fs');
      const { setImmediate } = await import('node:timers/promises');
      const { createCudaBackend } = await import(${JSON.stringify(new URL('./index.ts', import.meta.url).href)});
      const { loadModel } = await import(${JSON.stringify(new URL('../../models/load.ts', import.meta.url).href)});
      const model = await loadModel(${JSON.stringify(model.directory)});
      const { loadAdapter } = await import(${JSON.stringify(new URL('../../models/adapter.ts', import.meta.url).href)});
      const adapter = await loadAdapter(${JSON.stringify(join(directory, 'adapter'))}, model.config);
      const backend = await createCudaBackend(model, { pageSize: 16, pageCount: 4, precision: 'float32' });
      const none = new Uint32Array();
      const one = Uint32Array.of(1);
      const ask = (output) => backend.forward([
        { inputs: { kind: 'tokens', tokens: one }, positions: one, context: none, mask: 'causal', writes: none, output },
      ]);
      const [{ states }] = await ask({ kind: 'states', rows: 1 });
      const written = new Uint8Array(backend.pageBytes).map((_, i) => i % 251);
      backend.writePage(0, written);
      const loaded = await backend.loadAdapter(adapter);
      const work = () => [
        backend.project(states, 1, 5),
        backend.score(states, 1, [Uint32Array.of(3, 4)]),
        ask({ kind: 'top', rows: 1, topK: 5 }),
      ];
      const expected = JSON.stringify(await Promise.all(work()));
      writeFileSync(process.env.PIE_EMULATED_HOLD, '');
      // Page 0 is copied to page 2 by way of host memory, which is then used again for page 3.
      const swap = backend.allocatePinned(2 * backend.pageBytes);
      const [page, other] = [swap.subarray(0, backend.pageBytes), swap.subarray(backend.pageBytes)];
      let ended = 0;
      const held = work().map((each) => each.finally(() => ended++));
      let isLoaded = false;
      let isSettled = false;
      let settling;
      const loading = backend.loadAdapter(adapter).then(() => { isLoaded = true; });
      loaded.release();
      let turns = 0;
      for (; turns < 200; turns++) {
        if (turns === 100) {
          backend.queueReadPage(0, page);
          backend.queueWritePage(2, page);
          backend.queueReadPage(3, page);
          settling = backend.pagesSettled().then(() => { isSettled = true; });
        }
        await setImmediate();
      }
      console.log('turns', turns, 'ended', ended, isLoaded, isSettled);
      rmSync(process.env.PIE_EMULATED_HOLD);
      console.log('same', JSON.stringify(await Promise.all(held)) === expected);
      await loading;
      await settling;
      console.log('read', Buffer.compare(page, new Uint8Array(page.length)));
      backend.readPage(2, other);
      console.log('pages', Buffer.compare(other, written));
      const closing = backend.project(states, 1, 5);
      await backend.dispose();
      console.log('closed', (await closing).tokens.length);`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
      env: { ...process.env, PIE_CUDA_ADDON: addon, PIE_EMULATED_HOLD: join(directory, 'hold') },
      stdio: ['ignore', 'pipe', 'inherit'],
      timeout: TIME_LIMIT_MS,
      killSignal: 'SIGKILL',
    });
    const [stdout, [code]] = await Promise.all([text(child.stdout), once(child, 'close')]);
    assert.deepEqual([code, stdout], [0, 'turns 200 ended 0 false false\nsame true\nread 0\npages 0\nclosed 5\n']);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
});
