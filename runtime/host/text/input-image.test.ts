import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { PNG } from 'pngjs';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import { randomVisionModel } from '#gpu-host/models/testing/random-vision-model.ts';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import type { Outcome } from '#gpu-host/protocol/errors.ts';
import type { Dimensions } from '#wit/generated/host.ts';
import { decode } from '../../images/decode.ts';
import { prepare } from '../../images/prepare.ts';
import { ImageService } from '../../images/service.ts';
import { TEST_MODEL, TestGpuHost } from '../../testing/gpu-host.ts';
import { TestInferlet } from '../../testing/inferlet.ts';
import { failureOf, value } from '../../testing/outcome.ts';

const EMBEDS = 9;
const range = (length: number) => Uint32Array.from({ length }, (_, i) => i);

/** A PNG of these colours. */
function png(width: number, height: number, colors: Uint8Array): Uint8Array {
  const made = new PNG({ width, height });
  for (let pixel = 0; pixel < width * height; pixel++) {
    made.data.set(colors.subarray(3 * pixel, 3 * pixel + 3), 4 * pixel);
    made.data[4 * pixel + 3] = 255;
  }
  return new Uint8Array(PNG.sync.write(made));
}

const imageOf = (width: number, height: number) =>
  png(
    width,
    height,
    Uint8Array.from({ length: 3 * width * height }, (_, i) => (i * 29 + (i >> 4) * 7) % 256),
  );

describe('input-image', () => {
  let directory: string;
  let model: LoadedModel;
  let host: TestGpuHost;
  let connection: GpuHostConnection;
  const images = new ImageService();
  const opened: TestInferlet[] = [];

  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-image-'));
    model = await randomVisionModel(join(directory, 'model'), {}, 3);
    host = await TestGpuHost.start({ model: model.directory });
    connection = await GpuHostConnection.connect(host.address);
  });
  after(async () => {
    await Promise.all(opened.map((inferlet) => inferlet.end()));
    connection.close();
    await host.stop();
    await images.close();
    await rm(directory, { recursive: true, force: true });
  });

  const open = (tokens = 1000, vision = model.vision ?? null) => {
    const guest = new TestInferlet(connection, { tokens, services: { images }, model: { vision } });
    opened.push(guest);
    return guest;
  };
  const embedsOf = (guest: TestInferlet, number = EMBEDS) =>
    value(guest.call<Outcome<Uint32Array>>('allocate', 'allocate-embeds', guest.queue, number));
  const embed = (guest: TestInferlet, image: Uint8Array, embeds: Uint32Array) =>
    guest.call<Promise<Outcome<undefined>>>(
      'input-image',
      'embed-image',
      guest.queue,
      image,
      range(embeds.length),
      embeds,
    );

  it('returns the token that stands for an image, if the config of the model names one', () => {
    const vision = model.vision ?? assert.fail('the model has no vision tower');
    const token = (guest: TestInferlet, name: string = TEST_MODEL) =>
      guest.call<Outcome<number>>('input-image', 'image-token', name);
    assert.equal(value(token(open())), 3);
    assert.equal(failureOf(token(open(1000, { ...vision, imageToken: null }))), 'unsupported');
    assert.equal(failureOf(token(open(1000, null))), 'unsupported');
    assert.equal(failureOf(token(open(), 'other')), 'not-found');
  });

  it('returns the size of an image and the number of its embeds', () => {
    const guest = open();
    const size = (image: Uint8Array) => guest.call<Outcome<Dimensions>>('input-image', 'image-dimensions', image);
    assert.deepEqual(value(size(imageOf(30, 20))), { width: 30, height: 20 });
    // The first bytes suffice.
    assert.deepEqual(value(size(imageOf(30, 20).subarray(0, 40))), { width: 30, height: 20 });
    assert.equal(failureOf(size(new Uint8Array(40))), 'invalid-argument');
    assert.equal(failureOf(size(new Uint8Array())), 'invalid-argument');
    const embeds = (width: number, height: number) =>
      guest.call<Outcome<number>>('input-image', 'image-embeds', guest.queue, { width, height });
    assert.equal(value(embeds(30, 20)), EMBEDS);
    for (const [width, height] of [
      [0, 1],
      [5000, 5000],
      [20_000, 1],
    ] as const)
      assert.equal(failureOf(embeds(width, height)), 'invalid-argument');
  });

  it('gives an image the same embeds as its prepared pixels', async () => {
    const guest = open();
    const image = imageOf(40, 25);
    const embeds = embedsOf(guest);
    const done = embed(guest, image, embeds);
    // The list is a view of the guest's memory.
    const original = image.slice();
    image.fill(0);
    value(await done);
    assert.equal(guest.inferlet.inputTokens, EMBEDS);
    assert.ok(model.vision);
    const { size } = model.vision.preparation;
    // An image that has the model's size is not resized.
    const prepared = embedsOf(guest);
    value(await embed(guest, png(size, size, prepare(decode(original), model.vision.preparation)), prepared));
    const other = embedsOf(guest);
    value(await embed(guest, imageOf(41, 25), other));
    const read = async (address: number) =>
      value(await guest.call<Promise<Outcome<Float32Array>>>('output-text', 'read-embed', guest.queue, address));
    for (const [i, address] of embeds.entries()) {
      assert.deepEqual(await read(address), await read(prepared[i] ?? 0));
      assert.notDeepEqual(await read(address), await read(other[i] ?? 0));
    }
  });

  it('fails for an invalid image or a wrong number of embeds, and then fails calls that need the embeds', async () => {
    const guest = open();
    for (const image of [
      new Uint8Array(100),
      imageOf(30, 20).subarray(0, 60),
      imageOf(17_000, 1),
      new Uint8Array(9 * 1024 * 1024),
    ]) {
      const embeds = embedsOf(guest);
      const outcome = await embed(guest, image, embeds);
      assert.equal(failureOf(outcome), 'invalid-argument');
      const read = guest.call<Promise<Outcome<Float32Array>>>('output-text', 'read-embed', guest.queue, embeds[0]);
      assert.equal(failureOf(await read), 'dependency-failed');
    }
    assert.equal(failureOf(await embed(guest, imageOf(4, 4), embedsOf(guest, 3))), 'invalid-argument');
    value(await embed(guest, imageOf(4, 4), embedsOf(guest)));
  });

  it('is refused beyond the token limit, and when the model takes no images', async () => {
    const spent = open(EMBEDS);
    value(await embed(spent, imageOf(4, 4), embedsOf(spent)));
    spent.inferlet.count(1, 0);
    assert.equal(failureOf(await embed(spent, imageOf(4, 4), embedsOf(spent))), 'limit-exceeded');
    const blind = open(1000, null);
    assert.equal(failureOf(await embed(blind, imageOf(4, 4), embedsOf(blind))), 'unsupported');
    const embeds = blind.call<Outcome<number>>('input-image', 'image-embeds', blind.queue, { width: 4, height: 4 });
    assert.equal(failureOf(embeds), 'unsupported');
  });

  it('answers pending calls at the end of the inferlet', async () => {
    const guest = open();
    const image = imageOf(600, 600);
    const pending = Array.from({ length: 20 }, () => embed(guest, image, embedsOf(guest)));
    await guest.end();
    const tags = new Set((await Promise.all(pending)).map(failureOf));
    assert.ok(tags.has('cancelled'));
    for (const tag of tags) assert.ok(tag === 'cancelled' || tag === 'ok', tag);
  });
});
