import assert from 'node:assert/strict';
import { rm } from 'node:fs/promises';
import { test } from 'node:test';
import { call, deploy, failure, modelStats } from '#test/harness/deploy.ts';
import { invoke, terminal } from '#test/harness/events.ts';
import { newHome, Platform, until } from '#test/harness/platform.ts';

const PROMPT = 'Once upon a time there was a little dog who wanted to learn how to swim in the big blue lake.';
const CONTINUATION = ' One day he';

const config = (bits: number) => `[[model]]\nname = "story"\nsource = "stories15m"\nbits = ${bits}\n`;

test('a saved context outlives its inferlet, a persistent one also its GPU host; a model with other weights refuses it', async () => {
  const home = await newHome();
  try {
    let tokens: number[];
    {
      await using platform = await startIn(home, 32);
      await deploy(platform, 'cache');
      const open = (name: string) => call(platform, 'cache', { action: 'open', name, more: CONTINUATION });

      const { saved } = await call(platform, 'cache', {
        action: 'save',
        name: 'notes/dog',
        prompt: PROMPT,
        persistent: true,
      });
      await call(platform, 'cache', { action: 'save', name: 'passing', prompt: PROMPT });
      const first = await open('notes/dog');
      assert.equal(first.opened, saved.length);
      assert.deepEqual((await open('passing')).tokens, first.tokens);
      const conflict = await failure(platform, 'cache', { action: 'save', name: 'passing', prompt: PROMPT });
      assert.match(conflict.message, /taken|exists/);

      // Only the persistent export survives the host's restart. It is unchanged, as the same greedy tokens show.
      const restarted = platform.restarted('gpu-host-1');
      process.kill(platform.pid('gpu-host-1'), 'SIGKILL');
      await restarted;
      // The runtime needs a moment to find the restarted host.
      await until('the restarted host answers calls', async () => {
        const end = terminal(await invoke(platform, 'cache', { action: 'list' }));
        return end?.event === 'result';
      });
      const { exports } = await call(platform, 'cache', { action: 'list' });
      assert.deepEqual(
        exports.map((each: { name: string; tokens: number; persistent: boolean }) => [
          each.name,
          each.tokens,
          each.persistent,
        ]),
        [['notes/dog', saved.length, true]],
      );
      ({ tokens } = await open('notes/dog'));
      assert.deepEqual(tokens, first.tokens);
      assert.match((await failure(platform, 'cache', { action: 'open', name: 'passing' })).message, /not-found/);
    }
    {
      // The model has the same name but, with 8 bits, other weights.
      await using platform = await startIn(home, 8);
      const refused = await failure(platform, 'cache', { action: 'open', name: 'notes/dog' });
      assert.match(refused.message, /invalid-argument/);
      assert.match(refused.message, /story|stories15m/);
      await until('no page is held', async () => (await modelStats(platform)).pages.owned === 0);
    }
    {
      await using platform = await startIn(home, 32);
      assert.deepEqual(
        (await call(platform, 'cache', { action: 'open', name: 'notes/dog', more: CONTINUATION })).tokens,
        tokens,
      );
      await call(platform, 'cache', { action: 'remove', name: 'notes/dog' });
      assert.deepEqual((await call(platform, 'cache', { action: 'list' })).exports, []);
    }
  } finally {
    await rm(home, { recursive: true, force: true, maxRetries: 10 });
  }
});

function startIn(home: string, bits: number): Promise<Platform> {
  return Platform.start({ home, functions: false, config: config(bits), keepHome: true });
}
