import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deploy, deployWith, failure } from '#test/harness/deploy.ts';
import { hold, invoke, type StreamEvent } from '#test/harness/events.ts';
import { Platform } from '#test/harness/platform.ts';

const PAGES = 64;
/** Without swap, the pages of an inferlet stay on the device, so other inferlets cannot use them while the inferlet holds them. */
const CONFIG = `[[model]]\nname = "stories15m"\npages = ${PAGES}\nprefix_cache = false\nswap_memory_mb = 0\nswap_disk_mb = 0\n`;

test('an inferlet that lacks memory fails as `terminated`; a restartable one begins again when others have freed memory', async () => {
  await using platform = await Platform.start({ functions: false, config: CONFIG });
  await deploy(platform, 'pressure');
  await deployWith(platform, 'pressure.ts', { restartable: true, name: 'pressure-again' });
  const startHolder = (pages: number) => hold(platform, 'pressure', { pages, tokens: 1, hold: true });
  // This inferlet runs until the end of the test. The restart below therefore happens because memory is free, and not because nothing else runs.
  const lastingHolder = await startHolder(2);
  const holders = await Promise.all([24, 24].map(startHolder));

  // The three inferlets hold at least 2 + 24 + 24 of the 64 pages, so 30 more pages do not fit.
  const refused = await failure(platform, 'pressure', { pages: 30, tokens: 1 });
  assert.equal(refused.code, 'terminated');
  assert.match(refused.cause, /memory pressure/);
  assert.ok(refused.retryAfterMs >= 1000, JSON.stringify(refused));

  // The warning comes with the end of the first attempt. Then both large holders continue, end and free their pages.
  let continued: Promise<unknown> | undefined;
  const onEvent = ({ data }: StreamEvent) => {
    if (data.level === 'warn') continued ??= Promise.all(holders.map((holder) => holder.goOn()));
  };
  const events = await invoke(platform, 'pressure-again', { pages: 30, tokens: 1 }, { onEvent });
  await continued;
  const ends = events.filter(({ event }) => event === 'result' || event === 'error');
  assert.deepEqual(ends, events.slice(-1), 'the only end is the last event');
  assert.equal(ends[0]?.event, 'result', JSON.stringify(events));
  const starts = events.filter(({ event }) => event === 'start');
  assert.deepEqual(
    starts.map(({ data }) => data.attempt),
    [undefined, 2],
    'a `start` has its attempt only from the second one on',
  );
  const [firstStart, secondStart] = starts as [StreamEvent, StreamEvent];
  const firstAttempt = events.slice(events.indexOf(firstStart), events.indexOf(secondStart));
  assert.match(firstAttempt.find(({ data }) => data.level === 'warn')?.data.message, /memory pressure/);

  for (const { ended } of holders) assert.equal((await ended).at(-1)?.event, 'result');
  const cancelled = await platform.fetch(`/v1/invocations/${lastingHolder.id}`, { method: 'DELETE' });
  assert.ok(cancelled.ok, `${cancelled.status}`);
  await lastingHolder.ended;
});
