import { FRONT, type Shape } from '#test/harness/machines.ts';
import { Random } from '../harness/random.ts';

/** A fault of one machine, which lasts until the schedule undoes it. */
export type Fault =
  /** The machine's runtime, GPU host or gateway is killed; its supervisor starts that process again. */
  | { readonly kind: 'kill'; readonly machine: string }
  /** Everything on the machine is killed, and the machine starts again. */
  | { readonly kind: 'power'; readonly machine: string }
  /** Everything on the machine stands still. */
  | { readonly kind: 'stop'; readonly machine: string }
  /** The network loses everything that the machine sends and receives. */
  | { readonly kind: 'cut'; readonly machine: string }
  /** The network loses all that the machine sends to `to`, and delivers the other direction. */
  | { readonly kind: 'mute'; readonly machine: string; readonly to: string }
  /** The machine's disk is full. */
  | { readonly kind: 'disk'; readonly machine: string };

export interface ScheduledFault {
  readonly fault: Fault;
  /** Time from the start of the schedule to the fault. */
  readonly afterMs: number;
  /** Duration of the fault. */
  readonly forMs: number;
}

const KINDS = ['kill', 'power', 'stop', 'cut', 'mute', 'disk'] as const;
/** Range of the faults' durations. Some faults end before leases and silent links expire, others afterwards. */
const DURATION_MS = { least: 300, most: 7000 };
const MAX_FAULTS = 2;

/** The faults of a seed, on different machines. Pure. */
export function scheduleOf(seed: number, shape: Shape): ScheduledFault[] {
  const random = new Random(seed);
  const machines = random.shuffled([FRONT, ...Object.keys(shape)]);
  return machines.slice(0, random.integer(1, MAX_FAULTS)).map((machine, i) => {
    // The first machine runs the only Redis. It writes nothing to disk in these tests, so a loss of power would lose all state.
    const kinds = machine === FRONT ? (['kill', 'stop', 'cut', 'mute'] as const) : KINDS;
    // Successive seeds cycle through the kinds of the first fault, unless it hits the first machine.
    const kind = i === 0 && machine !== FRONT ? (KINDS[seed % KINDS.length] ?? 'kill') : random.pick(kinds);
    const others = [FRONT, ...Object.keys(shape)].filter((name) => isLinked(shape, machine, name));
    const fault: Fault = kind === 'mute' ? { kind, machine, to: random.pick(others) } : { kind, machine };
    return { fault, afterMs: random.integer(0, 1500), forMs: random.integer(DURATION_MS.least, DURATION_MS.most) };
  });
}

/** True when the machines speak to each other. All speak to the first machine, which has Redis; runtimes and GPU hosts speak to each other. */
function isLinked(shape: Shape, one: string, other: string): boolean {
  if (one === other) return false;
  return one === FRONT || other === FRONT || shape[one] !== shape[other];
}

/** True when the faults spare the first machine, at least one runtime and at least one GPU host. Pure. */
export function leavesCapacity(schedule: readonly ScheduledFault[], shape: Shape): boolean {
  const hit = new Set(
    schedule.flatMap(({ fault }) => (fault.kind === 'mute' ? [fault.machine, fault.to] : [fault.machine])),
  );
  const isFrontFree = schedule.every(({ fault }) => fault.machine !== FRONT);
  const free = Object.keys(shape).filter((name) => !hit.has(name));
  return isFrontFree && ['runtime', 'gpu-host'].every((role) => free.some((name) => shape[name] === role));
}

export const describeFault = ({ fault, afterMs, forMs }: ScheduledFault): string =>
  `${fault.kind} ${fault.machine}${fault.kind === 'mute' ? ` to ${fault.to}` : ''} after ${afterMs} for ${forMs} ms`;
