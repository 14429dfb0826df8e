import { randomUUID } from 'node:crypto';
import type { InvocationJob, Peak } from '../admission/job.ts';
import { type Metered, throwBytesQuota } from '../quotas/exceeded.ts';
import type { TokenAsk } from '../quotas/grants.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import { type Store, TurnCalls } from '../store/store.ts';
import { meteredText, totalUsage } from '../usage/metered.ts';
import {
  type EndLog,
  Ends,
  endMessage,
  type Figures,
  type Loss,
  lossEnd,
  type PlatformFailureCode,
  UNEXPLAINED,
} from './endings.ts';
import { Appends, type AttemptWrite, MAX_EVENTS, SHOWN_AHEAD } from './log.ts';
import {
  attemptLimits,
  DEFAULT_RETENTION,
  endingArguments,
  errorData,
  gap,
  optionalText,
  type Retention,
  standingFrom,
  tuple,
  unexpected,
  unmetered,
} from './replies.ts';
import { Creates, logAndAccountFields, type Submission, versionFields } from './submission.ts';
import {
  type AppendOutcome,
  type AttemptOutcome,
  type ChildOutcome,
  FAILURE_CODES,
  type FailOutcome,
  type FailureCode,
  type FinishOutcome,
  hasEnded,
  INVOCATION_CURSOR,
  type Invocation,
  type InvocationStatus,
  type ListPage,
  type ListQuery,
  MAX_ATTEMPTS,
  type NewChild,
  type NewEvent,
  type Question,
  REQUEUE_OUTCOMES,
  type RequeueOutcome,
  STATUSES,
  type Submitted,
  type TerminalEvent,
  type Usage,
  type WebhookState,
} from './types.ts';

const SCRIPTS = {
  beginChild: loadScript(new URL('./attempts.lua', import.meta.url), 'begin-child'),
  fail: loadScript(new URL('./endings.lua', import.meta.url), 'fail'),
  requeue: loadScript(new URL('./endings.lua', import.meta.url), 'requeue'),
  releaseDebounced: loadScript(new URL('./submission.lua', import.meta.url), 'release-debounced'),
  settle: loadScript(new URL('./endings.lua', import.meta.url), 'settle'),
};

/** Maximum debounced invocations that one script call releases, which takes Redis about a millisecond. Large inputs lower the number. */
const MAX_RELEASED = 64;

/** Refusals of `begin-child` of `attempts.lua`. */
const CHILD_REFUSALS = ['parent-ended', 'already-ran', 'not-deployed'] as const;

/**
 * Records and event logs of invocations. Every transition is one Lua script, so exactly one writer ends an invocation, and an attempt with
 * an old epoch cannot write.
 */
export class Invocations {
  readonly #store: Store;
  readonly #retention: Retention;
  readonly #appends: Appends;
  readonly #creates: Creates;
  readonly #begins: Begins;
  readonly #ends: Ends;
  readonly #endLog: EndLog;

  /** @param endLog gets the ends and refusals that this object decides; those of attempts are their runtime's */
  constructor(store: Store, endLog: EndLog, retention: Retention = DEFAULT_RETENTION) {
    this.#store = store;
    this.#endLog = endLog;
    this.#retention = retention;
    this.#appends = new Appends(store, retention);
    this.#creates = new Creates(store, endLog, retention);
    this.#begins = new Begins(store);
    this.#ends = new Ends(store, retention);
  }

  /**
   * Stores a queued invocation, puts it into its tenant's queue and admits it when there is room, all in one step. An invocation with a
   * debounce key enters the queue later, see `releaseDebounced`. Idempotent by id. The submissions of one turn of the event loop share script
   * calls.
   *
   * @throws QuotaExceeded when a quota of the tenant or the function has no room; StoreError `idempotency-key-reused`,
   *   `concurrency-key-busy`, `debounce-keys-full`, `not-deployed`, `above-memory`, `quarantined` or `stale-resolution`.
   */
  async create(record: Submission): Promise<Submitted> {
    return this.#creates.create(record);
  }

  /** Puts all invocations whose debounce delay has passed into their tenants' queues, a bounded number in each script call. Returns their number. */
  async releaseDebounced(): Promise<number> {
    const { prefix, debounced, arrivals } = this.#store.keys;
    const args = [prefix, this.#store.clock(), MAX_RELEASED];
    let released = 0;
    for (;;) {
      const reply = await this.#store.script(SCRIPTS.releaseDebounced, [debounced, arrivals], args);
      const [count, more] = reply as [number, number];
      released += count;
      if (more === 0) return released;
    }
  }

  /** The record of an invocation, or null when Redis has none (any more). */
  async get(id: string): Promise<Invocation | null> {
    const fields = await this.#store.call((redis) => redis.hgetall(this.#store.keys.invocation(id)));
    return Object.keys(fields).length === 0 ? null : parseRecord(fields);
  }

  /**
   * The input of an invocation, JSON text. Null for a child, and for an ended invocation whose job had more than 16 KiB or whose events are
   * no longer kept.
   */
  async input(id: string): Promise<string | null> {
    const { keys } = this.#store;
    const [job, storedInput] = await this.#store.call((redis) =>
      Promise.all([redis.hget(`${keys.jobs}:${id}`, 'data'), redis.get(keys.input(id))]),
    );
    const text = job ?? storedInput;
    return text === null ? null : (JSON.parse(text) as Pick<InvocationJob, 'input'>).input;
  }

  /**
   * Deletes the events of an ended invocation, with its outcome, and its input. The record stays. The tenant's `redis-bytes` count the deleted bytes
   * until their retention is over.
   */
  async deleteEvents(id: string): Promise<void> {
    const { keys } = this.#store;
    await this.#store.call((redis) => redis.unlink(keys.events(id), keys.outcome(id), keys.input(id)));
  }

  /** The states of invocations, in order; null for an invocation without a record (any more). One round trip. */
  async statuses(ids: readonly string[]): Promise<(InvocationStatus | null)[]> {
    const { keys } = this.#store;
    const states = await this.#store.call((redis) =>
      Promise.all(ids.map((id) => redis.hget(keys.invocation(id), 'status'))),
    );
    return states as (InvocationStatus | null)[];
  }

  /** The last invocations of a function, newest first. */
  async recent(tenant: string, name: string, limit = 50): Promise<Invocation[]> {
    return [...(await this.list(tenant, { function: name, limit })).invocations];
  }

  /** A page of a tenant's invocations, newest first: all that have not ended, and the ended ones that are still listed, see `Retention`. */
  async list(tenant: string, query: ListQuery): Promise<ListPage> {
    const { ids, cursor } = await listedIds(this.#store, tenant, query);
    const records = await Promise.all(ids.map((id) => this.get(id)));
    // An ended invocation may stay listed a little longer than its record is kept.
    return { invocations: records.filter((record) => record !== null), cursor };
  }

  /**
   * Begins an attempt; from now on only its epoch may write. An invocation that is not restartable begins once, and once more after each
   * question to a person. After a `StoreError` make the call again with the same token, since the first call may have taken effect. The
   * begins of one turn of the event loop share script calls.
   *
   * @param token names the call, so that a repeated call begins no second attempt.
   * @param fetchToken names the fetch by which the runtime took the job (`InvocationJob.fetchToken`); without it, any fetch of that runtime
   *   counts.
   * @param showsOwnEvents true when the attempt shows its events to followers itself, up to `SHOWN_AHEAD` of them before they are written.
   */
  async beginAttempt(
    id: string,
    runtimeId: string,
    token: string = randomUUID(),
    fetchToken = '',
    showsOwnEvents = false,
  ): Promise<AttemptOutcome> {
    return this.#begins.begin({ id, runtimeId, token, fetchToken, showsOwnEvents });
  }

  /**
   * Stores the record of a child whose only attempt has begun; from now on its epoch may write. Until the child ends, it is listed under
   * its runtime, so that it ends with that runtime. After a `StoreError` make the call again with the same token.
   *
   * @throws QuotaExceeded when the tenant may keep no more bytes in Redis.
   */
  async beginChild(child: NewChild, token: string, showsOwnEvents = false): Promise<ChildOutcome> {
    const { keys } = this.#store;
    const { id, tenant, function: name } = child;
    const now = this.#store.clock();
    const reply = await this.#store.script(
      SCRIPTS.beginChild,
      [keys.invocation(id), keys.invocation(child.parent), keys.deadlines, keys.listing(tenant), keys.children],
      [
        ...[id, child.submittedAt, child.deadlineMs, this.#retention.listedOfFunction, this.#retention.recordMs],
        ...[child.runtimeId, token, child.parentEpoch, now, this.#retention.listedOfTenant],
        showsOwnEvents ? SHOWN_AHEAD : 0,
        ...['tenant', tenant, 'function', name, 'version', child.version, 'restartable', 0],
        ...versionFields(keys, child),
        ...['arrival', child.arrival, 'parent', child.parent, 'parentEpoch', child.parentEpoch, 'root', child.root],
        ...['rootKey', keys.invocation(child.root)],
        ...['cancelsKey', keys.cancels(child.runtimeId), 'cancelChannel', keys.cancelChannel(child.runtimeId)],
        ...logAndAccountFields(keys, tenant, name),
      ],
    );
    const [begun, epochOrRefusal, nextSeq, standing, ...limits] = tuple(reply);
    if (begun === 1) {
      const begin = { epoch: Number(epochOrRefusal), nextSeq: Number(nextSeq), standing: standingFrom(standing) };
      return { ...begin, ...attemptLimits(limits) };
    }
    throwBytesQuota(reply, now);
    const refused = CHILD_REFUSALS.find((one) => one === epochOrRefusal);
    if (refused !== undefined) return { refused };
    throw unexpected('begin-child', reply);
  }

  /** Ids of the children that have not ended, each with the id of its runtime. */
  async children(): Promise<ReadonlyMap<string, string>> {
    const runtimes = await this.#store.call((redis) => redis.hgetall(this.#store.keys.children));
    return new Map(Object.entries(runtimes));
  }

  /**
   * Ends a child whose runtime is dead and returns true. Returns false and leaves the child alone while its parent's attempt runs: a runtime
   * that was slow rather than dead may have registered again.
   *
   * @param loss why the runtime counts as lost; the client gets the reason, and the log gets the figures, too
   */
  async loseChild(id: string, runtimeId: string, loss: Loss = UNEXPLAINED): Promise<boolean> {
    const { keys } = this.#store;
    const [parent, parentEpoch] = await this.#store.call((redis) =>
      redis.hmget(keys.invocation(id), 'parent', 'parentEpoch'),
    );
    const [status, epoch] =
      parent == null ? [] : await this.#store.call((redis) => redis.hmget(keys.invocation(parent), 'status', 'epoch'));
    if (status === 'running' && epoch === parentEpoch) return false;
    const { code, cause, figures } = lossEnd(runtimeId, loss);
    const outcome = await this.fail(id, code, cause, runtimeId, figures);
    // The end removes the child from the list, unless its record was gone already.
    if (outcome !== 'ok') await this.#store.call((redis) => redis.hdel(keys.children, id));
    return true;
  }

  /**
   * Appends events, the first of them numbered `firstSeq`. Idempotent by number: after a `StoreError` make the same call again.
   * Pass terminal events to `finish` instead.
   *
   * @param usage cumulative usage of the attempt, at least up to the last of these events; the script call that writes the last event counts
   *   the usage.
   * @throws SequenceGap when Redis has lost earlier events or the caller skipped numbers; QuotaExceeded when the tenant may keep no more
   *   bytes in Redis.
   */
  append(id: string, epoch: number, firstSeq: number, events: readonly NewEvent[]): Promise<AppendOutcome>;
  append(
    id: string,
    epoch: number,
    firstSeq: number,
    events: readonly NewEvent[],
    usage: Usage,
  ): Promise<Metered<AppendOutcome>>;
  async append(
    id: string,
    epoch: number,
    firstSeq: number,
    events: readonly NewEvent[],
    usage?: Usage,
  ): Promise<AppendOutcome | Metered<AppendOutcome>> {
    if (usage !== undefined && events.length === 0) return this.report(id, epoch, usage);
    const toResult = (answer: Metered<AppendOutcome>) => (usage === undefined ? answer.outcome : answer);
    for (let start = 0; start < events.length; start += MAX_EVENTS) {
      const chunk = events.slice(start, start + MAX_EVENTS);
      const isLast = start + MAX_EVENTS >= events.length;
      const chunkWrite = { id, epoch, firstSeq: firstSeq + start, events: chunk };
      const answer = await this.#appends.write({
        ...chunkWrite,
        usage: isLast ? usage : undefined,
        showsOwnEvents: false,
      });
      if (isLast || answer.outcome !== 'ok') return toResult(answer);
    }
    return toResult(unmetered('ok'));
  }

  /** Like `append`, but in a single call. */
  write(write: AttemptWrite): Promise<Metered<AppendOutcome>> {
    return this.#appends.write(write);
  }

  /** Counts the cumulative usage of an attempt that has no event to append. Idempotent like `append`. @param ask see `AttemptWrite` */
  async report(id: string, epoch: number, usage: Usage, ask: TokenAsk | null = null): Promise<Metered<AppendOutcome>> {
    // Without events, `showsOwnEvents` has no effect.
    return this.#appends.write({ id, epoch, firstSeq: 0, events: [], usage, ask, showsOwnEvents: true });
  }

  /**
   * Ends an invocation with its terminal event, numbered `seq`. The status follows from the event: `succeeded` for a result, `cancelled`
   * for an error with that code, else `failed`. Idempotent for the same epoch and number. Returns `full` for a result that exceeds the byte
   * limit of the root's family (`NewChild.root`). The caller must then end the invocation with an error, which is always accepted.
   *
   * The ends of one turn of the event loop share script calls. The script also removes the invocation's BullMQ job, which the attempt's runtime
   * holds.
   *
   * @param after number of the log's last event; pass it when readers were shown later events that will not be written.
   * @param peak the most that the run held, for admission to learn from.
   * @param events the attempt's last events, from number `after + 1` on; written in the same step. When the store refuses these events, or the
   *   result together with them, the outcome is `unwritten`. To learn the reason, pass the events to `write`, and then call `finish` without them.
   * @param lastShownSeq number of the last event that the attempt has shown; followers get the later ones with the terminal event.
   * @param lateTokens granted tokens beyond `usage` that `settle` may still count. The quota keeps them reserved until then, at most a minute.
   * @throws SequenceGap and QuotaExceeded like `append`; a terminal `error` is subject to no quota.
   */
  async finish(
    id: string,
    epoch: number,
    seq: number,
    terminal: TerminalEvent,
    usage: Usage | null,
    after = seq - 1,
    peak: Peak | null = null,
    events: readonly NewEvent[] = [],
    lastShownSeq = after + events.length,
    lateTokens = 0,
  ): Promise<FinishOutcome> {
    return this.#ends.finish({ id, epoch, seq, after, events, lastShownSeq, terminal, usage, lateTokens, peak });
  }

  /**
   * Counts an attempt's cumulative usage after its end, and returns the `lateTokens` that its `finish` kept. Idempotent. Null when the attempt did not
   * end the invocation or the record is gone.
   */
  async settle(
    { id, tenant }: { id: string; tenant: string },
    epoch: number,
    usage: Usage,
    lateTokens = 0,
  ): Promise<'ok' | null> {
    const { keys } = this.#store;
    const args = [epoch, meteredText(usage), this.#store.clock(), keys.account(tenant), lateTokens > 0 ? id : ''];
    const reply = await this.#store.script(SCRIPTS.settle, [keys.invocation(id)], args);
    return reply === 1 ? 'ok' : null;
  }

  /**
   * Gives up a running attempt that was ended to make room. The invocation waits again at its original place in its tenant's queue and
   * starts anew in the next epoch. Event `seq` of its log states the cause. Idempotent per epoch; only `requeued` changes any state.
   *
   * @param pages maximum pages that the attempt held or asked for, by model; admission expects the next attempt to hold at least as many.
   * @param forMemory true when the attempt ended for lack of memory on a GPU host: the next attempt also waits until a GPU host has reported
   *   as many free pages as `pages` states.
   * @throws SequenceGap like `append`.
   */
  async requeue(
    id: string,
    epoch: number,
    seq: number,
    cause: string,
    usage: Usage | null,
    pages?: Readonly<Record<string, number>>,
    forMemory = false,
  ): Promise<RequeueOutcome> {
    const { keys, args } = endingArguments(this.#store, this.#retention, id);
    const { jobs } = this.#store.keys;
    const reply = await this.#store.script(
      SCRIPTS.requeue,
      [...keys, `${jobs}:${id}`, `${jobs}:active`, `${jobs}:stalled`],
      [
        ...args,
        ...[epoch, seq, cause, MAX_ATTEMPTS, meteredText(usage)],
        ...[pages === undefined ? '' : JSON.stringify(pages), forMemory && pages !== undefined ? 1 : 0],
      ],
    );
    const outcome = REQUEUE_OUTCOMES.find((one) => one === reply);
    if (outcome) return outcome;
    throw gap(id, seq, reply) ?? unexpected('requeue', reply);
  }

  /**
   * Ends an invocation for the platform, in the next epoch, so that the runtime that runs it can write no more. Logs the end.
   *
   * @param cause as in `PlatformEnd`.
   * @param owner a runtime: the call leaves a running attempt of any other runtime alone, and returns `ended`.
   */
  async fail(
    id: string,
    code: PlatformFailureCode,
    cause: string,
    owner = '',
    figures: Figures = {},
  ): Promise<FailOutcome> {
    const { keys, args } = endingArguments(this.#store, this.#retention, id);
    const end = { code, cause, figures };
    const message = endMessage(end);
    const reply = await this.#store.script(SCRIPTS.fail, keys, [
      ...args,
      code,
      message,
      errorData(code, message),
      owner,
    ]);
    if (Array.isArray(reply)) {
      const [tenant, name] = reply.map(String);
      this.#endLog.note({ invocation: id, tenant: tenant ?? '', function: name ?? '' }, end, 'ended');
      return 'ok';
    }
    if (reply === -1 || reply === -2) return 'ended';
    if (reply === 0) return 'unknown';
    throw unexpected('fail', reply);
  }
}

/** The beginning of an attempt. */
export interface AttemptBegin {
  readonly id: string;
  readonly runtimeId: string;
  /** Token of the call: a call repeated with the same token begins no second attempt. */
  readonly token: string;
  /** Token of the runtime's fetch; '' for any fetch of that runtime. */
  readonly fetchToken: string;
  /** True when the attempt shows its events to followers itself. */
  readonly showsOwnEvents: boolean;
}

const BEGIN = loadScript(new URL('./attempts.lua', import.meta.url), 'begin-attempt');

/** Maximum number of attempts that one script call begins: about a millisecond of Redis. */
const MAX_BEGINS = 16;

/** Begins the attempts of a process. Those of one turn of the event loop share script calls, so that admission runs once per call. */
export class Begins {
  readonly #store: Store;
  readonly #calls = new TurnCalls<AttemptBegin, AttemptOutcome>({
    size: () => 1 / MAX_BEGINS,
    call: (begins) => this.#call(begins),
  });

  constructor(store: Store) {
    this.#store = store;
  }

  begin(begin: AttemptBegin): Promise<AttemptOutcome> {
    return this.#calls.run(begin);
  }

  async #call(begins: readonly AttemptBegin[]): Promise<(() => AttemptOutcome)[]> {
    const { keys } = this.#store;
    const now = this.#store.clock();
    const beginKeys = begins.flatMap(({ id }) => [keys.invocation(id), `${keys.jobs}:${id}`]);
    const args = begins.flatMap(({ id, runtimeId, token, fetchToken, showsOwnEvents }) => [
      ...[runtimeId, keys.cancels(runtimeId), keys.cancelChannel(runtimeId), token, fetchToken],
      showsOwnEvents ? keys.live(id) : '',
    ]);
    const replies = tuple(await this.#store.script(BEGIN, [keys.runtimes, ...beginKeys], [now, SHOWN_AHEAD, ...args]));
    return replies.map((reply) => () => attemptOutcome(reply));
  }
}

/** Parses the reply of `beginAttempt` in the scripts. @throws StoreError */
export function attemptOutcome(reply: unknown): AttemptOutcome {
  const [begun, first, nextSeq, attempt, queuedAt, usageBefore, usageNow, standing, ...limits] = tuple(reply);
  if (begun === 1) {
    return {
      epoch: Number(first),
      nextSeq: Number(nextSeq),
      attempt: Number(attempt),
      queuedAt: Number(queuedAt),
      usageBefore: totalUsage(null, optionalText(usageBefore), optionalText(usageNow)),
      standing: standingFrom(standing),
      ...attemptLimits(limits),
    };
  }
  if (begun === -5) throw StoreError.from(new Error(String(first)));
  if (first === 'ended' || first === 'already-ran' || first === 'unknown' || first === 'not-held') {
    return { refused: first };
  }
  throw unexpected('begin-attempt', reply);
}

function isStatus(value: string | undefined): value is InvocationStatus {
  return STATUSES.some((status) => status === value);
}

function isFailureCode(value: string | undefined): value is FailureCode {
  return (FAILURE_CODES as readonly (string | undefined)[]).includes(value);
}

/** Parses the record of an invocation from the fields of its hash. */
export function parseRecord(fields: Readonly<Record<string, string>>): Invocation {
  const text = (name: string): string => {
    const value = fields[name];
    if (value === undefined) throw new StoreError('store-corrupt', `An invocation's record has no field "${name}".`);
    return value;
  };
  const integer = (name: string): number => {
    const value = Number(text(name));
    if (!Number.isFinite(value))
      throw new StoreError('store-corrupt', `An invocation's field "${name}" is not a number.`);
    return value;
  };
  const status = fields.status;
  if (!isStatus(status)) throw new StoreError('store-corrupt', `An invocation has the unknown status "${status}".`);
  return {
    id: text('id'),
    tenant: text('tenant'),
    function: text('function'),
    version: text('version'),
    submittedAt: integer('submittedAt'),
    deadlineMs: integer('deadlineMs'),
    restartable: fields.restartable === '1',
    schedule: fields.schedule ?? null,
    parent: fields.parent ?? null,
    root: fields.root ?? null,
    placement: fields.placement ?? null,
    status,
    arrival: integer('arrival'),
    epoch: integer('epoch'),
    attempts: integer('attempts'),
    seq: integer('seq'),
    runtimeId: fields.runtimeId ?? null,
    startedAt: fields.startedAt === undefined ? null : integer('startedAt'),
    endedAt: fields.endedAt === undefined ? null : integer('endedAt'),
    cancelReason: fields.cancelReason ?? null,
    notBefore: fields.notBefore === undefined ? null : integer('notBefore'),
    successor: fields.successor ?? null,
    question: fields.question === undefined ? null : parseJson<Question>(fields.question, 'question'),
    failure: isFailureCode(fields.code) ? { code: fields.code, message: fields.message ?? '' } : null,
    resultBytes: Number(fields.resultBytes ?? 0),
    usage: totalUsage(
      fields.usage ? parseJson<Usage>(fields.usage, 'usage') : null,
      fields.usageBefore,
      fields.usageNow,
    ),
    webhook: parseWebhook(fields),
  };
}

function parseWebhook(fields: Readonly<Record<string, string>>): WebhookState | null {
  const { webhookUrl: url, webhookStatus: status = 'waiting' } = fields;
  if (url === undefined) return null;
  if (status !== 'waiting' && status !== 'pending' && status !== 'delivered' && status !== 'failed')
    throw new StoreError('store-corrupt', `A webhook has the unknown status "${status}".`);
  const numberOrNull = (text: string | undefined) => (text ? Number(text) : null);
  return {
    url,
    status,
    attempts: Number(fields.webhookAttempts ?? 0),
    lastStatus: numberOrNull(fields.webhookLastStatus),
    lastError: fields.webhookLastError || null,
    nextAt: status === 'pending' ? numberOrNull(fields.webhookNextAt) : null,
  };
}

function parseJson<T>(text: string, field: string): T {
  try {
    return JSON.parse(text) as T;
  } catch (cause) {
    throw new StoreError('store-corrupt', `An invocation's field "${field}" is not JSON.`, { cause });
  }
}

const LIST = loadScript(new URL('./listing.lua', import.meta.url), 'list');

/** Maximum invocations that one call looks at, which takes Redis about a millisecond. */
const MAX_LOOKED_AT = 2000;

/** Ids of one page of a tenant's invocations, newest first, and the next page's cursor; null when no page follows. */
export async function listedIds(
  store: Store,
  tenant: string,
  { function: name, statuses = [], limit, cursor }: ListQuery,
): Promise<{ readonly ids: readonly string[]; readonly cursor: string | null }> {
  const { keys } = store;
  const open = name === undefined ? keys.openList(tenant) : keys.openListOfFunction(tenant, name);
  const ended = name === undefined ? keys.endedList(tenant) : keys.endedListOfFunction(tenant, name);
  const includesOpen = statuses.length === 0 || statuses.some((status) => !hasEnded(status));
  const includesEnded = statuses.length === 0 || statuses.some(hasEnded);
  const { time, id } = parseCursor(cursor);
  // The script finds a status in this text with a comma on each side.
  const statusesText = statuses.length === 0 ? '' : `,${statuses.join()},`;
  const reply = await store.script(
    LIST,
    [...(includesOpen ? [open] : []), ...(includesEnded ? [ended] : [])],
    [keys.invocation(''), time, id, limit, MAX_LOOKED_AT, statusesText],
  );
  if (!Array.isArray(reply)) throw unexpected('list', reply);
  const [lastTime, lastId, ...ids] = reply.map(String);
  // Without a next page, the id is ''.
  return { ids, cursor: lastId ? `${lastTime}.${lastId}` : null };
}

function parseCursor(cursor: string | undefined): { time: string; id: string } {
  if (cursor === undefined) return { time: '+inf', id: '' };
  const match = INVOCATION_CURSOR.exec(cursor);
  if (match === null) throw new StoreError('invalid-argument', 'The cursor does not belong to this list.');
  return { time: match[1] ?? '', id: match[2] ?? '' };
}
