import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { FunctionVersion } from '#scheduler/functions/types.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import { EMBEDDING } from '../testing/guests.ts';
import { TestPlatform } from '../testing/platform.ts';

const CALLS = 16;

describe('invocations whose encoders are cut off', () => {
  let platform: TestPlatform;
  let embedding: FunctionVersion;
  /** Tokens of one call. */
  let each = 0;
  before(async () => {
    platform = await TestPlatform.start({ encoder: 'small' });
    const limits = { memoryMb: 64, cpuMs: 60_000, wallMs: 120_000, tokens: 10_000_000 };
    embedding = await platform.deploy(EMBEDDING, { name: 'embedding', limits, restartable: true });
    const { end } = await platform.invoke(embedding, { calls: 1 });
    each = Number(end.data.output);
    assert.equal(end.data.usage?.inputTokens, each);
    assert.equal(await platform.tokensEncoded(), each);
  });
  after(() => platform.stop());

  const billed = async (id: string) => (await platform.scheduler.invocations.get(id))?.usage?.inputTokens ?? 0;

  /** Submits an invocation, and resolves when the first of its batches were computed. */
  async function begun(): Promise<string> {
    const earlier = await platform.tokensEncoded();
    const id = await platform.submit(embedding, { calls: CALLS });
    await eventually(async () => (await platform.tokensEncoded()) > earlier, 'a batch was computed');
    return id;
  }

  it('are billed for what was computed when they are cancelled', async () => {
    const earlier = await platform.tokensEncoded();
    const id = await begun();
    await platform.scheduler.cancel(id, 'the client has gone');
    assert.equal((await platform.transcript(id)).end.data.code, 'cancelled');
    const computed = async () => (await platform.tokensEncoded()) - earlier;
    await eventually(async () => (await billed(id)) === (await computed()), 'the last batch is billed');
    const part = await billed(id);
    assert.ok(part > 0 && part < CALLS * each, `${part} of ${CALLS * each} tokens`);
  });

  it('are billed for what their lost GPU host had reported, and for the second attempt', async () => {
    const earlier = await platform.tokensEncoded();
    const id = await begun();
    const known = (await platform.tokensEncoded()) - earlier;
    await platform.restartGpuHost();
    const { events, end } = await platform.transcript(id);
    assert.equal(end.data.output, CALLS * each, JSON.stringify(end.data));
    assert.equal(events.filter(({ event }) => event === 'start').length, 2);
    assert.equal(await platform.tokensEncoded(), CALLS * each, 'the restarted host computed all');
    const first = (end.data.usage?.inputTokens ?? 0) - CALLS * each;
    assert.ok(first >= known && first < CALLS * each, `${first} of ${CALLS * each} tokens, ${known} at least`);
  });
});
