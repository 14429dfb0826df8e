import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { PlatformLoad } from '#gateway/app/control/operations.ts';
import { EXPRESS_RUNTIME, RUNTIME } from '#infra/runtimes.ts';
import { deployWith } from '#test/harness/deploy.ts';
import { type Held, hold, terminal } from '#test/harness/events.ts';
import { Platform, until } from '#test/harness/platform.ts';
import { createTenant, type TenantClient } from '#test/harness/tenants.ts';

/** Of 1,024 slots a sixteenth is kept, half of that counts as few, and an eighth of that may take the express lane. */
const EXPRESS_OF_A_TENANT = 4;
const FLOOD = 12;
/** Each decodes some, holds until it is told to go on, and decodes the rest. */
const HELD = { tokens: 4, listenAt: 2 };

let platform: Platform;
let flood: TenantClient;
let other: TenantClient;
before(async () => {
  platform = await Platform.start({ functions: false });
  [flood, other] = [await createTenant(platform, 'flood'), await createTenant(platform, 'other')];
  for (const { apiKey } of [flood, other]) await deployWith(platform, 'counted', {}, apiKey);
});
after(() => platform?.[Symbol.asyncDispose]());

const begin = (tenant: TenantClient, mark: string): Promise<Held> => hold(tenant, 'counted', { mark, ...HELD });

/** `result`, or the code of the error. */
async function endingOf({ ended }: Held): Promise<string> {
  const end = terminal(await ended);
  return end?.event === 'result' ? 'result' : String(end?.data.code);
}

/** How one ends that is told to go on. */
async function goesOn(held: Held): Promise<string> {
  await held.goOn();
  return endingOf(held);
}

/** How many run where, once both runtimes have said so. */
async function runningIn(all: number): Promise<Record<string, number>> {
  let running: Record<string, number> = {};
  await until('all are told to run', async () => {
    const { runtimes } = (await (await platform.fetch('/v1/load')).json()) as PlatformLoad;
    running = Object.fromEntries(runtimes.filter(({ alive }) => alive).map((each) => [each.name, each.running]));
    return (running[RUNTIME] ?? 0) + (running[EXPRESS_RUNTIME] ?? 0) === all;
  });
  return running;
}

for (const dies of [RUNTIME, EXPRESS_RUNTIME]) {
  test(`each tenant’s first few run apart from the rest: ${dies} takes only its own with it`, async () => {
    await runningIn(0);
    const restarted = platform.restarted(dies);
    const floods = await Promise.all(Array.from({ length: FLOOD }, (_, i) => begin(flood, `${dies}-${i}`)));
    const held = [...floods, await begin(other, dies)];
    const running = await runningIn(held.length);
    const first = running[EXPRESS_RUNTIME] ?? 0;
    // Fewer on a machine without time: whoever is not fetched at once goes to the other lane.
    assert.ok(first > 0 && first <= EXPRESS_OF_A_TENANT + 1, `${first} in the express lane`);
    process.kill(platform.pid(dies), 'SIGKILL');
    const ended = new Set<Held>();
    for (const each of held) void each.ended.finally(() => ended.add(each));
    await until('its own have ended', () => ended.size >= (running[dies] ?? 0));
    const lost = await Promise.all([...ended].map(endingOf));
    assert.deepEqual(
      lost,
      Array.from({ length: running[dies] ?? 0 }, () => 'runtime-lost'),
    );
    for (const each of held) if (!ended.has(each)) assert.equal(await goesOn(each), 'result');
    await restarted;
    assert.equal(await goesOn(await begin(other, `${dies}-after`)), 'result');
  });
}

test('an express runtime that stands still holds nobody up', async () => {
  const stopped = platform.pid(EXPRESS_RUNTIME);
  process.kill(stopped, 'SIGSTOP');
  try {
    // Who stands in its lane is fetched by the other, after a moment.
    const ends = await Promise.all(Array.from({ length: 3 }, (_, i) => begin(other, `meanwhile-${i}`)));
    for (const each of ends) assert.equal(await goesOn(each), 'result');
  } finally {
    process.kill(stopped, 'SIGCONT');
  }
  assert.equal(await goesOn(await begin(other, 'after')), 'result');
  assert.equal(platform.pid(EXPRESS_RUNTIME), stopped, 'nobody had to restart it');
});
