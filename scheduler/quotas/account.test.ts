import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import type { NewEvent } from '../invocations/types.ts';
import type { Scheduler } from '../scheduler.ts';
import { losingWrites } from '../store/testing/lost-writes.ts';
import { beginAttempt, eventually, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { recount } from './testing/recount.ts';

const SEED = 20_261_121;
const TENANT = 'acme';
const NOTE = { author: 'key_1', reason: '' };
/** More bytes than any history stores. */
const LIMIT = 1e12;
const MINUTE_MS = 60_000;
/** Whole minutes, because accounts round lifetimes to minutes. */
const RETENTION = {
  recordMs: 30 * MINUTE_MS,
  eventsMs: 10 * MINUTE_MS,
  resultsMs: 20 * MINUTE_MS,
  filesMs: 15 * MINUTE_MS,
  logMs: 25 * MINUTE_MS,
  logLines: 10,
  maxEvents: 20,
};

let redis: TestRedis;
before(async () => {
  redis = await TestRedis.start({ appendOnly: true });
});
after(() => redis.stop());

/**
 * A step of a history. An act that is listed twice occurs twice as often. `pick` chooses the item that the act changes and the variant of the act;
 * `size` chooses the number of bytes written.
 */
const step = fc.record({
  act: fc.constantFrom(
    ...([
      'submit',
      'submit',
      'begin',
      'begin',
      'append',
      'append',
      'append',
      'chat',
      'take',
      'end',
      'end',
      'fail',
    ] as const),
    ...([
      'cancel',
      'requeue',
      'file',
      'write',
      'expiring',
      'delete',
      'sweep',
      'push',
      'push',
      'pull',
      'upload',
    ] as const),
    ...(['deploy', 'deploy', 'remove', 'wait', 'wait', 'long-wait', 'crash', 'kill', 'child'] as const),
  ),
  pick: fc.nat({ max: 1000 }),
  size: fc.oneof(fc.nat({ max: 50 }), fc.nat({ max: 20_000 })),
});

/** Plays steps in a scheduler of its own, and compares the account with the stored values. */
class History {
  readonly #scheduler: Scheduler;
  /** Ids of all invocations. */
  readonly ids = new Set<string>();
  /** Bytes of the texts of their headers. */
  readonly headerBytes = new Map<string, number>();
  /** Hashes of all uploaded components. */
  readonly components = new Set<string>();
  now = Date.UTC(2027, 0, 31, 12);
  #running: { id: string; epoch: number; seq: number }[] = [];
  #waiting: string[] = [];
  #versions: { name: string; version: string }[] = [];
  #content = 0;

  constructor() {
    this.#scheduler = openTestScheduler(redis, { clock: () => this.now, retention: RETENTION, deadlineMs: 60_000 });
  }

  get scheduler(): Scheduler {
    return this.#scheduler;
  }

  async play({ act, pick, size }: { act: string; pick: number; size: number }): Promise<void> {
    const { invocations, inbox, files, keyValues, messaging, blobs, functions, removals } = this.#scheduler;
    // `é` takes two bytes.
    const text = 'é'.repeat(size / 2);
    const key = `key-${pick % 5}`;
    const running = this.#running[pick % Math.max(1, this.#running.length)];
    const waiting = this.#waiting[pick % Math.max(1, this.#waiting.length)];
    const someId = pick % 2 === 0 ? running?.id : waiting;
    switch (act) {
      case 'submit': {
        const record = submission({
          tenant: TENANT,
          function: `fn-${pick % 2}`,
          submittedAt: this.now,
          input: JSON.stringify(text),
        });
        const headers = pick % 4 === 1 ? this.#headers(record.id, pick) : {};
        await invocations.create({ ...record, ...headers, deadlineMs: 1e9, restartable: pick % 3 === 0 });
        this.ids.add(record.id);
        this.#waiting.push(record.id);
        return;
      }
      case 'begin':
        if (waiting === undefined) return;
        return this.#begin(waiting);
      case 'append': {
        if (running === undefined) return;
        const events = Array.from({ length: 1 + (pick % 60) }, (_, i): NewEvent => {
          return {
            event: (pick + i) % 3 === 0 ? 'log' : 'message',
            data: JSON.stringify({ text: text.slice(0, 300) }),
          };
        });
        // Appends to one invocation, or to all running ones in one call of the store.
        const targets = pick % 2 === 0 ? [running] : this.#running;
        const append = (offset: number) =>
          Promise.all(targets.map(({ id, epoch, seq }) => invocations.append(id, epoch, seq + offset, events)));
        const outcomes = await append(1);
        for (const [i, one] of targets.entries()) if (outcomes[i] === 'ok') one.seq += events.length;
        // Repeats the call with the same event numbers; nothing may count twice.
        await append(1 - events.length);
        return;
      }
      case 'chat':
        if (someId !== undefined) await inbox.push(someId, { text });
        return;
      case 'take': {
        if (running === undefined) return;
        const done = Promise.withResolvers<void>();
        await inbox.close(running.id);
        inbox.attach(running.id, { message: () => undefined, closed: () => done.resolve() }, running.epoch);
        return done.promise;
      }
      case 'end': {
        if (running === undefined) return;
        this.#running = this.#running.filter((other) => other !== running);
        const ended =
          pick % 4 === 0
            ? ({ event: 'error', code: 'trap', message: text.slice(0, 500) } as const)
            : ({ event: 'result' } as const);
        const terminal = { ...ended, data: JSON.stringify({ output: text.slice(0, 5000) }) };
        await invocations.finish(running.id, running.epoch, running.seq + 1, terminal, null);
        return;
      }
      case 'fail':
      case 'cancel':
        if (someId === undefined) return;
        this.#forget(someId);
        await (act === 'fail' ? invocations.fail(someId, 'internal', 'gone') : this.#cancel(someId));
        return;
      case 'requeue': {
        if (running === undefined) return;
        const outcome = await invocations.requeue(running.id, running.epoch, running.seq + 1, 'room', null);
        if (outcome !== 'requeued') return;
        this.#forget(running.id);
        this.#waiting.push(running.id);
        return;
      }
      case 'child': {
        if (running === undefined) return;
        const id = `${running.id}-${this.ids.size}`;
        const child = {
          ...submission({ tenant: TENANT, function: 'fn-0' }),
          id,
          arrival: 1,
          parent: running.id,
          root: running.id,
        };
        const begun = await invocations.beginChild({ ...child, parentEpoch: running.epoch, runtimeId: 'r1' }, 'token');
        if ('refused' in begun) return;
        this.ids.add(id);
        this.#running.push({ id, epoch: begun.epoch, seq: 0 });
        return;
      }
      case 'file':
        if (someId !== undefined) await files.put(someId, `file-${pick % 3}`, 'text/plain', Buffer.from(text));
        return;
      case 'write':
      case 'expiring':
        await keyValues.write(TENANT, key, Buffer.from(text), act === 'expiring' ? { timeToLiveSeconds: 60 } : {});
        return;
      case 'delete':
        await keyValues.delete(TENANT, key);
        return;
      case 'sweep':
        return keyValues.sweep();
      case 'push':
        await messaging.queues.push(TENANT, `queue-${pick % 3}`, { sender: 'me', message: { text } });
        return;
      case 'pull': {
        const aborter = new AbortController();
        const pulled = messaging.queues.pull(TENANT, `queue-${pick % 3}`, aborter.signal);
        // Aborts at once, or a turn later, when the pull may have taken a message.
        if (pick % 5 > 0) setImmediate(() => aborter.abort());
        else aborter.abort();
        await pulled;
        return;
      }
      case 'upload':
        this.components.add(await blobs.put(TENANT, this.#component(size), 5 * MINUTE_MS));
        return;
      case 'deploy': {
        const component = this.#component(size);
        const componentHash = await blobs.put(TENANT, component, 5 * MINUTE_MS);
        this.components.add(componentHash);
        if (pick % 4 === 0) return void (await blobs.remove(TENANT, componentHash));
        const version = { tenant: TENANT, name: `fn-${pick % 3}`, version: `v${this.#content}`, createdAt: this.now };
        const record = {
          ...version,
          componentHash,
          componentBytes: component.length,
          manifest: { name: version.name },
        };
        const put = await functions.put(record as never, { alias: null });
        assert.ok(put.ok);
        await functions.put(record as never, { alias: null });
        this.#versions.push(version);
        return;
      }
      case 'remove': {
        const found = this.#versions.splice(pick % Math.max(1, this.#versions.length), 1)[0];
        if (found === undefined) return;
        await removals.removeVersion(TENANT, found.name, found.version);
        return removals.sweep();
      }
      case 'wait':
        return this.advance((1 + (pick % 7)) * MINUTE_MS);
      case 'long-wait':
        return this.advance(31 * MINUTE_MS);
      case 'crash':
        // Redis loses acknowledged writes: those of values together with those of the account.
        await losingWrites(redis, () => this.play({ act: 'file', pick, size }));
        return this.#waitUntilConnected();
      case 'kill':
        await redis.restart();
        return this.#waitUntilConnected();
    }
  }

  /** Advances the clock, and shortens all lifetimes in Redis. */
  async advance(ms: number): Promise<void> {
    this.now += ms;
    const { redis: client, keys } = this.#scheduler.store;
    for (const key of await client.keys(`${keys.prefix}:*`)) {
      const leftMs = await client.pttl(key);
      if (leftMs < 0) continue;
      if (leftMs <= ms) await client.del(key);
      else await client.pexpire(key, leftMs - ms);
    }
    // Queues expire by the clock of Redis.
    const queues = keys.messageQueuesExpiries(TENANT);
    for (const queue of await client.zrange(queues, '0', '-1')) await client.zincrby(queues, -ms, queue);
  }

  /** Returns the bytes in the account, and the bytes counted from the values. */
  async compare(): Promise<[number | undefined, number]> {
    const { quotas, store } = this.#scheduler;
    // Waits for commands that were sent earlier, such as the return of a message whose puller was aborted.
    await store.ping();
    const found = await recount(store, TENANT, this.ids, this.headerBytes, this.components);
    const states = await quotas.status(TENANT);
    return [states.find(({ quota }) => quota === 'redis-bytes')?.used, found];
  }

  async #begin(id: string): Promise<void> {
    this.#forget(id);
    const attempt = await beginAttempt(this.#scheduler, id, 'r1');
    if (!('epoch' in attempt)) return;
    this.#running.push({ id, epoch: attempt.epoch, seq: attempt.nextSeq - 1 });
  }

  async #cancel(id: string): Promise<void> {
    const { invocations } = this.#scheduler;
    // For a running invocation, `cancel` only sends a request to the runtime, which then ends the invocation as `fail` does here.
    if ((await this.#scheduler.cancel(id, 'enough')) === 'requested') await invocations.fail(id, 'internal', 'enough');
  }

  /** Headers with texts of the client's choice. Notes their bytes by the table of README.md. */
  #headers(id: string, pick: number) {
    const { keys } = this.#scheduler.store;
    const idempotencyKey = `${id} ${'k'.repeat(pick % 200)}`;
    const concurrency = { key: 'c'.repeat(1 + (pick % 200)), limit: 1000 };
    const webhookUrl = `https://example.com/${'é'.repeat(pick % 500)}`;
    const stored = [keys.idempotency(TENANT, idempotencyKey), keys.concurrency(TENANT, concurrency.key)];
    const twice = stored.reduce((sum, text) => sum + 2 * Buffer.byteLength(text), 0);
    this.headerBytes.set(id, Buffer.byteLength(webhookUrl) + twice);
    return { idempotencyKey, fingerprint: 'f', concurrency, webhookUrl };
  }

  #forget(id: string): void {
    this.#running = this.#running.filter((other) => other.id !== id);
    this.#waiting = this.#waiting.filter((other) => other !== id);
  }

  #component(size: number): Uint8Array {
    this.#content += 1;
    return Buffer.from(`${this.#content} ${'x'.repeat(size)}`);
  }

  async #waitUntilConnected(): Promise<void> {
    const { store } = this.#scheduler;
    await eventually(
      () =>
        store.ping().then(
          () => true,
          () => false,
        ),
      'Redis is back',
    );
  }
}

test('the byte account of a tenant equals the bytes of its stored values after any act, expiry or SIGKILL of Redis', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 20, maxLength: 60, size: 'max' }), async (steps) => {
      const history = new History();
      try {
        await history.scheduler.quotas.set(
          TENANT,
          { quota: 'redis-bytes', limit: LIMIT, function: null, until: null },
          NOTE,
        );
        for (const one of steps) {
          await history.play(one);
          const [account, found] = await history.compare();
          assert.equal(account, found, `after ${one.act}`);
        }
        await history.scheduler.store.redis.sadd(history.scheduler.store.keys.tenants, TENANT);
        assert.equal(await history.scheduler.quotas.repairAccounts(0), 0, 'nothing to repair');
      } finally {
        await history.scheduler.close();
      }
    }),
    { numRuns: process.env.PIE_TEST_ALL ? 20 : 8, seed: SEED, endOnFailure: true },
  );
});
