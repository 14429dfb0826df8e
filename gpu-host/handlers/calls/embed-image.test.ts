import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Backend } from '../../backends/backend.ts';
import { createReferenceBackend } from '../../backends/reference/index.ts';
import type { DeviceClient, Outcome } from '../../protocol/client.ts';
import { err, handlerError, ok } from '../../protocol/errors.ts';
import { must, NONE, range, startTestHost, type TestHost, type TestHostOptions, tagOf } from '../../testing/host.ts';
import { wrapBackend } from '../../testing/wrapped-backend.ts';

const SIDE = 12;
/** Number of embeds that the tiny vision tower makes of one image. */
const EMBEDS = 9;
const TOP_K = 5;
const MAX_ERROR = 1e-4;

const image = (seed: number) => Uint8Array.from({ length: 3 * SIDE * SIDE }, (_, i) => (i * 37 * seed) % 256);
const pixelsOf = (seed: number): Promise<Outcome<Uint8Array>> => Promise.resolve(ok(image(seed)));

/** A part of a text: tokens, or the image of a seed. */
type Part = readonly number[] | { readonly image: number };

/** Distributions after a text, from a separate backend that gets the whole text at once. */
class Oracle {
  readonly #backend: Backend;
  readonly #table: Float32Array;

  constructor(backend: Backend, table: Float32Array) {
    this.#backend = backend;
    this.#table = table;
  }

  static async of({ model }: TestHost): Promise<Oracle> {
    const backend = await createReferenceBackend(model, { pageSize: 8, pageCount: 1 });
    return new Oracle(backend, model.tensors.read('model.embed_tokens.weight'));
  }

  async top(text: readonly Part[]): Promise<readonly number[]> {
    const { hiddenSize } = this.#backend.config;
    const rows: Float32Array[] = [];
    for (const part of text) {
      if ('image' in part) rows.push(...(await this.embeds(part.image)));
      else for (const token of part) rows.push(this.#table.slice(token * hiddenSize, (token + 1) * hiddenSize));
    }
    const embeds = new Float32Array(rows.length * hiddenSize);
    for (const [i, row] of rows.entries()) embeds.set(row, i * hiddenSize);
    const [output] = await this.#backend.forward([
      {
        inputs: { kind: 'embeds', embeds },
        positions: range(0, rows.length),
        context: NONE,
        mask: 'causal',
        writes: NONE,
        output: { kind: 'top', rows: 1, topK: TOP_K },
      },
    ]);
    return output?.kind === 'top' ? [...output.logProbabilities] : [];
  }

  async embeds(seed: number): Promise<Float32Array[]> {
    const [values] = await this.#backend.images!.encode([image(seed)]);
    const size = this.#backend.config.hiddenSize;
    return Array.from({ length: EMBEDS }, (_, i) => values!.slice(i * size, (i + 1) * size));
  }
}

/** An inferlet with one queue and one text. */
class Writer {
  readonly inferlet: DeviceClient;
  readonly queue: number;
  readonly pages: Uint32Array;
  #length = 0;

  constructor(inferlet: DeviceClient, pages = 6) {
    this.inferlet = inferlet;
    this.queue = inferlet.createQueue('tiny');
    this.pages = must(inferlet.allocatePages(this.queue, pages));
  }

  image(
    pixels: Promise<Outcome<Uint8Array>>,
    count = EMBEDS,
  ): { embeds: Uint32Array; done: Promise<Outcome<undefined>> } {
    const embeds = must(this.inferlet.allocateEmbeds(this.queue, count));
    const positions = range(this.#length, this.#length + count);
    return { embeds, done: this.inferlet.embedImage(this.queue, positions, embeds, pixels) };
  }

  /** Appends to the text, one call per part. */
  async write(text: readonly Part[]): Promise<void> {
    for (const part of text) {
      const isImage = 'image' in part;
      const count = isImage ? EMBEDS : part.length;
      const positions = range(this.#length, this.#length + count);
      if (isImage) {
        const { embeds, done } = this.image(pixelsOf(part.image));
        this.inferlet.send(this.queue, {
          op: 'forward',
          inPages: this.pages,
          inEmbeds: embeds,
          outPages: this.pages,
          outEmbeds: NONE,
        });
        must(await done);
      } else {
        const rest = { inPages: this.pages, outPages: this.pages, mask: undefined };
        const output = { tag: 'none' } as const;
        const tokens = Uint32Array.from(part);
        must(
          await this.inferlet.ask(this.queue, { op: 'step', request: { tokens, positions, ...rest, rows: 0, output } }),
        );
      }
      this.#length += count;
    }
  }

  async next(token: number): Promise<readonly number[]> {
    const { distributions } = must(
      await this.inferlet.ask(this.queue, {
        op: 'step',
        request: {
          tokens: Uint32Array.of(token),
          positions: Uint32Array.of(this.#length),
          mask: undefined,
          rows: 1,
          inPages: this.pages,
          outPages: NONE,
          output: { tag: 'distributions', val: TOP_K },
        },
      }),
    );
    return [...distributions[0]!.logProbabilities];
  }
}

function assertClose(found: readonly number[], expected: readonly number[]): void {
  assert.equal(found.length, expected.length);
  for (const [i, value] of found.entries())
    assert.ok(Math.abs(value - expected[i]!) < MAX_ERROR, `${found} is not ${expected}`);
}

describe('embed-image', () => {
  const start = (options: TestHostOptions = {}) => startTestHost({ vision: {}, ...options });
  const open = async (host: TestHost, maxPages = 16) =>
    new Writer((await host.connect()).openInferlet({ id: 'i', maxPages, arrival: 1 }));

  for (const backend of ['reference', 'onnx'] as const) {
    it(`puts an image into a text (${backend})`, async () => {
      await using host = await start({ backend });
      const oracle = await Oracle.of(host);
      const writer = await open(host);
      const text: Part[] = [[5, 6, 7], { image: 3 }, [8, 9, 10, 11], { image: 4 }, [12, 13]];
      await writer.write(text);
      assertClose(await writer.next(14), await oracle.top([...text, [14]]));
      const { embeds, done } = writer.image(pixelsOf(3));
      must(await done);
      const expected = await oracle.embeds(3);
      const read = await Promise.all(
        Array.from(embeds, (embed) => writer.inferlet.ask(writer.queue, { op: 'read-embed', embed })),
      );
      for (const [i, outcome] of read.entries()) assertClose([...must(outcome)], [...expected[i]!]);
      assert.equal(
        tagOf(await writer.inferlet.ask(writer.queue, { op: 'next-distribution', embed: embeds[0]!, topK: 3 })),
        'invalid-argument',
      );
    });
  }

  it('reuses no cached pages of a text with an image for a text with another image, or without one', async () => {
    await using host = await start();
    const oracle = await Oracle.of(host);
    const after = [...range(20, 40)];
    // The image's embeds share one page with the tokens before them, and one page with the tokens after them.
    const texts: Part[][] = [1, 2].map((seed) => [[5, 6, 7], { image: seed }, after]);
    texts.push([[5, 6, 7], [...range(50, 50 + EMBEDS)], after]);
    const found: boolean[] = [];
    for (const text of [...texts, ...texts]) {
      const before = host.host.stats().models[0]!.prefix.hitTokens;
      const writer = await open(host);
      await writer.write(text);
      assertClose(await writer.next(1), await oracle.top([...text, [1]]));
      found.push(host.host.stats().models[0]!.prefix.hitTokens > before);
    }
    assert.deepEqual(found, [false, false, false, false, false, true], 'only the text without an image is found again');
  });

  it('keeps its place in the queue until its pixels come, while other queues advance', async () => {
    await using host = await start();
    const oracle = await Oracle.of(host);
    const [writer, other] = [await open(host), await open(host)];
    const pixels = Promise.withResolvers<Outcome<Uint8Array>>();
    const { embeds, done } = writer.image(pixels.promise);
    writer.inferlet.send(writer.queue, {
      op: 'forward',
      inPages: NONE,
      inEmbeds: embeds,
      outPages: writer.pages,
      outEmbeds: NONE,
    });
    let isDone = false;
    const synchronized = writer.inferlet.synchronize(writer.queue).then((outcome) => {
      isDone = true;
      return outcome;
    });
    await other.write([[5, 6]]);
    assertClose(await other.next(7), await oracle.top([[5, 6, 7]]));
    assert.equal(isDone, false);
    pixels.resolve(ok(image(2)));
    must(await done);
    must(await synchronized);
  });

  it('encodes an image once for a tenant, with the same values each time, and again for another tenant', async () => {
    const batches: number[] = [];
    let scale = 1;
    const counting = (inner: Parameters<NonNullable<TestHostOptions['wrap']>>[0]) => {
      const { config } = inner.images!;
      const encode = async (images: readonly Uint8Array[]) => {
        batches.push(images.length);
        // A backend's values may differ in their last bits from step to step.
        const encoded = await inner.images!.encode(images);
        scale += 1e-6;
        return encoded.map((values) => values.map((value) => value * scale));
      };
      return wrapBackend(inner, { images: { config, encode } });
    };
    await using host = await start({ wrap: counting, model: { imageCacheBytes: 1 << 20 } });
    const connection = await host.connect();
    const openWriter = (id: string, tenant: string) =>
      new Writer(connection.openInferlet({ id, tenant, maxPages: 8, arrival: 1 }));
    const read = async (writer: Writer, seed: number) => {
      const { embeds, done } = writer.image(pixelsOf(seed));
      must(await done);
      const all = await Promise.all(
        Array.from(embeds, (embed) => writer.inferlet.ask(writer.queue, { op: 'read-embed', embed })),
      );
      return all.map((values) => [...must(values)]);
    };
    const [one, two, other] = [openWriter('a', 'one'), openWriter('b', 'one'), openWriter('c', 'other')];
    const first = await read(one, 3);
    assert.deepEqual(await read(one, 3), first);
    assert.deepEqual(await read(two, 3), first);
    assert.deepEqual(batches, [1]);
    assert.notDeepEqual(await read(other, 3), first);
    assert.notDeepEqual(await read(one, 4), first);
    assert.deepEqual(batches, [1, 1, 1]);
    // One step has two calls of one tenant, which share an encoding, and a call of another tenant.
    const both = [one.image(pixelsOf(5)).done, two.image(pixelsOf(5)).done, other.image(pixelsOf(5)).done];
    for (const outcome of await Promise.all(both)) must(outcome);
    assert.deepEqual(batches, [1, 1, 1, 2]);
    const { images, imageHits } = host.host.stats().models[0]!;
    assert.deepEqual([images, imageHits], [5, 3], 'three calls found their image in the cache or in their step');
  });

  it('encodes images of several inferlets in one step', async () => {
    const batches: number[] = [];
    await using host = await start({
      wrap: (inner) => {
        const { config } = inner.images!;
        const encode = (images: readonly Uint8Array[]) => {
          batches.push(images.length);
          return inner.images!.encode(images);
        };
        return wrapBackend(inner, { images: { config, encode } });
      },
    });
    const connection = await host.connect();
    const dones = Array.from(range(0, 4), (i) => {
      const writer = new Writer(connection.openInferlet({ id: `i${i}`, maxPages: 8, arrival: i }));
      return writer.image(pixelsOf(i + 1)).done;
    });
    for (const outcome of await Promise.all(dones)) must(outcome);
    assert.deepEqual(batches, [4]);
  });

  it("fails with the image's fault, and fails the calls that need its embeds", async () => {
    await using host = await start();
    const writer = await open(host);
    const bad = writer.image(Promise.resolve(err(handlerError('invalid-argument', 'no image'))));
    writer.inferlet.send(writer.queue, {
      op: 'forward',
      inPages: NONE,
      inEmbeds: bad.embeds,
      outPages: writer.pages,
      outEmbeds: NONE,
    });
    assert.deepEqual(await bad.done, err(handlerError('invalid-argument', 'no image')));
    assert.equal(
      tagOf(await writer.inferlet.ask(writer.queue, { op: 'read-embed', embed: bad.embeds[0]! })),
      'dependency-failed',
    );
    assert.equal(tagOf(await writer.inferlet.synchronize(writer.queue)), 'invalid-argument');

    const calls: Promise<Outcome<undefined>>[] = [
      writer.image(pixelsOf(1), EMBEDS - 1).done,
      writer.image(Promise.resolve(ok(new Uint8Array(7)))).done,
      writer.image(Promise.reject(new Error('lost'))).done,
      writer.inferlet.embedImage(writer.queue, range(0, EMBEDS), range(900, 900 + EMBEDS), pixelsOf(1)),
    ];
    const tags = (await Promise.all(calls)).map(tagOf);
    assert.deepEqual(tags, ['invalid-argument', 'invalid-argument', 'internal', 'not-owned']);
    // The embeds of a failed call can be written again.
    const again = writer.inferlet.embedImage(writer.queue, range(0, EMBEDS), bad.embeds, pixelsOf(1));
    must(await again);
    must(await writer.inferlet.ask(writer.queue, { op: 'read-embed', embed: bad.embeds[0]! }));
  });

  it('lets the pages of an inferlet that only waits for its image leave the device', async () => {
    const pages = 16;
    await using host = await start({ pageCount: pages, model: { prefixCache: false, swapMemoryBytes: 1 << 24 } });
    const connection = await host.connect();
    const ended: string[] = [];
    const guest = (id: string, arrival: number) => {
      const onTerminated = () => ended.push(id);
      return new Writer(connection.openInferlet({ id, maxPages: pages, arrival, onTerminated }), 10);
    };
    const text = [Array.from({ length: 70 }, (_, i) => i)];
    const older = guest('older', 1);
    await older.write(text);
    const pixels = Promise.withResolvers<Outcome<Uint8Array>>();
    const { done } = older.image(pixels.promise);
    must(await older.inferlet.synchronize(older.inferlet.createQueue('tiny')));
    older.inferlet.setWaiting(true);
    const newer = guest('newer', 2);
    await newer.write(text);
    assert.ok(host.host.stats().models[0]!.swappedOutPages > 0);
    assert.equal(older.inferlet.pendingCalls, 0, 'the call with the image does not count as pending');
    await newer.inferlet.close();
    older.inferlet.setWaiting(false);
    pixels.resolve(ok(image(1)));
    must(await done);
    const oracle = await Oracle.of(host);
    assertClose(await older.next(7), await oracle.top([...text, [7]]));
    assert.deepEqual(ended, []);
  });

  it('frees all that an ended inferlet held, even if its image never came', async () => {
    await using host = await start();
    const writer = await open(host);
    const never = writer.image(new Promise(() => {}));
    const state = must(writer.inferlet.allocateEmbeds(writer.queue, 1));
    writer.inferlet.send(writer.queue, {
      op: 'forward',
      inPages: NONE,
      inEmbeds: never.embeds,
      outPages: writer.pages,
      outEmbeds: state,
    });
    await writer.inferlet.close();
    assert.equal(tagOf(await never.done), 'cancelled');
    const { pages, waitingCalls, inferlets } = host.host.stats().models[0]!;
    assert.deepEqual([pages.owned, waitingCalls, inferlets], [0, 0, 0]);
  });

  it('is a trait only of models with a vision tower', async () => {
    await using seeing = await start();
    await using blind = await startTestHost();
    const traits = async (host: TestHost) => (await host.connect()).models[0]!.traits.includes('input-image');
    assert.deepEqual([await traits(seeing), await traits(blind)], [true, false]);
    const writer = await open(blind);
    assert.equal(tagOf(await writer.image(pixelsOf(1)).done), 'unsupported');
  });
});
