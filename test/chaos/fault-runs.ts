import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { deployWith } from '#test/harness/deploy.ts';
import { json, say } from '#test/harness/events.ts';
import { FRONT, Machines, type Shape } from '#test/harness/machines.ts';
import { until } from '#test/harness/platform.ts';
import { describeFault, type Fault, leavesCapacity, type ScheduledFault, scheduleOf } from './fault-schedules.ts';
import { checkEnded, noneLeft, type Watched, watch } from './invocations.ts';

export const SHAPE: Shape = {
  ...{ 'gpu-1': 'gpu-host', 'gpu-2': 'gpu-host', 'gpu-3': 'gpu-host' },
  ...{ 'run-1': 'runtime', 'run-2': 'runtime' },
};
/** One tenant uses all hosts. */
const CONFIG = '[gpu_host]\nspread = "invocation"\n';
const STARTED = 6;
const TOKENS = 24;
/** Interval of the invocations that probe the platform. */
const PROBE_MS = 500;
const PROBE_DEADLINE_MS = 60_000;
const HEALED_MS = 90_000;

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
    for (let i = 0; i < STARTED; i++) {
      const input = { mark: `f-${seed}-${i}`, tokens: TOKENS, pauseMs: 60, ...(i % 3 === 2 && { listenAt: 4 }) };
      watched.push(await watch(front, input, { restartable: i % 2 === 1 }));
    }
    const nextSuccessMs = await Promise.all(schedule.map((each) => happen(machines, each)));
    const happened = performance.now();
    await healed(machines);
    const back = performance.now();
    const endings = await Promise.all(watched.map((each, i) => endingOf(front, each, i % 3 === 2)));
    for (const [i, ending] of endings.entries()) {
      const fine = watched[i]?.restartable ? ['result'] : ['result', 'runtime-lost', 'device-lost'];
      assert.ok(fine.includes(ending), `invocation ${i}: ${ending}`);
    }
    await noneLeft(front);
    const [faultsMs, healingMs, endsMs] = [happened - began, back - happened, performance.now() - back].map(Math.round);
    const tookMs = { faults: faultsMs, healing: healingMs, ends: endsMs };
    return { seed, faults, leavesCapacity: leavesCapacity(schedule, machines.shape), endings, nextSuccessMs, tookMs };
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new Error(`seed ${seed} (${faults.join('; ')}): ${why}`, { cause: error });
  }
}

/** Waits for the end of an invocation, which may listen to its client, and checks it. Returns how it ended. */
async function endingOf(front: Machines['front'], each: Watched, listens: boolean): Promise<string> {
  let isOver = false;
  const end = () => {
    isOver = true;
  };
  each.ended.then(end, end);
  // An invocation that began again waits for its client again.
  while (!isOver) {
    if (listens) await say(front, each.id, { text: 'go on' }).catch(() => undefined);
    await Promise.race([each.ended, sleep(500)]);
  }
  return checkEnded(front, each);
}

/** Lets one fault happen and undoes it. Returns the time from the fault to the next success. */
async function happen(machines: Machines, { fault, afterMs, forMs }: ScheduledFault): Promise<number> {
  await sleep(afterMs);
  const beganMs = performance.now();
  begin(machines, fault);
  const success = nextSuccess(machines);
  // It is awaited only after the fault has been undone, which may fail.
  success.catch(() => undefined);
  await sleep(forMs);
  await end(machines, fault);
  return (await success) - beganMs;
}

function begin(machines: Machines, fault: Fault): void {
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

async function end(machines: Machines, fault: Fault): Promise<void> {
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

/** Resolves when an invocation that begins after the call succeeds. New invocations begin all the time, whatever the outcome of earlier ones. */
async function nextSuccess({ front }: Machines): Promise<number> {
  const over = new AbortController();
  const signal = AbortSignal.any([over.signal, AbortSignal.timeout(PROBE_DEADLINE_MS)]);
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
  const probing = setInterval(() => void probe().catch(() => undefined), PROBE_MS);
  signal.addEventListener('abort', () => succeeded.reject(new Error(`no success within ${PROBE_DEADLINE_MS} ms`)));
  try {
    return await succeeded.promise;
  } finally {
    clearInterval(probing);
    over.abort();
  }
}

/** Waits until every machine serves again. */
async function healed(machines: Machines): Promise<void> {
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
    HEALED_MS,
  );
}
