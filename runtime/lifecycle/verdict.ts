import type { HandlerErrorTag } from '#gpu-host/protocol/errors.ts';
import type { FailureCode } from '#scheduler/invocations/types.ts';
import type { Ending } from '../lowering/execution.ts';
import type { OutboxEnd } from './outbox.ts';

/** How an invocation ended, as it is written to its log. */
export type Verdict =
  | { readonly kind: 'result' /** JSON text. */; readonly output: string }
  | { readonly kind: 'error'; readonly code: FailureCode; readonly message: string }
  /** Another runtime owns the invocation, or it has ended: nothing may be written. */
  | { readonly kind: 'silent' };

/** Everything that bears on a verdict. */
export interface Evidence {
  readonly ending: Ending;
  /** Why the inferlet was told to stop, if it was. */
  readonly stop: {
    readonly code: 'cancelled' | 'deadline-exceeded' | 'terminated' | 'runtime-lost';
    readonly message: string;
  } | null;
  readonly outboxEnd: OutboxEnd | null;
  /** Errors that the platform answered the inferlet with. */
  readonly handlerErrors: ReadonlyMap<HandlerErrorTag, string>;
  /** Why a device that it used is gone. Errors do not tell: `unavailable` is a locked file too. */
  readonly lostDevice: string | undefined;
  /** Last words of the guest's language runtime. */
  readonly stderr: string;
  readonly memoryBytes: number;
  readonly memoryLimitBytes: number;
}

/** Most characters of an error's message. */
const MAX_MESSAGE = 8192;
/** Most characters of a result. */
export const MAX_RESULT = 4 << 20;
/** A memory counts as full above this part of its limit: growth fails in steps, before the last page. */
const FULL = 0.45;

/** What the JavaScript engine panics with when `run` returns anything but a string. */
const NOT_A_STRING = /expected string: FromJs/;

/** Decides how an invocation ended. Pure. */
export function verdictOf(evidence: Evidence): Verdict {
  const { ending, stop, outboxEnd } = evidence;
  if (stop?.code === 'runtime-lost' || outboxEnd === 'lost') return { kind: 'silent' };
  if (outboxEnd === 'full')
    return failure(
      'output-limit',
      'The invocation wrote more events than its log takes, or than it may with all its children.',
    );
  if (outboxEnd === 'broken') return failure('internal', 'An event could not be written.');
  if (stop) return failure(stop.code, stop.message);
  return ending.kind === 'trapped' ? trapped(evidence, ending.trap) : returned(evidence, ending.ok, ending.text);
}

function returned(evidence: Evidence, ok: boolean, text: string): Verdict {
  if (ok) {
    if (text.length > MAX_RESULT) {
      return failure(
        'output-limit',
        `The result has ${text.length} characters; ${MAX_RESULT} is the limit. Send large output as messages.`,
      );
    }
    if (isJson(text)) return { kind: 'result', output: text };
    return failure(
      'invalid-result',
      `run returned text that is not JSON: ${preview(text)} — return JSON.stringify(value).`,
    );
  }
  const message = text === '' ? 'run failed without a message' : text;
  const lost = lostToPlatform(evidence, message);
  if (lost) return lost;
  if (isFull(evidence) && /out of memory|memory exhausted|allocation/i.test(message)) return outOfMemory(evidence);
  return failure('inferlet-error', message);
}

function trapped(evidence: Evidence, trap: Extract<Ending, { kind: 'trapped' }>['trap']): Verdict {
  if (trap.code !== 'trap') return failure(trap.code, `The inferlet ${trap.message}.`);
  if (isFull(evidence)) return outOfMemory(evidence);
  const words = evidence.stderr.trim();
  const lost = lostToPlatform(evidence, words || trap.message);
  if (lost) return lost;
  if (NOT_A_STRING.test(words))
    return failure('invalid-result', 'run returned a value that is no string: return JSON.stringify(value).');
  return failure(
    'trap',
    words === ''
      ? `The inferlet trapped: ${trap.message}.`
      : `The inferlet trapped: ${trap.message}. It said: ${words}`,
  );
}

/** An inferlet that fails because the platform failed it is not to blame. */
function lostToPlatform({ handlerErrors, lostDevice }: Evidence, message: string): Verdict | null {
  const terminated = handlerErrors.get('terminated');
  if (terminated !== undefined) return failure('terminated', terminated);
  if (lostDevice !== undefined) return failure('device-lost', `${lostDevice}; the inferlet said: ${message}`);
  return null;
}

const isFull = ({ memoryBytes, memoryLimitBytes }: Evidence): boolean => memoryBytes >= memoryLimitBytes * FULL;

function outOfMemory({ memoryBytes, memoryLimitBytes }: Evidence): Verdict {
  const megabytes = (bytes: number) => (bytes / 2 ** 20).toFixed(0);
  return failure(
    'memory-limit',
    `The inferlet ran out of memory: it held ${megabytes(memoryBytes)} MB of ${megabytes(memoryLimitBytes)} MB (manifest: limits.memoryMb) and asked for more.`,
  );
}

function failure(code: FailureCode, message: string): Verdict {
  return {
    kind: 'error',
    code,
    message: message.length > MAX_MESSAGE ? `${message.slice(0, MAX_MESSAGE)}… (cut)` : message,
  };
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

const preview = (text: string): string => JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text);
