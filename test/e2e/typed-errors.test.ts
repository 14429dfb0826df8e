import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { deployWith } from '#test/harness/deploy.ts';
import { invoke, terminal } from '#test/harness/events.ts';
import { functionsPlatform } from '#test/harness/functions.ts';

/** Wall-time limit of an inferlet that waits for longer. */
const WALL_MS = 1000;

const ending = async (what: string, catches: boolean, name = 'limits') =>
  terminal(await invoke(await functionsPlatform(), name, { what, catches }));

/** Tests the error that an inferlet receives at a limit, and the error that its client reads if the inferlet does not catch it. */
describe('an inferlet that meets a limit', () => {
  before(async () => {
    const platform = await functionsPlatform();
    await deployWith(platform, 'limits', {});
    await deployWith(platform, 'limits', { name: 'short', limits: { wallMs: WALL_MS } });
  });

  for (const [what, code, messagePattern] of [
    ['pages', 'limit-exceeded', /pages/],
    ['host', 'unsupported', /example\.com.*"grants": \{"hosts"/],
  ] as const) {
    test(`at the limit "${what}" can catch ${code}, and otherwise fails with the text of this error`, async () => {
      const caught = await ending(what, true);
      assert.equal(caught?.event, 'result', JSON.stringify(caught?.data));
      assert.equal(caught?.data.output.caught, code);
      assert.match(caught?.data.output.message, messagePattern);
      const failed = await ending(what, false);
      assert.equal(failed?.event, 'error');
      assert.equal(failed?.data.code, 'inferlet-error');
      assert.match(failed?.data.message, new RegExp(`^${code}: `));
      assert.match(failed?.data.message, messagePattern);
    });
  }

  test('at its deadline ends as deadline-exceeded, whether or not it catches the error', async () => {
    for (const catches of [true, false]) {
      const end = await ending('deadline', catches, 'short');
      assert.equal(end?.event, 'error');
      assert.equal(end?.data.code, 'deadline-exceeded');
      assert.match(end?.data.message, new RegExp(`${WALL_MS} ms.*limits\\.wallMs`));
    }
  });
});
