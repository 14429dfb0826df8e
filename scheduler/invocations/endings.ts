import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { LEARNED_MS, type Peak, peakPairs } from '../admission/job.ts';
import type { Logger } from '../policies/logger.ts';
import type { ProcessState } from '../policies/silence.ts';
import { throwBytesQuota } from '../quotas/exceeded.ts';
import type { QuotaErrorCode } from '../quotas/names.ts';
import type { Vital } from '../store/channels.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import { type Store, TurnCalls } from '../store/store.ts';
import { meteredText } from '../usage/metered.ts';
import { checkedData } from './log.ts';
import {
  DEFAULT_RETENTION,
  endingArguments,
  errorData,
  gap,
  type Retention,
  retentionArguments,
  tuple,
  unexpected,
} from './replies.ts';
import {
  FAILURE_CODES,
  type FailureCode,
  type FinishOutcome,
  type NewEvent,
  type TerminalEvent,
  type Usage,
} from './types.ts';

/** The end of an invocation by its attempt. */
export interface AttemptEnd {
  readonly id: string;
  readonly epoch: number;
  /** Number of the terminal event. */
  readonly seq: number;
  /** Number of the log's last event, as the attempt knows it. */
  readonly after: number;
  /** The attempt's last events, which the log lacks; they follow `after`. */
  readonly events: readonly NewEvent[];
  /** Number of the last event that followers were shown. */
  readonly lastShownSeq: number;
  readonly terminal: TerminalEvent;
  readonly usage: Usage | null;
  /** Granted tokens beyond `usage` whose use may become known after the end, until `Invocations.settle`. */
  readonly lateTokens: number;
  /** Peak use of resources by the run; null when admission must not learn from this run. */
  readonly peak: Peak | null;
}

const FINISH = loadScript(new URL('./endings.lua', import.meta.url), 'finish');

/** Maximum ends in one script call, which takes Redis about a millisecond. */
const MAX_ENDS = 8;
/** Number of an attempt's last events that take Redis about as long as one end. */
const EVENTS_PER_END = 16;
/** Maximum characters of event data in one script call; a single end may have more. */
const MAX_LENGTH = 128 << 10;

/** Outcomes by the reply of `finish` of `endings.lua`. */
const OUTCOMES: Readonly<Record<number, FinishOutcome>> = {
  1: 'ok',
  0: 'stale',
  [-1]: 'ended',
  [-2]: 'full',
  [-6]: 'unwritten',
};
/** First element of the reply for an end whose script failed; the text of the error follows. */
const SCRIPT_ERROR = -5;

/** Ends invocations for the attempts of this process. The ends of one turn of the event loop share script calls, so that admission runs once. */
export class Ends {
  readonly #store: Store;
  readonly #retention: Retention;
  readonly #calls = new TurnCalls<AttemptEnd, FinishOutcome>({
    size: ({ terminal, events }) => {
      const length = events.reduce((sum, { data }) => sum + data.length, terminal.data.length);
      return Math.max((1 + events.length / EVENTS_PER_END) / MAX_ENDS, length / MAX_LENGTH);
    },
    call: (ends) => this.#call(ends),
  });

  constructor(store: Store, retention: Retention) {
    this.#store = store;
    this.#retention = retention;
  }

  /** @throws the errors of `Invocations.finish`. */
  async finish(end: AttemptEnd): Promise<FinishOutcome> {
    for (const { data } of [...end.events, end.terminal]) checkedData(data);
    return this.#calls.run(end);
  }

  async #call(ends: readonly AttemptEnd[]): Promise<(() => FinishOutcome)[]> {
    const { keys } = this.#store;
    const now = this.#store.clock();
    const { familyBytes, maxEvents, maxBytes } = this.#retention;
    const args = [now, ...retentionArguments(this.#retention), familyBytes, LEARNED_MS, maxEvents, maxBytes];
    for (const { id, epoch, seq, after, events, lastShownSeq, terminal, usage, lateTokens, peak } of ends) {
      const failure = terminal.event === 'error' ? terminal : null;
      const failedStatus = failure?.code === 'cancelled' ? 'cancelled' : 'failed';
      const status = failure === null ? 'succeeded' : failedStatus;
      args.push(id, keys.live(id), keys.inboxChannel(id), epoch, seq, terminal.event, terminal.data, status);
      args.push(failure?.code ?? '', failure?.message ?? '', usage === null ? '' : JSON.stringify(usage));
      args.push(
        meteredText(usage),
        lateTokens,
        after,
        peak === null ? '' : JSON.stringify(peakPairs(peak)),
        lastShownSeq,
        events.length,
      );
      for (const { event, data } of events) args.push(event, data);
    }
    const endKeys = ends.flatMap(({ id }) => [keys.invocation(id), keys.events(id), keys.inbox(id)]);
    const replies = tuple(await this.#store.script(FINISH, [keys.deadlines, ...endKeys], args));
    return ends.map((end, i) => () => outcomeOf(end, replies[i], now));
  }
}

function outcomeOf({ id, seq }: AttemptEnd, reply: unknown, now: number): FinishOutcome {
  const outcome = typeof reply === 'number' ? OUTCOMES[reply] : undefined;
  if (outcome !== undefined) return outcome;
  if (Array.isArray(reply) && reply[0] === SCRIPT_ERROR) throw StoreError.from(new Error(String(reply[1])));
  throwBytesQuota(reply, now);
  throw gap(id, seq, reply) ?? unexpected('finish', reply);
}

/**
 * `cancelled`: the invocation was queued or waited for a person, and has ended. `requested`: its runtime was told; the terminal event follows.
 * `ended`: too late.
 */
export type CancelOutcome = 'cancelled' | 'requested' | 'ended' | 'unknown';

const CANCEL = loadScript(new URL('./endings.lua', import.meta.url), 'cancel');
const TELL_CANCEL = loadScript(new URL('./endings.lua', import.meta.url), 'tell');

/** Pause before another read of the stored cancels. */
const RETRY_MS = 500;

/** Carries cancels from any process to the runtime that owns the invocation. */
export class Control {
  readonly #store: Store;
  readonly #vital: Vital;
  readonly #retention: Retention;

  /** @param vital connections of a runtime, used to listen for cancels. */
  constructor(store: Store, vital: Vital, retention: Retention = DEFAULT_RETENTION) {
    this.#store = store;
    this.#vital = vital;
    this.#retention = retention;
  }

  /** Cancels an invocation: at once while it waits, otherwise through its runtime. */
  async cancel(id: string, reason: string): Promise<CancelOutcome> {
    const outcome = await this.requestCancel(id, reason);
    if (outcome === 'cancelled') {
      // A runtime may have fetched the invocation without starting it; tell the runtime to release it.
      const holder = await this.holder(id);
      if (holder !== null) await this.tellCancel(holder, id, reason);
    }
    return outcome;
  }

  /** The runtime that has fetched the job of an invocation, or null. */
  async holder(id: string): Promise<string | null> {
    const { keys } = this.#store;
    return this.#store.call((redis) => redis.hget(`${keys.jobs}:${id}`, 'pb'));
  }

  /**
   * Requests a cancel. A queued or waiting invocation ends at once. Its job goes with it, unless a runtime already
   * holds the job: `cancel` tells that runtime.
   */
  async requestCancel(id: string, reason: string): Promise<CancelOutcome> {
    const { keys, args } = endingArguments(this.#store, this.#retention, id);
    const scriptKeys = [...keys, this.#store.keys.reply(randomUUID())];
    const reply = await this.#store.script(CANCEL, scriptKeys, [...args, reason, errorData('cancelled', reason)]);
    const [outcome] = Array.isArray(reply) ? reply : [];
    if (outcome === 'requested' || outcome === 'cancelled' || outcome === 'ended' || outcome === 'unknown')
      return outcome;
    throw unexpected('cancel', reply);
  }

  /**
   * Listens for cancels of one runtime's invocations. After an interruption, the listener gets the cancels requested meanwhile. It may get
   * the same cancel twice.
   *
   * @returns the function that stops listening.
   */
  async onCancel(runtimeId: string, listener: (id: string, reason: string) => void): Promise<() => void> {
    const { store, channels } = this.#vital;
    const { keys } = store;
    let latestRead = 0;
    /** Reads the stored cancels until a read succeeds. A later call of `catchUp` ends an earlier one. */
    const catchUp = async () => {
      const readNumber = ++latestRead;
      while (readNumber === latestRead && store.redis.status !== 'end') {
        const cancels = await store.call((redis) => redis.hgetall(keys.cancels(runtimeId))).catch(() => null);
        if (readNumber !== latestRead) return;
        if (cancels === null) await sleep(RETRY_MS, undefined, { ref: false });
        else {
          for (const [id, reason] of Object.entries(cancels)) listener(id, reason);
          return;
        }
      }
    };
    const stop = await channels.listen(keys.cancelChannel(runtimeId), {
      message: (payload) => {
        const text = payload.toString('utf8');
        const separator = text.indexOf('\0');
        listener(text.slice(0, separator), text.slice(separator + 1));
      },
      resumed: () => void catchUp(),
    });
    void catchUp();
    return () => {
      latestRead++;
      stop();
    };
  }

  /** Forgets the cancel of a job that its runtime gave up before the job began. (The end of a running invocation removes its cancel by itself.) */
  async forgetCancel(runtimeId: string, id: string): Promise<void> {
    await this.#store.call((redis) => redis.hdel(this.#store.keys.cancels(runtimeId), id));
  }

  /** Tells a runtime of a cancel for a job that the runtime holds and has not begun. */
  async tellCancel(runtimeId: string, id: string, reason: string): Promise<void> {
    const { keys } = this.#store;
    const args = [keys.cancelChannel(runtimeId), id, reason, this.#retention.eventsMs];
    await this.#store.script(TELL_CANCEL, [keys.cancels(runtimeId)], args);
  }
}

/** Failures that the inferlet or its client causes. The platform causes all others. */
export type OwnFailureCode = 'inferlet-error' | 'trap' | 'invalid-result' | 'cancelled';

/** Failures with which the platform ends an invocation. */
export type PlatformFailureCode = Exclude<FailureCode, OwnFailureCode>;

/** Refusals of admission, which store no invocation. */
export type RefusalCode = QuotaErrorCode | 'quarantined' | 'memory-unavailable';

/** Numbers and names that decided an end, such as `usedMs` and `limitMs`. They hold neither secrets nor inputs. */
export type Figures = Readonly<Record<string, number | string | boolean | readonly string[] | null>>;

/**
 * One end that the platform causes, and why. The client's message ({@link endMessage}) and the log's record ({@link EndLog}) are both made from
 * this value, so that they cannot differ.
 */
export interface PlatformEnd<Code extends string = PlatformFailureCode> {
  readonly code: Code;
  /** What happened to which process or limit, and why: sentences for clients and operators, without texts of the inferlet. */
  readonly cause: string;
  readonly figures: Figures;
}

/** The invocation that ended, or the one that was refused. */
export interface EndedInvocation {
  /** Absent when the invocation was refused: it has no id. */
  readonly invocation?: string;
  readonly tenant: string;
  readonly function: string;
}

/**
 * `ended`: the invocation has its terminal event. `starts-again`: only the attempt ended, and the invocation returned to its queue. `refused`:
 * nothing was stored.
 */
export type EndOutcome = 'ended' | 'starts-again' | 'refused';

interface EndKind {
  /** `error` for faults of the platform, `warn` for losses, `info` for limits that an operator or a manifest has set. */
  readonly level: keyof Logger;
  /** What the client can do, as sentences; null when the causes of this code say it themselves. */
  readonly advice: string | null;
}

/** The level and advice of each failure that the platform causes. Every such failure has its record in the log of the process that decides it. */
export const PLATFORM_ENDS: Readonly<Record<PlatformFailureCode, EndKind>> = {
  'cpu-limit': { level: 'info', advice: null },
  'memory-limit': { level: 'info', advice: null },
  'output-limit': { level: 'info', advice: null },
  'deadline-exceeded': { level: 'info', advice: null },
  superseded: { level: 'info', advice: null },
  terminated: {
    level: 'warn',
    advice: 'Invoke the function again; with `restartable` in its manifest, it starts again by itself.',
  },
  unavailable: { level: 'warn', advice: null },
  'quota-tokens': { level: 'info', advice: null },
  'quota-gpu-time': { level: 'info', advice: null },
  'quota-cpu-time': { level: 'info', advice: null },
  'quota-pages': { level: 'info', advice: null },
  'quota-storage': { level: 'info', advice: null },
  'device-lost': {
    level: 'warn',
    advice: 'Invoke the function again; with `restartable` in its manifest, it starts again by itself.',
  },
  'runtime-lost': {
    level: 'warn',
    advice: 'Invoke the function again; with `restartable` in its manifest, it starts again by itself.',
  },
  quarantined: {
    level: 'warn',
    advice: 'Deploy a corrected version, or lift the quarantine with `pie quarantine lift`.',
  },
  'artifact-unavailable': { level: 'error', advice: 'Invoke the function again; if it fails again, deploy it anew.' },
  internal: { level: 'error', advice: 'Invoke the function again; the log of the platform has the details.' },
};

/** The codes of {@link PLATFORM_ENDS}. */
export const PLATFORM_CODES: readonly PlatformFailureCode[] = FAILURE_CODES.filter(isPlatformCode);

export function isPlatformCode(code: FailureCode): code is PlatformFailureCode {
  return code in PLATFORM_ENDS;
}

/** The message of the error event: the cause, and what the client can do. */
export function endMessage({ code, cause }: PlatformEnd): string {
  const { advice } = PLATFORM_ENDS[code];
  return advice === null ? cause : `${cause} ${advice}`;
}

/** The constant message of the record of each outcome. */
export const END_RECORDS: Readonly<Record<EndOutcome, string>> = {
  ended: 'the platform ended an invocation',
  'starts-again': 'the platform ended an attempt, and its invocation starts again',
  refused: 'the platform refused an invocation',
};

/** Message of the record that counts the ends and refusals of one tenant which have no record of their own. */
export const MORE_OF_TENANT = 'more invocations of a tenant ended or were refused than the log names';
/** Message of the record that counts those of all tenants which were left out because the log had enough records of all of them. */
export const MORE_OF_ALL = 'more invocations ended or were refused than the log names';

/**
 * Records that a process writes within a window, of one tenant and of all together. One record counts the others by code, so that tenants whose
 * invocations fail in a loop neither fill the disk nor displace the records of others. A refusal costs its client nothing but a request, so far
 * fewer of them are named: at 400 bytes a record, 1,000 a minute take more than five hours to fill the 128 MiB of a process's logs.
 */
export const MAX_RECORDS = {
  ends: { tenant: 2000, all: 5000 },
  refusals: { tenant: 200, all: 1000 },
} as const;
const KINDS = ['ends', 'refusals'] as const satisfies readonly (keyof typeof MAX_RECORDS)[];
type Kind = (typeof KINDS)[number];
const WINDOW_MS = 60_000;
/** Characters of a cause in a record: that of a trap may come from a sandbox that hostile code took over. */
const MAX_CAUSE = 1000;

/** The ends and refusals in the current window: of a tenant, or of all tenants. */
class Tally {
  readonly #records = { ends: 0, refusals: 0 };
  /** Those without a record, by code. */
  readonly #unnamed = { ends: new Map<string, number>(), refusals: new Map<string, number>() };

  records(kind: Kind): number {
    return this.#records[kind];
  }

  addRecord(kind: Kind): void {
    this.#records[kind]++;
  }

  addUnnamed(kind: Kind, code: string): void {
    const counts = this.#unnamed[kind];
    counts.set(code, (counts.get(code) ?? 0) + 1);
  }

  /** The counts of those without a record; null when all have one. */
  unnamed(): Partial<Record<Kind, Readonly<Record<string, number>>>> | null {
    const kinds = KINDS.filter((kind) => this.#unnamed[kind].size > 0);
    if (kinds.length === 0) return null;
    return Object.fromEntries(kinds.map((kind) => [kind, Object.fromEntries(this.#unnamed[kind])]));
  }
}

/** Writes the record of each end that a process decides. Each process has one. */
export class EndLog {
  readonly #log: Logger;
  /** The tenants with records in this window: no more than records, however many tenants there are. */
  readonly #tenants = new Map<string, Tally>();
  #all = new Tally();
  #windowEnd: NodeJS.Timeout | undefined;

  constructor(log: Logger) {
    this.#log = log;
  }

  /** Writes the record of an end, or counts it when there are many. */
  note(ended: EndedInvocation, end: PlatformEnd, outcome: Exclude<EndOutcome, 'refused'>): void {
    this.#write(ended, end, outcome, PLATFORM_ENDS[end.code].level);
  }

  /** Writes the record of a refusal by admission, or counts it when there are many. */
  refused(of: Omit<EndedInvocation, 'invocation'>, refusal: PlatformEnd<RefusalCode>): void {
    this.#write(of, refusal, 'refused', 'info');
  }

  /** Writes the counts of the ends without a record. Called at the end of each window, and when the process ends. */
  flush(): void {
    clearTimeout(this.#windowEnd);
    this.#windowEnd = undefined;
    const [tenants, all] = [[...this.#tenants], this.#all];
    this.#tenants.clear();
    this.#all = new Tally();
    for (const [tenant, tally] of tenants) {
      const unnamed = tally.unnamed();
      if (unnamed !== null) this.#log.warn({ tenant, ...unnamed }, MORE_OF_TENANT);
    }
    const unnamed = all.unnamed();
    if (unnamed !== null) this.#log.warn(unnamed, MORE_OF_ALL);
  }

  #write(
    ended: EndedInvocation,
    { code, cause, figures }: PlatformEnd<string>,
    outcome: EndOutcome,
    level: keyof Logger,
  ): void {
    this.#windowEnd ??= setTimeout(() => this.flush(), WINDOW_MS).unref();
    if (!this.#takesRecord(ended.tenant, outcome === 'refused' ? 'refusals' : 'ends', code)) return;
    const { tenant, function: name, invocation } = ended;
    const fields = {
      tenant,
      function: name,
      ...(invocation !== undefined && { invocation }),
      code,
      cause: cause.slice(0, MAX_CAUSE),
      figures,
    };
    this.#log[level](fields, END_RECORDS[outcome]);
  }

  /** Counts an end or refusal. Returns true when it gets a record of its own. */
  #takesRecord(tenant: string, kind: Kind, code: string): boolean {
    const most = MAX_RECORDS[kind];
    const known = this.#tenants.get(tenant);
    if (known !== undefined && known.records(kind) >= most.tenant) {
      known.addUnnamed(kind, code);
      return false;
    }
    if (this.#all.records(kind) >= most.all) {
      this.#all.addUnnamed(kind, code);
      return false;
    }
    const tally = known ?? new Tally();
    if (known === undefined) this.#tenants.set(tenant, tally);
    tally.addRecord(kind);
    this.#all.addRecord(kind);
    return true;
  }
}

/** Why a runtime is lost, with the figures that decided. */
export interface Loss {
  /** In words, for the end of a sentence about the runtime: `it ended: signal SIGKILL`. */
  readonly why: string;
  /** Time since its last sign of life, as far as it is known: the last renewal of the lease, or the last turn of its event loop, ms. */
  readonly silentMs?: number;
  /** Length of the lease, ms. */
  readonly leaseMs?: number;
  /** What the supervisor last saw of the process. */
  readonly look?: ProcessState;
}

/** Maximum ids of invocations in one record of the log. */
export const MAX_LOGGED_IDS = 100;

/** The loss of a runtime of which nothing more is known. */
export const UNEXPLAINED: Loss = { why: 'its invocations were taken from it' };

/** The end of an invocation whose runtime is lost. */
export function lossEnd(runtimeId: string, { why, ...figures }: Loss): PlatformEnd<'runtime-lost'> {
  const [name] = runtimeId.split('~');
  return {
    code: 'runtime-lost',
    cause: `The runtime that ran this invocation was lost (${name}): ${why}.`,
    figures: { runtime: runtimeId, ...figures },
  };
}
