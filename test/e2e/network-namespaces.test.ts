import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { deployWith } from '#test/harness/deploy.ts';
import { hold, invoke, readEvents, type StreamEvent, text } from '#test/harness/events.ts';
import { Machines, type Shape } from '#test/harness/machines.ts';
import { Network } from '#test/harness/network.ts';
import { type Platform, until } from '#test/harness/platform.ts';

/** Only PIE_TEST_ALL adds gpu-2 and gpu-3, which take about 20 s more to start. */
const SHAPE: Shape = {
  'gpu-1': 'gpu-host',
  ...(process.env.PIE_TEST_ALL && ({ 'gpu-2': 'gpu-host', 'gpu-3': 'gpu-host' } as const)),
  'run-1': 'runtime',
  'run-2': 'runtime',
};

const STORY = { prompt: 'Once upon a time', maxTokens: 24, temperature: 0 };
/** Input of the inferlet `counted`: it writes 4 tokens and waits for a message after the second token. */
const HELD = { mark: 'held', tokens: 4, listenAt: 2 };
/** Maximum number of invocations until one succeeds, after a machine has lost its connection to another. */
const TRIES = 8;

const ends = (events: readonly StreamEvent[]) =>
  events.filter(({ event }) => event === 'result' || event === 'error').map(({ event, data }) => data.code ?? event);

/** Each machine has a home and a network namespace of its own. A switch joins the namespaces. */
describe('machines on a network', { skip: Network.missingReason() }, () => {
  let machines: Machines;
  let network: Network;
  let front: Platform;
  before(async () => {
    machines = await Machines.start({ shape: SHAPE });
    ({ network, front } = machines);
  });
  after(() => machines?.[Symbol.asyncDispose]());

  const succeeds = async () => {
    for (let i = 0; i < TRIES; i++) {
      const events = await invoke(front, 'text-completion', STORY);
      assert.equal(ends(events).length, 1, JSON.stringify(ends(events)));
      if (ends(events)[0] === 'result') return text(events);
    }
    return assert.fail(`none of ${TRIES} invocations succeeded`);
  };

  test('join with only a token, and an inferlet streams a story from one machine to another', async () => {
    await machines.joinAll();
    await deployWith(front, 'counted', {});
    await until('the story can be invoked', async () => (await front.fetch('/v1/functions/text-completion')).ok);
    assert.ok((await succeeds()).length > 40);
  });

  test('close the connection of an outsider on the network without an answer', async () => {
    for (const [name, role] of Object.entries(SHAPE)) {
      const port = role === 'gpu-host' ? 7400 : 7500;
      const socket = connect(port, network.address(name)).on('error', () => undefined);
      const closed = new Promise((resolve) => socket.once('close', resolve));
      await once(socket, 'connect');
      let got = '';
      socket.on('data', (chunk: Buffer) => {
        got += chunk.toString('latin1');
      });
      socket.write('GET / HTTP/1.1\r\n\r\n');
      await closed;
      assert.equal(got, '', name);
    }
  });

  test('a runtime that gets no answers of its GPU hosts ends its invocation, and the other runtime still works', async () => {
    const held = await hold(front, 'counted', HELD);
    const runner = await machines.runnerOf(held.id);
    const hosts = Object.keys(SHAPE).filter((name) => SHAPE[name] === 'gpu-host');
    for (const host of hosts) network.mute(host, runner);
    try {
      // The inferlet's next step may still reach the host, but no answer comes back.
      await held.goOn();
      assert.deepEqual(ends(await held.ended), ['device-lost']);
      await succeeds();
    } finally {
      for (const host of hosts) network.unmute(host, runner);
    }
  });

  const CUTS = [
    {
      title: 'a machine whose cable is pulled',
      cut: (machine: string) => network.cut(machine),
      heal: (machine: string) => network.heal(machine),
    },
    {
      title: 'a machine whose messages to the gateway and Redis are lost',
      cut: (machine: string) => network.mute(machine, 'front'),
      heal: (machine: string) => network.unmute(machine, 'front'),
    },
  ];
  for (const { title, cut, heal } of CUTS)
    test(`${title} loses its invocation once; the next invocation works, and the machine comes back`, async () => {
      const held = await hold(front, 'counted', HELD);
      const lost = await machines.runnerOf(held.id);
      cut(lost);
      try {
        assert.deepEqual(ends(await held.ended), ['runtime-lost']);
        await succeeds();
        assert.equal(await machines.hasLiveRuntime(lost), false);
      } finally {
        heal(lost);
      }
      await until('the machine is back', () => machines.hasLiveRuntime(lost));
      await succeeds();
      const log = await front.fetch(`/v1/invocations/${held.id}/events`);
      assert.deepEqual(ends(await readEvents(log)), ['runtime-lost'], 'the process that came back has written nothing');
    });
});
