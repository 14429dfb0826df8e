import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { after, before, describe, it } from 'node:test';
import { handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { eventually, openTestScheduler } from '#scheduler/testing/fixture.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';
import type { Envelope, Message } from '#wit/generated/host.ts';
import { TestInferlet } from '../../testing/inferlet.ts';
import { failureOf, value } from '../../testing/outcome.ts';

const text = (val: string): Message => ({ tag: 'text', val });

describe('messaging', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  before(async () => {
    redis = await TestRedis.start();
    scheduler = openTestScheduler(redis);
  });
  after(async () => {
    await scheduler.close();
    await redis.stop();
  });

  let count = 0;
  const inferlet = (messaging = true, tenant = 'default') =>
    new TestInferlet(null, {
      id: `inferlet-${++count}`,
      tenant,
      grants: { messaging },
      services: { messaging: scheduler.messaging },
    });
  const call = <T>(guest: TestInferlet, name: string, ...args: unknown[]) =>
    guest.call<Promise<Outcome<T>>>('messaging', name, ...args);
  const subscribe = (guest: TestInferlet, topic: string) =>
    guest.call<object>('messaging', '[constructor]subscription', topic);
  const ready = (guest: TestInferlet, subscription: object) =>
    call<undefined>(guest, '[method]subscription.ready', subscription);
  const next = (guest: TestInferlet, subscription: object) =>
    call<Envelope>(guest, '[method]subscription.next', subscription);
  const broadcast = (guest: TestInferlet, topic: string, message: Message) =>
    call<number>(guest, 'broadcast', topic, message);

  it('broadcasts to the inferlets of a tenant, with the id of the sender', async () => {
    const [sender, listener, stranger] = [inferlet(), inferlet(), inferlet(true, 'other')];
    const [mine, theirs] = [subscribe(listener, 'a/b.c'), subscribe(stranger, 'a/b.c')];
    value(await ready(listener, mine));
    value(await ready(stranger, theirs));
    const memory = Uint8Array.of(1, 2, 255);
    const sending = broadcast(sender, 'a/b.c', { tag: 'bytes', val: memory });
    memory.fill(0);
    assert.equal(value(await sending), 1);
    assert.deepEqual(value(await next(listener, mine)), {
      sender: sender.inferlet.description.id,
      message: { tag: 'bytes', val: Uint8Array.of(1, 2, 255) },
    });
    const waiting = next(listener, mine);
    listener.call('messaging', '[method]subscription.unsubscribe', mine);
    assert.equal(failureOf(await waiting), 'closed');
    assert.equal(failureOf(await next(listener, mine)), 'closed');
    assert.equal(value(await broadcast(sender, 'a/b.c', text('late'))), 0);
  });

  it('refuses missing grants, invalid names, and messages that are too large', async () => {
    const [denied, guest] = [inferlet(false), inferlet()];
    assert.equal(failureOf(await broadcast(denied, 't', text('x'))), 'unsupported');
    assert.equal(failureOf(await ready(denied, subscribe(denied, 't'))), 'unsupported');
    assert.equal(failureOf(await call(denied, 'push', 't', text('x'))), 'unsupported');
    assert.equal(failureOf(await call(denied, 'pull', 't')), 'unsupported');
    for (const name of ['', 'a b', 'é', 'x'.repeat(129)]) {
      assert.equal(failureOf(await broadcast(guest, name, text('x'))), 'invalid-argument');
      assert.equal(failureOf(await next(guest, subscribe(guest, name))), 'invalid-argument');
      assert.equal(failureOf(await call(guest, 'push', name, text('x'))), 'invalid-argument');
      assert.equal(failureOf(await call(guest, 'pull', name)), 'invalid-argument');
    }
    const large = text('é'.repeat(2 ** 19 + 1));
    assert.equal(failureOf(await broadcast(guest, 't', large)), 'limit-exceeded');
    assert.equal(failureOf(await call(guest, 'push', 't', large)), 'limit-exceeded');
  });

  it('allows an inferlet 64 subscriptions, and ends them with the inferlet', async () => {
    const [guest, sender] = [inferlet(), inferlet()];
    const subscriptions = Array.from({ length: 64 }, () => subscribe(guest, 'many'));
    for (const each of subscriptions) value(await ready(guest, each));
    assert.equal(failureOf(await ready(guest, subscribe(guest, 'many'))), 'limit-exceeded');
    guest.call('messaging', '[resource-drop]subscription', subscriptions[0]);
    value(await ready(guest, subscribe(guest, 'many')));
    assert.equal(value(await broadcast(sender, 'many', text('x'))), 64);
    await guest.end();
    assert.equal(value(await broadcast(sender, 'many', text('x'))), 0);
  });

  it('delivers messages to the remaining readers in order, and counts unread bytes', async () => {
    const [guest, sender] = [inferlet(), inferlet()];
    const news = subscribe(guest, 'readers');
    value(await ready(guest, news));
    const unreadNext = () => guest.callOnly<Promise<Outcome<Envelope>>>('messaging', '[method]subscription.next', news);
    const [first, second, third] = [unreadNext(), unreadNext(), unreadNext()];
    TestInferlet.releaseFuture(first);
    assert.equal(failureOf(await first), 'closed');
    value(await broadcast(sender, 'readers', text('a')));
    value(await broadcast(sender, 'readers', text('bc')));
    assert.deepEqual([value(await second).message, value(await third).message], [text('a'), text('bc')]);
    assert.equal(guest.inferlet.unread.bytes, 3);
    // A message that was taken for a dropped reader goes to the next reader.
    const dropped = unreadNext();
    TestInferlet.releaseFuture(dropped);
    value(await broadcast(sender, 'readers', text('d')));
    assert.deepEqual(value(await next(guest, news)).message, text('d'));
    // So does a message that had arrived but was not read when the guest dropped its future.
    const [fourth, fifth] = [unreadNext(), unreadNext()];
    for (const letter of ['e', 'f']) value(await broadcast(sender, 'readers', text(letter)));
    assert.deepEqual([value(await fourth).message, value(await fifth).message], [text('e'), text('f')]);
    for (const each of [fifth, fourth]) TestInferlet.releaseFuture(each, false);
    value(await broadcast(sender, 'readers', text('g')));
    for (const letter of ['e', 'f', 'g']) assert.deepEqual(value(await next(guest, news)).message, text(letter));
    for (const each of [second, third]) TestInferlet.releaseFuture(each);
    assert.equal(guest.inferlet.unread.bytes, 0);
    const waiting = Array.from({ length: 16 }, unreadNext);
    assert.equal(failureOf(await unreadNext()), 'limit-exceeded');
    guest.call('messaging', '[resource-drop]subscription', news);
    for (const each of waiting) assert.equal(failureOf(await each), 'closed');
  });

  it('holds at most 64 pending pulls, and a dropped pull takes no message', async () => {
    const [guest, sender, other] = [inferlet(), inferlet(), inferlet()];
    const pulls = Array.from({ length: 64 }, (_, i) =>
      guest.callOnly<Promise<Outcome<Envelope>>>('messaging', 'pull', `line-${i}`),
    );
    assert.equal(failureOf(await call(guest, 'pull', 'line-64')), 'limit-exceeded');
    TestInferlet.releaseFuture(pulls[0] as (typeof pulls)[0]);
    await eventually(() => guest.inferlet.pulls.size === 63, 'a dropped pull ends');
    value(await call(sender, 'push', 'line-0', text('for any receiver')));
    assert.deepEqual(value(await call<Envelope>(other, 'pull', 'line-0')).message, text('for any receiver'));
    value(await call(sender, 'push', 'line-1', text('x')));
    value((await pulls[1]) as Outcome<Envelope>);
    assert.deepEqual([guest.inferlet.pulls.size, guest.inferlet.unread.bytes], [62, 1]);
    await guest.end();
    await eventually(() => guest.inferlet.outgoing.calls === 0, 'the pulls end with the inferlet');
  });

  it('bounds calls in flight, whether awaited or not', async () => {
    const [guest, sender] = [inferlet(), inferlet()];
    const val = new Uint8Array(2 ** 20);
    const pushes = Array.from({ length: 33 }, () => call(guest, 'push', 'flood', { tag: 'bytes', val }));
    pushes.push(call(guest, 'broadcast', 'flood', { tag: 'bytes', val }));
    assert.equal(guest.inferlet.outgoing.bytes, 32 * 2 ** 20);
    assert.deepEqual((await Promise.all(pushes.slice(32))).map(failureOf), ['limit-exceeded', 'limit-exceeded']);
    // After a stop, the guest no longer waits, and its calls still settle.
    guest.inferlet.stop(handlerError('cancelled', 'enough'));
    assert.equal(failureOf(await (pushes[0] as (typeof pushes)[0])), 'cancelled');
    assert.equal(guest.inferlet.outgoing.bytes, 32 * 2 ** 20);
    await eventually(() => guest.inferlet.outgoing.bytes === 0, 'the pushes settle');
    assert.equal(getEventListeners(sender.inferlet.stopping, 'abort').length, 0);
    const quick = Array.from({ length: 1025 }, () => call(sender, 'push', 'quick', text('x')));
    assert.equal(getEventListeners(sender.inferlet.stopping, 'abort').length, 0);
    assert.equal((await Promise.all(quick)).map(failureOf).filter((tag) => tag === 'limit-exceeded').length, 1);
    for (let i = 0; i < 2000; i++)
      sender.call('messaging', '[resource-drop]subscription', subscribe(sender, `churn-${i}`));
    // Opening and closing a subscription each count as a call. At the limit of 1,024 calls, no subscription opens, but an open one may still close.
    assert.ok(sender.inferlet.outgoing.calls <= 1025, `${sender.inferlet.outgoing.calls} calls`);
    await eventually(() => sender.inferlet.outgoing.calls === 0, 'all calls have settled');
  });

  it('loses no queued message to an inferlet that ends while it waits', async () => {
    const [dying, living, sender] = [inferlet(), inferlet(), inferlet()];
    const waiting = [call<Envelope>(dying, 'pull', 'work'), call<Envelope>(dying, 'pull', 'work')];
    const pending = call<Envelope>(living, 'pull', 'work');
    dying.inferlet.stop(handlerError('cancelled', 'enough'));
    for (const outcome of await Promise.all(waiting)) assert.equal(failureOf(outcome), 'cancelled');
    value(await call(sender, 'push', 'work', text('kept')));
    assert.deepEqual(value(await pending), { sender: sender.inferlet.description.id, message: text('kept') });
    assert.equal(failureOf(await call(dying, 'pull', 'work')), 'cancelled');
  });
});
