import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { deployWith } from '#test/harness/deploy.ts';
import { json, say } from '#test/harness/events.ts';
import { FRONT, Machines, type Shape } from '#test/harness/machines.ts';
import { until } from '#test/harness/platform.ts';
import { describeFault, type Fault, leavesCapacity, type ScheduledFault, scheduleOf } from './fault-schedules.ts';
import { checkEnded, untilNoneLeft, type Watched, watch } from './invocations.ts';

export const SHAPE: Shape = {
  'gpu-1': 'gpu-host',
  'gpu-2': 'gpu-host',
  'gpu-3': 'gpu-host',
  'run-1': 'runtime',
  'run-2': 'runtime',
};
/** With this placement, the invocations of the one tenant use all GPU hosts. */
const CONFIG = '[gpu_host]\nplacement = "invocation"\n';
const INVOCATIONS = 6;
const TOKENS = 24;
/** Every third invocation waits for its client after some tokens. */
const isListening = (index: number): boolean => index % 3 === 2;
const LISTEN_AT = 4;
/** Interval between the invocations that probe the platform. */
const PROBE_MS = 500;
const PROBE_DEADLINE_MS = 60_000;
const HEAL_WITHIN_MS = 90_000;

export interface FaultRun {
  readonly seed: number;
  readonly faults: readonly string[];
  readonly leavesCapacity: boolean;
  readonly endings: readonly string[];
  /** From each fault to the first success of an invocation that began after it, ms. */
  readonly nextSuccessMs: readonly number[];
  /** Times of the run's parts, ms: its faults, until the machines are back, and until its invocations have ended and are checked. */
  readonly tookMs: { readonly faults: number; readonly healing: number; readonly ends: number };
}

export async function startMachines(): Promise<Machines> {
  const machines = await Machines.start({ shape: SHAPE, config: CONFIG, disks: true });
  try {
    await machines.joinAll();
    await deployWith(machines.front, 'counted', {});
    await deployWith(machines.front, 'counted', { name: 'counted-again', restartable: true });
    return machines;
  } catch (error) {
    await machines[Symbol.asyncDispose]();
    throw error;
  }
}

/** Starts invocations, lets the faults of a seed happen, heals the machines, and checks how all invocations ended. */
export async function faultRun(machines: Machines, seed: number): Promise<FaultRun> {
  const { front } = machines;
  const schedule = scheduleOf(seed, machines.shape);
  const faults = schedule.map(describeFault);
  try {
    const began = performance.now();
    const watched: Watched[] = [];
    for (let i = 0; i < INVOCATIONS; i++) {
      const listening = isListening(i) && { listenAt: LISTEN_AT };
      const input = { mark: `f-${seed}-${i}`, tokens: TOKENS, pauseMs: 60, ...listening };
      watched.push(await watch(front, input, { restartable: i % 2 === 1 }));
    }
    const nextSuccessMs = await Promise.all(schedule.map((each) => injectFault(machines, each)));
    const faultsDone = performance.now();
    await untilHealed(machines);
    const healedAt = performance.now();
    const endings = await Promise.all(watched.map((each, i) => endingOf(front, each, isListening(i))));
    for (const [i, ending] of endings.entries()) {
      const allowedEndings = watched[i]?.restartable ? ['result'] : ['result', 'runtime-lost', 'device-lost'];
      assert.ok(allowedEndings.includes(ending), `invocation ${i}: ${ending}`);
    }
    await untilNoneLeft(front);
    const [faultsMs, healingMs, endsMs] = [faultsDone - began, healedAt - faultsDone, performance.now() - healedAt].map(
      Math.round,
    );
    const tookMs = { faults: faultsMs, healing: healingMs, ends: endsMs };
    return { seed, faults, leavesCapacity: leavesCapacity(schedule, machines.shape), endings, nextSuccessMs, tookMs };
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new Error(`seed ${seed} (${faults.join('; ')}): ${why}`, { cause: error });
  }
}

/** Waits until an invocation ends and checks it. Meanwhile sends it messages if it `listens`. Returns how the invocation ended. */
async function endingOf(front: Machines['front'], each: Watched, listens: boolean): Promise<string> {
  let isOver = false;
  const markOver = () => {
    isOver = true;
  };
  each.ended.then(markOver, markOver);
  // Send the message repeatedly, because a restarted invocation waits for its client again.
  while (!isOver) {
    if (listens) await say(front, each.id, { text: 'go on' }).catch(() => undefined);
    await Promise.race([each.ended, sleep(500)]);
  }
  return checkEnded(front, each);
}

/** Lets one fault happen and undoes it. Returns the time from the fault to the next success. */
async function injectFault(machines: Machines, { fault, afterMs, forMs }: ScheduledFault): Promise<number> {
  await sleep(afterMs);
  const beganMs = performance.now();
  beginFault(machines, fault);
  const success = nextSuccess(machines);
  // If `endFault` throws, nothing awaits `success`, and its rejection would be unhandled without this handler.
  success.catch(() => undefined);
  await sleep(forMs);
  await endFault(machines, fault);
  return (await success) - beganMs;
}

function beginFault(machines: Machines, fault: Fault): void {
  const { machine } = fault;
  switch (fault.kind) {
    case 'kill':
      process.kill(machines.platform(machine).pid(mainOf(machines, machine)), 'SIGKILL');
      break;
    case 'power':
      machines.signal(machine, 'SIGKILL');
      break;
    case 'stop':
      machines.signal(machine, 'SIGSTOP');
      break;
    case 'cut':
      machines.network.cut(machine);
      break;
    case 'mute':
      machines.network.mute(machine, fault.to);
      break;
    case 'disk':
      machines.fill(machine);
      break;
  }
}

async function endFault(machines: Machines, fault: Fault): Promise<void> {
  const { machine } = fault;
  switch (fault.kind) {
    case 'kill':
      return;
    case 'power':
      return machines.up(machine);
    case 'stop':
      return machines.signal(machine, 'SIGCONT');
    case 'cut':
      return machines.network.heal(machine);
    case 'mute':
      return machines.network.unmute(machine, fault.to);
    case 'disk':
      return machines.empty(machine);
  }
}

/** Name of the process that does the machine's work. */
function mainOf(machines: Machines, machine: string): string {
  if (machine === FRONT) return 'gateway';
  return `${machines.shape[machine]}-1`;
}

/** Starts a probe invocation every `PROBE_MS`, even while earlier probes are open. Returns the time at which the first probe succeeded. */
async function nextSuccess({ front }: Machines): Promise<number> {
  const probesEnd = new AbortController();
  const signal = AbortSignal.any([probesEnd.signal, AbortSignal.timeout(PROBE_DEADLINE_MS)]);
  const succeeded = Promise.withResolvers<number>();
  const probe = async () => {
    const response = await front.fetch('/v1/functions/counted/invocations', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ mark: 'probe', tokens: 2 }),
      signal,
    });
    const { status } = (await response.json()) as { status?: string };
    if (status === 'succeeded') succeeded.resolve(performance.now());
  };
  const probeTimer = setInterval(() => void probe().catch(() => undefined), PROBE_MS);
  signal.addEventListener('abort', () => succeeded.reject(new Error(`no success within ${PROBE_DEADLINE_MS} ms`)));
  try {
    return await succeeded.promise;
  } finally {
    clearInterval(probeTimer);
    probesEnd.abort();
  }
}

/** Waits until every machine serves again. */
async function untilHealed(machines: Machines): Promise<void> {
  await until(
    'all machines are back',
    async () => {
      const response = await machines.front.fetch('/v1/load').catch(() => null);
      if (response?.ok !== true) return false;
      const load = await json(response);
      const isUp = (list: readonly Record<string, boolean>[], count: number) =>
        list.filter(({ alive, connected }) => alive ?? connected).length === count;
      const count = (role: string) => Object.values(machines.shape).filter((each) => each === role).length;
      return (
        isUp(load.machines, 1 + Object.keys(machines.shape).length) &&
        isUp(load.runtimes, count('runtime')) &&
        isUp(load.gpuHosts, count('gpu-host'))
      );
    },
    HEAL_WITHIN_MS,
  );
}
