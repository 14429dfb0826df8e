import { type HandlerError, PAGE_QUOTA } from '#gpu-host/protocol/errors.ts';
import {
  endMessage,
  type Figures,
  isPlatformCode,
  type OwnFailureCode,
  type PlatformEnd,
  type PlatformFailureCode,
} from '#scheduler/invocations/endings.ts';
import { type FailureCode, resultData, type TerminalEvent, type Usage } from '#scheduler/invocations/types.ts';
import { QuotaExceeded } from '#scheduler/quotas/exceeded.ts';
import { type Redact, redactNothing } from '../host/session/redact.ts';
import type { GuestTrap } from '../lowering/trap.ts';
import type { GuestEnd, GuestEnding } from './launch.ts';
import type { OutboxEnd } from './outbox.ts';
import type { Stop } from './stopping.ts';

/** The end of an invocation, as written to its log. */
export type Verdict =
  /** `output` is JSON text. */
  | { readonly kind: 'result'; readonly output: string }
  | Failure
  /** Nothing is written: another attempt or runtime owns the invocation, it waits in the queue or for a person, or it has ended. */
  | { readonly kind: 'silent' };

/** A failure by the inferlet or its client, or one by the platform with the end that the log gets. */
export type Failure = { readonly kind: 'error'; readonly message: string } & FailureDetails &
  (
    | { readonly code: OwnFailureCode }
    | { readonly code: PlatformFailureCode; readonly end: Pick<PlatformEnd, 'cause' | 'figures'> }
  );

export type PlatformFailure = Extract<Failure, { readonly end: unknown }>;

/** Optional fields of an error event. */
export interface FailureDetails {
  /** The origin of the failure. */
  readonly cause?: string;
  /** The functions in which an error of a script was thrown, innermost first, with file, line and column; one in each line. */
  readonly stack?: string;
  /** Whole milliseconds until another try may succeed; an estimate, except for quotas. */
  readonly retryAfterMs?: number;
}

/** Everything that decides a verdict. */
export interface Evidence {
  readonly ending: GuestEnding;
  /** The fault of the text that the guest returned: `invalid-argument` when it is not JSON, another error when it could not be checked. */
  readonly resultFault: HandlerError | null;
  /** The reason that the inferlet was told to stop, if it was. */
  readonly stop: Stop | null;
  readonly outboxEnd: OutboxEnd | null;
  /** The error that ended the outbox, if one did. */
  readonly outboxCause?: unknown;
  /** The last error of each tag that the platform returned to the inferlet. */
  readonly handlerErrors: GuestEnd['handlerErrors'];
  /** The reason that a GPU host with memory of the inferlet was lost. `handlerErrors` cannot show this: `unavailable` also means a locked file. */
  readonly lostDevice: string | undefined;
  /** The beginning of the standard error output of the guest's language runtime. */
  readonly stderr: string;
  /** Names of the lost GPU hosts that held memory of the inferlet. */
  readonly lostHosts: readonly string[];
  readonly memoryBytes: number;
  readonly memoryLimitBytes: number;
  /** False when the memory has its largest size from the start, so that no growth can have failed. */
  readonly memoryCanGrow: boolean;
  readonly cpuMs: number;
  readonly cpuLimitMs: number;
  /** Replaces places of a script in a text by the author's. */
  readonly placed?: (text: string) => string;
  /** Removes secrets from the error's message. */
  readonly redact?: Redact;
}

/** Maximum characters of an error's message. */
const MAX_MESSAGE = 8192;
/** Maximum characters of an invalid result that its error message quotes. */
const MAX_PREVIEW = 80;
/** Maximum characters of a result. */
export const MAX_RESULT = 4 << 20;
/** A memory with this share of its limit in use counts as full: it grows in large steps, so the next step may already exceed the limit. */
const FULL_SHARE = 0.45;
/** Traps that a failed allocation can lead to: the guest aborts, or uses the pointer that it did not get. */
const ALLOCATION_TRAP = /^unreachable$|^(memory access|pointer) out of bounds/;

/** Rust's panic message has this word after the name of the thread. */
const PANIC = 'panicked';

/** Part of the JavaScript engine's panic message when `run` returns anything but a string. */
const NOT_A_STRING = /expected string: FromJs/;

/** The verdict for a result that does not fit into the bytes that a root's family may log. The store accepts an error even then. */
export const NO_ROOM: Verdict = failure(
  'output-limit',
  'The invocation and its children have logged as much as they may together, and this result finds no room: return less, or send less.',
);

/** The verdict when a quota of the tenant's stored bytes refuses events or a result. @throws the error itself when it is no `QuotaExceeded` */
export function refusedByQuota(error: unknown): Verdict {
  if (!(error instanceof QuotaExceeded)) throw error;
  const { quota, limit, used } = error.use;
  return { ...failure('quota-storage', error.message, { quota, limit, used }), cause: `quota ${error.quota}` };
}

/** Decides how an invocation ended. Pure. */
export function verdictOf(evidence: Evidence): Verdict {
  const verdict = decide(evidence);
  if (verdict.kind !== 'error') return verdict;
  const { redact = redactNothing } = evidence;
  const { message } = verdict;
  // The cause, too, may quote an error that names what the inferlet asked for.
  const end = 'end' in verdict ? { end: { ...verdict.end, cause: redact(verdict.end.cause, false) } } : {};
  // The message may end in guest output that was cut in the middle of a secret earlier, even when this function does not cut the message.
  const isCut = true;
  const text = redact(message.slice(0, MAX_MESSAGE), isCut);
  const stack = verdict.stack === undefined ? {} : { stack: redact(verdict.stack, isCut) };
  return { ...verdict, ...end, ...stack, message: message.length > MAX_MESSAGE ? `${text}… (cut)` : text };
}

/** Stands between the message of an error that a script's `run` threw and its stack; see `wrap` of the prelude. */
const STACK_MARK = '\0stack\0';
/** Maximum frames, and characters, of a stack. */
const MAX_FRAMES = 20;
const MAX_STACK = 4096;
/** A frame of a script: its function, and the place that `Evidence.placed` has found. Frames of the engine itself have other places. */
const FRAME = /^\s*at (.*)$/;
const IN_ENGINE = /\((?:componentize-qjs:|<input>:|native\))/;

/** Parts the text of a thrown error into its message and its stack. Pure. */
export function partError(
  text: string,
  placed: (text: string) => string,
): { readonly message: string; readonly stack?: string } {
  const at = text.lastIndexOf(STACK_MARK);
  if (at < 0) return { message: text };
  const message = text.slice(0, at);
  const frames = placed(text.slice(at + STACK_MARK.length, at + STACK_MARK.length + 4 * MAX_STACK))
    .split('\n')
    .flatMap((line) => FRAME.exec(line)?.[1] ?? [])
    .filter((frame) => !IN_ENGINE.test(frame))
    .slice(0, MAX_FRAMES);
  return frames.length === 0 ? { message } : { message, stack: frames.join('\n').slice(0, MAX_STACK) };
}

function decide(evidence: Evidence): Verdict {
  const { ending, stop, outboxEnd } = evidence;
  if (stop?.code === 'runtime-lost' || outboxEnd === 'lost') return { kind: 'silent' };
  if (outboxEnd === 'full')
    return failure(
      'output-limit',
      'The invocation wrote more events than its log may hold, or than it and its children may log together.',
    );
  if (outboxEnd === 'over-quota') return refusedByQuota(evidence.outboxCause);
  if (outboxEnd === 'broken') return failure('internal', 'An event could not be written.');
  if (stop) return { ...failure(stop.code, stop.message, stop.figures), ...detailsOf(stop) };
  switch (ending.kind) {
    case 'trapped':
      return verdictOfTrap(evidence, ending.trap);
    case 'lost':
      return failure('runtime-lost', ending.cause, ending.figures);
    case 'returned':
      return verdictOfReturn(evidence, ending.ok, ending.text);
  }
}

function verdictOfReturn(evidence: Evidence, ok: boolean, returned: string): Verdict {
  if (ok) return verdictOfResult(evidence, returned);
  const { message, stack } = partError(returned, evidence.placed ?? ((text) => text));
  const verdict = verdictOfError(evidence, message);
  return verdict.kind === 'error' && stack !== undefined ? { ...verdict, stack } : verdict;
}

function verdictOfResult(evidence: Evidence, text: string): Verdict {
  if (text.length > MAX_RESULT) {
    return failure(
      'output-limit',
      `The result has ${text.length} characters; ${MAX_RESULT} is the limit. Send large output as messages.`,
      { characters: text.length, limit: MAX_RESULT },
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

function verdictOfError(evidence: Evidence, text: string): Verdict {
  const message = text === '' ? 'run failed without a message' : text;
  const lost = lostToPlatform(evidence, message);
  if (lost) return lost;
  const quota = pageQuota(evidence, text);
  if (quota) return quota;
  const unavailable = quotedUnavailable(evidence, text);
  if (unavailable !== null) return unavailableBy(unavailable, text);
  if (isFull(evidence) && /out of memory|memory exhausted|allocation/i.test(message)) return outOfMemory(evidence);
  return failure('inferlet-error', message);
}

function verdictOfTrap(evidence: Evidence, trap: Extract<GuestEnding, { kind: 'trapped' }>['trap']): Verdict {
  if (trap.code !== 'trap') return failure(trap.code, `The inferlet ${trap.message}.`, trapFigures(evidence, trap));
  if (isFull(evidence) && ALLOCATION_TRAP.test(trap.message)) return outOfMemory(evidence);
  const output = evidence.stderr.trim();
  const lost = lostToPlatform(evidence, output || trap.message);
  if (lost) return lost;
  const quota = pageQuota(evidence, output);
  if (quota) return quota;
  // Look only at the panic message: earlier lines may tell of an unavailable call that the inferlet recovered from.
  const unavailable = quotedUnavailable(evidence, output.slice(Math.max(0, output.lastIndexOf(PANIC))));
  if (unavailable !== null) return unavailableBy(unavailable, output);
  if (NOT_A_STRING.test(output))
    return failure('invalid-result', 'run returned a value that is not a string: return JSON.stringify(value).');
  return failure(
    'trap',
    output === ''
      ? `The inferlet trapped: ${trap.message}.`
      : `The inferlet trapped: ${trap.message}. It said: ${output}`,
  );
}

/** The verdict for an inferlet that failed after the platform took or lost its memory; null otherwise. @param message the inferlet's own */
function lostToPlatform({ handlerErrors, lostDevice, lostHosts }: Evidence, message: string): Verdict | null {
  const terminated = handlerErrors.get('terminated');
  if (terminated !== undefined) return failure('terminated', `The GPU host ended the invocation: ${terminated}.`);
  if (lostDevice === undefined) return null;
  const hosts = lostHosts.length === 0 ? 'The GPU host' : `The GPU host ${lostHosts.join(', ')}`;
  const lost = failure(
    'device-lost',
    `${hosts} was lost, and all that the invocation had computed there: ${lostDevice}.`,
    { gpuHosts: lostHosts },
  );
  return { ...lost, message: `${lost.message} The inferlet said: ${message}` };
}

/** The GPU host's refusal when a tenant holds all the pages that its quota allows. */
const PAGE_QUOTA_REFUSAL = new RegExp(`quota ${PAGE_QUOTA}: [^;]{0,200}; \\d+ is the tenant's limit`);

/** The verdict when the page quota made the inferlet fail: `output` quotes the GPU host's refusal, or is empty. Null otherwise. */
function pageQuota({ handlerErrors }: Evidence, output: string): Verdict | null {
  // The GPU host refused the failed call itself, or a call that it depended on.
  const quotaErrors = [handlerErrors.get('limit-exceeded'), handlerErrors.get('dependency-failed')];
  const refusals = quotaErrors.map((text = '') => PAGE_QUOTA_REFUSAL.exec(text)?.[0]);
  const refusal = refusals.find((text) => text !== undefined && (output === '' || output.includes(text)));
  if (refusal === undefined) return null;
  const [heldPages = 0, neededPages = 0, limit = 0] = (refusal.match(/\b\d+\b/g) ?? []).map(Number);
  const figures = { quota: PAGE_QUOTA, heldPages, neededPages, limit };
  const failed = failure('quota-pages', `The GPU host refused pages: ${refusal}.`, figures);
  return { ...failed, message: refusal, cause: `quota ${PAGE_QUOTA}` };
}

/** The `unavailable` error of a call, or that of a call that depended on such a call, which `output` quotes; null when it quotes none. */
function quotedUnavailable({ handlerErrors }: Evidence, output: string): string | null {
  const dependent = handlerErrors.get('dependency-failed');
  const messages = [handlerErrors.get('unavailable'), dependent?.includes('(unavailable: ') ? dependent : undefined];
  return messages.find((text) => text !== undefined && text !== '' && output.includes(text)) ?? null;
}

/** The verdict for an inferlet that ended with an `unavailable` error. The client reads the inferlet's own words. */
function unavailableBy(error: string, message: string): Verdict {
  return { ...failure('unavailable', `A call found what it needs unavailable: ${error}.`), message };
}

/** The figures of a trap by which the platform ended the inferlet. */
function trapFigures({ cpuMs, cpuLimitMs, memoryBytes, memoryLimitBytes }: Evidence, trap: GuestTrap): Figures {
  switch (trap.code) {
    case 'cpu-limit':
      return { cpuMs, cpuLimitMs };
    case 'memory-limit':
      return { memoryBytes, memoryLimitBytes, ...trap.figures };
    default:
      return trap.figures;
  }
}

function detailsOf({ cause, retryAfterMs }: Stop): FailureDetails {
  return { ...(cause !== undefined && { cause }), ...(retryAfterMs !== undefined && { retryAfterMs }) };
}

/** True when a failure to grow the memory is plausible. */
const isFull = ({ memoryBytes, memoryLimitBytes, memoryCanGrow }: Evidence): boolean =>
  memoryCanGrow && memoryBytes >= memoryLimitBytes * FULL_SHARE;

function outOfMemory({ memoryBytes, memoryLimitBytes }: Evidence): Failure {
  const megabytes = (bytes: number) => (bytes / 2 ** 20).toFixed(0);
  return failure(
    'memory-limit',
    `The inferlet ran out of memory: it held ${megabytes(memoryBytes)} MB of ${megabytes(memoryLimitBytes)} MB (manifest: limits.memoryMb) and asked for more.`,
    { memoryBytes, memoryLimitBytes },
  );
}

/**
 * A failure. Of one by the platform, the message adds what the client can do.
 *
 * @param text cause of a failure by the platform, as in `PlatformEnd`; else the message
 */
export function failure(code: FailureCode, text: string, figures: Figures = {}): Failure {
  if (!isPlatformCode(code)) return { kind: 'error', code, message: text };
  const end = { cause: text, figures };
  return { kind: 'error', code, message: endMessage({ code, ...end }), end };
}

function preview(text: string, redact: Redact = redactNothing): string {
  const isCut = text.length > MAX_PREVIEW;
  const clean = redact(text.slice(0, MAX_PREVIEW), isCut);
  return JSON.stringify(isCut ? `${clean}…` : clean);
}

/** The event that ends an invocation with a verdict. @param usage of all attempts of the invocation, as in its record */
export function terminalEvent(verdict: Exclude<Verdict, { kind: 'silent' }>, usage: Usage): TerminalEvent {
  if (verdict.kind === 'result') return { event: 'result', data: resultData(verdict.output, usage) };
  const { code, message, cause, retryAfterMs, stack } = verdict;
  return { event: 'error', data: JSON.stringify({ code, message, stack, cause, retryAfterMs, usage }), code, message };
}
