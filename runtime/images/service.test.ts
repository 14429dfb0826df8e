import assert from 'node:assert/strict';
import { after, describe, it } from 'node:test';
import { deflateSync } from 'node:zlib';
import { PNG } from 'pngjs';
import type { ImagePreparation } from '#gpu-host/models/vision/preparation.ts';
import type { Outcome } from '#gpu-host/protocol/errors.ts';
import { eventually } from '#scheduler/testing/fixture.ts';

import { type ImageRequest, ImageService, imageAccount } from './service.ts';
import { png } from './testing/png.ts';

const PREPARATION: ImagePreparation = {
  size: 4,
  pad: null,
  shortestEdge: 4,
  filter: 'bicubic',
  scale: 1 / 255,
  mean: [0, 0, 0],
  deviation: [1, 1, 1],
};

/** An image of one colour. */
function image(value: number, size = 4): Uint8Array {
  const png = new PNG({ width: size, height: size });
  png.data.fill(value);
  return new Uint8Array(PNG.sync.write(png));
}

/** A small file of many pixels, which takes a second or longer to decode. */
function slow(): Uint8Array {
  // Each row has a filter byte and 500 bytes, of eight pixels each.
  return png(4000, 4000, deflateSync(new Uint8Array(4000 * 501)), { depth: 1, color: 0 });
}

const tagOf = (outcome: Outcome<unknown>) => (outcome.tag === 'ok' ? 'ok' : outcome.val.tag);

describe('the image service', () => {
  const opened: ImageService[] = [];
  const open = (options: ConstructorParameters<typeof ImageService>[0] = {}) => {
    const service = new ImageService(options);
    opened.push(service);
    return service;
  };
  after(() => Promise.all(opened.map((service) => service.close())));

  const ask = (service: ImageService, image: Uint8Array, more: Partial<ImageRequest> = {}) =>
    service.prepare({
      tenant: 'a',
      account: imageAccount(),
      preparation: PREPARATION,
      signal: new AbortController().signal,
      image,
      ...more,
    });

  it('prepares images in worker threads, charges for them, and ends idle workers', async () => {
    const service = open({ idleMs: 50 });
    const charged: number[] = [];
    const account = imageAccount({ charge: (ms) => charged.push(ms), usedUp: () => false });
    const values = [10, 20, 30, 40, 50];
    const asked = values.map((value) => ask(service, image(value), { account }));
    assert.equal(service.workers, 2);
    const outcomes = await Promise.all(asked);
    const pixelValues = outcomes.map((outcome) => (outcome.tag === 'ok' ? [...new Set(outcome.val)] : outcome));
    assert.deepEqual(
      pixelValues,
      values.map((value) => [value]),
    );
    assert.ok(charged.length === values.length && charged.some((ms) => ms > 0));
    await eventually(() => service.workers === 0, 'the idle workers end');
    assert.equal(tagOf(await ask(service, image(1))), 'ok');
  });

  it('reports the fault of an image and continues with the next', async () => {
    const service = open({ maxWorkers: 1 });
    const [bad, good] = await Promise.all([ask(service, new Uint8Array(9)), ask(service, image(1))]);
    assert.equal(tagOf(bad), 'invalid-argument');
    assert.equal(tagOf(good), 'ok');
  });

  it('ends only the image that takes too long, and charges at most the time limit', async () => {
    // The loop finds a limit that is long enough for a small image on this machine, and too short for a slow one.
    for (let decodeMs = 20; ; decodeMs *= 4) {
      const service = open({ maxWorkers: 1, decodeMs });
      const charged: number[] = [];
      const account = imageAccount({ charge: (ms) => charged.push(ms), usedUp: () => false });
      const started = await ask(service, image(1));
      const [slowOutcome, next] = await Promise.all([ask(service, slow(), { account }), ask(service, image(2))]);
      if (decodeMs < 1000 && [started, next].some((outcome) => tagOf(outcome) === 'limit-exceeded')) continue;
      assert.deepEqual([started, slowOutcome, next].map(tagOf), ['ok', 'limit-exceeded', 'ok']);
      assert.ok(charged.length === 1 && (charged[0] ?? 0) <= decodeMs, `${charged} of ${decodeMs} ms`);
      break;
    }
  });

  it('serves tenants in turn', async () => {
    const service = open({ maxWorkers: 1 });
    const order: string[] = [];
    const asked = ['a', 'a', 'a', 'a', 'b'].map((tenant, i) =>
      ask(service, image(i), { tenant }).then(() => order.push(tenant)),
    );
    await Promise.all(asked);
    // The first image runs at once. Tenant `a` waited before `b`, so `a` has the next turn. Then the tenants alternate.
    assert.deepEqual(order, ['a', 'a', 'b', 'a', 'a']);
  });

  it('keeps a worker for other tenants, and ends cancelled images', async () => {
    const service = open();
    const stop = new AbortController();
    const begun = ask(service, slow(), { signal: stop.signal });
    const finished: string[] = [];
    const askSmall = (value: number) => ask(service, image(value), { tenant: 'b' });
    // Tenant `a`'s second slow image is queued before most small images of tenant `b`, and all of these pass it.
    const firstSmall = askSmall(1);
    const waitingSlow = ask(service, slow(), { signal: stop.signal });
    const small = [firstSmall, ...[2, 3, 4].map(askSmall)];
    for (const outcome of small) void outcome.then(() => finished.push('small'));
    void waitingSlow.then(() => finished.push('slow'));
    await small.at(-1);
    stop.abort();
    assert.deepEqual((await Promise.all([begun, waitingSlow])).map(tagOf), ['cancelled', 'cancelled']);
    assert.deepEqual(finished, ['small', 'small', 'small', 'small', 'slow']);
    assert.equal(tagOf(await ask(service, image(5))), 'ok');
  });

  it('gives no tenant more than its share of the queue', async () => {
    const service = open();
    const stop = new AbortController();
    const big = () => new Uint8Array(8 * 1024 * 1024);
    const many = Array.from({ length: 32 }, () =>
      ask(service, big(), { signal: stop.signal, account: imageAccount() }),
    );
    const other = ask(service, image(1), { tenant: 'b' });
    assert.equal(tagOf(await other), 'ok');
    stop.abort();
    const tags = (await Promise.all(many)).map(tagOf);
    // The tenant's share of the queue, 64 MiB, holds eight of the 32 images.
    assert.equal(tags.filter((tag) => tag === 'unavailable').length, 24);
    assert.equal(tagOf(await ask(service, image(2))), 'ok');
  });

  it('bounds the pending images of an account, and answers `closed` after the service is closed', async () => {
    const service = open({ maxWorkers: 1 });
    const account = imageAccount();
    // An account has at most 64 pending images.
    const many = Array.from({ length: 70 }, (_, i) => ask(service, image(i), { account }));
    const tags = (await Promise.all(many)).map(tagOf);
    assert.equal(tags.filter((tag) => tag === 'ok').length, 64);
    assert.equal(tags.filter((tag) => tag === 'limit-exceeded').length, 6);
    assert.equal(tagOf(await ask(service, image(1), { account })), 'ok');
    const spentAccount = imageAccount({ charge: () => undefined, usedUp: () => true });
    assert.equal(tagOf(await ask(service, image(1), { account: spentAccount })), 'limit-exceeded');
    const pending = [ask(service, image(1)), ask(service, image(2))];
    await service.close();
    assert.deepEqual((await Promise.all(pending)).map(tagOf), ['closed', 'closed']);
    assert.equal(tagOf(await ask(service, image(3))), 'closed');
    assert.equal(service.workers, 0);
  });
});
