import vm from 'node:vm';
import { TimeLimitError, type WithTimeLimit } from './time-limit.ts';

/** The schema of a function is its author's: an input must not be able to keep a process from everybody else. */
const LIMIT_MS = 100;

const sandbox: { work: (() => unknown) | null } = { work: null };
const context = vm.createContext(sandbox);
const script = new vm.Script('work()');

/**
 * What runs synchronous work and stops it after `limitMs` with a {@link TimeLimitError}, even in the middle of a regular expression. It
 * costs a few hundred microseconds a call, for V8's watchdog is a thread. The watchdog counts time, not work: what it stopped while this
 * thread stood still, on a busy machine, is begun again, so the work may have no effects.
 */
export function timeLimit(limitMs: number): WithTimeLimit {
  return (work) => {
    const before = cpuMs();
    for (;;) {
      const result = attempt(work, limitMs);
      if (result) return result.value;
      if (cpuMs() - before >= limitMs / 2) throw new TimeLimitError();
    }
  };
}

/** What the work answered, or null when it was stopped. */
function attempt<T>(work: () => T, limitMs: number): { readonly value: T } | null {
  let result: { readonly value: T } | null = null;
  sandbox.work = () => {
    result = { value: work() };
  };
  try {
    script.runInContext(context, { timeout: limitMs });
  } catch (error) {
    // It comes from the context's own realm, where `Error` is another.
    const code = typeof error === 'object' && error !== null && 'code' in error ? error.code : undefined;
    if (code !== 'ERR_SCRIPT_EXECUTION_TIMEOUT') throw error;
  } finally {
    sandbox.work = null;
  }
  return result;
}

/** What this thread has computed so far. */
function cpuMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

/** With the limit of 100 ms that a gateway can afford. */
export const withTimeLimit: WithTimeLimit = timeLimit(LIMIT_MS);
