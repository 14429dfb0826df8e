import assert from 'node:assert/strict';
import path from 'node:path';
import { before, describe, it } from 'node:test';
import { call } from '../../../test/harness/deploy.ts';
import { invoke, terminal, text } from '../../../test/harness/events.ts';
import { CHAT, deployFrom, functionsPlatform, SMALL, STORIES } from '../../../test/harness/functions.ts';
import { ROOT } from '../../../test/harness/platform.ts';

/** No check depends on the model, and each real model takes at least five times as long as the random one. So only the random one always runs. */
const MODELS = [SMALL, STORIES, CHAT].map((model) => ({
  model,
  skip: model !== SMALL && !process.env.PIE_TEST_ALL && 'set PIE_TEST_ALL',
}));

describe('the guest library on the device', () => {
  before(() => deployFrom(path.join(ROOT, 'functions/sdk/fixtures/core.ts'), 'sdk-core'));

  for (const { model, skip } of MODELS) {
    it(`keeps the output of ${model} unless an option changes it`, { skip }, async () => {
      const events = await invoke(await functionsPlatform(), 'sdk-core', { model });
      const end = terminal(events);
      assert.ok(end?.event === 'result', JSON.stringify(end?.data));
      const { holds, errors, sent } = end.data.output;
      // Each message is `<"a piece">`, and the pieces may be of any length: join them to one message.
      assert.equal(text(events).replaceAll('"><"', ''), sent, 'the piped text');
      for (const [what, held] of Object.entries(holds)) assert.equal(held, true, `${what}: ${JSON.stringify(held)}`);
      assert.ok(Object.keys(holds).length > 20);
      assert.deepEqual(errors, {
        speculatorAndWindow: 'invalid-argument',
        logProbabilitiesAndSpeculator: 'unsupported',
        logProbabilitiesAndJumps: 'invalid-argument',
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

  describe('after an image', () => {
    before(() => deployFrom(path.join(ROOT, 'functions/sdk/fixtures/image.ts'), 'sdk-image'));

    it('generates correctly for any number of tokens after the image', async () => {
      const { holds } = await call(await functionsPlatform(), 'sdk-image', {});
      for (const [what, held] of Object.entries(holds)) assert.equal(held, true, `${what}: ${JSON.stringify(held)}`);
      assert.equal(Object.keys(holds).length, 18);
    });
  });

  describe('after a failure', () => {
    before(() => deployFrom(path.join(ROOT, 'functions/sdk/fixtures/faults.ts'), 'sdk-faults'));

    // The chat model cannot run these checks: it has no begin-of-text token, and it ends their text early.
    for (const { model, skip } of MODELS.filter((each) => each.model !== CHAT)) {
      it(`keeps contexts on ${model} correct and usable`, { skip }, async () => {
        const { holds, errors } = await call(await functionsPlatform(), 'sdk-faults', { model });
        for (const [what, held] of Object.entries(holds)) assert.equal(held, true, `${what}: ${JSON.stringify(held)}`);
        assert.ok(Object.keys(holds).length > 10);
        assert.deepEqual(errors, {
          adapterAhead: 'unsupported',
          biasAndSpeculator: 'unsupported',
          appendOpened: 'invalid-argument',
          appendSlid: 'invalid-argument',
          appendFrom: 'invalid-argument',
          appendTwice: 'invalid-argument',
          appendReleased: 'closed',
          halfToken: 'invalid-argument',
          noTime: 'invalid-argument',
          noJson: 'invalid-argument',
          noConcurrency: 'invalid-argument',
          noRequest: 'invalid-argument',
          noGuesses: 'invalid-argument',
        });
      });
    }

    it('replaces half a character in the error message', async () => {
      const end = terminal(await invoke(await functionsPlatform(), 'sdk-faults', { fail: true }));
      assert.equal(end?.data.code, 'inferlet-error');
      assert.equal(end?.data.message, 'half a character: \ufffd');
    });

    it('reports a result that JSON cannot represent', async () => {
      const end = terminal(await invoke(await functionsPlatform(), 'sdk-faults', { returnsFunction: true }));
      assert.equal(end?.data.code, 'inferlet-error');
      assert.match(end?.data.message, /^invalid-argument: JSON cannot represent a function/);
    });

    it('sends the messages that waited for buffer space when the inferlet failed', async () => {
      // Messages of 100,000 bytes, 2 MB in all: twice as many as the platform buffers.
      const events = await invoke(await functionsPlatform(), 'sdk-faults', { messages: 20 });
      assert.equal(terminal(events)?.data.message, 'after its messages');
      const messages = events.filter(({ event }) => event === 'message');
      assert.deepEqual(
        messages.map(({ data }) => Number.parseInt(data.text, 10)),
        Array.from({ length: 20 }, (_, i) => i),
      );
    });

    it('refuses a message that has too many bytes for its characters', async () => {
      const end = terminal(await invoke(await functionsPlatform(), 'sdk-faults', { long: 'é' }));
      assert.equal(end?.data.code, 'inferlet-error');
      assert.match(end?.data.message, /^limit-exceeded: the message has 1200000 bytes; 1048576 is the limit/);
    });
  });
});
