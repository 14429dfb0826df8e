import assert from 'node:assert/strict';
import path from 'node:path';
import { before, describe, it } from 'node:test';
import { deploySource, deployWith } from '#test/harness/deploy.ts';
import { invoke, json, type StreamEvent, terminal } from '#test/harness/events.ts';
import { ENCODER, functionsPlatform } from '#test/harness/functions.ts';
import { type Platform, ROOT } from '#test/harness/platform.ts';
import { createTenant, type TenantClient } from '#test/harness/tenants.ts';

/** A storage limit that no test reaches. */
const AMPLE_BYTES = 2 ** 40;
const TWO_HOURS_MS = 7_200_000;

const OLD = ['The cat sleeps on the sofa.', 'It rained all night.', 'Mom baked a cake.'];

describe('rag, when it replaces an index', () => {
  let platform: Platform;
  let tenant: TenantClient;
  before(async () => {
    platform = await functionsPlatform();
    tenant = await createTenant(platform, 'rag-replaces');
    await deploySource(platform, path.join(ROOT, 'functions/rag'), { apiKey: tenant.apiKey });
    await deployWith(platform, 'indexes', {}, tenant.apiKey);
  });

  const end = async (input: object): Promise<StreamEvent | undefined> =>
    terminal(await invoke(tenant, 'rag', { encoder: ENCODER, ...input }));
  const write = async (passages: readonly string[]) => {
    const ended = await end({ passages });
    assert.equal(ended?.event, 'result', JSON.stringify(ended?.data));
  };
  /** All passages of the index, at most 16, sorted. */
  const stored = async (): Promise<string[]> => {
    const ended = await end({ question: 'cat', topK: 16, maxTokens: 1 });
    assert.equal(ended?.event, 'result', JSON.stringify(ended?.data));
    return ended?.data.output.found.map(({ text }: { text: string }) => text).sort();
  };
  const setStorageLimit = async (limit: number) => {
    const body = JSON.stringify({ tenant: tenant.name, quota: 'storage-bytes', limit });
    const headers = { 'content-type': 'application/json' };
    assert.equal((await platform.fetch('/v1/quotas', { method: 'PUT', headers, body })).status, 200);
  };
  const usedBytes = async (): Promise<number> => {
    const { quotas } = await json(await tenant.fetch('/v1/quotas'));
    return quotas.find(({ quota }: { quota: string }) => quota === 'storage-bytes').used;
  };

  it('keeps the old passages, and stores none of the new ones, when the quota refuses them', async () => {
    await setStorageLimit(AMPLE_BYTES);
    await write(OLD);
    const before = await usedBytes();
    // The library stores 300 passages in two calls. The limit is too low for all of them, but may have room for those of the first call.
    const large = Array.from({ length: 300 }, (_, i) => `${i} ${'word '.repeat(400)}`);
    await setStorageLimit(before + 620_000);
    const refused = await end({ passages: large });
    assert.equal(refused?.event, 'error');
    assert.match(refused?.data.message, /limit-exceeded/);
    assert.deepEqual(await stored(), OLD.toSorted());
    assert.equal(await usedBytes(), before);
    await setStorageLimit(AMPLE_BYTES);
    await write(['Another cat.']);
    assert.deepEqual(await stored(), ['Another cat.']);
  });

  it('keeps the passages of one invocation when two replace them at once', async () => {
    await write(['Another cat.']);
    const before = await usedBytes();
    const both = ['one', 'two'].map((name) => Array.from({ length: 8 }, (_, i) => `The ${name} cat of ${i}.`));
    await Promise.all(both.map(write));
    const kept = await stored();
    assert.ok(
      both.some((passages) => passages.toSorted().join() === kept.join()),
      `${kept}`,
    );
    await write(['Another cat.']);
    assert.equal(await usedBytes(), before);
  });

  // The function stores a pointer: the name of the index that has the present passages. An invocation that is lost before it moves the pointer
  // leaves an index to which nothing points.
  it('drops the old indexes of lost invocations', async () => {
    const indexes = async (make: readonly string[] = []): Promise<string[]> =>
      terminal(await invoke(tenant, 'indexes', { make }))?.data.output.names;
    const now = Date.now();
    const indexName = (writtenAt: number, name: string) => `rag.${writtenAt.toString(36)}-x.${name}`;
    const abandoned = indexName(now - TWO_HOURS_MS, 'default');
    // Each of these stays: it is recent, belongs to another name, or has a name without a time.
    const kept = [indexName(now, 'default'), indexName(now - TWO_HOURS_MS, 'my.default'), 'rag-default', 'rag-other'];
    await indexes([abandoned, ...kept]);
    await write(OLD);
    const names = await indexes();
    for (const name of kept) assert.ok(names.includes(name), `${name} of ${names}`);
    assert.ok(!names.includes(abandoned), `${abandoned} of ${names}`);
  });

  it('is empty after an empty list, and then takes vectors of another size', async () => {
    await write(OLD);
    await write([]);
    const empty = await end({ question: 'cat' });
    assert.match(empty?.data.message, /not-found: The index "default" is empty/);
    const other = await end({ passages: OLD, encoder: 'none' });
    assert.equal(other?.event, 'result', JSON.stringify(other?.data));
  });
});
