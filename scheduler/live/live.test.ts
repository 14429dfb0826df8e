import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { FollowCursor } from '../invocations/follow.ts';
import { ShownEvents } from '../invocations/follower.ts';
import type { NewEvent } from '../invocations/types.ts';
import { eventually } from '../testing/fixture.ts';
import { LiveClient } from './client.ts';
import { EVENT_FIELDS, encodeFrame, FrameReader, LIVE_VERSIONS } from './live.ts';
import { LiveServer, type Unlogged } from './server.ts';

const EPOCH = 1000;

const message = (text: string): NewEvent => ({ event: 'message', data: JSON.stringify({ text }) });

/** An attempt with a log: `show` shows events, and `write` stores all shown events in the log. */
class Attempt {
  #unlogged: NewEvent[] = [];
  #logged = 0;
  #next = 1;
  readonly #showing;

  constructor(server: LiveServer, id: string, submitter?: string) {
    this.#showing = server.begin(id, EPOCH, () => this.#unloggedEvents(), submitter);
  }

  show(...texts: string[]): void {
    const events = texts.map(message);
    this.#unlogged.push(...events);
    const first = this.#next;
    this.#next += events.length;
    this.#showing.show(first, events);
  }

  write(): void {
    this.#logged = this.#next - 1;
    this.#unlogged = [];
  }

  end(): void {
    this.#showing.end();
  }

  #unloggedEvents(): Unlogged {
    return { logged: this.#logged, events: this.#unlogged };
  }
}

/** Follows an invocation; `calls` lists the calls of the follower as text. */
function follow(client: LiveClient, id: string, runtimeId = 'r1', isPushExpected = false) {
  const calls: string[] = [];
  const stop = client.follow(
    runtimeId,
    id,
    {
      attached: (logged, epoch) => {
        assert.equal(epoch, EPOCH);
        calls.push(`logged ${logged}`);
      },
      events: (events) => {
        assert.ok(events.every(({ epoch }) => epoch === EPOCH));
        calls.push(...events.map(({ seq, data }) => `${seq} ${JSON.parse(data).text.slice(0, 20)}`));
      },
      lost: () => calls.push('lost'),
    },
    isPushExpected,
  );
  const hears = (what: string) => eventually(() => calls.includes(what), `${what}; it heard ${calls.join(', ')}`);
  return { calls, stop, hears };
}

const newest = String(LIVE_VERSIONS.newest);
/** The first request of a gateway. */
const VERSIONS = ['versions', `${newest} ${newest}`];

describe('live events', () => {
  let directory: string;
  let socket: string;
  let server: LiveServer;
  let client: LiveClient;
  before(async () => {
    directory = await mkdtemp(path.join(tmpdir(), 'pie-live-'));
    socket = path.join(directory, 'live.sock');
  });
  after(() => rm(directory, { recursive: true }));
  beforeEach(async () => {
    server = new LiveServer();
    await server.listen(socket);
    client = new LiveClient(async (runtimeId) => (runtimeId === 'r1' ? { address: socket } : null), 'gateway');
  });
  afterEach(async () => {
    client.close();
    await server.close();
  });

  test('followers of one process get the live events, whether they attach before or during the attempt', async () => {
    const first = follow(client, 'a');
    await eventually(() => server.followed === 1, 'the invocation is followed');
    const attempt = new Attempt(server, 'a');
    attempt.show('one', 'two');
    await first.hears('2 two');
    assert.deepEqual(first.calls, ['logged 0', '1 one', '2 two']);
    attempt.write();
    attempt.show('three');
    const second = follow(client, 'a');
    await second.hears('3 three');
    assert.deepEqual(second.calls, ['logged 2', '3 three']);
    first.stop();
    attempt.show('four');
    await second.hears('4 four');
    assert.equal(first.calls.includes('4 four'), false);
    second.stop();
    await eventually(() => server.followed === 0, 'the server has no followers');
  });

  test('live events reach only the followers of their invocation, and stop when its attempt ends', async () => {
    const [a, b] = [follow(client, 'a'), follow(client, 'b')];
    await eventually(() => server.followed === 2, 'both invocations are followed');
    const attempt = new Attempt(server, 'a');
    const attemptOfB = new Attempt(server, 'b');
    attempt.show('one');
    attempt.end();
    attempt.show('two');
    attemptOfB.show('three');
    await b.hears('1 three');
    await a.hears('1 one');
    assert.deepEqual(a.calls, ['logged 0', '1 one']);
    assert.deepEqual(b.calls, ['logged 0', '1 three']);
  });

  test('after a lost connection, a follower gets the events after the last one in the log', async () => {
    const attempt = new Attempt(server, 'a');
    const follower = follow(client, 'a');
    attempt.show('one');
    await follower.hears('1 one');
    attempt.write();
    await server.close();
    await follower.hears('lost');
    attempt.show('two');
    await server.listen(socket);
    await follower.hears('2 two');
    assert.deepEqual(follower.calls, ['logged 0', '1 one', 'lost', 'logged 1', '2 two']);
  });

  test('a follower waits until its runtime listens, even when a stale file lies at the path of the socket', async () => {
    await server.close();
    const follower = follow(client, 'a');
    // The runtime `r2` has no address.
    const withoutRuntime = follow(client, 'a', 'r2');
    await writeFile(socket, 'left behind');
    await server.listen(socket);
    new Attempt(server, 'a').show('one');
    await follower.hears('1 one');
    assert.deepEqual(withoutRuntime.calls, []);
  });

  test('the server skips events for a gateway that does not read, and sends `attached` once that gateway reads again', async () => {
    const attempt = new Attempt(server, 'a');
    const slow = connect(socket);
    slow.write(encodeFrame([...VERSIONS, 'follow', 'a']));
    await eventually(() => server.followed === 1, 'the invocation is followed');
    slow.pause();
    // 12 MB in all: more than the server and the kernel hold for one connection.
    const large = 'x'.repeat(60_000);
    for (let i = 0; i < 200; i++) {
      attempt.show(`${i} ${large}`);
      await new Promise((resolve) => setImmediate(resolve));
    }
    attempt.write();
    const fields = readFields(slow);
    // The first `attached` is the name of the first event behind the answer to `versions`.
    const firstAttached = EVENT_FIELDS + 2;
    await eventually(
      () => fields.includes('200') && fields.lastIndexOf('attached') > firstAttached,
      'the process learns that the log has 200 events',
    );
    const shown = fields.filter((_, i) => i % EVENT_FIELDS === 2 && fields[i] === 'message').length;
    assert.ok(shown < 150, `${shown} events came`);
    attempt.show('last');
    await eventually(() => fields.at(-1)?.includes('last') === true, 'the process gets later events');
    slow.destroy();
    await eventually(() => server.followed === 0, 'the server has no followers');
  });

  test('live events reach a follower of the same process without a connection', () => {
    client.serve('own', server);
    const attempt = new Attempt(server, 'a');
    const follower = follow(client, 'a', 'own');
    attempt.show('one');
    assert.deepEqual(follower.calls, ['logged 0', '1 one']);
  });

  test('a submitter gets the events of its own invocation without a request, until the attempt ends', async () => {
    const gateway = connect(socket);
    const fields = readFields(gateway);
    gateway.write(encodeFrame([...VERSIONS, 'submitter', 'gateway']));
    await eventually(() => fields.length === 2 * EVENT_FIELDS, 'the server knows the submitter');
    assert.deepEqual(fields.splice(0), ['', newest, 'version', '', '', '0', 'attached', '']);
    const [own, foreign] = [new Attempt(server, 'a', 'gateway'), new Attempt(server, 'b', 'another')];
    own.show('one');
    foreign.show('two');
    // `attached` and the event.
    await eventually(() => fields.length === 2 * EVENT_FIELDS, 'the events come');
    const { data } = message('one');
    assert.deepEqual(fields, ['a', '0', 'attached', String(EPOCH), 'a', '1', 'message', data]);
    assert.equal(server.followed, 1);
    own.end();
    assert.equal(server.followed, 0);
    gateway.destroy();
  });

  test("a submitter's follower gets all events, whether it attaches before or after the first one", async () => {
    // The invocation `a` keeps the connection open, and is followed throughout.
    follow(client, 'a');
    await eventually(() => server.followed === 1, 'the connection is open');
    for (const when of ['before', 'after']) {
      const attempt = new Attempt(server, when, 'gateway');
      if (when === 'after') {
        attempt.show('one');
        await eventually(() => server.followed === 1, 'the client declines events without a follower');
      }
      const follower = follow(client, when, 'r1', true);
      if (when === 'before') attempt.show('one');
      await follower.hears('1 one');
      attempt.show('two');
      await follower.hears('2 two');
      assert.deepEqual(follower.calls, ['logged 0', '1 one', '2 two']);
      attempt.end();
      follower.stop(true);
      await eventually(() => server.followed === 1, 'only the invocation `a` is followed');
    }
  });

  test("a submitter's follower attaches, whether the log or a message names the attempt's runtime", async () => {
    // The runtime does not push the events of this attempt, because the client connects only after its beginning.
    const attempt = new Attempt(server, 'a', 'gateway');
    const other = follow(client, 'b');
    new Attempt(server, 'b').show('one');
    await other.hears('1 one');
    const cursor = new FollowCursor(null);
    const shown = new ShownEvents(client, 'a', cursor, () => undefined, true);
    attempt.show('one');
    shown.setRuntime('r1');
    await eventually(() => !shown.isOutOfReach, 'the follower is attached after the log named the runtime');
    shown.setRuntime('');
    shown.setRuntime('r1', true);
    await eventually(() => !shown.isOutOfReach, 'the follower is attached after a message named the runtime');
    shown.leave();
  });

  test('the server closes a connection that sends no valid frames', async () => {
    const stranger = connect(socket);
    const closed = new Promise((resolve) => stranger.on('close', resolve));
    stranger.on('error', () => undefined);
    stranger.write(Buffer.from('GET / HTTP/1.1\r\n\r\n'));
    await closed;
  });
});

/** Collects the fields of all frames as they arrive. */
function readFields(socket: Socket): string[] {
  const fields: string[] = [];
  const reader = new FrameReader();
  socket.on('data', (chunk: Buffer) => reader.push(chunk, (more) => fields.push(...more)));
  socket.resume();
  return fields;
}

test('a reader decodes the same frames however their bytes are split', () => {
  const frames = [['a', 'b'], [''], ['ä'.repeat(100_000)], ['x', '1', 'message', '{"text":"𝄞"}']];
  const bytes = Buffer.concat(frames.map(encodeFrame));
  for (const size of [1, 3, 4, 5, 1000, 65_536, bytes.length]) {
    const reader = new FrameReader();
    const read: string[][] = [];
    for (let at = 0; at < bytes.length; at += size)
      reader.push(bytes.subarray(at, at + size), (fields) => read.push(fields));
    assert.deepEqual(read, frames, `${size} bytes at a time`);
  }
  const longestLength = Buffer.from([255, 255, 255, 255]);
  assert.throws(() => new FrameReader().push(longestLength, () => undefined), /frame of 4294967295 bytes/);
});
