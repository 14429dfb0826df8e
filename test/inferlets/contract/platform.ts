/** Cases of `store`, `messaging`, `http`, `children` and `file-exchange`. */
import { invocation } from '@pie/inferlet';
import {
  Child,
  Exchange,
  fileExchange,
  index,
  messaging,
  Subscription,
  session,
  settle,
  store,
} from '@pie/inferlet/raw';
import { type Cases, on } from './case.ts';

const unique = (what: string): string => `contract/${what}/${invocation().id}`;
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const text = (value: Uint8Array | undefined): string => new TextDecoder().decode(value);
const LONG = 'x'.repeat(513);

export const storeCases: Cases = {
  'store.get': {
    ok: async () => {
      const key = unique('get');
      const before = await settle(store.get(key));
      const version = await settle(store.set(key, bytes('é'), undefined));
      const entry = await settle(store.get(key));
      return before === null && text(entry?.value) === 'é' && entry?.version === version;
    },
    fails: { 'invalid-argument': () => settle(store.get('')) },
  },
  'store.set': {
    ok: async () => {
      const key = unique('set');
      const first = await settle(store.set(key, bytes('1'), 60));
      return (await settle(store.set(key, bytes('2'), undefined))) > first;
    },
    fails: {
      'invalid-argument': () => settle(store.set(LONG, bytes('1'), undefined)),
      'limit-exceeded': () => settle(store.set(unique('large'), new Uint8Array((1 << 20) + 1), undefined)),
    },
  },
  'store.compare-and-set': {
    ok: async () => {
      const key = unique('cas');
      const created = await settle(store.compareAndSet(key, undefined, bytes('1')));
      const again = await settle(store.compareAndSet(key, undefined, bytes('2')));
      const next = await settle(store.compareAndSet(key, created, bytes('3')));
      const outdated = await settle(store.compareAndSet(key, created, bytes('4')));
      return created !== null && again === null && next !== null && outdated === null;
    },
    fails: { 'invalid-argument': () => settle(store.compareAndSet('', undefined, bytes('1'))) },
  },
  'store.delete-key': {
    ok: async () => {
      const key = unique('delete');
      await settle(store.set(key, bytes('1'), undefined));
      return (await settle(store.deleteKey(key))) && !(await settle(store.deleteKey(key)));
    },
    fails: { 'invalid-argument': () => settle(store.deleteKey('')) },
  },
  'store.exists': {
    ok: async () => {
      const key = unique('exists');
      const before = await settle(store.exists(key));
      await settle(store.set(key, bytes(''), undefined));
      return !before && (await settle(store.exists(key)));
    },
    fails: { 'invalid-argument': () => settle(store.exists(LONG)) },
  },
  'store.list-keys': {
    ok: async () => {
      const prefix = unique('list');
      await Promise.all(['b', 'a', 'c'].map((name) => settle(store.set(`${prefix}/${name}`, bytes('1'), undefined))));
      const first = await settle(store.listKeys(prefix, undefined, 2));
      const rest = await settle(store.listKeys(prefix, first[1], 2));
      return [...first, ...rest].join() === ['a', 'b', 'c'].map((name) => `${prefix}/${name}`).join();
    },
    fails: { 'invalid-argument': () => settle(store.listKeys('', undefined, 0)) },
  },
};

const hello = { tag: 'text', val: 'hello' } as const;

export const messagingCases: Cases = {
  'messaging.broadcast': {
    ok: async () => {
      const topic = unique('broadcast');
      if ((await settle(messaging.broadcast(topic, hello))) !== 0) return false;
      using subscription = new Subscription(topic);
      await settle(subscription.ready());
      return (await settle(messaging.broadcast(topic, hello))) === 1;
    },
    fails: { 'invalid-argument': () => settle(messaging.broadcast('no topic', hello)) },
  },
  'messaging.push': {
    ok: () => settle(messaging.push(unique('push'), hello)),
    fails: {
      'invalid-argument': () => settle(messaging.push('', hello)),
      'limit-exceeded': () =>
        settle(messaging.push(unique('push'), { tag: 'bytes', val: new Uint8Array((1 << 20) + 1) })),
    },
  },
  'messaging.pull': {
    ok: async () => {
      const queue = unique('pull');
      const waiting = settle(messaging.pull(queue));
      await settle(messaging.push(queue, hello));
      await settle(messaging.push(queue, { tag: 'bytes', val: new Uint8Array([1, 2]) }));
      const first = await waiting;
      const second = await settle(messaging.pull(queue));
      return first.sender === invocation().id && first.message.val === 'hello' && second.message.tag === 'bytes';
    },
    fails: { 'invalid-argument': () => settle(messaging.pull('no line')) },
  },
  'messaging.[constructor]subscription': {
    ok: () => on(new Subscription(unique('new')), (subscription) => subscription.ready()),
  },
  'messaging.[method]subscription.ready': {
    ok: () => on(new Subscription(unique('ready')), (subscription) => subscription.ready()),
    fails: { 'invalid-argument': () => on(new Subscription('no topic'), (subscription) => subscription.ready()) },
  },
  'messaging.[method]subscription.next': {
    ok: async () => {
      const topic = unique('next');
      using subscription = new Subscription(topic);
      await settle(subscription.ready());
      for (const val of ['a', 'b']) await settle(messaging.broadcast(topic, { tag: 'text', val }));
      const first = await settle(subscription.next());
      const second = await settle(subscription.next());
      return first.message.val === 'a' && second.message.val === 'b' && second.sender === invocation().id;
    },
  },
  'messaging.[method]subscription.unsubscribe': {
    ok: async () => {
      const topic = unique('unsubscribe');
      using subscription = new Subscription(topic);
      await settle(subscription.ready());
      subscription.unsubscribe();
      return (await settle(messaging.broadcast(topic, hello))) === 0;
    },
    fails: {
      closed: async () => {
        using subscription = new Subscription(unique('closed'));
        await settle(subscription.ready());
        subscription.unsubscribe();
        await settle(subscription.next());
      },
    },
  },
};

/** @param origin of the test's server, which the manifest grants */
export const httpCases = (origin: string): Cases => {
  const exchange = (path: string, changes: Partial<ConstructorParameters<typeof Exchange>[0]> = {}) =>
    new Exchange({
      method: 'GET',
      url: `${origin}${path}`,
      headers: [],
      body: undefined,
      timeoutMs: 60_000,
      redirects: 3,
      ...changes,
    });
  return {
    'http.[constructor]exchange': {
      ok: () => on(exchange('/echo'), (each) => each.head()).then(({ status }) => status === 200),
      fails: {
        unsupported: () => on(exchange('', { url: 'http://example.com/' }), (each) => each.head()),
        'invalid-argument': () => on(exchange('/echo', { method: 'NO METHOD' }), (each) => each.head()),
      },
    },
    'http.[method]exchange.head': {
      ok: async () => {
        const { status, url, headers } = await on(exchange('/moved'), (each) => each.head());
        const type = headers.find(({ name }) => name === 'content-type')?.value;
        return status === 200 && url === `${origin}/echo` && type === 'application/json';
      },
      fails: {
        'deadline-exceeded': () => on(exchange('/never', { timeoutMs: 50 }), (each) => each.head()),
        unavailable: () => on(exchange('/breaks'), (each) => each.head()),
        unsupported: () => on(exchange('/elsewhere'), (each) => each.head()),
      },
    },
    'http.[method]exchange.read': {
      ok: async () => {
        const headers = [{ name: 'x-test', value: 'yes' }];
        using each = exchange('/echo', { method: 'POST', headers, body: bytes('body') });
        await settle(each.head());
        const parts: string[] = [];
        for (;;) {
          const part = await settle(each.read());
          if (part === null) break;
          parts.push(text(part));
        }
        return parts.join('') === '{"method":"POST","test":"yes","body":"body"}';
      },
      fails: {
        unavailable: async () => {
          using each = exchange('/half');
          await settle(each.head());
          while ((await settle(each.read())) !== null);
        },
      },
    },
  };
};

const ECHO = 'echo-session';

export const childCases: Cases = {
  'children.[constructor]child': {
    ok: async () => {
      using child = new Child(ECHO, '{}');
      child.close();
      return (await settle(child.wait())).tag === 'success';
    },
    fails: { unsupported: () => on(new Child('another', '{}'), (child) => child.started()) },
  },
  'children.[method]child.started': {
    ok: () =>
      on(new Child(ECHO, '{}'), (child) => child.started()).then((id) => id !== invocation().id && id.length > 8),
    fails: {
      'not-found': () => on(new Child(`${ECHO}@none`, '{}'), (child) => child.started()),
      'invalid-argument': () => on(new Child(ECHO, '{"unknown":1}'), (child) => child.started()),
    },
  },
  'children.[method]child.send': {
    ok: async () => {
      using child = new Child(ECHO, '{}');
      await settle(child.send(hello));
    },
    fails: {
      closed: async () => {
        using child = new Child(ECHO, '{}');
        child.close();
        await settle(child.wait());
        await settle(child.send(hello));
      },
    },
  },
  'children.[method]child.close': {
    ok: async () => {
      using child = new Child(ECHO, '{}');
      child.close();
      await settle(child.wait());
    },
  },
  'children.[method]child.receive': {
    ok: async () => {
      using child = new Child(ECHO, '{}');
      await settle(child.send(hello));
      const greeting = await settle(child.receive());
      const answer = await settle(child.receive());
      return greeting.val !== 'hello' && answer.val === 'hello';
    },
    fails: {
      closed: async () => {
        using child = new Child(ECHO, '{}');
        child.close();
        for (;;) await settle(child.receive());
      },
    },
  },
  'children.[method]child.wait': {
    ok: async () => {
      using child = new Child(ECHO, '{}');
      child.close();
      const first = await settle(child.wait());
      const second = await settle(child.wait());
      return first.tag === 'success' && JSON.stringify(first) === JSON.stringify(second);
    },
    fails: { 'not-found': () => on(new Child(`${ECHO}@none`, '{}'), (child) => child.wait()) },
  },
  'children.[method]child.cancel': {
    ok: async () => {
      using child = new Child(ECHO, '{}');
      await settle(child.started());
      child.cancel();
      const ending = await settle(child.wait());
      return ending.tag === 'failure' && ending.val.code === 'cancelled';
    },
  },
};

export const exchangeCases: Cases = {
  'file-exchange.send-file': {
    ok: () => settle(fileExchange.sendFile('report.txt', 'text/plain', bytes('from the inferlet'))),
    fails: {
      'invalid-argument': () => settle(fileExchange.sendFile('../x', 'text/plain', bytes(''))),
      'limit-exceeded': () =>
        settle(fileExchange.sendFile('large', 'application/octet-stream', new Uint8Array((16 << 20) + 1))),
    },
  },
  'file-exchange.receive-file': {
    // The test sends the file when it receives the text "file", and then closes its side.
    ok: async () => {
      const waiting = settle(fileExchange.receiveFile('data.bin'));
      session.send({ tag: 'text', val: 'file' });
      const { mediaType, content } = await waiting;
      return mediaType === 'application/octet-stream' && content.join() === '0,1,255';
    },
    fails: { 'invalid-argument': () => settle(fileExchange.receiveFile('a/b')) },
  },
  'file-exchange.list-files': {
    ok: async () => {
      await settle(fileExchange.sendFile('list.txt', 'text/plain', bytes('123')));
      const found = (await settle(fileExchange.listFiles())).find(({ name }) => name === 'list.txt');
      return found?.size === 3 && found.mediaType === 'text/plain';
    },
  },
};

/** Run after `exchangeCases`, when the exchange is closed. */
export const closedExchange: Cases = {
  'file-exchange.receive-file': {
    ok: () => true,
    fails: { closed: () => settle(fileExchange.receiveFile('never-comes')) },
  },
};

/** Cases for a function without grants. Each interface must refuse the function's calls. */
export const deniedCases = (origin: string): Cases => ({
  'store.get': { ok: () => true, fails: { unsupported: () => settle(store.get('key')) } },
  'index.list-indexes': { ok: () => true, fails: { unsupported: () => settle(index.listIndexes()) } },
  'messaging.broadcast': { ok: () => true, fails: { unsupported: () => settle(messaging.broadcast('topic', hello)) } },
  'http.[constructor]exchange': {
    ok: () => true,
    fails: {
      unsupported: () =>
        on(
          new Exchange({
            method: 'GET',
            url: origin,
            headers: [],
            body: undefined,
            timeoutMs: undefined,
            redirects: 0,
          }),
          (each) => each.head(),
        ),
    },
  },
  'children.[constructor]child': {
    ok: () => true,
    fails: { unsupported: () => on(new Child(ECHO, '{}'), (child) => child.started()) },
  },
});
