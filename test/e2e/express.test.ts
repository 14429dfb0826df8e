import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { EXPRESS_RUNTIME, RUNTIME } from '#infra/runtimes.ts';
import { deployWith } from '#test/harness/deploy.ts';
import { readEvents, type StreamEvent, terminal } from '#test/harness/events.ts';
import { Platform } from '#test/harness/platform.ts';
import { createTenant, type TenantClient } from '#test/harness/tenants.ts';

/** Of 1,024 slots a sixteenth is kept, half of that counts as few, and an eighth of that may take the express lane. */
const EXPRESS_OF_A_TENANT = 4;
const FLOOD = 12;
const TOKENS = 80;

let platform: Platform;
let flood: TenantClient;
let other: TenantClient;
before(async () => {
  platform = await Platform.start({ functions: false });
  [flood, other] = [await createTenant(platform, 'flood'), await createTenant(platform, 'other')];
  for (const { apiKey } of [flood, other]) await deployWith(platform, 'counted', {}, apiKey);
});
after(() => platform?.[Symbol.asyncDispose]());

/** Invokes; resolves when the first token is there. */
async function begin(tenant: TenantClient, mark: string): Promise<{ readonly ended: Promise<string> }> {
  const response = await tenant.fetch('/v1/functions/counted/invocations', {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'text/event-stream' },
    body: JSON.stringify({ mark, tokens: TOKENS, pauseMs: 25 }),
  });
  assert.equal(response.status, 200);
  const begun = Promise.withResolvers<void>();
  const ended = readEvents(response, ({ event }) => {
    if (event === 'message') begun.resolve();
  }).then((events) => endingOf(terminal(events)));
  await Promise.race([begun.promise, ended]);
  return { ended };
}

const endingOf = (end: StreamEvent | undefined): string =>
  end?.event === 'result' ? 'result' : String(end?.data.code);

for (const { dies, ends } of [
  { dies: RUNTIME, ends: { flood: FLOOD - EXPRESS_OF_A_TENANT, other: 'result' } },
  { dies: EXPRESS_RUNTIME, ends: { flood: EXPRESS_OF_A_TENANT, other: 'runtime-lost' } },
]) {
  test(`each tenant’s first few run apart from the rest: ${dies} takes only its own with it`, async () => {
    const restarted = platform.restarted(dies);
    const floods = await Promise.all(Array.from({ length: FLOOD }, (_, i) => begin(flood, `${dies}-${i}`)));
    const others = await begin(other, dies);
    process.kill(platform.pid(dies), 'SIGKILL');
    const endings = await Promise.all(floods.map(({ ended }) => ended));
    assert.deepEqual(
      [endings.filter((end) => end === 'runtime-lost').length, endings.filter((end) => end === 'result').length],
      [ends.flood, FLOOD - ends.flood],
    );
    assert.equal(await others.ended, ends.other);
    await restarted;
    assert.equal(await (await begin(other, `${dies}-after`)).ended, 'result');
  });
}

test('an express runtime that stands still holds nobody up', async () => {
  const stopped = platform.pid(EXPRESS_RUNTIME);
  process.kill(stopped, 'SIGSTOP');
  try {
    // Who stands in its lane is fetched by the other, after a moment.
    const ends = await Promise.all(Array.from({ length: 3 }, (_, i) => begin(other, `meanwhile-${i}`)));
    for (const { ended } of ends) assert.equal(await ended, 'result');
  } finally {
    process.kill(stopped, 'SIGCONT');
  }
  assert.equal(await (await begin(other, 'after')).ended, 'result');
  assert.equal(platform.pid(EXPRESS_RUNTIME), stopped, 'nobody had to restart it');
});
