import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { FunctionVersion } from '#scheduler/functions/types.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import { TestInferlet } from '../../testing/inferlet.ts';
import { failureOf } from '../../testing/outcome.ts';
import { RuntimePlatform } from '../../testing/platform.ts';

const EXCHANGER = `
  import { listFiles, receiveFile, sendFile } from 'pie:inferlet/file-exchange@0.1.0';
  import { sleep } from 'pie:inferlet/runtime@0.1.0';
  import { send } from 'pie:inferlet/session@0.1.0';

  const short = ({ tag, val }) => (tag === 'ok' ? 'ok' : val.tag);
  const bytes = (size, value = 7) => new Uint8Array(size).fill(value);
  const MIB = 1 << 20;

  const behaviours = {
    // Sends the largest allowed file, and then runs the behaviour named by 'then'.
    large: async (then) => {
      await sendFile('large', 'text/plain', bytes(16 * MIB)).read();
      return behaviours[then]();
    },
    both: async () => {
      const waiting = receiveFile('late.bin').read();
      const content = bytes(4);
      const sent = sendFile('own.bin', 'application/x-own', content).read();
      content.fill(9);
      await sent;
      const own = (await receiveFile('own.bin').read()).val;
      send({ tag: 'text', val: 'waiting' });
      const late = (await waiting).val;
      await sendFile('back.bin', late.mediaType, late.content.map((byte) => byte + 1)).read();
      const listed = (await listFiles().read()).val;
      const never = await receiveFile('never').read();
      return [Array.from(own.content), own.mediaType, late.mediaType, listed.map((f) => [f.name, Number(f.size)]), never.val.tag];
    },
    refused: async () => {
      const outcomes = [];
      for (const [name, type, size] of [['a/b', 'text/plain', 1], ['a', 'nonsense', 1], ['a', 'text/plain', 16 * MIB + 1]]) {
        outcomes.push(short(await sendFile(name, type, bytes(size)).read()));
      }
      outcomes.push(short(await receiveFile('').read()));
      // At most two files of the largest size may be in transit.
      const large = bytes(16 * MIB);
      const sends = [0, 1, 2].map((i) => sendFile('large' + i, 'text/plain', large).read());
      outcomes.push((await Promise.all(sends)).map(short));
      // The files of an invocation have at most 64 MiB: four of the largest size.
      for (const i of [3, 4]) outcomes.push(short(await sendFile('large' + i, 'text/plain', large).read()));
      outcomes.push(short(await sendFile('large5', 'text/plain', large).read()));
      return outcomes;
    },
    hoard: async () => {
      const futures = Array.from({ length: 5 }, () => receiveFile('large'));
      // Files are fetched in the order of the calls: when this read returns, the platform has answered all earlier calls.
      await receiveFile('large').read();
      const outcomes = [];
      for (const future of futures) outcomes.push(short(await future.read()));
      return outcomes;
    },
    dropped: async () => {
      const outcomes = [];
      for (let i = 0; i < 3; i++) {
        // The future settles and is never read, as after a timeout.
        const future = receiveFile('large');
        await sendFile('behind' + i, 'text/plain', bytes(1)).read();
        await sleep(50).read();
        future.drop();
      }
      outcomes.push(short(await receiveFile('large').read()));
      for (let i = 0; i < 100; i++) receiveFile('never' + i).drop();
      // A dropped wait counts against the bound until it has ended, which takes longer on a busy machine.
      let outcome;
      do {
        await sleep(20).read();
        outcome = short(await receiveFile('large').read());
      } while (outcome === 'limit-exceeded');
      outcomes.push(outcome);
      return outcomes;
    },
    many: async () => {
      const waiting = Array.from({ length: 70 }, (_, i) => receiveFile('f' + i).read());
      const done = await Promise.race(waiting);
      return short(done);
    },
  };

  export async function run(input) {
    const [name, then] = JSON.parse(input).split(' ');
    return JSON.stringify(await behaviours[name](then));
  }
`;

describe('file exchange', () => {
  let platform: RuntimePlatform;
  let version: FunctionVersion;
  before(async () => {
    platform = await RuntimePlatform.start();
    version = await platform.deploy(EXCHANGER, { name: 'exchanger', limits: { memoryMb: 128, wallMs: 120_000 } });
  });
  after(() => platform.stop());

  it('sends and receives files', async () => {
    const { scheduler } = platform;
    const id = await platform.submit(version, 'both');
    const messageEvents = async () => (await scheduler.events.read(id, 0)).filter(({ event }) => event === 'message');
    await eventually(async () => (await messageEvents()).length === 2, 'the inferlet waits');
    const file = { name: 'own.bin', mediaType: 'application/x-own', bytes: 4 };
    assert.deepEqual(
      (await messageEvents()).map(({ data }) => JSON.parse(data)),
      [{ file }, { text: 'waiting' }],
    );
    await scheduler.files.put(id, 'late.bin', 'text/plain; charset=utf-8', new Uint8Array([1, 2, 254]));
    await eventually(
      async () => (await scheduler.files.get(id, 'back.bin')) !== null,
      'the inferlet has sent its file',
    );
    await scheduler.inbox.close(id);
    const { end } = await platform.transcript(id);
    const type = 'text/plain; charset=utf-8';
    const listed = [
      ['back.bin', 3],
      ['late.bin', 3],
      ['own.bin', 4],
    ];
    assert.deepEqual(end.data.output, [[7, 7, 7, 7], 'application/x-own', type, listed, 'closed']);
    assert.deepEqual([...((await scheduler.files.get(id, 'back.bin'))?.content ?? [])], [2, 3, 255]);
    assert.equal(end.data.usage?.messages, 3);
  });

  it('refuses invalid files and files beyond the bounds', async () => {
    const { end } = await platform.invoke(version, 'refused');
    const refused = ['invalid-argument', 'invalid-argument', 'limit-exceeded', 'invalid-argument'];
    assert.deepEqual(end.data.output, [...refused, ['ok', 'ok', 'limit-exceeded'], 'ok', 'ok', 'limit-exceeded']);
  });

  it('answers each call of an inferlet without an invocation with `unsupported`', async () => {
    const guest = new TestInferlet(null);
    for (let i = 0; i < 70; i++) {
      assert.equal(failureOf(await guest.call('file-exchange', 'receive-file', `f${i}`)), 'unsupported');
    }
    await guest.end();
  });

  it('buffers little for an inferlet that requests many files and reads none', async () => {
    const { end } = await platform.invoke(version, 'large hoard');
    const outcomes = end.data.output as string[];
    // Two files of 16 MiB fill the bound on unread bytes.
    assert.equal(outcomes.filter((tag) => tag === 'ok').length, 2, JSON.stringify(outcomes));
    assert.ok(outcomes.every((tag) => tag === 'ok' || tag === 'limit-exceeded'));
    assert.deepEqual((await platform.invoke(version, 'large dropped')).end.data.output, ['ok', 'ok']);
    assert.equal((await platform.invoke(version, 'many')).end.data.output, 'limit-exceeded');
    assert.deepEqual(platform.errors, []);
  });
});
