import assert from 'node:assert/strict';
import path from 'node:path';
import { before, describe, it } from 'node:test';
import { call } from '../../../../test/harness/deploy.ts';
import { CHAT, deployFrom, functionsPlatform, STORIES } from '../../../../test/harness/functions.ts';
import { ROOT } from '../../../../test/harness/platform.ts';

describe('healing a prompt', () => {
  before(() => deployFrom(path.join(ROOT, 'functions/sdk/fixtures/healing.ts'), 'sdk-healing'));

  for (const model of [STORIES, CHAT]) {
    it(`chooses among the tokens that begin with the last one on ${model}`, async () => {
      const { holds } = await call(await functionsPlatform(), 'sdk-healing', { model });
      for (const [what, held] of Object.entries(holds)) assert.equal(held, true, `${what}: ${JSON.stringify(held)}`);
      assert.ok(Object.keys(holds).length > 25);
    });
  }
});
