import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { deployWith } from '#test/harness/deploy.ts';
import { invoke, type StreamEvent, terminal } from '#test/harness/events.ts';
import { Platform, until } from '#test/harness/platform.ts';

/** Wall-time limit of an inferlet that waits for longer. */
const WALL_MS = 1000;

let platform: Platform;

before(async () => {
  platform = await Platform.start({ functions: false });
  await deployWith(platform, 'limits', {});
  await deployWith(platform, 'limits', { name: 'short', limits: { wallMs: WALL_MS } });
});

after(async () => {
  await platform?.[Symbol.asyncDispose]();
});

type Options = { readonly name?: string; readonly onEvent?: (event: StreamEvent) => void };

const ending = async (what: string, catches: boolean, { name = 'limits', ...options }: Options = {}) =>
  terminal(await invoke(platform, name, { what, catches }, options));

/** The error that an inferlet receives at a limit, and the error that its client reads when the inferlet does not catch it. */
describe('an inferlet that meets a limit', () => {
  for (const [what, code, said] of [
    ['pages', 'limit-exceeded', /pages/],
    ['host', 'unsupported', /example\.com.*"grants": \{"hosts"/],
  ] as const) {
    test(`at the limit "${what}" can catch ${code}, and otherwise fails with its text`, async () => {
      const caught = await ending(what, true);
      assert.equal(caught?.event, 'result', JSON.stringify(caught?.data));
      assert.equal(caught?.data.output.caught, code);
      assert.match(caught?.data.output.message, said);
      const failed = await ending(what, false);
      assert.equal(failed?.event, 'error');
      assert.equal(failed?.data.code, 'inferlet-error');
      assert.match(failed?.data.message, new RegExp(`^${code}: `));
      assert.match(failed?.data.message, said);
    });
  }

  test('at its deadline ends as deadline-exceeded, whether or not it catches the error', async () => {
    for (const catches of [true, false]) {
      const end = await ending('deadline', catches, { name: 'short' });
      assert.equal(end?.event, 'error');
      assert.equal(end?.data.code, 'deadline-exceeded');
      assert.match(end?.data.message, new RegExp(`${WALL_MS} ms.*limits\\.wallMs`));
    }
  });

  test('after the loss of its device can catch unavailable, and otherwise ends as device-lost', async () => {
    for (const catches of [true, false]) {
      const restarted = platform.restarted('gpu-host-1');
      let killed = false;
      const onEvent = ({ event }: StreamEvent) => {
        if (event !== 'message' || killed) return;
        killed = true;
        process.kill(platform.pid('gpu-host-1'), 'SIGKILL');
      };
      const end = await ending('model', catches, { onEvent });
      assert.ok(killed, JSON.stringify(end?.data));
      if (catches) assert.equal(end?.data.output.caught, 'unavailable');
      else assert.equal(end?.data.code, 'device-lost');
      await restarted;
      const served = async () => (await ending('pages', true))?.data.output?.caught === 'limit-exceeded';
      await until('the runtime finds the device again', served);
    }
  });
});
