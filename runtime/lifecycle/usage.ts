import type { InvocationJob } from '#scheduler/admission/job.ts';
import type { Usage } from '#scheduler/invocations/types.ts';
import type { ExceededQuota, ShortQuota, TokenGrant } from '#scheduler/quotas/exceeded.ts';
import type { TokenAsk } from '#scheduler/quotas/grants.ts';
import { ENDING_QUOTA_CODES, type EndingQuotaCode, type QuotaName, quotaErrorCode } from '#scheduler/quotas/names.ts';
import type { Quotas } from '#scheduler/quotas/quotas.ts';
import type { Inferlet } from '../host/session/inferlet.ts';
import type { Tokens } from '../host/text/tokens.ts';
import type { GuestRun } from './launch.ts';
import type { Stop } from './stopping.ts';
import type { HeldTime } from './wall-time.ts';

/** The part of an attempt's outbox that reports use. */
export interface Reporting {
  /** Time of the attempt's last call to the store, by `performance.now`. */
  readonly lastCallAt: number;
  /** The usage last reported to the store; null before the first report. */
  readonly reported: Usage | null;
  /** Reports usage to the store; false when the outbox has other calls to make first. */
  report(usage: Usage): boolean;
}

interface Watched {
  readonly attempt: Reporting;
  readonly usage: () => Usage;
  /** True when the attempt holds tokens of a quota that it does not use: a report returns them. */
  readonly hasSurplus: () => boolean;
}

/** An attempt that has not called the store for this long reports its usage. */
export const QUIET_MS = 1000;
/** The same for one that holds tokens which it does not use: others wait for them at most a second. */
const SURPLUS_QUIET_MS = 250;
/** Interval between two rounds of checks; it spreads the reports of attempts that began together. */
const ROUND_MS = 250;
/** Maximum reports of one round: the other attempts wait for the next round. */
const MAX_REPORTS = 200;
/** Fields whose change justifies a report; a report carries the other fields, too. */
const WORTH: readonly string[] = ['inputTokens', 'outputTokens', 'cachedTokens', 'gpuMs', 'cpuMs', 'pageSeconds'];

/**
 * Reports the usage of attempts that write no events, so that quotas end them in time, a dying runtime loses little of their usage, and tokens
 * that they do not use go back to their quotas.
 * One timer checks all attempts; an attempt that writes events makes no extra calls.
 */
export class UsageReports {
  readonly #watched = new Set<Watched>();
  #timer: NodeJS.Timeout | undefined;

  /** Watches an attempt until the returned function is called. */
  watch(attempt: Reporting, usage: () => Usage, hasSurplus: () => boolean = () => false): () => void {
    const watched = { attempt, usage, hasSurplus };
    this.#watched.add(watched);
    this.#timer ??= setInterval(() => this.look(performance.now()), ROUND_MS).unref();
    return () => {
      this.#watched.delete(watched);
      if (this.#watched.size > 0) return;
      clearInterval(this.#timer);
      this.#timer = undefined;
    };
  }

  /** Runs one round. @param nowMs the time by `performance.now` */
  look(nowMs: number): void {
    let remainingReports = MAX_REPORTS;
    for (const watched of [...this.#watched]) {
      if (remainingReports === 0) return;
      const { attempt, usage } = watched;
      const quietMs = nowMs - attempt.lastCallAt;
      const hasSurplus = quietMs >= SURPLUS_QUIET_MS && watched.hasSurplus();
      if (quietMs < QUIET_MS && !hasSurplus) continue;
      const current = usage();
      if (!(hasSurplus || worthReporting(attempt.reported, current)) || !attempt.report(current)) continue;
      remainingReports--;
      // Move the attempt to the end: the next round checks it last.
      this.#watched.delete(watched);
      this.#watched.add(watched);
    }
  }
}

/** True when a counted field exceeds its last reported value. */
export function worthReporting(reported: Usage | null, current: Usage): boolean {
  return WORTH.some((name) => (current[name] ?? 0) > (reported?.[name] ?? 0));
}

/** The parts of an attempt that usage is read from. */
export interface UsageParts {
  readonly inferlet: Pick<
    Inferlet,
    'inputTokens' | 'outputTokens' | 'cachedTokens' | 'deviceUsage' | 'pagesPeak' | 'session'
  >;
  readonly run: Pick<GuestRun, 'cpuMs' | 'calls' | 'memoryBytes'>;
  /** Milliseconds that the invocation waited in the queue before this attempt began. */
  readonly queuedMs: number;
  /** Time during which GPU hosts held calls of the family; see `HeldTime`. */
  readonly held: Pick<HeldTime, 'totalMs'>;
}

/** Usage of one attempt. Each number but `queuedMs` counts from the beginning of the attempt; none decreases. */
export class AttemptUsage {
  readonly #parts: UsageParts;
  readonly #beganAtMs = performance.now();
  /** Held time of the family before this attempt. */
  readonly #heldBeforeMs: number;
  /** Wall and held time when the guest ended; null while it runs. */
  #endTimes: { readonly wallMs: number; readonly heldMs: number } | null = null;
  #input = 0;
  #output = 0;
  #cached = 0;

  constructor(parts: UsageParts) {
    this.#parts = parts;
    this.#heldBeforeMs = parts.held.totalMs;
  }

  /** Freezes wall and preempted time: the guest has ended. */
  returned(): void {
    this.#endTimes = this.#times;
  }

  /** Milliseconds of the run during which GPU hosts held calls of the family. `wallMs` does not include them. */
  get preemptedMs(): number {
    return rounded((this.#endTimes ?? this.#times).heldMs);
  }

  get #times(): { readonly wallMs: number; readonly heldMs: number } {
    const heldMs = this.#parts.held.totalMs - this.#heldBeforeMs;
    return { wallMs: performance.now() - this.#beganAtMs - heldMs, heldMs };
  }

  /** Copies the present token counts for the next write. It copies nothing else, because it runs for each event. */
  mark(): void {
    const { inferlet } = this.#parts;
    this.#input = inferlet.inputTokens;
    this.#output = inferlet.outputTokens;
    this.#cached = inferlet.cachedTokens;
  }

  /** Usage up to now. Marks the token counts, too. */
  snapshot(): Usage {
    this.mark();
    return this.marked();
  }

  /** Usage up to now, with the token counts of the last mark: the tokens after it belong to a later event. */
  marked(): Usage {
    const { inferlet, run, queuedMs } = this.#parts;
    const { gpuUs, pageMs } = inferlet.deviceUsage;
    return {
      inputTokens: this.#input,
      outputTokens: this.#output,
      cachedTokens: this.#cached,
      cpuMs: rounded(run.cpuMs),
      gpuMs: gpuUs / 1000,
      wallMs: rounded((this.#endTimes ?? this.#times).wallMs),
      queuedMs,
      pageSeconds: pageMs / 1000,
      kvPagesPeak: Math.max(0, ...inferlet.pagesPeak.values()),
      memoryBytes: run.memoryBytes,
      messages: inferlet.session.messages,
      calls: run.calls,
    };
  }
}

/** Rounds milliseconds to the microsecond. */
export const rounded = (milliseconds: number): number => Math.round(milliseconds * 1000) / 1000;

/** The tokens in a usage that quotas count. */
export const chargedIn = ({ inputTokens = 0, outputTokens = 0, cachedTokens = 0 }: Usage): number =>
  inputTokens - cachedTokens + outputTokens;

/** Interval between two asks of an attempt that waits for tokens of other attempts. */
const RETRY_MS = 50;
/** Waits of `RETRY_MS` without room after which an attempt gives up: a second. Counting waits leaves out time in which this process stood still. */
const MAX_WAITS = 20;

/** Calls back all attempts that wait for tokens in the same turn of the event loop, so that one store call carries their asks. */
export class GrantRetries {
  readonly #waiting = new Set<() => void>();
  #timer: NodeJS.Timeout | undefined;

  add(retry: () => void): void {
    this.#waiting.add(retry);
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      const retries = [...this.#waiting];
      this.#waiting.clear();
      for (const each of retries) each();
    }, RETRY_MS);
  }

  delete(retry: () => void): void {
    this.#waiting.delete(retry);
  }
}

export interface AttemptGrantsOptions {
  readonly tokens: Pick<Tokens, 'isShort' | 'ask' | 'grant'>;
  readonly retries: GrantRetries;
  /** Reports the attempt's usage with an `ask`, whose answer comes with `answered`. Must not throw. */
  readonly report: () => Promise<void>;
  /** Called once when no quota has room for the tokens that the inferlet needs: the invocation must end. */
  readonly refused: (quota: ShortQuota) => void;
}

/**
 * Asks the store for the tokens that one attempt needs. Every report of usage carries an ask, so that an attempt that writes events seldom makes
 * a call of its own; one that cannot go on makes it at once. At most one ask is under way.
 */
export class AttemptGrants {
  readonly #options: AttemptGrantsOptions;
  #isAsking = false;
  #isOver = false;
  #turnEnd: NodeJS.Immediate | null = null;
  /** Waits for tokens of other attempts. The answers to other reports, which may come at any rate, do not count. */
  #waits = 0;
  #hasWaited = false;
  readonly #retry = () => {
    this.#hasWaited = true;
    this.request();
  };

  constructor(options: AttemptGrantsOptions) {
    this.#options = options;
  }

  /** Asks at the end of this turn of the event loop, unless an ask is under way. */
  request(): void {
    if (this.#isOver || this.#isAsking || this.#turnEnd) return;
    this.#turnEnd = setImmediate(() => {
      this.#turnEnd = null;
      // A report in this turn may have asked already.
      if (!this.#isOver && !this.#isAsking) void this.#options.report();
    });
  }

  /** The ask for a report of usage; null while another one is under way. The caller then calls `answered`. */
  ask(): TokenAsk | null {
    if (this.#isOver || this.#isAsking) return null;
    this.#isAsking = true;
    return this.#options.tokens.ask();
  }

  /** Takes the answer to the ask; null when there is none: the call failed, or the store refused it. */
  answered(grant: TokenGrant | null): void {
    this.#isAsking = false;
    if (this.#isOver) return;
    const { tokens, retries, refused } = this.#options;
    const hasWaited = this.#hasWaited;
    this.#hasWaited = false;
    if (grant) tokens.grant(grant.ceiling);
    if (!tokens.isShort) {
      this.#waits = 0;
      return;
    }
    // The inferlet needs more since the ask.
    if (grant && !grant.short) {
      this.request();
      return;
    }
    if (grant?.short && hasWaited) this.#waits++;
    if (grant?.short && (grant.short.isHopeless || this.#waits >= MAX_WAITS)) {
      this.end();
      refused(grant.short);
      return;
    }
    retries.add(this.#retry);
  }

  /** Asks no more: the inferlet has ended. */
  end(): void {
    this.#isOver = true;
    this.#options.retries.delete(this.#retry);
    if (this.#turnEnd) clearImmediate(this.#turnEnd);
  }
}

/** A counted quota that a running invocation used up. */
export type MetQuota = Pick<ExceededQuota, 'quota' | 'limit' | 'resetsAt' | 'scope'>;

/** The token quota with the least left for a function of a tenant; null when there is none. @throws StoreError */
export async function tokenQuota(quotas: Pick<Quotas, 'status'>, job: InvocationJob): Promise<MetQuota | null> {
  let least: { readonly left: number; readonly quota: MetQuota } | null = null;
  for (const { quota, function: of, limit, used, resetsAt } of await quotas.status(job.tenant, job.function)) {
    if (!quota.startsWith('tokens-per-') || resetsAt === null) continue;
    const left = limit - used;
    if (least && least.left <= left) continue;
    least = { left, quota: { quota, limit, resetsAt, scope: of === null ? 'tenant' : 'function' } };
  }
  return least?.quota ?? null;
}

/** The failure code of an invocation that a quota ends. Other quotas, which end no running invocation, map to `quota-tokens`. */
export function quotaCode(quota: QuotaName): EndingQuotaCode {
  const code = quotaErrorCode(quota);
  return ENDING_QUOTA_CODES.find((ending) => ending === code) ?? 'quota-tokens';
}

/** The stop for an invocation that used up a quota; its message names the quota, its limit, and its reset time. */
export function quotaStop({ quota, limit, resetsAt, scope }: MetQuota, now: number): Stop {
  const resets = new Date(resetsAt).toISOString();
  return {
    code: quotaCode(quota),
    message: `The quota ${quota} of the ${scope} is used up: its limit is ${limit}, and it resets at ${resets}.`,
    cause: `quota ${quota}`,
    retryAfterMs: Math.max(1, Math.ceil(resetsAt - now)),
    figures: { quota, scope, limit, resetsAt },
  };
}

/** Time after which a client may try again when other invocations have reserved the rest of a quota: they return what they do not use. */
const RESERVED_RETRY_MS = 1000;

/** The stop for an invocation that needs more tokens than a quota has room for. */
export function shortStop(quota: ShortQuota, now: number): Stop {
  const stop = quotaStop(quota, now);
  if (quota.isHopeless) return stop;
  const resets = new Date(quota.resetsAt).toISOString();
  return {
    ...stop,
    message:
      `The quota ${quota.quota} of the ${quota.scope} has no room: its limit is ${quota.limit}, and other invocations have reserved what is left. ` +
      `They return what they do not use; the quota resets at ${resets}.`,
    retryAfterMs: RESERVED_RETRY_MS,
  };
}

/** The stop for when the quota's name is unknown: a token quota has no room. */
export const TOKENS_USED_UP: Stop = {
  code: 'quota-tokens',
  message: 'The quota of tokens has no room for what the inferlet asked for.',
  cause: 'quota tokens',
};
