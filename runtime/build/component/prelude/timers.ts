import { now, sleep } from 'pie:inferlet/runtime@0.1.0';
import { define, isRunning, requireRunning } from './phase.ts';

/** Longest delay of a timer; a longer one counts as 0, as in browsers. */
const MAX_DELAY_MS = 2 ** 31 - 1;

type Callback = (...args: unknown[]) => void;

let lastId = 0;
const active = new Set<number>();

const delayOf = (milliseconds: unknown): number => {
  const delay = Math.trunc(Number(milliseconds));
  return delay > 0 && delay <= MAX_DELAY_MS ? delay : 0;
};

/** Calls the callback after the delay. Resolves to false, without a call, when the invocation is being stopped or the timer was cleared. */
async function fire(id: number, delay: number, callback: Callback, args: readonly unknown[]): Promise<boolean> {
  const outcome = await sleep(delay).read();
  if (outcome.tag === 'err' || !active.has(id)) return false;
  try {
    callback(...args);
  } catch (error) {
    console.error('Uncaught in a timer:', error);
  }
  return true;
}

function startTimer(callback: unknown, milliseconds: unknown, args: readonly unknown[], repeat: boolean): number {
  requireRunning(repeat ? 'setInterval' : 'setTimeout');
  if (typeof callback !== 'function') throw new TypeError('the callback of a timer must be a function');
  lastId += 1;
  const id = lastId;
  active.add(id);
  // An interval of 0 would call the host without a pause, in every turn of the inferlet.
  const delay = repeat ? Math.max(1, delayOf(milliseconds)) : delayOf(milliseconds);
  const loop = async () => {
    let goesOn = true;
    while (goesOn) {
      const fired = await fire(id, delay, callback as Callback, args);
      goesOn = fired && repeat && active.has(id);
    }
    active.delete(id);
  };
  void loop();
  return id;
}

const clear = (id: unknown): void => {
  active.delete(Number(id));
};

define('setTimeout', (callback: unknown, milliseconds?: unknown, ...args: unknown[]) =>
  startTimer(callback, milliseconds, args, false),
);
define('setInterval', (callback: unknown, milliseconds?: unknown, ...args: unknown[]) =>
  startTimer(callback, milliseconds, args, true),
);
define('clearTimeout', clear);
define('clearInterval', clear);

const SystemDate = Date;
const systemNow = SystemDate.now;
/** The host's clock inside `run`; the build's clock while the module loads. */
const time = (): number => (isRunning() ? now() : systemNow());

/** `Date` with the host's clock: the engine's own clock needs WASI, which an inferlet does not have. */
function HostDate(...parts: unknown[]): unknown {
  if (!new.target) return new SystemDate(time()).toString();
  return Reflect.construct(SystemDate, parts.length === 0 ? [time()] : parts, new.target);
}
Object.defineProperty(HostDate, 'name', { value: 'Date' });
Object.defineProperty(HostDate, 'length', { value: 7 });
Object.defineProperty(HostDate, 'prototype', { value: SystemDate.prototype, writable: false });
Object.defineProperty(SystemDate.prototype, 'constructor', { value: HostDate, writable: true, configurable: true });
define('Date', Object.assign(HostDate, { now: time, parse: SystemDate.parse, UTC: SystemDate.UTC }));

/** Time of the first query of `performance`. Most inferlets never query it, so they save a call of the host at their start. */
let origin: number | null = null;
const timeOrigin = (): number => {
  origin ??= isRunning() ? now() : null;
  return origin ?? 0;
};
define('performance', {
  now: () => {
    const start = timeOrigin();
    return isRunning() ? now() - start : 0;
  },
  get timeOrigin() {
    return timeOrigin();
  },
});
