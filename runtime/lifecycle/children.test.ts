import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, describe, it } from 'node:test';
import type { FunctionVersion } from '#scheduler/functions/types.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import { RuntimePlatform, type Transcript } from '../testing/platform.ts';
import { MAX_CHILDREN, MAX_DEPTH } from './family.ts';

const PAGES = 24;
// `wallMs` must cover the launches of 130 children in one test, which take seconds, and minutes on a busy machine.
const LIMITS = { memoryMb: 16, cpuMs: 30_000, wallMs: 240_000, pages: 16, tokens: 1000 };

describe('children', () => {
  let platform: RuntimePlatform;
  let family: FunctionVersion;
  let frugal: FunctionVersion;
  before(async () => {
    platform = await RuntimePlatform.start({ pageCount: PAGES, runtime: { concurrency: 4 } });
    const source = await readFile(new URL('../testing/fixtures/family.js', import.meta.url), 'utf8');
    const input = { type: 'object', required: ['do'], properties: { do: { type: 'string' }, ms: { type: 'integer' } } };
    family = await platform.deploy(source, {
      name: 'family',
      limits: LIMITS,
      input,
      grants: { launch: ['family', 'small', 'absent'] },
    });
    frugal = await platform.deploy(source, {
      name: 'frugal',
      limits: { ...LIMITS, tokens: 100 },
      grants: { launch: '*' },
    });
    await platform.deploy(source, { name: 'small', limits: { ...LIMITS, wallMs: 10_000, pages: 4, tokens: 40 } });
    await platform.deploy(source, { name: 'ungranted', limits: LIMITS });
  });
  after(() => platform.stop());

  const invoke = (input: unknown) => platform.invoke(family, input);
  const output = ({ end }: Transcript) => {
    assert.equal(end.event, 'result', JSON.stringify(end.data));
    return end.data.output as Record<string, unknown>;
  };
  const sentObjects = ({ messages }: Transcript) => messages.map((text) => JSON.parse(text) as Record<string, unknown>);
  const childOf = (transcript: Transcript) => String(sentObjects(transcript)[0]?.child);
  const launch = (input: unknown, more: object = {}) => ({ do: 'launch', name: 'family', input, ...more });
  const recordOf = async (id: string) => {
    const record = await platform.scheduler.invocations.get(id);
    assert.ok(record, id);
    return record;
  };
  /** Returns the first message of a running invocation. The message names the invocation's children. */
  async function firstMessage(id: string): Promise<Record<string, unknown>> {
    for await (const { event, data } of platform.scheduler.events.follow(id, 0, AbortSignal.timeout(240_000))) {
      if (event === 'message') return JSON.parse((JSON.parse(data) as { text: string }).text);
      assert.notEqual(event, 'error', data);
    }
    throw new Error('the invocation ended without a message');
  }

  it('have a record, log, inbox and usage of their own, and the queue position of their root', async () => {
    const parent = await platform.submit(
      family,
      launch({ do: 'parrot' }, { messages: ['a', [1, 255], 'b'], count: 2 }),
    );
    const transcript = await platform.transcript(parent);
    const id = childOf(transcript);
    const heard = ['a', [1, 255], 'b'];
    const success = { tag: 'success', val: JSON.stringify(heard) };
    assert.deepEqual(output(transcript), {
      heard,
      end: 'closed',
      sends: [{}, {}, {}],
      endings: [success, success],
      late: { err: 'closed', text: 'the child has ended' },
    });
    const [record, root] = await Promise.all([recordOf(id), recordOf(parent)]);
    assert.deepEqual(
      [record.parent, record.root, record.arrival, record.status],
      [parent, parent, root.arrival, 'succeeded'],
    );
    assert.ok((record.usage?.cpuMs ?? 0) > 0 && (record.endedAt ?? 0) <= (root.endedAt ?? 0));
    const child = await platform.transcript(id);
    assert.deepEqual(child.end.data.output, heard);
    assert.equal(JSON.parse(child.events[0]?.data ?? '').parent, parent);
    const listed = await platform.scheduler.invocations.recent('default', 'family');
    assert.ok(listed.some((invocation) => invocation.id === id));
  });

  it('report their failure to their parent', async () => {
    const { endings } = output(await invoke(launch({ do: 'throw' })));
    assert.deepEqual(endings, [{ tag: 'failure', val: { code: 'inferlet-error', message: 'boom' } }]);
  });

  it('are refused if the function is not granted, does not exist, or rejects its input', async () => {
    const refusal = async (name: string, input: unknown) => output(await invoke({ do: 'launch', name, input }));
    assert.equal((await refusal('ungranted', {})).err, 'unsupported');
    assert.equal((await refusal('absent', {})).err, 'not-found');
    assert.equal((await refusal('family@000000000000', {})).err, 'not-found');
    const invalid = await refusal('family', { do: 'sleep', ms: 'long' });
    assert.equal(invalid.err, 'invalid-argument');
    assert.match(String(invalid.text), /\/ms/);
    assert.equal((await refusal('family', '{')).err, 'invalid-argument');
    assert.notEqual((await refusal('small', { do: 'left' })).endings, undefined, 'a granted function starts');
    const named = await refusal(`family@${family.version}`, { do: 'echo', value: 1 });
    assert.deepEqual(named.endings, [{ tag: 'success', val: '1' }]);
  });

  it(`are at most ${MAX_CHILDREN} at once, and later ones take the places of ended ones`, async () => {
    const many = (length: number, input: object) => ({
      do: 'many',
      name: 'family',
      inputs: Array.from({ length }, () => input),
    });
    // The later children run until their parent ends.
    const next = many(MAX_CHILDREN + 2, { do: 'sleep', ms: LIMITS.wallMs });
    const transcript = await invoke({ ...many(MAX_CHILDREN, { do: 'echo', value: 1 }), waits: true, next });
    assert.deepEqual(output(transcript), MAX_CHILDREN + 2);
    const [firstChildren = [], laterChildren = []] = sentObjects(transcript).map(
      ({ children }) => children as { ok?: string; err?: string }[],
    );
    assert.equal(firstChildren.filter(({ ok }) => ok).length, MAX_CHILDREN);
    assert.equal(laterChildren.filter(({ ok }) => ok).length, MAX_CHILDREN);
    assert.deepEqual(
      laterChildren.slice(MAX_CHILDREN).map(({ err }) => err),
      ['limit-exceeded', 'limit-exceeded'],
    );
  });

  it(`are at most ${MAX_DEPTH} deep`, async () => {
    const deepest = output(await invoke({ do: 'nest', name: 'family', depth: 0 }));
    assert.deepEqual([deepest.depth, deepest.err], [MAX_DEPTH, 'limit-exceeded']);
  });

  it("stay within their root's pages and tokens and their parent's time", async () => {
    // The root's limit is 16 pages. The root keeps 8, its first child keeps the other 8, and its second child then asks for one more.
    const next = { do: 'beside', name: 'family', pages: 8, more: 1 };
    const { first, second } = output(await invoke({ do: 'hold', pages: 8, next })) as Record<string, { val?: string }>;
    assert.deepEqual(first, { ok: 8 });
    assert.match(second?.val ?? '', /limit-exceeded.*together/);

    const five = Array.from({ length: 5 }, () => ({ do: 'hold', pages: 3 }));
    const spent = await platform.invoke(frugal, { do: 'many', name: 'family', inputs: five, next: 'wait' });
    const steps = (output(spent) as unknown as { val: string }[]).map(({ val }) => JSON.parse(val) as { err?: string });
    // Each child uses 48 tokens (3 pages of 16). The third child exceeds the root's 100 tokens, and the later ones are refused.
    assert.deepEqual(steps.map(({ err }) => err ?? 'ok').sort(), [
      'limit-exceeded',
      'limit-exceeded',
      'ok',
      'ok',
      'ok',
    ]);

    const smallChild = output(await invoke({ do: 'launch', name: 'small', input: { do: 'hold', pages: 5 } }));
    assert.equal(
      JSON.parse((smallChild.endings as { val: string }[])[0]!.val).err,
      'limit-exceeded',
      "the child's own limit holds as well",
    );
    const left = output(await invoke({ do: 'launch', name: 'small', input: { do: 'left' } }));
    assert.ok(Number((left.endings as { val: string }[])[0]!.val) <= 10_000);
    const slept = { do: 'many', name: 'family', inputs: [{ do: 'sleep', ms: 500 }], waits: true };
    const rest = output(await invoke({ ...slept, next: launch({ do: 'left' }) }));
    const restMs = Number((rest.endings as { val: string }[])[0]!.val);
    // The parent waited 500 ms; the test allows 10 ms less, because timers are inexact.
    assert.ok(restMs <= LIMITS.wallMs - 490, `the child has ${restMs} ms, and its parent has used half a second`);
  });

  it('are cancelled before their parent ends, whether it returns, throws or is cancelled', async () => {
    const children = [
      { do: 'sleep', ms: 60_000 },
      { do: 'stubborn' },
      { do: 'spin' },
      { do: 'launch', name: 'family', input: { do: 'stubborn' } },
    ];
    for (const next of [{ do: 'echo', value: 1 }, { do: 'throw' }, { do: 'stubborn' }]) {
      const id = await platform.submit(family, { do: 'many', name: 'family', inputs: children, next });
      const started = (await firstMessage(id)).children as { ok: string }[];
      if (next.do === 'stubborn') await platform.scheduler.cancel(id, 'enough');
      const parent = (await platform.transcript(id)).end;
      assert.equal(parent.event, next.do === 'echo' ? 'result' : 'error');
      for (const { ok } of started) {
        const record = await recordOf(ok);
        assert.deepEqual(
          [record.status, record.failure?.code],
          ['cancelled', 'cancelled'],
          `${next.do} ${record.failure?.message}`,
        );
      }
    }
    await eventually(() => platform.runtime.running === 0, 'nothing runs');
  });

  it('close their parent’s subscription when they end, and the parent can still read their remaining messages', async () => {
    const { scheduler, redis } = platform;
    const child = { do: 'chatter', count: 12, size: 3 };
    const id = await platform.submit(family, { do: 'hoard', name: 'family', input: child });
    const childId = String((await firstMessage(id)).child);
    const events = async () => (await scheduler.events.read(id, 0)).filter(({ event }) => event === 'message');
    // The parent sends its second message when the child has ended.
    await eventually(async () => (await events()).length === 2, 'the child has ended');
    const probe = redis.connect();
    const followed = async () => (await probe.pubsub('NUMSUB', scheduler.store.keys.live(childId)))[1];
    await eventually(async () => Number(await followed()) === 0, 'the parent no longer follows the child');
    probe.disconnect();
    await scheduler.inbox.push(id, { text: 'go on' });
    const { first, second, heard, end } = output(await platform.transcript(id));
    assert.deepEqual([first, second, end], ['0...', 'go on', 'closed']);
    assert.deepEqual(
      heard,
      Array.from({ length: 11 }, (_, i) => `${i + 1}...`),
    );
  });

  it('return the same ending on every call, and long results unchanged', async () => {
    for (const [text, count] of [
      ['x', 3],
      ['é,"usage":', 100_000],
    ] as const) {
      const ending = { tag: 'success', val: JSON.stringify(text.repeat(count)) };
      const input = { do: 'verbatim', text, count };
      const endings = output(await invoke({ do: 'twice', name: 'family', input }));
      assert.deepEqual(endings, [ending, ending]);
    }
  });

  it('are cancelled by their parent, by a drop of their handle, and by a client', async () => {
    const cancelled = await invoke({ do: 'cancel', name: 'family', input: { do: 'stubborn' } });
    assert.equal((output(cancelled).val as Record<string, string>).code, 'cancelled');
    assert.equal((await recordOf(childOf(cancelled))).failure?.message, 'Its parent cancelled it.');
    const dropped = await invoke({ do: 'cancel', name: 'family', input: { do: 'stubborn' }, drop: true });
    assert.match((await recordOf(childOf(dropped))).failure?.message ?? '', /dropped/);
    const parent = await platform.submit(family, launch({ do: 'stubborn' }));
    const { child } = await firstMessage(parent);
    assert.equal(await platform.scheduler.cancel(String(child), 'by hand'), 'requested');
    const { endings } = output(await platform.transcript(parent));
    assert.deepEqual(endings, [{ tag: 'failure', val: { code: 'cancelled', message: 'by hand' } }]);
    const { keys, redis } = platform.scheduler.store;
    assert.equal(await redis.hlen(keys.cancels(platform.runtime.id)), 0);
  });

  it('may send more than the buffers hold; a parent that reads only after their end gets all messages', async () => {
    const lateRead = { do: 'late', name: 'family', input: { do: 'chatter', count: 40, size: 200_000 } };
    assert.deepEqual(output(await invoke(lateRead)), { ending: 'success', sizes: 40, first: 200_001, end: 'closed' });
  });

  it('leave no pages, runs or records behind', async () => {
    await eventually(async () => (await platform.freePages()) === PAGES, 'all pages are free');
    await eventually(() => platform.runtime.running === 0, 'nothing runs');
    assert.equal((await platform.scheduler.invocations.children()).size, 0);
    assert.deepEqual(platform.errors, []);
  });
});

describe('a family whose logs are full', () => {
  let platform: RuntimePlatform;
  before(async () => {
    platform = await RuntimePlatform.start({
      pageCount: 4,
      runtime: { concurrency: 2 },
      retention: { familyBytes: 20_000 },
    });
  });
  after(() => platform.stop());

  it('ends with output-limit, as does the child whose result has no room', async () => {
    const source = await readFile(new URL('../testing/fixtures/family.js', import.meta.url), 'utf8');
    const version = await platform.deploy(source, { name: 'family', limits: LIMITS, grants: { launch: '*' } });
    const input = { do: 'echo', value: 'x'.repeat(6000) };
    const many = { do: 'many', name: 'family', inputs: [input, input, input], next: 'wait' };
    const transcript = await platform.invoke(version, many);
    assert.equal(transcript.end.data.code, 'output-limit');
    const records = await platform.scheduler.invocations.recent('default', 'family');
    const codes = records.filter(({ parent }) => parent !== null).map(({ failure }) => failure?.code ?? 'ok');
    assert.equal(codes.filter((code) => code === 'ok').length, 2, 'two results have room');
    assert.equal(codes.filter((code) => code === 'output-limit').length, 1);
    assert.deepEqual(platform.errors, []);
  });
});

describe('children where memory and slots are short', () => {
  let platform: RuntimePlatform;
  let family: FunctionVersion;
  before(async () => {
    platform = await RuntimePlatform.start({ pageCount: 16, runtime: { concurrency: 2, overcommit: 100 } });
    const source = await readFile(new URL('../testing/fixtures/family.js', import.meta.url), 'utf8');
    const limits = { memoryMb: 16, cpuMs: 30_000, wallMs: 60_000, pages: 32 };
    family = await platform.deploy(source, { name: 'family', limits, grants: { launch: '*' } });
  });
  after(() => platform.stop());

  const firstMessage = async (id: string) => {
    for await (const { event, data } of platform.scheduler.events.follow(id, 0, AbortSignal.timeout(240_000))) {
      if (event === 'message') return JSON.parse((JSON.parse(data) as { text: string }).text);
    }
    throw new Error('the invocation ended without a message');
  };

  it('run when every slot is taken, and are terminated when their own root needs their pages', async () => {
    const other = await platform.submit(family, { do: 'parrot' });
    const { end } = await platform.invoke(family, { do: 'grow', name: 'family', child: 6, own: 12 });
    await platform.scheduler.inbox.close(other);
    await platform.transcript(other);
    assert.equal(end.event, 'result', JSON.stringify(end.data));
    const { held, grown, ending } = end.data.output as {
      held: string;
      grown: unknown;
      ending: { val: { code: string } };
    };
    assert.deepEqual([JSON.parse(held), grown, ending.val.code], [{ ok: 6 }, { ok: 12 }, 'terminated']);
  });

  const assertTermination = async () => {
    const oldest = await platform.submit(family, { do: 'hold', pages: 2, next: { do: 'wait', pages: 13 } });
    await firstMessage(oldest);
    const idle = {
      do: 'many',
      name: 'family',
      inputs: [{ do: 'stubborn' }],
      next: { do: 'hold', pages: 8, next: { do: 'stubborn' } },
    };
    const root = await platform.submit(family, idle);
    const { children } = await firstMessage(root);
    // Of the 16 pages, the oldest invocation holds 2 and the root 8.
    await eventually(async () => (await platform.freePages()) <= 6, 'the root has filled its pages');
    await platform.scheduler.inbox.push(oldest, { text: 'go' });
    assert.deepEqual((await platform.transcript(oldest)).end.data.output, { ok: 13 });
    assert.equal((await platform.transcript(root)).end.data.code, 'terminated');
    assert.equal((await platform.scheduler.invocations.get(children[0].ok))?.failure?.code, 'terminated');
    await eventually(async () => (await platform.freePages()) === 16, 'all pages are free');
    await eventually(() => platform.runtime.running === 0, 'nothing runs');
    assert.deepEqual(platform.errors, []);
  };

  it('end with a root that is terminated for its memory', assertTermination);

  it('end with a terminated root even while they are being launched', async (t) => {
    const { fleet } = platform.runtime;
    const originalOf = fleet.of.bind(fleet);
    // The launch of a child asks the fleet for the parent's sandbox. The test holds this call until the root has been terminated.
    const [childAsked, proceed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    t.mock.method(fleet, 'of', async (tenant: string, beside?: string) => {
      if (beside !== undefined) {
        childAsked.resolve();
        await proceed.promise;
      }
      return originalOf(tenant, beside);
    });
    try {
      await Promise.all([assertTermination(), childAsked.promise]);
    } finally {
      proceed.resolve();
    }
  });
});
