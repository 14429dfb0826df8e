import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { HeartbeatTimes } from '#scheduler/links/heartbeat.ts';
import type { ProcessState } from '#scheduler/policies/silence.ts';
import { silentLog } from '#scheduler/testing/log.ts';
import type { Backend } from '../backends/backend.ts';
import { GpuHost } from '../server/gpu-host.ts';
import { generate, must, startTestHost, type TestHost, tagOf, until } from '../testing/host.ts';
import { GpuHostConnection } from './client.ts';

/** A peer counts as lost after 10 intervals of 20 ms without a sign of life. */
const QUICK = { everyMs: 20, silentIntervals: 10 };

/** Runs during the next step. */
let duringStep: (() => Promise<void>) | undefined;
let model: TestHost;
before(async () => {
  model = await startTestHost({ wrap: withStepHook });
});
after(() => model[Symbol.asyncDispose]());

function withStepHook(backend: Backend): Backend {
  const forward: Backend['forward'] = async (batch) => {
    const hook = duringStep;
    duringStep = undefined;
    await hook?.();
    return backend.forward(batch);
  };
  return new Proxy(backend, {
    get: (target, key) => {
      const member: unknown = key === 'forward' ? forward : Reflect.get(target, key);
      return typeof member === 'function' ? member.bind(target) : member;
    },
  });
}

/** A cable between two sides. Each direction can be cut: the cut loses bytes, and closes no connection. */
class Cable implements AsyncDisposable {
  readonly isCut = { up: false, down: false };
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #hostSockets = new Set<Socket>();
  readonly #port: number;

  private constructor(server: Server, to: { host: string; port: number }) {
    this.#server = server;
    this.#port = (server.address() as { port: number }).port;
    server.on('connection', (near: Socket) => {
      const far = connect(to);
      this.#hostSockets.add(far);
      this.#carry(near, far, 'up');
      this.#carry(far, near, 'down');
    });
  }

  static async to(address: string): Promise<Cable> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const [host = '', port] = address.split(':');
    return new Cable(server, { host, port: Number(port) });
  }

  get address(): string {
    return `127.0.0.1:${this.#port}`;
  }

  /** Delays everything that the host sends, as if its process were busy with a computation. */
  async hold(ms: number): Promise<void> {
    for (const socket of this.#hostSockets) socket.pause();
    await sleep(ms);
    for (const socket of this.#hostSockets) socket.resume();
  }

  #carry(from: Socket, to: Socket, direction: 'up' | 'down'): void {
    this.#sockets.add(from);
    from.on('data', (chunk: Buffer) => this.isCut[direction] || to.write(chunk));
    from.on('error', () => undefined);
    from.on('close', () => {
      this.#sockets.delete(from);
      if (!this.isCut[direction]) to.destroy();
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

async function connectOverCable({
  silentMs = 60_000,
  heartbeat = QUICK,
}: {
  readonly silentMs?: number;
  readonly heartbeat?: HeartbeatTimes;
} = {}) {
  const host = new GpuHost([model.host.engines[0]!.model], { log: silentLog, limits: { silentMs } });
  const cable = await Cable.to(await host.listen('127.0.0.1:0'));
  const connection = await GpuHostConnection.connect(cable.address, {
    heartbeat,
    reconnectMs: { first: 1, longest: 1 },
  });
  return {
    host,
    cable,
    connection,
    async [Symbol.asyncDispose]() {
      connection.close();
      await cable[Symbol.asyncDispose]();
      await host.close();
    },
  };
}

for (const direction of ['down', 'up'] as const)
  test(`a host is lost when its cable is cut in one direction (${direction}); its calls fail, and a mended cable reconnects it`, async () => {
    await using at = await connectOverCable();
    const { cable, connection } = at;
    const inferlet = connection.openInferlet({ id: 'a', maxPages: 8, arrival: 1 });
    const queue = inferlet.createQueue('tiny');
    must(await inferlet.synchronize(queue));
    const lost = new Promise<string>((resolve) => connection.onLost(resolve));
    cable.isCut[direction] = true;
    assert.equal(tagOf(await inferlet.synchronize(queue)), 'unavailable');
    assert.match(await lost, /^the GPU host cannot be reached: it has been silent for 200 ms$/);
    const again = new Promise<void>((resolve) => connection.onReady(resolve));
    cable.isCut[direction] = false;
    await again;
    const next = connection.openInferlet({ id: 'b', maxPages: 8, arrival: 2 });
    assert.equal((await generate(next, next.createQueue('tiny'), [1, 5], 4)).length, 4);
  });

test('a silent host is not lost while the supervisor of its machine sees its process without a core; afterwards it is', async () => {
  let state: ProcessState | 'ended' = 'starved';
  let looks = 0;
  const look = async () => {
    looks++;
    const process = { name: 'gpu-host-1@east', pid: 7, silentMs: 300 };
    return state === 'ended' ? { ...process, why: 'signal SIGKILL' } : { ...process, state };
  };
  await using at = await connectOverCable({ heartbeat: { ...QUICK, look } });
  const { cable, connection } = at;
  let cause = '';
  connection.onLost((why) => {
    cause = why;
  });
  cable.isCut.down = true;
  await until(() => looks >= 3);
  assert.equal(cause, '');
  cable.isCut.down = false;
  await connection.stats();
  const seen = looks;
  Object.assign(cable.isCut, { down: true });
  state = 'ended';
  await until(() => cause !== '');
  assert.ok(looks > seen);
  assert.match(cause, /^the GPU host cannot be reached: it has been silent for \d+ ms \(it ended: signal SIGKILL\)$/);
});

test('a host ends all connections of a runtime that gives no sign of life, and frees the memory of its inferlets', async () => {
  // With so many intervals, the runtime does not end the connection before the host does.
  await using at = await connectOverCable({ silentMs: 100, heartbeat: { everyMs: 20, silentIntervals: 10_000 } });
  const { host, cable, connection } = at;
  const inferlet = connection.openInferlet({ id: 'a', maxPages: 8, arrival: 1 });
  const queue = inferlet.createQueue('tiny');
  must(inferlet.allocatePages(queue, 3));
  must(await inferlet.synchronize(queue));
  assert.deepEqual([host.stats().connections, host.stats().models[0]?.pages.owned], [2, 3]);
  Object.assign(cable.isCut, { up: true, down: true });
  await until(() => host.stats().connections === 0);
  await until(() => host.stats().models[0]?.pages.owned === 0);
});

test('a host that shuts down says so on all connections of a runtime that it watches for signs of life', async () => {
  const host = new GpuHost([model.host.engines[0]!.model], { log: silentLog, limits: { silentMs: 60_000 } });
  const connection = await GpuHostConnection.connect(await host.listen('127.0.0.1:0'), { heartbeat: QUICK });
  const inferlet = connection.openInferlet({ id: 'a', maxPages: 8, arrival: 1 });
  const queue = inferlet.createQueue('tiny');
  must(await inferlet.synchronize(queue));
  // After this time the runtime has asked for a sign of life, so the host watches the runtime.
  await sleep(2 * QUICK.everyMs);
  let closed = Promise.resolve();
  duringStep = async () => {
    closed = host.close();
  };
  await assert.rejects(generate(inferlet, queue, [1, 5], 4), /\(shutdown\): the GPU host is going down/);
  connection.close();
  await closed;
});

test('neither side counts as lost when the host computes one long step or the runtime stands still', async () => {
  await using at = await connectOverCable({ silentMs: 200 });
  const { cable, connection } = at;
  let losses = 0;
  connection.onLost(() => losses++);
  const inferlet = connection.openInferlet({ id: 'a', maxPages: 8, arrival: 1 });
  const queue = inferlet.createQueue('tiny');
  duringStep = async () => {
    // The host announced this step before it began. The answer follows the announcement on the same connection.
    await connection.stats();
    await cable.hold(400);
  };
  const prompt = Array.from({ length: 20 }, (_, i) => i + 3);
  assert.equal((await generate(inferlet, queue, prompt, 2)).length, 2);
  // This loop blocks the runtime for longer than both bounds on silence: the host's `silentMs`, and the runtime's 10 intervals of 20 ms.
  for (const untilMs = performance.now() + 300; performance.now() < untilMs; );
  must(await inferlet.synchronize(queue));
  await sleep(2 * QUICK.everyMs);
  assert.equal(losses, 0);
});
