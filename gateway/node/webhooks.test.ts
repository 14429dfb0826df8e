import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Reach } from '#scheduler/addresses/reach.ts';
import { WEBHOOK_QUEUE } from '#scheduler/keys.ts';
import { StoreError } from '#scheduler/store/errors.ts';
import { definedScripts, eventually } from '#scheduler/testing/fixture.ts';
import type { WebhookOutcome, Webhooks } from '#scheduler/webhooks/webhooks.ts';
import type { WebhookDelivery } from '../app/control.ts';
import type { PieClient } from '../client/client.ts';
import { TestPlatform } from '../testing/platform.ts';
import { webhookPayload } from './webhook-payload.ts';

/** Deliveries that a gateway makes for one tenant at once. */
const MAX_PER_TENANT = 8;

interface Received {
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

/** A webhook receiver. */
class Receiver {
  readonly received: Received[] = [];
  /** Statuses of the next answers; 204 after them. Each answer has a `location` header, for redirects. */
  statuses: number[] = [];
  readonly #server: Server;

  constructor() {
    this.#server = createServer(async (request, response) => {
      let body = '';
      for await (const piece of request.setEncoding('utf8')) body += piece;
      this.received.push({ path: request.url ?? '', headers: request.headers, body });
      await this.beforeAnswer();
      response.writeHead(this.statuses.shift() ?? 204, { location: '/elsewhere' }).end();
    });
  }

  beforeAnswer = async (): Promise<void> => undefined;

  async start(): Promise<void> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
  }

  url(path: string, host = '127.0.0.1'): string {
    return `http://${host}:${(this.#server.address() as AddressInfo).port}${path}`;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

describe('webhooks', () => {
  const receiver = new Receiver();
  const reach = new Reach({ privateHosts: [{ host: '127.0.0.1' }, { host: 'hooks.internal' }], lookup: resolve });
  let platform: TestPlatform;
  let webhooks: Webhooks;
  const outcomes: WebhookOutcome[] = [];
  let client: PieClient;

  /** Resolves every name to a private address, also names that look public, such as `rebound.example`. */
  async function resolve() {
    return [{ address: '127.0.0.1', family: 4 }];
  }

  const start = () => {
    const { scheduler } = platform;
    webhooks = scheduler.createWebhooks({
      reach,
      payload: webhookPayload(scheduler),
      version: 'test',
      firstWaitMs: 20,
      onAttempt: (outcome) => outcomes.push(outcome),
    });
    webhooks.start();
  };

  before(async () => {
    await receiver.start();
    platform = await TestPlatform.start({ control: { reach } });
    client = platform.client();
    await platform.register({ name: 'echo' });
    start();
  });
  after(async () => {
    await webhooks.stop();
    await platform.stop();
    await receiver.stop();
  });

  /** Runs an invocation that succeeds with `output`. */
  async function runToEnd(webhook: string, output: unknown = 1): Promise<string> {
    const { id } = await client.submit('echo', {}, { webhook });
    await (await platform.attempt(id)).succeed(output);
    return id;
  }

  /** Waits until the webhook is delivered or has failed for good. */
  async function untilSettled(id: string): Promise<WebhookDelivery> {
    let delivery: WebhookDelivery | undefined;
    await eventually(async () => {
      delivery = (await client.invocation(id)).webhook;
      return delivery?.status === 'delivered' || delivery?.status === 'failed';
    }, 'the webhook is delivered or has failed');
    return delivery as WebhookDelivery;
  }

  it('webhooks reach their final state after Redis has refused a write, and skip an unreadable record', async (t) => {
    const { store } = platform.scheduler;
    const { redis, keys } = store;
    const script = store.script.bind(store);
    const refusedKeys: string[] = [];
    t.mock.method(store, 'script', async (...call: Parameters<typeof script>) => {
      try {
        return await script(...call);
      } catch (error) {
        refusedKeys.push(...call[1]);
        throw error;
      }
    });
    await redis.set(keys.invocation('broken'), 'no record');
    await redis.zadd(keys.webhooks, 1, 'broken');
    // Redis becomes a replica, which refuses writes: the gateway cannot store the receiver's answer.
    receiver.beforeAnswer = async () => void (await redis.replicaof('127.0.0.1', '1'));
    receiver.statuses = [410];
    const id = await runToEnd(receiver.url('/away'));
    await eventually(() => receiver.received.some(({ path }) => path === '/away'), 'the receiver has the delivery');
    receiver.beforeAnswer = async () => undefined;
    await eventually(() => refusedKeys.includes(keys.invocation(id)), "Redis refuses the gateway's write");
    await redis.replicaof('NO', 'ONE');
    const { status, attempts } = await untilSettled(id);
    assert.deepEqual([status, attempts], ['failed', 1]);
    await redis.zrem(keys.webhooks, 'broken');
  });

  it('a delivery that fails because Redis does not answer does not count as an attempt', async () => {
    const { invocations } = platform.scheduler;
    const { get } = invocations;
    const recordRead = Promise.withResolvers<void>();
    const id = await client.submit('echo', {}, { webhook: receiver.url('/read') }).then((submitted) => submitted.id);
    const attempt = await platform.attempt(id);
    invocations.get = async () => {
      recordRead.resolve();
      throw new StoreError('store-unavailable', 'Redis is away.');
    };
    try {
      await attempt.succeed(1);
      await recordRead.promise;
    } finally {
      invocations.get = get;
    }
    const { status, attempts } = await untilSettled(id);
    assert.deepEqual([status, attempts], ['delivered', 1]);
  });

  it('a signed delivery is repeated under one id until the receiver accepts it', async () => {
    receiver.statuses = [500, 302];
    outcomes.length = 0;
    const id = await runToEnd(receiver.url('/signed'), { text: 'done' });
    const { status, attempts, lastStatus, nextAt } = await untilSettled(id);
    assert.deepEqual([status, attempts, lastStatus, nextAt], ['delivered', 3, 204, null]);
    await eventually(() => outcomes.length === 3, 'the gateway reports each attempt');
    assert.deepEqual(definedScripts(platform.scheduler.store), []);
    assert.deepEqual(outcomes, ['retry', 'retry', 'delivered']);
    const signedDeliveries = receiver.received.filter(({ path }) => path === '/signed');
    assert.equal(signedDeliveries.length, 3);
    assert.equal(
      receiver.received.some(({ path }) => path === '/elsewhere'),
      false,
      'the sender does not follow a redirect',
    );
    const key = Buffer.from((await client.operations.webhookSecret()).replace('whsec_', ''), 'base64');
    for (const { headers, body } of signedDeliveries) {
      assert.equal(headers['webhook-id'], id);
      const signed = `${id}.${headers['webhook-timestamp']}.${body}`;
      const signature = `v1,${createHmac('sha256', key).update(signed).digest('base64')}`;
      assert.equal(headers['webhook-signature'], signature);
      assert.ok(Math.abs(Number(headers['webhook-timestamp']) - Date.now() / 1000) < 60);
    }
    const { webhook, ...state } = await client.invocation(id);
    assert.deepEqual(JSON.parse(signedDeliveries[0]?.body ?? ''), {
      type: 'invocation.ended',
      timestamp: state.endedAt,
      data: state,
    });
  });

  it('webhooks report cancellations, and omit large outputs', async () => {
    const { id: cancelled } = await client.submit('echo', {}, { webhook: receiver.url('/cancelled') });
    await client.cancel(cancelled);
    // With its quotes, `largest` has 256 KiB, the maximum. The output of `/large` has one byte more.
    const largest = 'x'.repeat(256 * 1024 - 2);
    const ids = [cancelled];
    ids.push(await runToEnd(receiver.url('/largest'), largest), await runToEnd(receiver.url('/large'), `${largest}x`));
    await Promise.all(ids.map(untilSettled));
    const dataOf = (path: string) => JSON.parse(receiver.received.find((each) => each.path === path)?.body ?? '').data;
    assert.deepEqual([dataOf('/cancelled').status, dataOf('/cancelled').error.code], ['cancelled', 'cancelled']);
    assert.equal(dataOf('/largest').output, largest);
    assert.deepEqual([dataOf('/large').outputOmitted, 'output' in dataOf('/large')], [true, false]);
  });

  it('a payload marks an output that the store has deleted as omitted', async () => {
    const { events, invocations, store } = platform.scheduler;
    const dataOf = async (id: string) => {
      const record = (await invocations.get(id)) ?? assert.fail('no record');
      return JSON.parse(await webhookPayload({ events })(record)).data;
    };
    const id = await runToEnd(receiver.url('/late'), null);
    await untilSettled(id);
    const keptData = await dataOf(id);
    assert.deepEqual([keptData.output, 'outputOmitted' in keptData], [null, false]);
    await store.redis.del(store.keys.events(id), store.keys.outcome(id));
    const late = await dataOf(id);
    assert.deepEqual([late.status, late.outputOmitted, 'output' in late], ['succeeded', true, false]);
    const { id: failed } = await client.submit('echo', {});
    await client.cancel(failed);
    assert.equal('outputOmitted' in (await dataOf(failed)), false);
  });

  it('a webhook stops at status 410, and connects to no private address behind a public name', async () => {
    receiver.statuses = [410];
    const gone = await untilSettled(await runToEnd(receiver.url('/gone')));
    assert.deepEqual([gone.status, gone.attempts, gone.lastStatus], ['failed', 1, 410]);
    await eventually(() => outcomes.at(-1) === 'failed', 'the attempt was the last one');
    const countBefore = receiver.received.length;
    const { port } = new URL(receiver.url('/'));
    const id = await runToEnd(`https://rebound.example:${port}/inside`);
    await eventually(async () => ((await client.invocation(id)).webhook?.attempts ?? 0) > 0, 'an attempt');
    const { lastError, status } = (await client.invocation(id)).webhook as WebhookDelivery;
    assert.match(lastError ?? '', /no public address/);
    assert.equal(status, 'pending');
    assert.equal(receiver.received.length, countBefore);
  });

  it("webhooks are not delayed by another tenant's dead endpoints, and are delivered after a restart of the gateway", async (t) => {
    const attemptedIds = new Set<string>();
    let openDeliveries = 0;
    const dead = createServer(({ headers }, response) => {
      attemptedIds.add(String(headers['webhook-id']));
      openDeliveries++;
      response.on('close', () => openDeliveries--);
    });
    dead.listen(0, '127.0.0.1');
    t.after(() => {
      dead.closeAllConnections();
      dead.close();
    });
    await once(dead, 'listening');
    const { port } = dead.address() as AddressInfo;
    const otherClient = platform.client(await platform.key(['invoke'], 'other'));
    await platform.register({ name: 'echo' }, 'other');
    for (let i = 0; i < 30; i++) {
      const { id } = await otherClient.submit('echo', {}, { webhook: `http://127.0.0.1:${port}/` });
      await otherClient.cancel(id);
    }
    const allAreOpen = () =>
      eventually(() => openDeliveries === MAX_PER_TENANT, 'the other tenant has as many deliveries as it may have');
    await allAreOpen();
    receiver.beforeAnswer = allAreOpen;
    assert.equal((await untilSettled(await runToEnd(receiver.url('/beside')))).status, 'delivered');
    receiver.beforeAnswer = async () => undefined;
    // A delivery to the dead endpoint makes room for another one when it reaches its time limit of 10 s. The factor of 2 allows for a machine so
    // slow that the first deliveries reach this limit during the test.
    const count = attemptedIds.size;
    assert.ok(count <= 2 * MAX_PER_TENANT, `${count} of 30 deliveries to a dead endpoint at once`);
    await webhooks.stop();
    const id = await runToEnd(receiver.url('/later'));
    assert.equal((await client.invocation(id)).webhook?.status, 'pending');
    start();
    assert.equal((await untilSettled(id)).status, 'delivered');
    assert.equal(receiver.received.filter(({ path }) => path === '/later').length, 1);
  });

  it("a delivery attempt does not count when the gateway's stop interrupts it", async () => {
    const { redis, keys } = platform.scheduler.store;
    let answer = (): void => undefined;
    const answered = new Promise<void>((resolve) => {
      answer = resolve;
    });
    receiver.beforeAnswer = () => answered;
    const id = await runToEnd(receiver.url('/interrupted'));
    await eventually(() => receiver.received.some(({ path }) => path === '/interrupted'), 'the attempt has begun');
    // The gateway stops during a slow call of Redis, in which it looks for ended invocations.
    let hasBegunCall = false;
    const zrange = async () => {
      hasBegunCall = true;
      await sleep(200);
      return [];
    };
    Object.assign(redis, { zrange });
    await redis.publish(keys.webhooksChannel, '');
    await eventually(() => hasBegunCall, 'the gateway looks for ended invocations');
    await webhooks.stop();
    Reflect.deleteProperty(redis, 'zrange');
    answer();
    receiver.beforeAnswer = async () => undefined;
    // `atm` is BullMQ's field for the number of attempts made.
    const job = await redis.hgetall(`${keys.bull}:${WEBHOOK_QUEUE}:${id}`);
    assert.deepEqual([job.name, job.atm], ['deliver', undefined], 'no attempt counts');
    start();
  });
});
