import { type HandlerError, type HandlerErrorTag, PAGE_QUOTA } from '#gpu-host/protocol/errors.ts';
import type { FailureCode } from '#scheduler/invocations/types.ts';
import { QuotaExceeded } from '#scheduler/quotas/exceeded.ts';
import { type Redact, redactNothing } from '../host/environment/redact.ts';
import type { GuestEnding } from './launch.ts';
import type { OutboxEnd } from './outbox-options.ts';
import type { Stop } from './stopping.ts';

/** How an invocation ended, as it is written to its log. */
export type Verdict =
  | { readonly kind: 'result' /** JSON text. */; readonly output: string }
  | ({ readonly kind: 'error'; readonly code: FailureCode; readonly message: string } & FailureDetails)
  /** Another runtime owns the invocation, or it has ended: nothing may be written. */
  | { readonly kind: 'silent' };

/** What an error event says besides. */
export interface FailureDetails {
  /** What it came from. */
  readonly cause?: string;
  /** When another try may succeed, whole milliseconds; a guess but for quotas. */
  readonly retryAfterMs?: number;
}

/** Everything that bears on a verdict. */
export interface Evidence {
  readonly ending: GuestEnding;
  /** Why a text that it returned is no result: `invalid-argument` when it is not JSON. */
  readonly resultFault: HandlerError | null;
  /** Why the inferlet was told to stop, if it was. */
  readonly stop: Stop | null;
  readonly outboxEnd: OutboxEnd | null;
  /** The error that ended it, if one did. */
  readonly outboxCause?: unknown;
  /** Errors that the platform answered the inferlet with. */
  readonly handlerErrors: ReadonlyMap<HandlerErrorTag, string>;
  /** Why a device that it used is gone. Errors do not tell: `unavailable` is a locked file too. */
  readonly lostDevice: string | undefined;
  /** Last words of the guest's language runtime. */
  readonly stderr: string;
  readonly memoryBytes: number;
  readonly memoryLimitBytes: number;
  /** Takes secrets out of what is written down. */
  readonly redact?: Redact;
}

/** Most characters of an error's message. */
const MAX_MESSAGE = 8192;
/** Most characters of a result that is none, in the message about it. */
const MAX_PREVIEW = 80;
/** Most characters of a result. */
export const MAX_RESULT = 4 << 20;
/** A memory counts as full above this part of its limit: growth fails in steps, before the last page. */
const FULL = 0.45;

/** What the JavaScript engine panics with when `run` returns anything but a string. */
const NOT_A_STRING = /expected string: FromJs/;

/** A result for which its family has no room. The store takes any error. */
export const NO_ROOM: Verdict = {
  kind: 'error',
  code: 'output-limit',
  message:
    'The invocation and its children have logged as much as they may together, and this result finds no room: return less, or send less.',
};

/** How an invocation ends whose events or result its tenant may not keep. @throws whatever else was thrown */
export function refusedByQuota(error: unknown): Verdict {
  if (!(error instanceof QuotaExceeded)) throw error;
  return { kind: 'error', code: 'quota-storage', message: error.message, cause: `quota ${error.quota}` };
}

/** Decides how an invocation ended. Pure. */
export function verdictOf(evidence: Evidence): Verdict {
  const verdict = decide(evidence);
  if (verdict.kind !== 'error') return verdict;
  const { redact = redactNothing } = evidence;
  const { message } = verdict;
  // What the guest said last may have been cut off before it came here.
  const text = redact(message.slice(0, MAX_MESSAGE), true);
  return { ...verdict, message: message.length > MAX_MESSAGE ? `${text}… (cut)` : text };
}

function decide(evidence: Evidence): Verdict {
  const { ending, stop, outboxEnd } = evidence;
  if (stop?.code === 'runtime-lost' || outboxEnd === 'lost') return { kind: 'silent' };
  if (outboxEnd === 'full')
    return failure(
      'output-limit',
      'The invocation wrote more events than its log takes, or than it may with all its children.',
    );
  if (outboxEnd === 'over-quota') return refusedByQuota(evidence.outboxCause);
  if (outboxEnd === 'broken') return failure('internal', 'An event could not be written.');
  if (stop) return { ...failure(stop.code, stop.message), ...detailsOf(stop) };
  switch (ending.kind) {
    case 'trapped':
      return trapped(evidence, ending.trap);
    case 'lost':
      return failure('runtime-lost', ending.message);
    case 'returned':
      return returned(evidence, ending.ok, ending.text);
  }
}

function returned(evidence: Evidence, ok: boolean, text: string): Verdict {
  if (ok) {
    if (text.length > MAX_RESULT) {
      return failure(
        'output-limit',
        `The result has ${text.length} characters; ${MAX_RESULT} is the limit. Send large output as messages.`,
      );
    }
    const fault = evidence.resultFault;
    if (fault === null) return { kind: 'result', output: text };
    if (fault.tag !== 'invalid-argument') return failure('output-limit', `The result was not checked: ${fault.val}.`);
    return failure(
      'invalid-result',
      `run returned text that is not JSON: ${preview(text, evidence.redact)} — return JSON.stringify(value).`,
    );
  }
  const message = text === '' ? 'run failed without a message' : text;
  const lost = lostToPlatform(evidence, message);
  if (lost) return lost;
  const quota = pageQuota(evidence, text);
  if (quota) return quota;
  if (isFull(evidence) && /out of memory|memory exhausted|allocation/i.test(message)) return outOfMemory(evidence);
  return failure('inferlet-error', message);
}

function trapped(evidence: Evidence, trap: Extract<GuestEnding, { kind: 'trapped' }>['trap']): Verdict {
  if (trap.code !== 'trap') return failure(trap.code, `The inferlet ${trap.message}.`);
  if (isFull(evidence)) return outOfMemory(evidence);
  const words = evidence.stderr.trim();
  const lost = lostToPlatform(evidence, words || trap.message);
  if (lost) return lost;
  const quota = pageQuota(evidence, words);
  if (quota) return quota;
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

/** What a GPU host says when a tenant holds all the pages that it may. */
const PAGE_QUOTA_REFUSAL = new RegExp(`quota ${PAGE_QUOTA}: [^;]{0,200}; \\d+ is the tenant's limit`);

/** An inferlet that fails with what a GPU host refused it for its tenant's quota, in its last words or without a word after it, ended for that. */
function pageQuota({ handlerErrors }: Evidence, words: string): Verdict | null {
  // Its own call was refused, or one that this depended on.
  const told = [handlerErrors.get('limit-exceeded'), handlerErrors.get('dependency-failed')];
  const refusals = told.map((text = '') => PAGE_QUOTA_REFUSAL.exec(text)?.[0]);
  const refusal = refusals.find((text) => text !== undefined && (words === '' || words.includes(text)));
  return refusal === undefined ? null : { ...failure('quota-pages', refusal), cause: `quota ${PAGE_QUOTA}` };
}

function detailsOf({ cause, retryAfterMs }: Stop): FailureDetails {
  return { ...(cause !== undefined && { cause }), ...(retryAfterMs !== undefined && { retryAfterMs }) };
}

const isFull = ({ memoryBytes, memoryLimitBytes }: Evidence): boolean => memoryBytes >= memoryLimitBytes * FULL;

function outOfMemory({ memoryBytes, memoryLimitBytes }: Evidence): Verdict {
  const megabytes = (bytes: number) => (bytes / 2 ** 20).toFixed(0);
  return failure(
    'memory-limit',
    `The inferlet ran out of memory: it held ${megabytes(memoryBytes)} MB of ${megabytes(memoryLimitBytes)} MB (manifest: limits.memoryMb) and asked for more.`,
  );
}

function failure(code: FailureCode, message: string): Extract<Verdict, { kind: 'error' }> {
  return { kind: 'error', code, message };
}

function preview(text: string, redact: Redact = redactNothing): string {
  const cut = text.length > MAX_PREVIEW;
  const clean = redact(text.slice(0, MAX_PREVIEW), cut);
  return JSON.stringify(cut ? `${clean}…` : clean);
}
