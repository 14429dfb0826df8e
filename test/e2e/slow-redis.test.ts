import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TestRedis } from '#scheduler/testing/redis.ts';
import { deployWith } from '#test/harness/deploy.ts';
import { invoke, numberOf, terminal, text } from '#test/harness/events.ts';
import { Platform } from '#test/harness/platform.ts';
import { SlowRedis } from '#test/harness/slow-redis.ts';

/** Duration of a round trip, as to a Redis on another continent. A write then takes longer than the 150 ms between two writes of an attempt. */
const DELAY_MS = 200;
const CLIENTS = 12;
/** Enough for several writes of one attempt. */
const TICKS = 100;

test('with a slow Redis every stream is complete and in order, and every invocation ends as succeeded', async () => {
  const redis = await TestRedis.start({ appendOnly: true });
  const slow = await SlowRedis.start(redis.socket, DELAY_MS);
  try {
    await using platform = await Platform.start({ functions: false, env: { REDIS_URL: slow.url } });
    const version = await deployWith(platform, 'ticker', {});
    const streams = await Promise.all(
      Array.from({ length: CLIENTS }, () => invoke(platform, 'ticker', { ticks: TICKS, everyMs: 5 })),
    );
    const whole = Array.from({ length: TICKS }, (_, tick) => `${version} ${tick}`).join('');
    for (const events of streams) {
      assert.equal(terminal(events)?.event, 'result', JSON.stringify(terminal(events)?.data));
      assert.equal(text(events), whole);
      assert.deepEqual(
        events.map(numberOf),
        events.map((_, i) => i + 1),
      );
    }
    const response = await platform.fetch('/v1/invocations?status=succeeded&limit=200');
    const { invocations } = (await response.json()) as { invocations: readonly unknown[] };
    assert.equal(invocations.length, CLIENTS);
  } finally {
    await slow.stop();
    await redis.stop();
  }
});
