import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { silentLog } from '#scheduler/testing/log.ts';
import type { Encoder, EncoderInput } from '../backends/encoder.ts';
import { OnnxEncoder } from '../backends/onnx/encoder.ts';
import { DeviceShare } from '../handlers/sharing/device-share.ts';
import { Meter } from '../handlers/sharing/meter.ts';
import { hostBytes } from '../memory/host-bytes.ts';
import { randomEncoder } from '../models/testing/random-encoder.ts';
import { GpuHostConnection } from '../protocol/client.ts';
import { FrameWriter } from '../protocol/frames.ts';
import { GpuHost } from '../server/gpu-host.ts';
import { must, startTestHost, type TestHost } from '../testing/host.ts';
import { wrapBackend } from '../testing/wrapped-backend.ts';
import { type EncodePort, EncoderEngine, type HostedEncoder } from './engine.ts';
import { LatencyProfile } from './latency-profile.ts';

const CPU = { name: 'CPU' };

/** Floats of a vector of the random encoder. */
const SIZE = 32;

/** Tokens of a text: its letters between the start token and the end token of the random encoder. */
const text = (...letters: number[]): number[] => [2, ...letters, 3];

function call(texts: readonly (readonly number[])[], firsts = texts.map(({ length }) => length)) {
  return {
    tokens: Uint32Array.from(texts.flat()),
    lengths: Uint32Array.from(texts, ({ length }) => length),
    firsts: Uint32Array.from(firsts),
  };
}

/** Keeps the size of batches, however long a test holds one of them back. */
class SteadyProfile extends LatencyProfile {
  override note(): void {}
}

/** Records the batches of an encoder, and holds them back until `gate` opens. */
class Watched implements Encoder {
  readonly batches: EncoderInput[][] = [];
  gate: Promise<void> = Promise.resolve();
  isBroken = false;
  readonly #encoder: Encoder;

  constructor(encoder: Encoder) {
    this.#encoder = encoder;
  }

  get config() {
    return this.#encoder.config;
  }

  async encode(inputs: readonly EncoderInput[]): Promise<readonly Float32Array[]> {
    this.batches.push([...inputs]);
    await this.gate;
    if (this.isBroken) throw new Error('the device is broken');
    return this.#encoder.encode(inputs);
  }

  dispose(): Promise<void> {
    return this.#encoder.dispose();
  }
}

describe('encoders of a GPU host', () => {
  let directory = '';
  let plain: OnnxEncoder;
  let watched: Watched;
  let ranker: OnnxEncoder;
  let host: GpuHost;
  let connection: GpuHostConnection;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-encode-'));
    const open = async (kind: 'embedding' | 'reranker') => {
      const model = await randomEncoder(join(directory, kind), { kind }, 3);
      return OnnxEncoder.open(model, { threads: 1 });
    };
    [plain, ranker] = [await open('embedding'), await open('reranker')];
    watched = new Watched(plain);
    const hosted = (name: string, encoder: Encoder): HostedEncoder => ({ name, encoder, device: CPU, directory });
    host = new GpuHost([], {
      log: silentLog,
      encoders: [
        hosted('small', watched),
        { ...hosted('steady', watched), profile: new SteadyProfile() },
        hosted('ranker', ranker),
      ],
      bytes: hostBytes(1 << 20, 4 << 20),
    });
    connection = await GpuHostConnection.connect(await host.listen(join(directory, 's')));
  });
  after(async () => {
    connection.close();
    await host.close();
    await Promise.all([plain, ranker].map((encoder) => encoder.dispose()));
    await rm(directory, { recursive: true, force: true });
  });

  const open = (id: string, tenant = 'a') => connection.openInferlet({ id, tenant, maxPages: 0, arrival: 1 });
  const expected = async (texts: readonly (readonly number[])[]) =>
    plain.encode(texts.map((tokens) => ({ tokens: Uint32Array.from(tokens), types: new Uint8Array(tokens.length) })));

  it('the hello of a host lists its encoders', () => {
    assert.deepEqual(
      connection.encoders.map(({ name, kind, size, contextLength }) => ({ name, kind, size, contextLength })),
      [
        { name: 'small', kind: 'embedding', size: SIZE, contextLength: 64 },
        { name: 'steady', kind: 'embedding', size: SIZE, contextLength: 64 },
        { name: 'ranker', kind: 'reranker', size: 1, contextLength: 64 },
      ],
    );
  });

  it('encoders return the vectors of a call in the order of its texts, and the host charges for them', async () => {
    const inferlet = open('vectors');
    const texts = [text(20), text(21, 22, 23, 24, 25, 26), text(27, 28), text(29, 30, 31)];
    const vectors = must(await inferlet.encode('small', call(texts)));
    assert.equal(inferlet.usage.encodedTokens, 20, 'reported before the answer');
    for (const [i, vector] of (await expected(texts)).entries()) {
      for (const [k, value] of vector.entries()) assert.ok(Math.abs(value - (vectors[i * SIZE + k] ?? 0)) < 1e-5);
    }
    assert.deepEqual(must(await inferlet.encode('small', call([]))), new Float32Array());
    await inferlet.close();
    assert.ok(inferlet.usage.gpuUs > 0);
    const [small] = host.stats().encoders;
    assert.deepEqual([small?.texts, small?.tokens, small?.waitingCalls], [4, 20, 0]);
    assert.ok((small?.deviceBusyMs ?? 0) > 0 && (small?.latency[0]?.msPerToken ?? 0) > 0);
  });

  it('encoders return a score for each pair', async () => {
    const inferlet = open('scores');
    const pair = [2, 20, 21, 3, 22, 23, 3];
    const scores = must(await inferlet.encode('ranker', call([pair, text(20)], [4, 3])));
    const types = Uint8Array.of(0, 0, 0, 0, 1, 1, 1);
    const [score] = await ranker.encode([{ tokens: Uint32Array.from(pair), types }]);
    assert.equal(scores.length, 2);
    assert.ok(Math.abs((scores[0] ?? 0) - (score?.[0] ?? 0)) < 1e-5);
    await inferlet.close();
  });

  it('encoders compute the texts of several inferlets together', async () => {
    const inferlets = ['a', 'b', 'c'].map((tenant) => open(`together-${tenant}`, tenant));
    const { promise, resolve } = Promise.withResolvers<void>();
    watched.gate = promise;
    const before = watched.batches.length;
    const first = inferlets[0]!.encode('steady', call([text(20)]));
    while (watched.batches.length === before) await new Promise((next) => setImmediate(next));
    const others = inferlets.map((inferlet, i) => inferlet.encode('steady', call([text(20 + i)])));
    // The host reads each tenant's connection in order, so it has all calls above when it has answered these empty ones.
    for (const outcome of await Promise.all(inferlets.map((each) => each.encode('steady', call([]))))) must(outcome);
    resolve();
    for (const each of [first, ...others]) must(await each);
    assert.deepEqual(
      watched.batches.slice(before).map(({ length }) => length),
      [1, 3],
    );
    await Promise.all(inferlets.map((inferlet) => inferlet.close()));
  });

  const refused: Readonly<Record<string, readonly [name: string, texts: ReturnType<typeof call>, tag: string]>> = {
    'an unknown encoder': ['large', call([text(20)]), 'not-found'],
    'an empty text': ['small', call([[]]), 'invalid-argument'],
    'a text that is too long': ['small', call([new Array<number>(65).fill(20)]), 'invalid-argument'],
    'an unknown token': ['small', call([text(9999)]), 'invalid-argument'],
    'lengths that do not add up': ['small', { ...call([text(20)]), lengths: Uint32Array.of(2) }, 'invalid-argument'],
    'segments past the text': ['small', call([text(20)], [9]), 'invalid-argument'],
    'too few segments': ['small', { ...call([text(20)]), firsts: new Uint32Array() }, 'invalid-argument'],
    'more results than a frame has': ['small', call(new Array<number[]>(40_000).fill([2])), 'limit-exceeded'],
  };
  for (const [what, [name, texts, tag]] of Object.entries(refused)) {
    it(`encoders refuse ${what}`, async () => {
      const inferlet = open('refused');
      const outcome = await inferlet.encode(name, texts);
      assert.equal(outcome.tag === 'err' && outcome.val.tag, tag);
      must(await inferlet.encode('small', call([text(20)])));
      await inferlet.close();
    });
  }

  it('encoders bound the waiting calls of a tenant, and leave other tenants their part', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    watched.gate = promise;
    const [greedy, other] = [open('greedy', 'greedy'), open('other', 'other')];
    const many = call(new Array<number[]>(4000).fill(text(20, 21)));
    const calls = Array.from({ length: 12 }, () => greedy.encode('small', many));
    const modest = other.encode('small', call([text(20)]));
    const firstRefusal = Promise.withResolvers<void>();
    let refusals = 0;
    for (const each of calls)
      void each.then((outcome) => {
        if (outcome.tag === 'err' && outcome.val.tag === 'limit-exceeded') refusals++;
        if (refusals > 0) firstRefusal.resolve();
      });
    await firstRefusal.promise;
    // The other tenant has a connection of its own, so the host has the tenant's first call when it has answered this empty one.
    must(await other.encode('small', call([])));
    resolve();
    must(await modest);
    const outcomes = await Promise.all(calls);
    assert.ok(outcomes.some(({ tag }) => tag === 'ok') && refusals > 0);
    must(await greedy.encode('small', call([text(20)])));
    await Promise.all([greedy.close(), other.close()]);
  });

  it('encoders count the heap that many small calls take, and give it back', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    watched.gate = promise;
    const inferlets = Array.from({ length: 8 }, (_, i) => open(`small-${i}`, 'small-calls'));
    const modest = open('modest', 'modest');
    const calls = inferlets.flatMap((inferlet) =>
      Array.from({ length: 300 }, () => inferlet.encode('small', call([text(20)]))),
    );
    // The host answers these empty calls after it has read the calls above. `modest` has another connection, so it sends one, too.
    await Promise.all(inferlets.map((inferlet) => inferlet.encode('small', call([]))));
    const modestCall = modest.encode('small', call([text(20)]));
    must(await modest.encode('small', call([])));
    resolve();
    must(await modestCall);
    const isRefused = (outcome: Awaited<(typeof calls)[number]>) =>
      outcome.tag === 'err' && outcome.val.tag === 'limit-exceeded';
    const refused = (await Promise.all(calls)).filter(isRefused).length;
    // The tenant may use half of a heap of 1 MiB: 256 calls, which one inferlet takes. Each of the other seven may have 128 calls in any case.
    assert.equal(refused, 300 - 256 + 7 * (300 - 128));
    const again = Array.from({ length: 256 }, () => inferlets[0]!.encode('small', call([text(20)])));
    for (const each of again) must(await each);
    await Promise.all([...inferlets, modest].map((inferlet) => inferlet.close()));
  });

  it('encoders keep other models from the device while they compute, even when no text waits', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    watched.gate = promise;
    const share = new DeviceShare();
    const model = { name: 'small', encoder: watched, device: CPU, directory };
    const engine = new EncoderEngine(model, hostBytes(1 << 20, 4 << 20), share, () => undefined, silentLog);
    const other = share.join({ tenants: () => ['other'] });
    const answered = Promise.withResolvers<void>();
    const port: EncodePort = {
      owner: { tenant: 'a' },
      writer: new FrameWriter(),
      meter: new Meter(() => undefined),
      writeUsage: () => undefined,
      touched: () => undefined,
      finished: answered.resolve,
    };
    assert.equal(other.mustWait(), false);
    const before = watched.batches.length;
    engine.submit(port, 1, { op: 'encode', encoder: 0, ...call([text(20)]) }, 100);
    while (watched.batches.length === before) await new Promise((next) => setImmediate(next));
    assert.equal(other.mustWait(), true);
    resolve();
    await answered.promise;
    await engine.stop();
    assert.equal(other.mustWait(), false);
  });

  it('encoders answer every call of a batch that failed, and go on', async () => {
    watched.isBroken = true;
    const counted = () => host.stats().encoders[0]?.tokens ?? 0;
    const before = counted();
    const inferlet = open('broken');
    const outcome = await inferlet.encode('small', call([text(20)]));
    assert.equal(outcome.tag === 'err' && outcome.val.tag, 'internal');
    watched.isBroken = false;
    must(await inferlet.encode('small', call([text(20)])));
    await inferlet.close();
    assert.equal(inferlet.usage.encodedTokens, 3, 'a batch that failed costs no tokens');
    assert.equal(counted() - before, 3, 'nor does it count as computed');
  });

  it('encoders end a call whose future is dropped: its waiting texts are not computed, and other calls go on', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    watched.gate = promise;
    const [inferlet, other] = ['gives-up', 'goes-on'].map((id) => open(id, 'one-tenant'));
    const before = watched.batches.length;
    const [running, waiting] = [new AbortController(), new AbortController()];
    const first = inferlet!.encode('small', call([text(20)]), running.signal);
    while (watched.batches.length === before) await new Promise((next) => setImmediate(next));
    const second = inferlet!.encode('small', call([text(21), text(22)]), waiting.signal);
    const third = other!.encode('small', call([text(23)]));
    must(await other!.encode('small', call([])));
    running.abort();
    waiting.abort();
    const answered: string[] = [];
    const ended = [first, second].map(async (encoding, i) => {
      const outcome = await encoding;
      answered.push(`${i}: ${outcome.tag === 'err' && outcome.val.tag}, ${inferlet!.usage.encodedTokens} tokens`);
    });
    await ended[1];
    // Its answer would come before that of a later call.
    must(await inferlet!.encode('small', call([])));
    assert.deepEqual(
      answered,
      ['1: closed, 0 tokens'],
      'the other call is in the batch, whose tokens are not reported yet',
    );
    resolve();
    await ended[0];
    assert.deepEqual(answered.slice(1), ['0: closed, 3 tokens']);
    const [expectedVector] = await expected([text(23)]);
    assert.ok(Math.abs((must(await third)[0] ?? 0) - (expectedVector?.[0] ?? 1)) < 1e-5);
    assert.equal(inferlet!.usage.encodedTokens, 3, 'reported after the batch, for the quota');
    // The device computes the calls that it had begun, and none of those that waited.
    assert.deepEqual(
      watched.batches.slice(before).map(({ length }) => length),
      [1, 1],
    );
    assert.equal(host.stats().encoders[0]?.waitingCalls, 0);
    await Promise.all([inferlet!.close(), other!.close()]);
    assert.deepEqual([inferlet!.usage.encodedTokens, other!.usage.encodedTokens], [3, 3]);
  });

  it('encoders report the tokens of each batch, also to an inferlet that ended its call in the middle', async () => {
    const inferlet = open('halfway');
    const before = watched.batches.length;
    const stopping = new AbortController();
    const texts = Array.from({ length: 1000 }, () => text(...new Array<number>(60).fill(20)));
    const encoding = inferlet.encode('small', call(texts), stopping.signal);
    while (inferlet.usage.encodedTokens === 0) await new Promise((next) => setImmediate(next));
    stopping.abort();
    assert.equal((await encoding).tag, 'err');
    await inferlet.close();
    const computed = watched.batches.slice(before).flat();
    assert.ok(computed.length < 1000, `${computed.length} texts were computed`);
    assert.equal(inferlet.usage.encodedTokens, computed.length * 62);
  });

  it('encoders report the tokens of the last batch of an attempt that a newer attempt has replaced', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    watched.gate = promise;
    const attempt = (epoch: number) => connection.openInferlet({ id: 'again', epoch, maxPages: 0, arrival: 1 });
    const first = attempt(1);
    const before = watched.batches.length;
    const calls = [1, 2].map(() => first.encode('small', call(new Array<number[]>(500).fill(text(20)))));
    while (watched.batches.length === before) await new Promise((next) => setImmediate(next));
    const second = attempt(2);
    for (const each of calls) {
      const outcome = await each;
      assert.equal(outcome.tag === 'err' && outcome.val.tag, 'terminated');
    }
    assert.equal(first.usage.encodedTokens, 0);
    const closed = first.close();
    resolve();
    await Promise.all([closed, second.close()]);
    const batches = watched.batches.slice(before);
    assert.deepEqual([batches.length, first.usage.encodedTokens], [1, (batches[0]?.length ?? 0) * 3]);
  });

  it('encoders answer a call that was given up during its batch when its inferlet is terminated, once', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    watched.gate = promise;
    const attempt = (epoch: number) => connection.openInferlet({ id: 'given up', epoch, maxPages: 0, arrival: 1 });
    const first = attempt(1);
    const before = watched.batches.length;
    const stopping = new AbortController();
    const encoding = first.encode('small', call([text(20)]), stopping.signal);
    while (watched.batches.length === before) await new Promise((next) => setImmediate(next));
    stopping.abort();
    const second = attempt(2);
    const outcome = await encoding;
    assert.equal(outcome.tag === 'err' && outcome.val.tag, 'terminated');
    const closed = first.close();
    resolve();
    await Promise.all([closed, second.close()]);
    assert.equal(first.usage.encodedTokens, 3);
    assert.equal(connection.connected, true);
  });

  it('encoders forget an inferlet that ends, and charge it for the batch that it was in', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    watched.gate = promise;
    const inferlet = open('ends');
    const before = watched.batches.length;
    const calls = [1, 2, 3].map(() => inferlet.encode('small', call(new Array<number[]>(200).fill(text(20)))));
    while (watched.batches.length === before) await new Promise((next) => setImmediate(next));
    const closed = inferlet.close();
    for (const each of calls) assert.equal((await each).tag, 'err');
    resolve();
    await closed;
    assert.ok(inferlet.usage.gpuUs > 0);
    assert.equal(watched.batches.length, before + 1);
    assert.equal(inferlet.usage.encodedTokens, (watched.batches.at(-1)?.length ?? 0) * 3);
    assert.equal(host.stats().encoders[0]?.waitingCalls, 0);
  });
});

describe('an encoder beside a causal model', () => {
  let test: TestHost;
  let encoder: OnnxEncoder;
  let directory = '';
  /** The uses of the device in order. A use that began before the previous one had ended is marked. */
  const uses: string[] = [];
  let isUsed = false;
  const use = async <T>(user: string, compute: () => Promise<T>): Promise<T> => {
    uses.push(isUsed ? `${user} at the same time` : user);
    isUsed = true;
    try {
      // Without this pause, a step on the CPU would end in the event-loop turn in which it begins, and no other use could begin meanwhile.
      await sleep(1);
      return await compute();
    } finally {
      isUsed = false;
    }
  };
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-encode-'));
    encoder = await OnnxEncoder.open(await randomEncoder(directory, { kind: 'embedding' }, 3), { threads: 1 });
    const noted: Encoder = {
      config: encoder.config,
      encode: (inputs) => use('encoder', () => encoder.encode(inputs)),
      dispose: () => encoder.dispose(),
    };
    test = await startTestHost({
      wrap: (backend) => wrapBackend(backend, { forward: (batch) => use('model', () => backend.forward(batch)) }),
      host: { encoders: [{ name: 'small', encoder: noted, device: CPU, directory, profile: new SteadyProfile() }] },
    });
  });
  after(async () => {
    await test[Symbol.asyncDispose]();
    await encoder.dispose();
    await rm(directory, { recursive: true, force: true });
  });

  it('an encoder and the model take turns', async () => {
    const connection = await test.connect();
    const [writer, reader] = ['writer', 'reader'].map((id) =>
      connection.openInferlet({ id, tenant: id, maxPages: 8, arrival: 1 }),
    );
    const queue = writer!.createQueue(connection.models[0]!.name);
    const [page] = must(writer!.allocatePages(queue, 1));
    const run = (position: number) =>
      writer!.ask(queue, {
        op: 'step',
        request: {
          tokens: Uint32Array.of(5),
          positions: Uint32Array.of(position),
          inPages: position === 0 ? new Uint32Array() : Uint32Array.of(page!),
          outPages: Uint32Array.of(page!),
          mask: undefined,
          rows: 0,
          output: { tag: 'none' },
        },
      });
    // These texts make nearly a hundred batches, since the encoder may compute a dozen while a step's answer is on its way.
    const texts = call(new Array<number[]>(2000).fill(text(20, 21, 22, 23)));
    const encoded = reader!.encode('small', texts);
    while (uses.length === 0) await new Promise((next) => setImmediate(next));
    for (let position = 0; position < 3; position++) must(await run(position));
    assert.equal(must(await encoded).length, 2000 * SIZE);
    const order = uses.join(', ');
    assert.deepEqual([...new Set(uses)], ['encoder', 'model'], order);
    assert.equal(uses.filter((user) => user === 'model').length, 3);
    assert.match(order, /model, encoder.*, model/, 'the encoder goes on between the steps');
    assert.equal(uses.at(-1), 'encoder', `no step waits for the end of the call: ${order}`);
    await Promise.all([writer!.close(), reader!.close()]);
    connection.close();
  });

  it("an encoder takes the texts of the tenant's oldest workflow first", async () => {
    const connection = await test.connect();
    const [first, younger, older] = [9, 8, 7].map((arrival) =>
      connection.openInferlet({ id: `flow-${arrival}`, tenant: 'flows', maxPages: 0, arrival }),
    );
    const order: string[] = [];
    const encode = async (name: string, inferlet: typeof first, texts: number) => {
      must(await inferlet!.encode('small', call(new Array<number[]>(texts).fill(text(20, 21)))));
      order.push(name);
    };
    // A depth marks the calls of an inferlet as calls of a workflow.
    for (const inferlet of [younger, older])
      inferlet!.send(inferlet!.createQueue(connection.models[0]!.name), { op: 'set-depth', depth: 3 });
    // The first call keeps the encoder busy for some batches.
    await Promise.all([encode('first', first, 600), encode('younger', younger, 600), encode('older', older, 10)]);
    assert.deepEqual(order, ['first', 'older', 'younger']);
    for (const inferlet of [first, younger, older]) await inferlet!.close();
    connection.close();
  });
});
