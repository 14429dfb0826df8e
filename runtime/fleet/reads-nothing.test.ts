import assert from 'node:assert/strict';
import { after, before, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { RuntimePlatform } from '../testing/platform.ts';
import { TEST_SANDBOXES } from '../testing/sandboxes.ts';

const READS_NOTHING = fileURLToPath(new URL('fixtures/reads-nothing.ts', import.meta.url));
const GUEST = `
  import { random, sleep } from 'pie:inferlet/runtime@0.1.0';
  import { get, set } from 'pie:inferlet/store@0.1.0';
  export async function run(input) {
    if (JSON.parse(input).do !== 'deafen') return '"heard"';
    await set('large', new Uint8Array(1 << 20), undefined).read();
    const large = Array.from({ length: 6 }, () => get('large'));
    random();
    await sleep(100_000).read();
    return JSON.stringify(large.length);
  }
`;

let platform: RuntimePlatform;
before(async () => {
  platform = await RuntimePlatform.start({ runtime: { sandboxes: { ...TEST_SANDBOXES, main: READS_NOTHING } } });
});
after(() => platform.stop());

it('a sandbox that sends but reads nothing is killed, and the next one serves', async () => {
  const version = await platform.deploy(GUEST, {
    name: 'deaf',
    grants: { store: true },
    limits: { wallMs: 60_000 },
  });
  assert.equal((await platform.invoke(version, { do: 'listen' })).end.event, 'result');
  // The answers of the store fill the buffers between the two processes.
  const deaf = await platform.submit(version, { do: 'deafen' });
  const waiting = await Promise.all(Array.from({ length: 6 }, () => platform.submit(version, { do: 'listen' })));
  const { end } = await platform.transcript(deaf);
  assert.equal(end.data.code, 'runtime-lost');
  assert.match(end.data.message ?? '', /it sends frames, but reads nothing that the runtime sends/);
  for (const id of waiting) {
    const { events } = await platform.transcript(id);
    assert.equal(events.filter(({ event }) => event === 'result' || event === 'error').length, 1);
  }
  assert.equal((await platform.invoke(version, { do: 'listen' })).end.event, 'result');
});
