import {
  broadcast,
  Child,
  defineInferlet,
  type Filter,
  fetch,
  InferletError,
  launch,
  listFiles,
  pull,
  push,
  receiveFile,
  send,
  sendFile,
  session,
  sleep,
  store,
  subscribe,
  VectorIndex,
  withTimeout,
} from '@pie/inferlet';

interface Input {
  readonly what: string;
  readonly url?: string;
  readonly n?: number;
}

/** Code and text of a call's error; `none` when the call succeeds. */
const fault = async (call: () => Promise<unknown>): Promise<string> => {
  try {
    await call();
    return 'none';
  } catch (error) {
    return error instanceof InferletError ? `${error.code}: ${error.message}` : String(error);
  }
};

const collect = async <T>(items: AsyncIterable<T>): Promise<T[]> => {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
};

const tasks: Record<string, (input: Input) => Promise<unknown>> = {
  async fetch({ url }) {
    using echoed = await fetch(`${url}/echo`, { json: { a: 1 }, headers: [['X-One', '1']] });
    const { method, headers, body } = await echoed.json<{
      method: string;
      headers: Record<string, string>;
      body: string;
    }>();
    using text = await fetch(`${url}/echo`, { method: 'put', body: 'plain', headers: { 'content-type': 'text/x' } });
    const plain = await text.json<{ method: string; headers: Record<string, string> }>();
    using followed = await fetch({ href: `${url}/redirect` });
    using manual = await fetch(`${url}/redirect`, { redirect: 'manual' });
    using missing = await fetch(`${url}/missing`);
    using streamed = await fetch(`${url}/lines`);
    using early = await fetch(`${url}/lines`);
    const reading = early.text();
    early.close();
    return {
      echo: [method, headers['content-type'], headers['x-one'], body, echoed.headers.get('X-Reply')],
      plain: [plain.method, plain.headers['content-type']],
      followed: [followed.url.slice(url?.length), followed.status],
      manual: [manual.status, manual.headers.get('location'), manual.ok],
      missing: [missing.status, missing.ok, await missing.text()],
      lines: await collect(streamed.lines()),
      faults: [
        await fault(() => reading),
        await fault(() => fetch(`${url}/redirect`, { redirect: 'error' })),
        await fault(() => fetch(`${url}/loop`)),
        await fault(() => fetch('http://example.org/')),
        await fault(() => withTimeout(50, (signal) => fetch(`${url}/never`, { signal }))),
        await fault(async () => (await fetch(`${url}/lines`)).json()),
        await fault(() => streamed.text()),
      ],
    };
  },

  async increment({ n = 0 }) {
    for (let i = 0; i < n; i++) await store.update<number>('library-io/count', (count = 0) => count + 1);
  },

  async store() {
    await store.delete('library-io/count');
    const children = await Promise.all([1, 2, 3, 4].map(() => launch('library-io', { what: 'increment', n: 8 })));
    await Promise.all(children.map((child) => child.result()));
    const version = await store.setJson('library-io/json', { a: ['ä'] });
    const swapped = await store.compareAndSet('library-io/json', version, 'two');
    const outdated = await store.compareAndSet('library-io/json', version, 'three');
    const created = await store.compareAndSet('library-io/new', undefined, new Uint8Array([0, 255]));
    const found = {
      count: await store.getJson('library-io/count'),
      text: await store.getText('library-io/json'),
      bytes: Array.from((await store.get('library-io/new')) ?? []),
      keys: await collect(store.keys('library-io/')),
      none: (await store.get('library-io/none')) ?? null,
      swaps: [swapped !== undefined && swapped > version, outdated ?? null, created !== undefined],
      fault: await fault(() => store.getJson('library-io/json')),
    };
    for (const key of found.keys) await store.delete(key);
    return { ...found, left: await collect(store.keys('library-io/')) };
  },

  async messaging() {
    using one = await subscribe('library-io/news');
    const other = await subscribe('library-io/news');
    const receivers = await broadcast('library-io/news', 'a');
    await broadcast('library-io/news', new Uint8Array([1]));
    const got = [await one.next(), await one.next()].map(({ message }) =>
      typeof message === 'string' ? message : [...message],
    );
    other.unsubscribe();
    const after = await broadcast('library-io/news', 'b');
    for (const word of ['x', 'y']) await push('library-io/line', word);
    const line = [(await pull('library-io/line')).message, (await pull('library-io/line')).message];
    return {
      heard: receivers,
      got,
      after,
      line,
      left: (await collect(other)).length,
      fault: await fault(() => other.next()),
    };
  },

  async child({ n = 0 }) {
    for await (const message of session) {
      if (message === 'fail') throw new InferletError('not-found', 'as was asked');
      if (message === 'wait') await sleep(60_000);
      await send(`${message}!`);
    }
    return n + 1;
  },

  async children() {
    using child = await launch<number>('library-io', { what: 'child', n: 41 });
    await child.send('one');
    await child.send('two');
    child.close();
    const said = await collect(child);
    using failing = await launch('library-io', { what: 'child' });
    await failing.send('fail');
    using waiting = await launch('library-io', { what: 'child' });
    await waiting.send('wait');
    waiting.cancel();
    const cancelled = await waiting.ending();
    // This signal aborts after the child has started: `launch` reads `aborted` twice before it waits for the start, and once after it.
    let reads = 0;
    const signal = {
      get aborted() {
        return ++reads > 2;
      },
      reason: 'too late',
      addEventListener: () => undefined,
      removeEventListener: () => undefined,
    };
    return {
      said,
      result: await child.result(),
      failure: await fault(() => failing.result()),
      cancelled: cancelled.ok ? 'no' : cancelled.code,
      unknown: await fault(() => launch('no-such-function')),
      aborted: await fault(() => launch('library-io', { what: 'child' }, { signal })),
      ids: child instanceof Child && child.id !== failing.id,
    };
  },

  async index() {
    const notes = await VectorIndex.open('library-io', { dimensions: 3 });
    const vector = [1, 0, 0];
    const upsert = (fields: Record<string, string>) => fault(() => notes.upsert([{ id: 'a', vector, fields }]));
    const query = (filter: Filter) => fault(() => notes.query({ text: 'fox', filter }));
    // A program may pass members of its client's JSON, unchecked, where the library expects texts.
    const clientJson = '{"none":null,"order":{"least":3}}';
    const { none, order, missing } = JSON.parse(clientJson) as Record<'none' | 'order' | 'missing', string>;
    const faults = [
      await upsert({ author: none }),
      await upsert({ author: missing }),
      await upsert({ author: order }),
      await query({ author: none }),
      await query({ author: missing }),
      await query({ author: ['fox', none] }),
      await query({ year: { atLeast: none } }),
      await query({ year: order }),
      await fault(() => notes.upsert([2, 4].map((length) => ({ id: `of ${length}`, vector: Array(length).fill(1) })))),
    ];
    const { entries } = await notes.stats();
    return { faults, entries, dropped: await notes.drop() };
  },

  async messages() {
    const tooLong = 'é'.repeat(1 << 19).concat('.');
    const alone = await fault(() => send(tooLong));
    await send('first');
    // The second message waits for room in the session, so all later messages wait behind it.
    const half = 'x'.repeat(700_000);
    const sent = [send(half), send(half), fault(() => send(tooLong)), send('last')];
    return { alone, faults: (await Promise.all(sent)).filter((text) => text !== undefined) };
  },

  async files() {
    await sendFile('notes.txt', 'grün');
    await sendFile('data.bin', new Uint8Array([1, 2, 3]), { mediaType: 'application/x-data' });
    const { text, mediaType } = await receiveFile('notes.txt');
    return { text, mediaType, list: await listFiles() };
  },
};

export const run = defineInferlet(async (input: Input) => tasks[input.what]?.(input));
