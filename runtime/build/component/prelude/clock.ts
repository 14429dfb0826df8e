import { now } from 'pie:inferlet/runtime@0.1.0';
import { define } from './globals.ts';
import { isRunning } from './phase.ts';

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
