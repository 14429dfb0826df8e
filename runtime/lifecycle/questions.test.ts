import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { InboxHandler, InboxMessage } from '#scheduler/invocations/inbox.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import { RuntimePlatform } from '../testing/platform.ts';

const SOURCE = `
  import { ask, resumed } from 'pie:inferlet/person@0.1.0';
  import { receive, send } from 'pie:inferlet/session@0.1.0';

  const question = (state) => ({ text: 'Publish?', schema: '{"type":"boolean"}', timeoutSeconds: 3600, state });

  async function message() {
    const outcome = await receive().read();
    return outcome.val.val;
  }

  function refusals() {
    const bad = { text: '', schema: '{', timeoutSeconds: 0, state: 's'.repeat(262145) };
    return Object.entries(bad).map(([name, value]) => {
      try { ask({ ...question(''), [name]: value }); return name + ' was taken'; } catch (error) { return error.payload?.tag; }
    });
  }

  export async function run(input) {
    const { rounds, fail, more = '', persists } = JSON.parse(input);
    if (persists) {
      refusals();
      refusals();
      try { ask(question('')); return '"was taken"'; } catch (error) { return JSON.stringify(error.payload.val); }
    }
    const answered = resumed();
    const answers = answered ? JSON.parse(answered.state) : [];
    if (answered) answers.push(answered.answer.tag === 'answered' ? JSON.parse(answered.answer.val) : 'expired');
    if (answers.length === rounds) return JSON.stringify(answers);
    const refused = refusals();
    if (refused.some((tag) => tag !== 'invalid-argument')) return JSON.stringify(refused);
    send({ tag: 'text', val: 'round ' + answers.length + ' ' + (await message()) + more });
    ask(question(JSON.stringify(answers)));
    try { ask(question('')); return 'no'; } catch (error) { if (error.payload?.tag !== 'invalid-argument') throw error; }
    if (fail) throw new Error('after asking');
    return '"dropped"';
  }
`;

/** An inferlet that reads one message, and asks a person while it waits for a second one. The input says if it drops that wait. */
const WAITER = `
  import { pull } from 'pie:inferlet/messaging@0.1.0';
  import { ask, resumed } from 'pie:inferlet/person@0.1.0';
  import { receive } from 'pie:inferlet/session@0.1.0';

  const message = async () => (await receive().read()).val.val;

  export async function run(input) {
    const answered = resumed();
    if (answered) return JSON.stringify([answered.state, await message()]);
    const state = await message();
    const waiting = globalThis.waiting = receive();
    if (JSON.parse(input) === 'dropped') waiting.drop();
    await pull('go').read();
    ask({ text: 'Go on?', schema: '{}', timeoutSeconds: 3600, state });
    return 'null';
  }
`;

describe('an inferlet that asks a person', () => {
  let platform: RuntimePlatform;
  before(async () => {
    platform = await RuntimePlatform.start();
  });
  after(() => platform.stop());

  it('holds no slot while it waits, and goes on after each answer, also in another runtime after a restart of Redis', async () => {
    const { scheduler } = platform;
    const version = await platform.deploy(SOURCE, { name: 'asker' });
    const id = await platform.submit(version, { rounds: 2 });
    for (const text of ['a', 'b']) await scheduler.inbox.push(id, { text });
    const awaitWaiting = () =>
      eventually(async () => (await scheduler.invocations.get(id))?.status === 'waiting', 'the invocation waits');
    await awaitWaiting();
    assert.deepEqual((await scheduler.admission.capacity()).usedSlots, 0);
    await platform.runtime.stop(1000);
    await platform.redis.restart();
    platform.runtime = await platform.startRuntime({ name: 'runtime-next' });
    assert.equal(await scheduler.questions.answer(id, 'true'), 'ok');
    await awaitWaiting();
    assert.equal(await scheduler.questions.answer(id, 'false'), 'ok');
    const { messages, end } = await platform.transcript(id);
    assert.deepEqual(end.data.output, [true, false]);
    assert.deepEqual(messages, ['round 0 a', 'round 1 b'], 'the next attempt gets the messages that are left');
    assert.equal(end.event, 'result');
  });

  for (const wait of ['dropped', 'unread']) {
    it(`leaves a message to the next attempt when its wait for that message was ${wait}`, async (t) => {
      const { scheduler } = platform;
      const { inbox, invocations, messaging, questions } = scheduler;
      const attach = inbox.attach.bind(inbox);
      const secondArrived = Promise.withResolvers<void>();
      t.mock.method(inbox, 'attach', (id: string, handler: InboxHandler, epoch?: number) => {
        const message = (received: InboxMessage) => {
          if ('text' in received && received.text === 'second') secondArrived.resolve();
          return handler.message(received);
        };
        return attach(id, { ...handler, message }, epoch);
      });
      const version = await platform.deploy(WAITER, { name: 'waiter', grants: { messaging: true } });
      const id = await platform.submit(version, wait);
      for (const text of ['first', 'second']) await inbox.push(id, { text });
      await inbox.close(id);
      await secondArrived.promise;
      await messaging.queues.push('default', 'go', { sender: 'test', message: { text: '' } });
      await eventually(async () => (await invocations.get(id))?.status === 'waiting', 'the invocation waits');
      assert.equal(await questions.answer(id, 'true'), 'ok');
      assert.deepEqual((await platform.transcript(id)).end.data.output, ['first', 'second']);
    });
  }

  it('may ask no more after eight refused questions, because the checks of schemas take time', async () => {
    const version = await platform.deploy(SOURCE, { name: 'asker' });
    const { end } = await platform.transcript(await platform.submit(version, { persists: true }));
    assert.match(JSON.stringify(end.data.output), /8 questions of the inferlet were refused already/);
  });

  it('asks nothing when the run fails', async () => {
    const version = await platform.deploy(SOURCE, { name: 'asker' });
    const id = await platform.submit(version, { rounds: 1, fail: true });
    await platform.scheduler.inbox.push(id, { text: 'a' });
    const { end } = await platform.transcript(id);
    assert.equal(end.data.code, 'inferlet-error');
    const { keys, redis } = platform.scheduler.store;
    assert.equal(await redis.exists(keys.questions), 0);
  });

  it('ends as `quota-storage` when that quota has no room for the last events before the question', async () => {
    await platform.runtime.stop(1000);
    // With a live socket, the write of the question includes the last events.
    const liveSocket = `${platform.redis.socket}-live`;
    platform.runtime = await platform.startRuntime({ name: 'runtime-live', liveSocket });
    const { events, inbox, invocations, quotas } = platform.scheduler;
    const version = await platform.deploy(SOURCE, { name: 'asker' }, 'acme');
    const id = await platform.submit(version, { rounds: 1, more: 'x'.repeat(2000) });
    await eventually(async () => (await events.read(id, 0)).length > 0, 'its start is in the log');
    const setByteQuota = (limit: number) =>
      quotas.set('acme', { quota: 'redis-bytes', function: null, limit, until: null }, { author: 'test', reason: '' });
    await setByteQuota(2 ** 30);
    const [bytes] = await quotas.status('acme');
    // This leaves room for the client's message, but not for the reply.
    await setByteQuota((bytes?.used ?? 0) + 1000);
    await inbox.push(id, { text: 'a' });
    const { end } = await platform.transcript(id);
    assert.equal(end.data.code, 'quota-storage');
    assert.equal((await invocations.get(id))?.status, 'failed');
    assert.deepEqual(platform.errors, []);
  });
});
