import assert from 'node:assert/strict';
import path from 'node:path';
import { before, describe, it } from 'node:test';
import { call } from '../../../test/harness/deploy.ts';
import { CHAT, deployFrom, functionsPlatform, STORIES, TINY } from '../../../test/harness/functions.ts';
import { ROOT } from '../../../test/harness/platform.ts';

describe('a constraint with other options', () => {
  before(() => deployFrom(path.join(ROOT, 'functions/sdk/fixtures/combined-options.ts'), 'sdk-held'));

  // Draws do not depend on the model; what a constraint forces depends on the model's tokens. The larger model takes twice as long.
  const temperatures = process.env.PIE_TEST_ALL ? [0, 1] : [0];
  for (const input of [{ model: STORIES }, { model: CHAT, temperatures }, { model: TINY, adapter: 'other' }]) {
    it(`keeps the tokens of stepwise decoding on ${JSON.stringify(input)}`, async () => {
      const { holds } = await call(await functionsPlatform(), 'sdk-held', input);
      for (const [what, held] of Object.entries(holds)) assert.equal(held, true, `${what}: ${JSON.stringify(held)}`);
      assert.ok(Object.keys(holds).length > 16);
    });
  }
});
