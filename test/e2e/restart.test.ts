import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deploy, deployWith, failure } from '#test/harness/deploy.ts';
import { hold, invoke, type StreamEvent } from '#test/harness/events.ts';
import { Platform } from '#test/harness/platform.ts';

/** Without swap an inferlet cannot get pages that others hold. */
const CONFIG =
  '[[model]]\nname = "stories15m"\npages = 64\nprefix_cache = false\nswap_memory_mb = 0\nswap_disk_mb = 0\n';

test('an inferlet that lacks memory fails as `terminated`, or restarts after others have freed memory if it is restartable', async () => {
  await using platform = await Platform.start({ functions: false, config: CONFIG });
  await deploy(platform, 'pressure');
  await deployWith(platform, 'pressure.ts', { restartable: true, name: 'pressure-again' });
  // `small` keeps running to the end: the ended inferlet must restart because memory is free, and not because nothing else runs.
  const holding = (pages: number) => hold(platform, 'pressure', { pages, tokens: 1, hold: true });
  const small = await holding(2);
  const holders = await Promise.all([24, 24].map(holding));

  // The three inferlets hold at least 50 of the 64 pages, so 30 more do not fit.
  const refused = await failure(platform, 'pressure', { pages: 30, tokens: 1 });
  assert.equal(refused.code, 'terminated');
  assert.match(refused.cause, /memory pressure/);
  assert.ok(refused.retryAfterMs >= 1000, JSON.stringify(refused));

  let released: Promise<unknown> | undefined;
  const onEvent = ({ data }: StreamEvent) => {
    if (data.level === 'warn') released ??= Promise.all(holders.map((holder) => holder.goOn()));
  };
  const events = await invoke(platform, 'pressure-again', { pages: 30, tokens: 1 }, { onEvent });
  await released;
  const ends = events.filter(({ event }) => event === 'result' || event === 'error');
  assert.deepEqual(ends, events.slice(-1));
  assert.equal(ends[0]?.event, 'result', JSON.stringify(events));
  const starts = events.filter(({ event }) => event === 'start');
  assert.deepEqual(
    starts.map(({ data }) => data.attempt),
    [undefined, 2],
  );
  const between = events.slice(events.indexOf(starts[0] as StreamEvent), events.indexOf(starts[1] as StreamEvent));
  assert.match(between.find(({ data }) => data.level === 'warn')?.data.message, /memory pressure/);

  for (const { ended } of holders) assert.equal((await ended).at(-1)?.event, 'result');
  const cancelled = await platform.fetch(`/v1/invocations/${small.id}`, { method: 'DELETE' });
  assert.ok(cancelled.ok, `${cancelled.status}`);
  await small.ended;
});
