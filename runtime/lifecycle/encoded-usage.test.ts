import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { FunctionVersion } from '#scheduler/functions/types.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import { EMBEDDING } from '../testing/guests.ts';
import { RuntimePlatform } from '../testing/platform.ts';

/** Calls of `embed` by each invocation that a test cuts off. */
const CALLS = 16;
/** Settings of a slow encoder: a test can cut off an invocation before its last batch, even if the test learns late of the first one. */
const SLOW = { stepMs: 500, tokenMs: 0, sequenceMs: 0 };

describe('invocations whose calls of an encoder are cut off', () => {
  let platform: RuntimePlatform;
  let embedding: FunctionVersion;
  let tokensPerCall = 0;
  before(async () => {
    platform = await RuntimePlatform.start({ encoder: 'small' });
    const limits = { memoryMb: 64, cpuMs: 60_000, wallMs: 120_000, tokens: 10_000_000 };
    embedding = await platform.deploy(EMBEDDING, { name: 'embedding', limits, restartable: true });
    const { end } = await platform.invoke(embedding, { calls: 1 });
    tokensPerCall = Number(end.data.output);
    assert.equal(end.data.usage?.inputTokens, tokensPerCall);
    assert.equal(await platform.tokensEncoded(), tokensPerCall);
  });
  after(() => platform.stop());

  /** Tokens that an invocation is billed for so far. */
  const billed = async (id: string) => (await platform.scheduler.invocations.get(id))?.usage?.inputTokens ?? 0;

  beforeEach(async () => {
    const connectedHost = async () =>
      (await platform.scheduler.runtimes.list())
        .flatMap(({ gpuHosts = [] }) => gpuHosts)
        .find(({ connected }) => connected)?.hostId;
    const earlierHost = await connectedHost();
    assert.ok(earlierHost);
    await platform.restartGpuHost({ pace: SLOW });
    // An attempt that began before the runtime had reconnected would be lost.
    await eventually(
      async () => ![undefined, earlierHost].includes(await connectedHost()),
      'the runtime has reconnected',
    );
    // The counter of a new GPU host begins at 0. While no host answers, `tokensEncoded` rejects.
    const isBack = async () => (await platform.tokensEncoded().catch(() => null)) === 0;
    await eventually(isBack, 'the slow encoder is reached');
  });

  /** Submits an invocation, and resolves when its first batch has been computed. */
  async function submitAndBegin(): Promise<string> {
    const earlierTokens = await platform.tokensEncoded();
    const id = await platform.submit(embedding, { calls: CALLS });
    await eventually(async () => (await platform.tokensEncoded()) > earlierTokens, 'a batch was computed');
    return id;
  }

  it('are billed for all computed tokens when they are cancelled', async () => {
    const id = await submitAndBegin();
    await platform.scheduler.cancel(id, 'the client has gone');
    assert.equal((await platform.transcript(id)).end.data.code, 'cancelled');
    const isBilled = async () => (await billed(id)) === (await platform.tokensEncoded());
    await eventually(isBilled, 'the last batch is billed');
    const billedTokens = await billed(id);
    assert.ok(
      billedTokens > 0 && billedTokens < CALLS * tokensPerCall,
      `${billedTokens} of ${CALLS * tokensPerCall} tokens`,
    );
  });

  it('are billed for the tokens that their lost GPU host reported, and for all tokens of the last attempt', async () => {
    const id = await submitAndBegin();
    const reportedTokens = await platform.tokensEncoded();
    await platform.restartGpuHost();
    const { events, end } = await platform.transcript(id);
    assert.equal(end.data.output, CALLS * tokensPerCall, JSON.stringify(end.data));
    assert.ok(events.filter(({ event }) => event === 'start').length > 1);
    assert.equal(await platform.tokensEncoded(), CALLS * tokensPerCall, 'the restarted host computed all');
    const lostTokens = (end.data.usage?.inputTokens ?? 0) - CALLS * tokensPerCall;
    assert.ok(
      lostTokens >= reportedTokens && lostTokens < CALLS * tokensPerCall,
      `${lostTokens} of ${CALLS * tokensPerCall} tokens, ${reportedTokens} at least`,
    );
  });
});
