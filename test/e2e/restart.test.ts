import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deploy, deployWith, failure } from '#test/harness/deploy.ts';
import { invoke, type StreamEvent } from '#test/harness/events.ts';
import { Platform, until } from '#test/harness/platform.ts';

/** No swap: what others hold cannot be had. */
const CONFIG =
  '[[model]]\nname = "stories15m"\npages = 64\nprefix_cache = false\nswap_memory_mb = 0\nswap_disk_mb = 0\n';

/** Runs a holder until it has all that it wants and sleeps. */
async function hold(platform: Platform, pages: number, holdMs: number) {
  const events: StreamEvent[] = [];
  const input = { pages, tokens: 1, holdMs };
  const ended = invoke(platform, 'pressure', input, { onEvent: (event) => events.push(event) });
  await until('it holds its pages', () => events.some(({ event }) => event === 'message'));
  return { id: events[0]?.data.invocation as string, ended };
}

test('what is ended for want of memory waits until others have given it back, when it may start again; else it ends with its cause', async () => {
  await using platform = await Platform.start({ functions: false, config: CONFIG });
  await deploy(platform, 'pressure');
  await deployWith(platform, 'pressure.ts', { restartable: true, name: 'pressure-again' });
  // One stays for as long as it takes, so that the restarted one does not start just because it is alone.
  const small = await hold(platform, 2, 60_000);
  const holders = await Promise.all([24, 24].map((pages) => hold(platform, pages, 3000)));

  const refused = await failure(platform, 'pressure', { pages: 30, tokens: 1, holdMs: 0 });
  assert.equal(refused.code, 'terminated');
  assert.match(refused.cause, /memory pressure/);
  assert.ok(refused.retryAfterMs >= 1000, JSON.stringify(refused));

  const events = await invoke(platform, 'pressure-again', { pages: 30, tokens: 1, holdMs: 0 });
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
