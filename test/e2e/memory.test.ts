import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deployWith } from '#test/harness/deploy.ts';
import { json, readEvents, type StreamEvent, say } from '#test/harness/events.ts';
import { Platform, until } from '#test/harness/platform.ts';

const TOTAL_MB = 64;
const COUNT = 10;
/** Memory that each inferlet fills. The inferlet itself takes a few MiB more. */
const FILLED_MB = 12;
/** Without a reserve, one tenant may use all of the memory. */
const CONFIG = `[runtime]\ntotal_memory_mb = ${TOTAL_MB}\n[admission]\nreserve = 0\n`;

test('inferlets that together exceed the memory run a few at a time; one whose own limit exceeds the memory is refused', async () => {
  await using platform = await Platform.start({ functions: false, config: CONFIG });
  await deployWith(platform, 'memory.ts', { name: 'memory', limits: { memoryMb: 32 } });
  const events: StreamEvent[][] = [];
  const ended = Array.from({ length: COUNT }, async () => {
    const received: StreamEvent[] = [];
    events.push(received);
    const response = await platform.fetch('/v1/functions/memory/invocations', {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'text/event-stream' },
      body: JSON.stringify({ mb: FILLED_MB }),
    });
    await readEvents(response, (event) => received.push(event));
  });
  const released = new Set<string>();
  for (let i = 0; i < COUNT; i++) {
    // Let one more inferlet that has filled its memory go on: it then ends and frees the memory.
    const nextHolder = () =>
      events
        .filter((each) => each.some(({ event }) => event === 'message'))
        .map(([start]) => String(start?.data.invocation))
        .find((id) => !released.has(id));
    await until('another inferlet holds memory', () => nextHolder() !== undefined);
    const id = nextHolder() ?? '';
    released.add(id);
    await say(platform, id, { text: 'go on' });
  }
  await Promise.all(ended);
  assert.deepEqual(
    events.map((each) => each.at(-1)?.event),
    events.map(() => 'result'),
  );
  const records = await Promise.all(
    [...released].map(async (id) => json(await platform.fetch(`/v1/invocations/${id}`))),
  );
  const eachMb = records[0].usage.memoryBytes / 2 ** 20;
  const maxRunning = mostAtOnce(records);
  assert.ok(eachMb > FILLED_MB && COUNT * eachMb > TOTAL_MB, `${eachMb} MiB each`);
  assert.ok(maxRunning >= 2 && maxRunning * eachMb <= TOTAL_MB, `${maxRunning} at once of ${eachMb} MiB each`);

  await deployWith(platform, 'memory.ts', { name: 'large', limits: { memoryMb: TOTAL_MB + 1 } });
  const refused = await platform.fetch('/v1/functions/large/invocations', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ mb: 1 }),
  });
  const problem = await json(refused);
  assert.deepEqual([refused.status, problem.code], [422, 'memory-unavailable'], JSON.stringify(problem));
});

/**
 * Returns the largest number of invocations that ran at the same time, by the store's records. The client's streams do not show this number: one
 * stream may bring the start of an invocation before another stream brings the end that made room for it.
 */
function mostAtOnce(records: readonly { readonly startedAt: string; readonly endedAt: string }[]): number {
  const changes = records
    .flatMap(({ startedAt, endedAt }) => [
      { at: Date.parse(startedAt), by: 1 },
      { at: Date.parse(endedAt), by: -1 },
    ])
    // When an end and a start have the same millisecond, the end comes first: the start may have waited for its memory.
    .sort((a, b) => a.at - b.at || a.by - b.by);
  let [running, most] = [0, 0];
  for (const { by } of changes) {
    running += by;
    most = Math.max(most, running);
  }
  return most;
}
