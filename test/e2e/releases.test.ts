import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { PieClient } from '#gateway/client/client.ts';
import { deployWith } from '#test/harness/deploy.ts';
import { invoke, type StreamEvent, terminal, text } from '#test/harness/events.ts';
import { functionsPlatform } from '#test/harness/functions.ts';
import { type Platform, until } from '#test/harness/platform.ts';

const STREAMS = process.env.PIE_TEST_ALL ? 200 : 100;
const TICKS = 12;
const EVERY_MS = 120;
/** Number of invocations that draw their version from the 90/10 split. */
const DRAWS = process.env.PIE_TEST_ALL ? 1000 : 400;
const DRAWS_AT_ONCE = 20;
/** Permitted deviation of a binomial count, in standard deviations: a fair split exceeds it in less than 1 of 10,000 runs. */
const SIGMAS = 4;

let platform: Platform;
let client: PieClient;
/** Keeps `STREAMS` streams running. `stop` starts no more, and reads the running ones to their ends. `done` has the events of all ended streams. */
function load(name: string) {
  let stopped = false;
  let live = 0;
  const done: StreamEvent[][] = [];
  const streamAgain = async (offset: number) => {
    await sleep(offset);
    while (!stopped) {
      live++;
      try {
        done.push(await invoke(platform, name, { ticks: TICKS, everyMs: EVERY_MS }));
      } finally {
        live--;
      }
    }
  };
  const all = Promise.all(Array.from({ length: STREAMS }, (_, i) => streamAgain((i / STREAMS) * TICKS * EVERY_MS)));
  return {
    live: () => live,
    done,
    stop: async () => {
      stopped = true;
      await all;
      return done;
    },
  };
}

/** Checks that each stream is complete and of one version throughout; returns the number of streams per version. */
function versionsOf(streams: readonly StreamEvent[][]): Map<string, number> {
  const versions = new Map<string, number>();
  for (const events of streams) {
    const end = terminal(events);
    assert.equal(end?.event, 'result', JSON.stringify(end?.data));
    const version = String(end?.data.output.version);
    const expected = Array.from({ length: TICKS }, (_, tick) => `${version} ${tick}`).join('');
    assert.equal(text(events), expected);
    versions.set(version, (versions.get(version) ?? 0) + 1);
  }
  return versions;
}

test(`deploy, split 90/10, rollback and removal under ${STREAMS} live streams lose no stream`, async () => {
  platform = await functionsPlatform();
  client = new PieClient({ url: platform.url, apiKey: platform.apiKey });
  const first = await deployWith(platform, 'ticker', {});
  const streams = load('ticker');
  /** Waits until a stream of a version has ended and all clients have an open stream. */
  const untilEnded = (version: string) =>
    until(
      `streams of ${version} have ended`,
      () =>
        streams.live() === STREAMS && streams.done.some((events) => terminal(events)?.data.output?.version === version),
    );
  await untilEnded(first);

  const second = await deployWith(platform, 'ticker', { description: 'the second' });
  assert.notEqual(second, first);
  await untilEnded(second);

  await client.setAlias('ticker', 'live', {
    shares: [
      { version: second, weight: 90 },
      { version: first, weight: 10 },
    ],
  });
  const drawn = new Map<string, number>();
  const draw = async () => {
    const { version } = await client.submit('ticker', { ticks: 0 });
    drawn.set(version, (drawn.get(version) ?? 0) + 1);
  };
  for (let i = 0; i < DRAWS; i += DRAWS_AT_ONCE) await Promise.all(Array.from({ length: DRAWS_AT_ONCE }, draw));
  const bound = SIGMAS * Math.sqrt(DRAWS * 0.9 * 0.1);
  const secondCount = drawn.get(second) ?? 0;
  assert.ok(Math.abs(secondCount - DRAWS * 0.9) <= bound, `${secondCount} of ${DRAWS}`);
  assert.equal(secondCount + (drawn.get(first) ?? 0), DRAWS);

  const firstRollback = await client.rollback('ticker', {});
  assert.deepEqual(firstRollback.to, [{ version: second, weight: 100 }], 'one step back: the version before the split');
  const secondRollback = await client.rollback('ticker', {});
  assert.deepEqual(secondRollback.to, [{ version: first, weight: 100 }], 'two steps back');

  const seen = versionsOf(await streams.stop());
  assert.deepEqual([...seen.keys()].sort(), [first, second].sort());

  // Remove the function while `STREAMS` invocations run. They finish normally, and new invocations fail.
  const last = Array.from({ length: STREAMS }, () => {
    const { promise: started, resolve: onEvent } = Promise.withResolvers<unknown>();
    const events = invoke(platform, 'ticker', { ticks: TICKS, everyMs: EVERY_MS * 3 }, { onEvent });
    return { started, events };
  });
  await Promise.all(last.map(({ started }) => started));
  await client.removeFunction('ticker');
  await assert.rejects(client.submit('ticker', {}), { code: 'unknown-function' });
  const streamed = await Promise.all(last.map(({ events }) => events));
  assert.deepEqual([...versionsOf(streamed)], [[first, STREAMS]]);
});
