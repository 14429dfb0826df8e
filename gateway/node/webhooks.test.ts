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
import { GatewayPlatform } from '../testing/platform.ts';
import { webhookPayload } from './webhook-payload.ts';

/** Maximum deliveries that a gateway makes for one tenant at once, as in `scheduler/webhooks`. */
const MAX_PER_TENANT = 8;

interface Received {
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

/** An HTTP server that receives webhooks. Each answer has a `location` header, which counts only with a redirect status. */
class Receiver {
  readonly received: Received[] = [];
  /** Statuses of the next answers, in order. All later answers have status 204. */
  statuses: number[] = [];
  /** Further headers of the answers. */
  headers: Record<string, string> = {};
  readonly #server: Server;

  constructor() {
    this.#server = createServer(async (request, response) => {
      let body = '';
      for await (const piece of request.setEncoding('utf8')) body += piece;
      this.received.push({ path: request.url ?? '', headers: request.headers, body });
      await this.beforeAnswer();
      response.writeHead(this.statuses.shift() ?? 204, { location: '/elsewhere', ...this.headers }).end();
    });
  }

  /** The receiver waits for this function after it has received a delivery, and before it answers. */
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
  let platform: GatewayPlatform;
  let webhooks: Webhooks;
  const outcomes: WebhookOutcome[] = [];
  let client: PieClient;

  /** DNS lookup of the tests: returns a private address for every name, even for a name that looks public, such as `rebound.example`. */
  async function resolve() {
    return [{ address: '127.0.0.1', family: 4 }];
  }

  const startWebhooks = () => {
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
    platform = await GatewayPlatform.start({ control: { reach } });
    client = platform.client();
    await platform.register({ name: 'echo' });
    startWebhooks();
  });
  after(async () => {
    await webhooks.stop();
    await platform.stop();
    await receiver.stop();
  });

  /** Runs an invocation with this webhook URL, which succeeds with `output`. Returns the id of the invocation. */
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

  it('a webhook reaches its final state after Redis has refused to store it, and an unreadable record does not block it', async (t) => {
    const { store } = platform.scheduler;
    const { redis, keys } = store;
    const runScript = store.script.bind(store);
    /** Keys of all script calls that failed. */
    const refusedKeys: string[] = [];
    t.mock.method(store, 'script', async (...call: Parameters<typeof runScript>) => {
      const [, keysOfCall] = call;
      try {
        return await runScript(...call);
      } catch (error) {
        refusedKeys.push(...keysOfCall);
        throw error;
      }
    });
    // A record of the wrong Redis type: the gateway cannot read it.
    await redis.set(keys.invocation('broken'), 'no record');
    await redis.zadd(keys.webhooks, 1, 'broken');
    // Before the receiver answers, Redis becomes a replica, which refuses writes. The gateway therefore cannot store the answer.
    receiver.beforeAnswer = async () => {
      await redis.replicaof('127.0.0.1', '1');
    };
    receiver.statuses = [410];
    const id = await runToEnd(receiver.url('/away'));
    await eventually(() => receiver.received.some(({ path }) => path === '/away'), 'the receiver has the delivery');
    receiver.beforeAnswer = async () => undefined;
    await eventually(() => refusedKeys.includes(keys.invocation(id)), "Redis refuses the gateway's write");
    await redis.replicaof('NO', 'ONE');
    const { status, attempts } = await untilSettled(id);
    assert.deepEqual([status, attempts], ['failed', 1], 'status 410 ends the attempts');
    await redis.zrem(keys.webhooks, 'broken');
  });

  it('a delivery does not count as an attempt when Redis does not answer the read of its record', async () => {
    const { invocations } = platform.scheduler;
    const { get } = invocations;
    const recordRead = Promise.withResolvers<void>();
    const { id } = await client.submit('echo', {}, { webhook: receiver.url('/read') });
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

  it('a delivery is signed, and repeated with the same id until the receiver accepts it', async () => {
    receiver.statuses = [500, 302];
    outcomes.length = 0;
    const id = await runToEnd(receiver.url('/signed'), { text: 'done' });
    const { status, attempts, lastStatus, nextAt } = await untilSettled(id);
    assert.deepEqual([status, attempts, lastStatus, nextAt], ['delivered', 3, 204, null]);
    await eventually(() => outcomes.length === 3, 'the gateway reports each attempt');
    assert.deepEqual(outcomes, ['retry', 'retry', 'delivered']);
    assert.deepEqual(
      definedScripts(platform.scheduler.store),
      [],
      'BullMQ has defined no scripts on the shared connection',
    );
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
      const signedText = `${id}.${headers['webhook-timestamp']}.${body}`;
      const signature = `v1,${createHmac('sha256', key).update(signedText).digest('base64')}`;
      assert.equal(headers['webhook-signature'], signature);
      const ageSeconds = Date.now() / 1000 - Number(headers['webhook-timestamp']);
      assert.ok(Math.abs(ageSeconds) < 60);
    }
    const { webhook, ...state } = await client.invocation(id);
    assert.deepEqual(JSON.parse(signedDeliveries[0]?.body ?? ''), {
      type: 'invocation.ended',
      timestamp: state.endedAt,
      data: state,
    });
  });

  it('a delivery waits as long as the receiver asks for', async () => {
    receiver.statuses = [429];
    receiver.headers = { 'retry-after': '1' };
    const arrivals: number[] = [];
    receiver.beforeAnswer = async () => {
      arrivals.push(performance.now());
    };
    try {
      const { status, attempts } = await untilSettled(await runToEnd(receiver.url('/busy')));
      assert.deepEqual([status, attempts], ['delivered', 2]);
      const [first = 0, second = 0] = arrivals;
      assert.ok(second - first > 950, `repeated after ${second - first} ms`);
      receiver.statuses = [503];
      receiver.headers = { 'retry-after': new Date(Date.now() + 3_600_000).toUTCString() };
      const id = await runToEnd(receiver.url('/closed'));
      let nextAt = 0;
      await eventually(async () => {
        const { webhook } = await client.invocation(id);
        nextAt = Date.parse(webhook?.nextAt ?? '');
        return webhook?.attempts === 1;
      }, 'the first attempt has failed');
      assert.ok(nextAt > Date.now() + 3_000_000, `${nextAt - Date.now()} ms until the next attempt`);
    } finally {
      receiver.headers = {};
      receiver.beforeAnswer = async () => undefined;
    }
  });

  it('webhooks report cancelled invocations, and omit outputs of more than 256 KiB', async () => {
    const { id: cancelled } = await client.submit('echo', {}, { webhook: receiver.url('/cancelled') });
    await client.cancel(cancelled);
    // As JSON text this output has two quotes more: exactly 256 KiB, the maximum.
    const largest = 'x'.repeat(256 * 1024 - 2);
    const tooLarge = `${largest}x`;
    const ids = [cancelled];
    ids.push(await runToEnd(receiver.url('/largest'), largest));
    ids.push(await runToEnd(receiver.url('/too-large'), tooLarge));
    await Promise.all(ids.map(untilSettled));
    const dataOf = (path: string) => JSON.parse(receiver.received.find((each) => each.path === path)?.body ?? '').data;
    const { status, error } = dataOf('/cancelled');
    assert.deepEqual([status, error.code], ['cancelled', 'cancelled']);
    assert.equal(dataOf('/largest').output, largest);
    const dataWithoutOutput = dataOf('/too-large');
    assert.deepEqual([dataWithoutOutput.outputOmitted, 'output' in dataWithoutOutput], [true, false]);
  });

  it('a payload sets `outputOmitted` for a success whose output was deleted, but not for a cancelled invocation', async () => {
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
    const lateData = await dataOf(id);
    assert.deepEqual([lateData.status, lateData.outputOmitted, 'output' in lateData], ['succeeded', true, false]);
    const { id: cancelled } = await client.submit('echo', {});
    await client.cancel(cancelled);
    assert.equal('outputOmitted' in (await dataOf(cancelled)), false);
  });

  it('status 410 ends the attempts of a webhook, and a public name with a private address gets no connection', async () => {
    receiver.statuses = [410];
    const delivery = await untilSettled(await runToEnd(receiver.url('/gone')));
    assert.deepEqual([delivery.status, delivery.attempts, delivery.lastStatus], ['failed', 1, 410]);
    await eventually(() => outcomes.at(-1) === 'failed', 'the gateway reports the failed attempt');
    const receivedBefore = receiver.received.length;
    const { port } = new URL(receiver.url('/'));
    const id = await runToEnd(`https://rebound.example:${port}/inside`);
    await eventually(async () => ((await client.invocation(id)).webhook?.attempts ?? 0) > 0, 'one attempt has ended');
    const { lastError, status } = (await client.invocation(id)).webhook as WebhookDelivery;
    assert.match(lastError ?? '', /no public address/);
    assert.equal(status, 'pending');
    assert.equal(receiver.received.length, receivedBefore);
  });

  it("another tenant's dead endpoint does not delay webhooks, and a gateway that restarts delivers the pending ones", async (t) => {
    /** Ids of the invocations of which a delivery has reached the dead endpoint. */
    const attemptedIds = new Set<string>();
    let openDeliveries = 0;
    // A server that never answers.
    const deadEndpoint = createServer(({ headers }, response) => {
      attemptedIds.add(String(headers['webhook-id']));
      openDeliveries++;
      response.on('close', () => openDeliveries--);
    });
    deadEndpoint.listen(0, '127.0.0.1');
    t.after(() => {
      deadEndpoint.closeAllConnections();
      deadEndpoint.close();
    });
    await once(deadEndpoint, 'listening');
    const { port } = deadEndpoint.address() as AddressInfo;
    const otherClient = platform.client(await platform.key(['invoke'], 'other'));
    await platform.register({ name: 'echo' }, 'other');
    const total = 30;
    for (let i = 0; i < total; i++) {
      const { id } = await otherClient.submit('echo', {}, { webhook: `http://127.0.0.1:${port}/` });
      await otherClient.cancel(id);
    }
    const untilAllAreOpen = () =>
      eventually(
        () => openDeliveries === MAX_PER_TENANT,
        'the other tenant has as many open deliveries as it may have',
      );
    await untilAllAreOpen();
    // The receiver answers only while the other tenant's deliveries are open.
    receiver.beforeAnswer = untilAllAreOpen;
    assert.equal((await untilSettled(await runToEnd(receiver.url('/beside')))).status, 'delivered');
    receiver.beforeAnswer = async () => undefined;
    // A delivery to the dead endpoint fails after its time limit of 10 s, and the next one begins. On a slow machine, the first deliveries may reach
    // this limit during the test. The factor of 2 allows for the deliveries that follow them.
    const count = attemptedIds.size;
    assert.ok(count <= 2 * MAX_PER_TENANT, `${count} of ${total} deliveries to a dead endpoint at once`);
    await webhooks.stop();
    const id = await runToEnd(receiver.url('/later'));
    assert.equal((await client.invocation(id)).webhook?.status, 'pending');
    startWebhooks();
    assert.equal((await untilSettled(id)).status, 'delivered');
    assert.equal(receiver.received.filter(({ path }) => path === '/later').length, 1);
  });

  it('a delivery attempt that the stop of the gateway interrupts does not count', async () => {
    const { redis, keys } = platform.scheduler.store;
    const mayAnswer = Promise.withResolvers<void>();
    receiver.beforeAnswer = () => mayAnswer.promise;
    const id = await runToEnd(receiver.url('/interrupted'));
    await eventually(() => receiver.received.some(({ path }) => path === '/interrupted'), 'the attempt has begun');
    // The gateway looks for ended invocations with ZRANGE. The test makes this call slow, and stops the gateway during the call.
    let hasBegunLookup = false;
    const zrange = async () => {
      hasBegunLookup = true;
      await sleep(200);
      return [];
    };
    Object.assign(redis, { zrange });
    await redis.publish(keys.webhooksChannel, '');
    await eventually(() => hasBegunLookup, 'the gateway looks for ended invocations');
    await webhooks.stop();
    Reflect.deleteProperty(redis, 'zrange');
    mayAnswer.resolve();
    receiver.beforeAnswer = async () => undefined;
    // BullMQ stores the number of attempts in the field `atm`, and adds this field with the first attempt.
    const job = await redis.hgetall(`${keys.bull}:${WEBHOOK_QUEUE}:${id}`);
    assert.deepEqual([job.name, job.atm], ['deliver', undefined], 'no attempt counts');
    startWebhooks();
  });
});
