import assert from 'node:assert/strict';
import path from 'node:path';
import { before, describe, it } from 'node:test';
import { call } from '../../../test/harness/deploy.ts';
import { CHAT, deployFrom, functionsPlatform, STORIES, TINY } from '../../../test/harness/functions.ts';
import { ROOT } from '../../../test/harness/platform.ts';

describe('a constraint with other options', () => {
  before(() => deployFrom(path.join(ROOT, 'functions/sdk/fixtures/combined-options.ts'), 'sdk-held'));

  // Each model runs at temperature 0, because forced tokens depend on the model's vocabulary. Draws are the same on every model, so the chat model,
  // which takes twice as long, skips temperature 1.
  const temperatures = process.env.PIE_TEST_ALL ? [0, 1] : [0];
  for (const input of [{ model: STORIES }, { model: CHAT, temperatures }, { model: TINY, adapter: 'other' }]) {
    it(`keeps the tokens of stepwise decoding on ${JSON.stringify(input)}`, async () => {
      const { holds } = await call(await functionsPlatform(), 'sdk-held', input);
      for (const [what, held] of Object.entries(holds)) assert.equal(held, true, `${what}: ${JSON.stringify(held)}`);
      assert.ok(Object.keys(holds).length > 16);
    });
  }
});
