import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type Harness, JSON_TYPE } from './harness.ts';

/** Tests of the routes of schedules. `gateway/node/schedules.test.ts` tests what schedules do. */
export function describeSchedules(get: () => Harness): void {
  describe('schedules', () => {
    it('schedules are set, listed, replaced and removed, and refused with the field of the fault', async () => {
      const h = get();
      const put = (settings: object, name = 'nightly') =>
        h.ask(`/v1/schedules/${name}`, { method: 'PUT', headers: JSON_TYPE, body: JSON.stringify(settings) });
      const settings = { function: 'echo', input: { prompt: 'Hé' }, cron: '0 3 * * *', timezone: 'Europe/Berlin' };
      const putAnswer = await put(settings);
      assert.equal(putAnswer.status, 200, JSON.stringify(putAnswer.body));
      const { function: fn, input, cron, timezone, last } = putAnswer.body;
      assert.deepEqual({ function: fn, input, cron, timezone }, settings);
      assert.equal(last, null);
      assert.equal((await put({ ...settings, cron: '0 4 * * *' })).body.cron, '0 4 * * *');
      const { schedules } = (await h.ask('/v1/schedules')).body;
      assert.deepEqual(
        schedules.map((one: { name: string; cron: string }) => [one.name, one.cron]),
        [['nightly', '0 4 * * *']],
      );
      const exact = '{"prompt":"a","maxTokens":9007199254740993}';
      const bodyWithLargeInteger = `{"function":"echo","input":${exact},"cron":"0 4 * * *"}`;
      await h.ask('/v1/schedules/nightly', { method: 'PUT', headers: JSON_TYPE, body: bodyWithLargeInteger });
      const [stored] = await h.platform.scheduler.schedules.list('default');
      assert.equal(stored?.input, exact, 'a large integer is not rounded');
      h.refused(await put({ ...settings, cron: '61 4 * * *' }), 'invalid-input', '/cron');
      h.refused(await put({ ...settings, input: { prompt: 1 } }), 'invalid-input', '/prompt');
      h.refused(await put({ ...settings, everyMs: 60_000 }), 'invalid-input', '/everyMs');
      h.refused(await put({ function: 'echo', everyMs: 60_000, timezone: 'UTC' }), 'invalid-input', '/timezone');
      const spaced = await put({ ...settings, cron: ' 0  4\t* * * ' });
      assert.deepEqual([spaced.status, spaced.body.cron], [200, '0 4 * * *']);
      h.refused(await put({ ...settings, function: 'nothing' }), 'unknown-function');
      h.refused(await put({ ...settings, function: 'echo@live@old' }), 'unknown-alias');
      const removed = await h.send('/v1/schedules/nightly', { method: 'DELETE' });
      assert.equal(removed.status, 204);
      h.refused(await h.ask('/v1/schedules/nightly', { method: 'DELETE' }), 'unknown-schedule');
    });
  });
}
