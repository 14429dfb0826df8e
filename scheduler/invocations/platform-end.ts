import type { Logger } from '../policies/logger.ts';
import type { QuotaErrorCode } from '../quotas/names.ts';
import { FAILURE_CODES, type FailureCode } from './types.ts';

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
