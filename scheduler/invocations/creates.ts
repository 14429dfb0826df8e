import { quarantineText } from '../quarantine/policy.ts';
import { parseUses, QuotaExceeded } from '../quotas/exceeded.ts';
import { quotaErrorCode } from '../quotas/names.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import { TurnCalls } from '../store/turn-calls.ts';
import type { EndLog, PlatformEnd, RefusalCode } from './platform-end.ts';
import { tuple, unexpected } from './replies.ts';
import { type Retention, retentionArguments } from './retention.ts';
import { jobText, recordFields, type Submission } from './submission.ts';
import { TenantConcurrency } from './tenant-concurrency.ts';
import type { CreateOutcome } from './types.ts';

const CREATE = loadScript(new URL('./submission.lua', import.meta.url), 'create');

/** Maximum submissions of one tenant that are on their way to Redis at once. They take Redis about a millisecond. */
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
  readonly #concurrency = new TenantConcurrency(MAX_OF_TENANT);
  readonly #calls = new TurnCalls<NewRecord, CreateOutcome>({
    size: ({ job }) => Math.max(1 / MAX_CREATES, job.length / MAX_LENGTH),
    call: (records) => this.#call(records),
  });

  constructor(store: Store, endLog: EndLog, retention: Retention) {
    this.#store = store;
    this.#endLog = endLog;
    this.#retention = retention;
  }

  /** @throws the errors of `Invocations.create`. */
  create(submission: Submission): Promise<CreateOutcome> {
    const until = performance.now() + this.#store.deadlineMs;
    const record = { submission, job: jobText(submission), until };
    // The wait for earlier calls of the tenant counts against the deadline. A call whose turn comes after its deadline fails, and the store sends
    // nothing for it.
    return this.#concurrency.run(submission.tenant, () =>
      this.#store.call(() => this.#calls.run(record), until - performance.now()),
    );
  }

  async #call(records: readonly NewRecord[]): Promise<(() => CreateOutcome)[]> {
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
  #outcome(submission: Submission, reply: unknown, now: number): CreateOutcome {
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
function outcomeOf({ function: name, version, limits }: Submission, reply: unknown, now: number): CreateOutcome {
  const [created, value, ...rest] = tuple(reply);
  switch (created) {
    case 1: {
      const [debouncedUntil, , ...counted] = rest;
      const debounced = Number(debouncedUntil) === 0 ? {} : { notBefore: Number(debouncedUntil) };
      return { created: true, arrival: Number(value), ...debounced, quotas: parseUses(counted, now) };
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
