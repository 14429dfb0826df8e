import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { deployWith } from '#test/harness/deploy.ts';
import { invoke, terminal, text } from '#test/harness/events.ts';
import { deployFunction, functionsPlatform } from '#test/harness/functions.ts';
import type { Platform } from '#test/harness/platform.ts';

const STORY = { prompt: '', maxTokens: 48, temperature: 0 };

describe('a hostile inferlet', () => {
  let platform: Platform;
  let story: string;
  before(async () => {
    platform = await functionsPlatform();
    await deployFunction('text-completion');
    await deployWith(platform, 'hostile', { name: 'hostile' });
    story = text(await invoke(platform, 'text-completion', STORY));
    assert.match(story, /Once upon a time/);
  });

  for (const [misdeed, code, says] of [
    ['throw', 'inferlet-error', /boom from the guest/],
    ['garbage', 'invalid-result', /./],
    ['spin', 'cpu-limit', /./],
    ['recurse', 'trap|inferlet-error', /./],
    ['allocate', 'memory-limit|inferlet-error', /memory/i],
    ['flood', 'output-limit|inferlet-error', /./],
  ] as const) {
    test(`an inferlet with the misdeed "${misdeed}" fails with its cause, and its neighbour is unaffected`, async () => {
      const [bad, good] = await Promise.all([
        invoke(platform, 'hostile', { misdeed }),
        invoke(platform, 'text-completion', STORY),
      ]);
      const end = terminal(bad);
      assert.equal(end?.event, 'error', JSON.stringify(end));
      assert.match(end?.data.code, new RegExp(`^(${code})$`));
      assert.match(end?.data.message, says);
      assert.equal(text(good), story, 'the neighbour returns the same text');
    });
  }

  for (const [misdeed, tag] of [
    ['bad-token', 'invalid-argument'],
    ['bad-page', 'not-owned'],
  ] as const) {
    test(`a call with ${misdeed} returns ${tag}`, async () => {
      const end = terminal(await invoke(platform, 'hostile', { misdeed }));
      assert.equal(end?.event, 'result', JSON.stringify(end?.data));
      assert.equal(end?.data.output.tag, 'err');
      assert.equal(end?.data.output.val.tag, tag);
    });
  }
});
