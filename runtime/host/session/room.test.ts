import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import { SharedPages } from '#gpu-host/protocol/page-budget.ts';
import { TEST_MODEL, TestGpuHost } from '../../testing/gpu-host.ts';
import { TestInferlet, type TestInferletOptions } from '../../testing/inferlet.ts';
import type { ChildLauncher } from '../services/services.ts';
import { pagesWithin, roomOf } from './runtime.ts';

const model = (contextLength: number, pageSize = 16) => ({ summary: { contextLength, pageSize } });

describe('pagesWithin', () => {
  it('keeps a number of pages, whatever the models are', () => {
    assert.equal(pagesWithin({ pages: 7 }, [model(32_768)]), 7);
  });

  it('has room for the largest context of the models, once for each context', () => {
    const models = [model(256), model(32_768), model(1000, 32)];
    assert.equal(pagesWithin({ pages: 512, contexts: 1 }, models), 2048 + 1);
    assert.equal(pagesWithin({ pages: 512, contexts: 3 }, models), 3 * (2048 + 1));
    assert.equal(pagesWithin({ pages: 0, contexts: 1 }, [model(1000, 32)]), 32 + 1, 'a part of a page counts');
  });

  it('is never below the default, and never above the bound of a manifest', () => {
    assert.equal(pagesWithin({ pages: 512, contexts: 1 }, [model(256)]), 512);
    assert.equal(pagesWithin({ pages: 512, contexts: 1 }, []), 512, 'no GPU host is connected');
    assert.equal(pagesWithin({ pages: 512, contexts: 128 }, [model(1_048_576)]), 1_000_000);
  });
});

describe('the room of an inferlet', () => {
  let host: TestGpuHost;
  let connection: GpuHostConnection;
  before(async () => {
    host = await TestGpuHost.start({ pages: 40 });
    connection = await GpuHostConnection.connect(host.address);
  });
  after(async () => {
    connection.close();
    await host.stop();
  });

  const roomWith = async (
    contextLength: number,
    options: TestInferletOptions,
    quota: number | null = null,
  ): Promise<string> => {
    const summary = { ...connection.models.find(({ name }) => name === TEST_MODEL)!, contextLength };
    const guest = new TestInferlet(connection, { ...options, model: { summary } });
    guest.inferlet.limitTenant({ pages: quota, readAt: 1 });
    const granted = guest.inferlet.description.models.get(TEST_MODEL)!;
    const { tokens, cap = 'the whole context' } = roomOf(guest.inferlet, granted);
    await guest.end();
    return `${tokens}: ${cap}`;
  };

  it("is the model's context while every limit holds so many pages", async () => {
    assert.equal(await roomWith(512, { pages: 32 }, 32), '512: the whole context');
    assert.equal(await roomWith(640, { pages: 1000 }), '640: the whole context');
  });

  it('is the smallest of the limits below the context, which it names with its figure and with what to do', async () => {
    assert.match(await roomWith(1000, { pages: 12 }), /^192: the invocation may hold 12 KV pages .* limits\.pages/);
    assert.match(await roomWith(1000, { pages: 99 }), /^640: the pool .* 40 KV pages of 16 tokens; .* pie\.toml$/);
    assert.match(await roomWith(1000, { pages: 99 }, 9), /^144: .*quota kv-pages is 9 KV pages .* `pie quota set`$/);
    const children = { stop: () => undefined } as unknown as ChildLauncher;
    const shared = { pages: new SharedPages('family', 10), count: () => undefined, refuseTokens: () => null };
    assert.match(
      await roomWith(1000, { pages: 99, own: { shared, children } }),
      /^160: the invocation may hold 10 KV pages/,
    );
  });
});
