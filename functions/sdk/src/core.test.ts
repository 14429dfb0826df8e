import assert from 'node:assert/strict';
import path from 'node:path';
import { before, describe, it } from 'node:test';
import { call } from '../../../test/harness/deploy.ts';
import { CHAT, deployFrom, functionsPlatform, STORIES } from '../../../test/harness/functions.ts';
import { ROOT } from '../../../test/harness/platform.ts';

describe('the guest library on real models', () => {
  before(() => deployFrom(path.join(ROOT, 'functions/sdk/fixtures/core.ts'), 'sdk-core'));

  for (const model of [STORIES, CHAT]) {
    it(`changes nothing that ${model} says unless it is asked to`, async () => {
      const { holds, errors } = await call(await functionsPlatform(), 'sdk-core', { model });
      for (const [what, held] of Object.entries(holds)) assert.equal(held, true, `${what}: ${JSON.stringify(held)}`);
      assert.ok(Object.keys(holds).length > 20);
      assert.deepEqual(errors, {
        speculatorAndConstraint: 'invalid-argument',
        logProbabilitiesAndConstraint: 'unsupported',
        adapter: 'unsupported',
        image: 'unsupported',
        scriptOutsideGrammar: 'invalid-argument',
        nothingLeft: 'invalid-argument',
        noChoice: 'invalid-argument',
        emptyChoice: 'invalid-argument',
        otherSnapshot: 'invalid-argument',
        cutShort: 'limit-exceeded',
        noJsonSchema: 'invalid-argument',
        itself: 'invalid-argument',
        removed: 'not-found',
      });
    });
  }
});
