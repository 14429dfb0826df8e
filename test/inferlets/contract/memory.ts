/** Cases of `allocate` and `kv-files`. */
import { invocation, model } from '@pie/inferlet';
import { allocate, File, forward, fused, kvFiles, outputText, type Queue, settle } from '@pie/inferlet/raw';
import { type Cases, embedsOf, issued, NO_ADDRESS, NO_MODEL, near, newQueue, pagesOf, upTo } from './case.ts';
import { asked, COMMA, compute, NEXT, PROMPT } from './compute.ts';

const unique = (what: string): string => `contract/${what}-${invocation().id}`;

/** Log-probabilities after a comma that follows the tokens in `pages`. */
async function following(queue: Queue, pages: readonly number[], position = PROMPT.length): Promise<number[]> {
  const request = { tokens: [COMMA], positions: [position], inPages: pages, outPages: [], rows: 1 };
  const { distributions } = await settle(fused.step(queue, { ...request, output: { tag: 'distributions', val: 8 } }));
  return distributions[0]?.logProbabilities ?? [];
}

export const allocateCases: Cases = {
  'allocate.page-size': {
    ok: () => {
      using queue = newQueue();
      return allocate.pageSize(queue) === model().pageSize;
    },
  },
  'allocate.allocate-pages': {
    ok: () => {
      using queue = newQueue();
      return new Set(pagesOf(queue, 3)).size === 3;
    },
    fails: {
      'limit-exceeded': () => {
        using queue = newQueue();
        pagesOf(queue, 1_000_000);
      },
      'not-found': () => {
        using queue = newQueue(NO_MODEL);
        pagesOf(queue, 1);
      },
    },
  },
  'allocate.free-pages': {
    ok: () => issued((queue) => allocate.freePages(queue, pagesOf(queue, 2))),
    fails: {
      'not-owned': () =>
        issued((queue) => {
          const pages = pagesOf(queue, 1);
          allocate.freePages(queue, pages);
          allocate.freePages(queue, pages);
        }),
    },
  },
  'allocate.allocate-embeds': {
    ok: () => {
      using queue = newQueue();
      return new Set(embedsOf(queue, 3)).size === 3;
    },
    fails: {
      'not-found': () => {
        using queue = newQueue(NO_MODEL);
        embedsOf(queue, 1);
      },
    },
  },
  'allocate.free-embeds': {
    ok: () => issued((queue) => allocate.freeEmbeds(queue, embedsOf(queue, 2))),
    fails: { 'not-owned': () => issued((queue) => allocate.freeEmbeds(queue, [NO_ADDRESS])) },
  },
  'allocate.share-pages': {
    ok: async () => {
      using queue = newQueue();
      const { pages } = compute(queue);
      const before = await following(queue, pages);
      const shared = allocate.sharePages(queue, pages);
      forward.maskPage(queue, shared[0] ?? 0, 0b10);
      return near(await following(queue, pages), before, 1e-5) && !near(await following(queue, shared), before, 1e-3);
    },
    fails: { 'not-owned': () => issued((queue) => void allocate.sharePages(queue, [NO_ADDRESS])) },
  },
  'allocate.copy-slots': {
    ok: async () => {
      using queue = newQueue();
      const { pages } = compute(queue);
      const [copy = 0, moved = 0] = pagesOf(queue, 2);
      allocate.copySlots(queue, pages[0] ?? 0, 0, copy, 0, PROMPT.length, 0);
      allocate.copySlots(queue, pages[0] ?? 0, 0, moved, 0, PROMPT.length, 40);
      const original = await following(queue, pages);
      // Attention depends only on distances between positions, so a text whose positions all move by 40 gives the same result.
      return (
        near(await following(queue, [copy]), original, 1e-5) &&
        near(await following(queue, [moved], PROMPT.length + 40), original, 1e-2)
      );
    },
    fails: {
      'invalid-argument': () =>
        issued((queue) => {
          const [page = 0] = pagesOf(queue, 1);
          allocate.copySlots(queue, page, 0, page, 10, 10, 0);
        }),
      'not-owned': () =>
        issued((queue) => allocate.copySlots(queue, NO_ADDRESS, 0, pagesOf(queue, 1)[0] ?? 0, 0, 1, 0)),
    },
  },
  'allocate.copy-tokens': {
    ok: async () => {
      using queue = newQueue();
      const { pages } = compute(queue);
      const copy = pagesOf(queue, 1);
      allocate.copyTokens(queue, pages, upTo(PROMPT.length), copy, []);
      return near(await following(queue, copy), await following(queue, pages), 1e-5);
    },
    fails: {
      'invalid-argument': () =>
        issued((queue) => allocate.copyTokens(queue, compute(queue).pages, [99], pagesOf(queue, 1), [])),
    },
  },
  'allocate.copy-embeds': {
    ok: async () => {
      using queue = newQueue();
      const { state } = compute(queue);
      const copy = embedsOf(queue, 1);
      allocate.copyEmbeds(queue, [state], copy);
      const [a, b] = await Promise.all(
        [state, copy[0] ?? 0].map((embed) => settle(outputText.readEmbed(queue, embed))),
      );
      return near(a ?? [], b ?? [], 0);
    },
    fails: {
      'not-owned': () => issued((queue) => allocate.copyEmbeds(queue, [NO_ADDRESS], embedsOf(queue, 1))),
      'invalid-argument': () => issued((queue) => allocate.copyEmbeds(queue, embedsOf(queue, 2), embedsOf(queue, 1))),
    },
  },
  'allocate.export-pages': {
    ok: async () => {
      using queue = newQueue();
      const name = unique('export');
      await settle(allocate.exportPages(queue, compute(queue).pages, name, false));
      await settle(allocate.unexport(queue, name));
    },
    fails: {
      'invalid-argument': async () => {
        const name = unique('taken');
        using queue = newQueue();
        await settle(allocate.exportPages(queue, compute(queue).pages, name, false));
        try {
          await settle(allocate.exportPages(queue, compute(queue).pages, name, false));
        } finally {
          await settle(allocate.unexport(queue, name));
        }
      },
      'not-owned': () => asked((queue) => allocate.exportPages(queue, [NO_ADDRESS], unique('none'), false)),
    },
  },
  'allocate.import-pages': {
    ok: async () => {
      using queue = newQueue();
      const name = unique('import');
      const { pages } = compute(queue);
      await settle(allocate.exportPages(queue, pages, name, false));
      const imported = await settle(allocate.importPages(queue, name));
      await settle(allocate.unexport(queue, name));
      const same = near(await following(queue, imported.pages), await following(queue, pages), 1e-5);
      return same && imported.tokens === PROMPT.length && imported.nextPosition === PROMPT.length;
    },
    fails: { 'not-found': () => asked((queue) => allocate.importPages(queue, 'contract/none')) },
  },
  'allocate.unexport': {
    ok: async () => {
      using queue = newQueue();
      const name = unique('unexport');
      await settle(allocate.exportPages(queue, compute(queue).pages, name, false));
      await settle(allocate.unexport(queue, name));
      return !(await settle(allocate.listExports(queue))).some((each) => each.name === name);
    },
    fails: { 'not-found': () => asked((queue) => allocate.unexport(queue, 'contract/none')) },
  },
  'allocate.make-durable': {
    ok: () =>
      exported('durable', async (name, queue) => {
        await settle(allocate.makeDurable(queue, name));
        return (await settle(allocate.importPages(queue, name))).tokens === PROMPT.length;
      }),
    fails: {
      'not-found': () => asked((queue) => allocate.makeDurable(queue, 'contract/none')),
      unsupported: () => asked((queue) => allocate.makeDurable(queue, 'system/none')),
    },
  },
  'allocate.list-exports': {
    ok: async () => {
      using queue = newQueue();
      const name = unique('listed');
      await settle(allocate.exportPages(queue, compute(queue).pages, name, false));
      const found = (await settle(allocate.listExports(queue))).find((each) => each.name === name);
      await settle(allocate.unexport(queue, name));
      return found?.tokens === PROMPT.length && found.pages === 1 && !found.persistent;
    },
    fails: { 'not-found': () => asked((queue) => allocate.listExports(queue), NO_MODEL) },
  },
  'allocate.export-residency': {
    ok: () =>
      exported('residency', async (name, queue) => {
        const { tier, devicePages, bytes, leaseMs, leaseEnded } = await settle(allocate.exportResidency(queue, name));
        return tier === 'device' && devicePages === 1 && bytes > 0n && leaseMs === 0 && leaseEnded === null;
      }),
    fails: { 'not-found': () => asked((queue) => allocate.exportResidency(queue, 'contract/none')) },
  },
  'allocate.pin-export': {
    ok: () =>
      exported('pin', async (name, queue) => {
        const { tier, leaseMs } = await settle(allocate.pinExport(queue, name, 60_000));
        return tier === 'device' && leaseMs > 0 && leaseMs <= 60_000;
      }),
    fails: {
      'not-found': () => asked((queue) => allocate.pinExport(queue, 'contract/none', 1000)),
      'invalid-argument': () =>
        exported('long', async (name, queue) => void (await settle(allocate.pinExport(queue, name, 3_600_001)))),
    },
  },
  'allocate.unpin-export': {
    ok: () =>
      exported('unpin', async (name, queue) => {
        await settle(allocate.pinExport(queue, name, 60_000));
        const { leaseMs, leaseEnded } = await settle(allocate.unpinExport(queue, name));
        return leaseMs === 0 && leaseEnded === null;
      }),
    fails: { 'not-found': () => asked((queue) => allocate.unpinExport(queue, 'contract/none')) },
  },
  'allocate.retain-export': {
    ok: () =>
      exported('retain', async (name, queue) => {
        return (await settle(allocate.retainExport(queue, name, 5000))).tier === 'device';
      }),
    fails: {
      'not-found': () => asked((queue) => allocate.retainExport(queue, 'contract/none', 1)),
      unsupported: () => asked((queue) => allocate.retainExport(queue, 'system/none', 1)),
    },
  },
  'allocate.prefetch-export': {
    ok: () =>
      exported('prefetch', async (name, queue) => {
        const { tier, devicePages } = await settle(allocate.prefetchExport(queue, name));
        return tier === 'device' && devicePages === 1;
      }),
    fails: { 'not-found': () => asked((queue) => allocate.prefetchExport(queue, 'contract/none')) },
  },
  'allocate.demote-export': {
    ok: () =>
      exported('demote', async (name, queue, pages) => {
        const before = await following(queue, pages);
        allocate.freePages(queue, pages);
        const { tier } = await settle(allocate.demoteExport(queue, name, 'memory'));
        const imported = await settle(allocate.importPages(queue, name));
        return tier === 'memory' && near(await following(queue, imported.pages), before, 0);
      }),
    fails: {
      'not-found': () => asked((queue) => allocate.demoteExport(queue, 'contract/none', 'memory')),
      'invalid-argument': () =>
        exported('up', async (name, queue) => void (await settle(allocate.demoteExport(queue, name, 'device')))),
      unsupported: () =>
        exported('disk', async (name, queue) => void (await settle(allocate.demoteExport(queue, name, 'disk')))),
    },
  },
};

/** Computes the prompt, exports its pages under a new name, runs `use`, and removes the name. */
async function exported<T>(
  what: string,
  use: (name: string, queue: Queue, pages: readonly number[]) => Promise<T>,
): Promise<T> {
  using queue = newQueue();
  const name = unique(what);
  const { pages } = compute(queue);
  await settle(allocate.exportPages(queue, pages, name, false));
  try {
    return await use(name, queue, pages);
  } finally {
    await settle(allocate.unexport(queue, name));
  }
}

/** Runs `use` on a new file that holds the prompt. */
async function withFile<T>(use: (file: File, queue: Queue) => Promise<T>): Promise<T> {
  using queue = newQueue();
  using file = new File(queue, undefined, 'read');
  await settle(file.ready());
  await settle(file.pred(PROMPT, upTo(PROMPT.length), 1));
  return await use(file, queue);
}

/** Saves a file that holds the prompt under a new name, runs `use`, and removes the name. */
async function saved<T>(what: string, use: (name: string, queue: Queue, file: File) => Promise<T>): Promise<T> {
  return withFile(async (file, queue) => {
    const name = unique(what);
    await settle(file.save(name, false, 'private'));
    try {
      return await use(name, queue, file);
    } finally {
      await settle(kvFiles.remove(queue, name)).catch(() => undefined);
    }
  });
}

export const fileCases: Cases = {
  'kv-files.[constructor]file': {
    ok: () => withFile(async () => true),
    fails: { 'not-found': () => asked((queue) => new File(queue, 'contract/none', 'read').ready()) },
  },
  'kv-files.[method]file.ready': {
    ok: () => saved('ready', (name, queue) => settle(new File(queue, name, 'write').ready()).then(() => true)),
    fails: {
      'not-found': () => asked((queue) => new File(queue, 'contract/none', 'write').ready()),
    },
  },
  'kv-files.[method]file.tokens': { ok: () => withFile(async (file) => file.tokens() === PROMPT.length) },
  'kv-files.[method]file.next-position': { ok: () => withFile(async (file) => file.nextPosition() === PROMPT.length) },
  'kv-files.[method]file.pages': {
    ok: () => withFile(async (file, queue) => (await following(queue, file.pages())).length === 8),
  },
  'kv-files.[method]file.reserve': {
    ok: () => withFile(async (file) => file.reserve(20).length === 2),
    fails: { 'limit-exceeded': () => withFile(async (file) => file.reserve(100_000_000)) },
  },
  'kv-files.[method]file.filled': {
    ok: () =>
      withFile(async (file, queue) => {
        const outPages = file.reserve(1);
        const request = { tokens: [COMMA], positions: [PROMPT.length], inPages: file.pages(), outPages, rows: 0 };
        await settle(fused.step(queue, { ...request, output: { tag: 'none' } }));
        file.filled(1, PROMPT.length + 1);
        return file.tokens() === PROMPT.length + 1 && file.nextPosition() === PROMPT.length + 1;
      }),
  },
  'kv-files.[method]file.pred': {
    ok: () =>
      withFile(async (file) => {
        const rows = await settle(file.pred(NEXT.slice(0, 2), [5, 6], 1));
        return rows.map(({ tokens }) => tokens[0]).join() === NEXT.slice(1).join() && file.tokens() === 7;
      }),
    fails: {
      'invalid-argument': () => withFile((file) => settle(file.pred([1, 2], [0], 1))),
      'context-overflow': () => withFile((file) => settle(file.pred([1], [1_000_000], 1))),
    },
  },
  'kv-files.[method]file.fork': {
    ok: () =>
      withFile(async (file) => {
        using fork = file.fork();
        await settle(fork.ready());
        await settle(fork.pred([COMMA], [5], 1));
        return fork.tokens() === 6 && file.tokens() === 5;
      }),
  },
  'kv-files.[method]file.extract': {
    ok: () =>
      withFile(async (file) => {
        using part = file.extract([0, 2, 4], 0);
        await settle(part.ready());
        return part.tokens() === 3 && part.nextPosition() === 3;
      }),
    fails: { 'invalid-argument': () => withFile((file) => settle(file.extract([77], undefined).ready())) },
  },
  'kv-files.[method]file.merge': {
    ok: () =>
      withFile(async (file) => {
        using head = file.extract([0, 1], 0);
        using tail = file.extract([2, 3, 4], 0);
        await Promise.all([settle(head.ready()), settle(tail.ready())]);
        await settle(head.merge(tail, false));
        return head.tokens() === 5 && head.nextPosition() === 5;
      }),
  },
  'kv-files.[method]file.save': {
    ok: () => saved('save', async (name, queue) => (await settle(kvFiles.files(queue, name))).length === 1),
    fails: {
      'invalid-argument': () => saved('twice', (name, _queue, file) => settle(file.save(name, false, 'private'))),
    },
  },
  'kv-files.[method]file.unlock': {
    ok: () =>
      saved('lock', async (name, queue) => {
        using file = new File(queue, name, 'write');
        await settle(file.ready());
        const locked = (await settle(kvFiles.files(queue, name)))[0]?.locked;
        file.unlock();
        await settle(queue.synchronize());
        return locked === true && (await settle(kvFiles.files(queue, name)))[0]?.locked === false;
      }),
  },
  'kv-files.remove': {
    ok: () =>
      saved('remove', async (name, queue) => {
        await settle(kvFiles.remove(queue, name));
        return (await settle(kvFiles.files(queue, name))).length === 0;
      }),
    fails: { 'not-found': () => asked((queue) => kvFiles.remove(queue, 'contract/none')) },
  },
  'kv-files.make-durable': {
    ok: () =>
      saved('durable', async (name, queue) => {
        await settle(kvFiles.makeDurable(queue, name));
        return (await settle(kvFiles.files(queue, name)))[0]?.tokens === PROMPT.length;
      }),
    fails: {
      'not-found': () => asked((queue) => kvFiles.makeDurable(queue, 'contract/none')),
      unsupported: () => asked((queue) => kvFiles.makeDurable(queue, 'system/none')),
    },
  },
  'kv-files.files': {
    ok: () =>
      saved('files', async (name, queue) => {
        const [info] = await settle(kvFiles.files(queue, name));
        return info?.tokens === PROMPT.length && info.owner === 'contract' && info.rights === 'private';
      }),
    fails: { 'not-found': () => asked((queue) => kvFiles.files(queue, ''), NO_MODEL) },
  },
};
