import { createHash, randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { InvocationJob } from '../admission/job.ts';
import type { ServingBasis } from '../functions/records.ts';
import type { Keys } from '../keys.ts';
import type { Logger } from '../policies/logger.ts';
import { affinityKey } from '../policies/placement.ts';
import { TenantTurns } from '../policies/tenant-turns.ts';
import { quarantineText } from '../quarantine/policy.ts';
import { parseUses, QuotaExceeded } from '../quotas/exceeded.ts';
import { quotaErrorCode } from '../quotas/names.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import { type Store, TurnCalls } from '../store/store.ts';
import type { CancelOutcome, Control, EndLog, PlatformEnd, RefusalCode } from './endings.ts';
import { type Retention, retentionArguments, tuple, unexpected } from './replies.ts';
import type { LatencyTargets, NewChild, NewInvocation, Submitted } from './types.ts';

/** Expected memory of a version's first runs when its manifest gives none; a TypeScript function takes at most half of it. */
const FIRST_MEMORY_MB = 8;

/** A new invocation with the data that its runtime gets and the expectations that admission uses. */
export interface Submission
  extends NewInvocation,
    Pick<InvocationJob, 'input' | 'limits' | 'traceparent' | 'submitter'> {
  /**
   * Expected KV pages, at most `limits.pages` unless these are "context": by model, or a number for the first model. When absent, admission
   * learns them from past runs of the version.
   */
  readonly expectedPages?: number | Readonly<Record<string, number>>;
  /** Expected memory, MiB, until it is learned from past runs of the version; {@link FIRST_MEMORY_MB} when absent. */
  readonly expectedMemoryMb?: number;
  /**
   * Targets that the function states; those of the tenant when absent, none when false. The invocation gets them while the tenant's quota
   * `latency-invocations` has room.
   */
  readonly latency?: LatencyTargets | false;
  /** Models that the function names; admission expects it to use the first. */
  readonly models?: readonly string[];
  /** The invocation is stored only if this basis still leads to its version; without a basis, only if the version is deployed. */
  readonly basis?: ServingBasis;
}

/** The job as its runtime gets it, without the arrival and granted latency targets: the script that stores the job adds them. */
export function jobText(submission: Submission): string {
  const { id, tenant, function: name, version, input, limits, submittedAt, deadlineMs, restartable } = submission;
  const { traceparent, submitter } = submission;
  const job: Omit<InvocationJob, 'arrival' | 'latency'> = {
    id,
    tenant,
    function: name,
    version,
    input,
    limits,
    submittedAt,
    deadlineMs,
    restartable,
    ...(traceparent !== undefined && { traceparent }),
    ...(submitter !== undefined && { submitter }),
  };
  return JSON.stringify(job);
}

/** Fields of the record of a new invocation, each followed by its value, except those that `create` of `submission.lua` and the attempts set. */
export function recordFields(keys: Keys, submission: Submission): string[] {
  const { tenant, function: name, version, restartable, affinity, concurrency, schedule, submitter } = submission;
  const { debounce } = submission;
  return [
    ...['tenant', tenant, 'function', name, 'version', version],
    ...versionFields(keys, submission),
    ...['restartable', restartable ? '1' : '0'],
    ...webhookFields(keys, submission.webhookUrl),
    ...logAndAccountFields(keys, tenant, name),
    ...(affinity === undefined ? [] : ['affinity', affinityKey(tenant, affinity)]),
    ...(concurrency === undefined
      ? []
      : ['concurrencyKey', keys.concurrency(tenant, concurrency.key), 'concurrencyLimit', String(concurrency.limit)]),
    ...(debounce === undefined ? [] : debounceFields(keys, submission, debounce)),
    ...(schedule === undefined ? [] : ['schedule', schedule]),
    ...(submitter === undefined ? [] : ['submitter', submitter]),
    ...admissionFields(keys, submission),
  ];
}

function debounceFields(
  keys: Keys,
  { tenant, function: name }: Submission,
  { key, delayMs, maxMs }: NonNullable<Submission['debounce']>,
): string[] {
  const keyFields = ['debounceKey', keys.debounces(tenant), 'debounceField', `${name} ${key}`];
  return [...keyFields, 'debounceDelayMs', String(delayMs), 'debounceMaxMs', String(maxMs)];
}

function webhookFields(keys: Keys, url: string | undefined): string[] {
  if (url === undefined) return [];
  return ['webhookUrl', url, 'webhooksKey', keys.webhooks, 'webhooksChannel', keys.webhooksChannel];
}

/** Fields that admission reads (`admission/needs.lua`), and `latency`, for `create` of `submission.lua`. */
function admissionFields(keys: Keys, submission: Submission): string[] {
  const { tenant, function: name, version, expectedPages, models, latency } = submission;
  const fields = ['prefix', keys.prefix, 'learnedKey', keys.learnedPages(tenant, name, version)];
  const { expectedMemoryMb = FIRST_MEMORY_MB, limits } = submission;
  fields.push(
    'expectedMemory',
    String(Math.min(expectedMemoryMb, limits.memoryMb)),
    'memoryMb',
    String(limits.memoryMb),
  );
  if (latency !== undefined) fields.push('latency', JSON.stringify(latency));
  const [firstModel] = models ?? [];
  if (firstModel !== undefined) fields.push('firstModel', firstModel);
  const maxPages = limits.contexts === undefined ? limits.pages : Number.POSITIVE_INFINITY;
  if (expectedPages !== undefined) fields.push('declaredPages', JSON.stringify(atMost(maxPages, expectedPages)));
  return fields;
}

/**
 * Record fields with the keys of the version's unfinished invocations, of its conduct (the losses of sandboxes that quarantine judges), and of the
 * function that must have the version.
 */
export function versionFields(
  keys: Keys,
  { tenant, function: name, version, functionOwner }: Submission | NewChild,
): string[] {
  const owner = functionOwner ?? tenant;
  const functionFields = functionOwner === undefined ? [] : ['functionKey', keys.function(owner, name)];
  const conduct = ['conductKey', keys.conduct(owner, name, version)];
  return [...functionFields, 'unfinishedKey', keys.unfinished(owner, name, version), ...conduct];
}

/** Record fields with the keys of the function's log and of the tenant's file and usage counts; scripts read these keys from the record. */
export function logAndAccountFields(keys: Keys, tenant: string, name: string): string[] {
  return [
    ...['logs', keys.logs(tenant, name), 'logsChannel', keys.logsChannel(tenant, name)],
    ...['fileUsageKey', keys.fileUsage(tenant), 'fileExpiriesKey', keys.fileExpiries(tenant)],
    ...['account', keys.account(tenant), 'storedUsageKey', keys.storedUsage(tenant)],
  ];
}

/** Rounds declared pages up to whole pages, and bounds them by the most that the invocation may hold of a model. */
function atMost(maxPages: number, pages: NonNullable<Submission['expectedPages']>): number | Record<string, number> {
  const boundedCount = (count: number) => Math.min(Math.ceil(count), maxPages);
  if (typeof pages === 'number') return boundedCount(pages);
  return Object.fromEntries(Object.entries(pages).map(([model, count]) => [model, boundedCount(count)]));
}

const CREATE = loadScript(new URL('./submission.lua', import.meta.url), 'create');

/**
 * Maximum submissions of one tenant that are on their way to Redis at once. They take Redis about a millisecond, so calls of other tenants and of
 * runtimes do not wait behind a flood of one tenant.
 */
const MAX_OF_TENANT = 8;
/** Maximum submissions (of all tenants) in one script call. They take Redis about a millisecond. */
const MAX_CREATES = 8;
/** Characters of the jobs of one script call, unless one job alone has more. */
const MAX_LENGTH = 256 << 10;

interface NewRecord {
  readonly submission: Submission;
  /** The BullMQ job as JSON text, see `jobText`. */
  readonly job: string;
  /** Time at which the caller gives up, by `performance.now`. */
  readonly until: number;
}

/** Stores the submissions of a process. Those of one turn of the event loop share script calls, so that admission runs once per call. */
export class Creates {
  readonly #store: Store;
  readonly #endLog: EndLog;
  readonly #retention: Retention;
  readonly #turns = new TenantTurns({ tenant: MAX_OF_TENANT, all: Number.POSITIVE_INFINITY });
  readonly #calls = new TurnCalls<NewRecord, Submitted>({
    size: ({ job }) => Math.max(1 / MAX_CREATES, job.length / MAX_LENGTH),
    call: (records) => this.#call(records),
  });

  constructor(store: Store, endLog: EndLog, retention: Retention) {
    this.#store = store;
    this.#endLog = endLog;
    this.#retention = retention;
  }

  /** @throws the errors of `Invocations.create`. */
  create(submission: Submission): Promise<Submitted> {
    const until = performance.now() + this.#store.deadlineMs;
    const record = { submission, job: jobText(submission), until };
    // The wait for earlier calls of the tenant counts against the deadline. A call whose turn comes after its deadline fails, and the store sends
    // nothing for it.
    return this.#turns.run(submission.tenant, () =>
      this.#store.call(() => this.#calls.run(record), until - performance.now()),
    );
  }

  async #call(records: readonly NewRecord[]): Promise<(() => Submitted)[]> {
    const { keys } = this.#store;
    const { idempotencyMs, listedOfFunction, listedOfTenant } = this.#retention;
    const now = this.#store.clock();
    const args: (string | number)[] = [now, idempotencyMs, listedOfFunction, listedOfTenant];
    args.push(...retentionArguments(this.#retention));
    for (const { submission, job } of records) {
      const { id, submittedAt, deadlineMs, fingerprint } = submission;
      const fields = recordFields(keys, submission);
      const basis = basisTexts(submission);
      args.push(id, submittedAt, deadlineMs, fingerprint ?? '', fields.length, basis.length, ...fields, ...basis, job);
    }
    const createKeys = records.flatMap(({ submission: { id, tenant, idempotencyKey } }) => [
      ...[keys.invocation(id), keys.listing(tenant)],
      idempotencyKey === undefined ? keys.invocation(id) : keys.idempotency(tenant, idempotencyKey),
      ...[keys.waiting(tenant), `${keys.jobs}:${id}`],
    ]);
    // The latest deadline of the call's submissions. In `create`, each submission fails at its own deadline.
    const leftMs = Math.max(...records.map(({ until }) => until)) - performance.now();
    const replies = tuple(
      await this.#store.script(CREATE, [keys.arrivals, keys.deadlines, ...createKeys], args, leftMs),
    );
    return records.map((record, i) => () => this.#outcome(record.submission, replies[i], now));
  }

  /** The outcome of one submission. Logs a refusal by admission, and the end of an invocation that the submission superseded. */
  #outcome(submission: Submission, reply: unknown, now: number): Submitted {
    const { id, tenant, function: name } = submission;
    try {
      const outcome = outcomeOf(submission, reply, now);
      const replaced = replacedBy(reply);
      if (replaced !== '') {
        const cause = `A later invocation with the same debounce key takes its place: ${id}.`;
        const end = { code: 'superseded', cause, figures: { successor: id } } as const;
        this.#endLog.note({ invocation: replaced, tenant, function: name }, end, 'ended');
      }
      return outcome;
    } catch (error) {
      const refusal = refusalOf(error, submission);
      if (refusal !== null) this.#endLog.refused({ tenant, function: name }, refusal);
      throw error;
    }
  }
}

/** The invocation that a submission superseded, or ''. */
const replacedBy = (reply: unknown): string => {
  const [created, , , replaced] = tuple(reply);
  return created === 1 && typeof replaced === 'string' ? replaced : '';
};

/** The refusal by admission that an error states; null for other errors. */
function refusalOf(error: unknown, { version, limits }: Submission): PlatformEnd<RefusalCode> | null {
  if (!(error instanceof StoreError)) return null;
  const cause = error.message;
  if (error instanceof QuotaExceeded) {
    const { quota, limit, used, resetsAt } = error.use;
    return { code: quotaErrorCode(quota), cause, figures: { quota, limit, used, resetsAt } };
  }
  if (error.code === 'quarantined') return { code: 'quarantined', cause, figures: { version } };
  if (error.code === 'above-memory')
    return { code: 'memory-unavailable', cause, figures: { memoryMb: limits.memoryMb } };
  return null;
}

function basisTexts({ basis }: Submission): string[] {
  return basis === undefined ? [] : [basis.text, basis.reference, ...basis.functions];
}

/** The outcome of one submission. The header of `create` of `submission.lua` lists the replies. */
function outcomeOf({ id, function: name, version, limits }: Submission, reply: unknown, now: number): Submitted {
  const [created, value, ...rest] = tuple(reply);
  switch (created) {
    case 1: {
      const [debouncedUntil, , ...counted] = rest;
      const debounced = Number(debouncedUntil) === 0 ? {} : { notBefore: Number(debouncedUntil) };
      return { created: true, id, arrival: Number(value), ...debounced, quotas: parseUses(counted, now) };
    }
    case 0:
      return { created: false, id: String(value), quotas: parseUses(rest, now) };
    case -1: {
      const [refusing, ...counted] = parseUses([value, ...rest], now);
      if (refusing === undefined) throw unexpected('create', reply);
      throw new QuotaExceeded(refusing, now, counted);
    }
    case -2:
      throw new StoreError(
        'idempotency-key-reused',
        `The idempotency key belongs to invocation ${String(value)}, which has another function or body.`,
      );
    case -10:
      throw new StoreError(
        'concurrency-key-busy',
        `The open invocations with this concurrency key (${Number(value)}) have reached its limit.`,
      );
    case -11:
      throw new StoreError(
        'debounce-keys-full',
        `${Number(value)} debounce keys of the tenant wait, which is the limit.`,
      );
    case -5:
      throw new StoreError('not-deployed', `${name}@${version} is no longer deployed.`);
    case -6:
      throw new StoreError(
        'above-memory',
        `An instance of ${name} may take ${limits.memoryMb} MiB (limits.memoryMb), and all runtimes together have ${Number(value)} MiB.`,
      );
    case -7:
      throw new StoreError('quarantined', quarantineText(name, version));
    case -9:
      throw new StoreError('stale-resolution', `${name} has changed since its version was chosen.`);
    case -8:
      throw StoreError.from(new Error(String(value)));
    default:
      throw unexpected('create', reply);
  }
}

/** Pause before another cancel of the same invocation. */
const PAUSE_MS = 1000;
/**
 * Maximum invocations that are being withdrawn, and maximum remembered single-use keys: idempotency keys that an edge gateway makes for one
 * request.
 */
const MAX_WITHDRAWN = 4096;
/** Time for which a withdrawn invocation's key is remembered: an edge gateway waits 60 s for an answer, then repeats its request for 5 s. */
const SPENT_MS = 90_000;
const REASON = 'Redis did not answer the submission in time, and its client was told to send it again.';

/**
 * Cancels invocations whose submission failed because Redis did not answer. Redis may still run the submission's script, and the client knows no
 * id with which it could cancel the invocation. The cancel follows the submission on the same connection.
 */
export class Withdrawals {
  readonly #creates: Pick<Creates, 'create'>;
  readonly #control: Pick<Control, 'cancel'>;
  readonly #log: Logger;
  readonly #ids = new Set<string>();
  /** Submissions under way, and failed submissions of withdrawn invocations, by tenant, idempotency key and fingerprint. */
  readonly #submissionsByKey = new Map<string, Promise<Submitted>>();
  readonly #stopped = new AbortController();

  /** @param creates stores submissions (`Invocations`) */
  constructor(creates: Pick<Creates, 'create'>, control: Pick<Control, 'cancel'>, log: Logger) {
    this.#creates = creates;
    this.#control = control;
    this.#log = log;
  }

  /** Number of invocations that are being withdrawn: Redis has not answered their cancels yet. */
  get size(): number {
    return this.#ids.size;
  }

  /**
   * Submits an invocation for a request without an idempotency key, or with a single-use one: the client of such a request cannot find the
   * invocation after an error. When Redis does not answer, cancels the invocation in the background: now, and again until Redis has answered.
   * An edge gateway may repeat a request with its single-use key. A repeated request shares the submission while that is under way, and then its
   * error for `SPENT_MS`: in Redis, the key would lead to the cancelled invocation.
   */
  async submit(submission: Submission): Promise<Submitted> {
    const { tenant, idempotencyKey, fingerprint } = submission;
    if (idempotencyKey === undefined) return this.#submitOrWithdraw(submission);
    const name = JSON.stringify([tenant, idempotencyKey, fingerprint]);
    const earlier = this.#submissionsByKey.get(name);
    if (earlier !== undefined) return { ...(await earlier), created: false };
    const submitted = this.#submitOrWithdraw(submission);
    this.#submissionsByKey.set(name, submitted);
    const forget = () => void this.#submissionsByKey.delete(name);
    await submitted.then(forget, (error: unknown) => {
      if (!mayBeStored(error) || this.#submissionsByKey.size > MAX_WITHDRAWN) forget();
      else void sleep(SPENT_MS, undefined, { ref: false, signal: this.#stopped.signal }).then(forget, forget);
    });
    return submitted;
  }

  async #submitOrWithdraw(submission: Submission): Promise<Submitted> {
    try {
      return await this.#creates.create(submission);
    } catch (error) {
      if (mayBeStored(error)) this.#withdraw(submission.id);
      throw error;
    }
  }

  #withdraw(id: string): void {
    // Invocations past this bound are not cancelled.
    if (this.#ids.size >= MAX_WITHDRAWN) return;
    this.#ids.add(id);
    void this.#untilCertain(id)
      .catch((error: unknown) => this.#log.error({ error, invocation: id }, 'an invocation could not be withdrawn'))
      .finally(() => this.#ids.delete(id));
  }

  /** Stops repeating the cancels. */
  stop(): void {
    this.#stopped.abort();
  }

  async #untilCertain(id: string): Promise<void> {
    const { signal } = this.#stopped;
    let unknownCount = 0;
    while (!signal.aborted) {
      const outcome = await this.#tryCancel(id);
      // A restarted Redis lacks the submission's script, so the store sends the submission again, and the first cancel may overtake it. Only a
      // second `unknown` is therefore certain.
      if (outcome === 'unknown') unknownCount += 1;
      if (outcome !== null && (outcome !== 'unknown' || unknownCount === 2)) return;
      await sleep(PAUSE_MS, undefined, { ref: false, signal }).catch(() => undefined);
    }
  }

  /** Null when Redis did not answer. */
  async #tryCancel(id: string): Promise<CancelOutcome | null> {
    try {
      return await this.#control.cancel(id, REASON);
    } catch (error) {
      if (isUnanswered(error)) return null;
      throw error;
    }
  }
}

/**
 * True when Redis may store the submission although it failed. A Redis without free memory (`full`) or disk (`diskFault`) has refused to store
 * it, and Redis knows nothing of a submission that the store did not send (`unsent`).
 */
function mayBeStored(error: unknown): boolean {
  return isUnanswered(error) && !error.full && error.diskFault === undefined && !error.unsent;
}

function isUnanswered(error: unknown): error is StoreError {
  return error instanceof StoreError && error.code === 'store-unavailable';
}

/** An invocation id: it sorts by time, and has 80 random bits, so that a client cannot guess another client's id. */
export function newInvocationId(): string {
  return `inv_${Date.now().toString(36).padStart(9, '0')}${randomBytes(10).toString('hex')}`;
}

/** Hash of the function's name and the body, which distinguishes requests with the same idempotency key. */
export function fingerprintOf(functionName: string, body: string): string {
  return createHash('sha256').update(functionName).update('\0').update(body).digest('base64url');
}
