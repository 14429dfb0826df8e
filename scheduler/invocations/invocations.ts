import { randomUUID } from 'node:crypto';
import { SequenceGap, StoreError } from '../store/errors.ts';
import { loadScript } from '../store/scripts.ts';
import type { Store } from '../store/store.ts';
import { endingArguments, errorData } from './ending.ts';
import { parseRecord } from './record.ts';
import { DEFAULT_RETENTION, type Retention } from './retention.ts';
import type {
  AppendOutcome,
  AttemptOutcome,
  ChildOutcome,
  CreateOutcome,
  FailOutcome,
  FailureCode,
  FinishOutcome,
  Invocation,
  NewChild,
  NewEvent,
  NewInvocation,
  TerminalEvent,
  Usage,
} from './types.ts';

const SCRIPTS = {
  create: loadScript(new URL('./scripts/create.lua', import.meta.url)),
  beginAttempt: loadScript(new URL('./scripts/begin-attempt.lua', import.meta.url)),
  beginChild: loadScript(new URL('./scripts/begin-child.lua', import.meta.url)),
  append: loadScript(new URL('./scripts/append.lua', import.meta.url)),
  finish: loadScript(new URL('./scripts/finish.lua', import.meta.url)),
  fail: loadScript(new URL('./scripts/fail.lua', import.meta.url)),
};

/** Events of one script call: Lua's argument stack holds 8,000 values. */
const MAX_EVENTS_PER_CALL = 1000;

/**
 * Records and event logs of invocations. Every transition is one Lua script, so that of any number of writers exactly one ends an
 * invocation, and an attempt whose epoch has passed cannot write.
 */
export class Invocations {
  readonly #store: Store;
  readonly #retention: Retention;

  constructor(store: Store, retention: Retention = DEFAULT_RETENTION) {
    this.#store = store;
    this.#retention = retention;
  }

  /**
   * Stores a queued invocation and gives it its place in line. Making the same one twice is harmless.
   *
   * @throws StoreError `too-many-waiting` when `maxWaiting` of the tenant's invocations wait already.
   */
  async create(record: NewInvocation): Promise<CreateOutcome> {
    const { keys } = this.#store;
    const { id, tenant, function: name } = record;
    const idempotency = record.idempotencyKey;
    const reply = await this.#store.script(
      SCRIPTS.create,
      [
        keys.invocation(id),
        keys.arrivals,
        keys.deadlines,
        keys.recent(tenant, name),
        idempotency === undefined ? keys.invocation(id) : keys.idempotency(tenant, idempotency),
        keys.waiting(tenant),
      ],
      [
        id,
        record.submittedAt,
        record.deadlineMs,
        idempotency === undefined ? 0 : this.#retention.idempotencyMs,
        this.#retention.recentInvocations,
        this.#retention.recentMs,
        record.maxWaiting ?? -1,
        ...['tenant', tenant, 'function', name, 'version', record.version],
        ...['restartable', record.restartable ? 1 : 0],
        ...this.#placeFields(tenant, name),
      ],
    );
    const [created, value] = tuple(reply);
    if (created === -1) {
      throw new StoreError(
        'too-many-waiting',
        `${String(value)} invocations of ${tenant} wait for their turn already.`,
      );
    }
    return created === 1 ? { created: true, arrival: Number(value) } : { created: false, id: String(value) };
  }

  /** The record of an invocation, or null when there is none (any more). */
  async get(id: string): Promise<Invocation | null> {
    const fields = await this.#store.call((redis) => redis.hgetall(this.#store.keys.invocation(id)));
    return Object.keys(fields).length === 0 ? null : parseRecord(fields);
  }

  /** The last invocations of a function, newest first. */
  async recent(tenant: string, name: string, limit = 50): Promise<Invocation[]> {
    const { keys } = this.#store;
    const ids = await this.#store.call((redis) => redis.zrevrange(keys.recent(tenant, name), 0, limit - 1));
    const records = await Promise.all(ids.map((id) => this.get(id)));
    return records.filter((record) => record !== null);
  }

  /**
   * Begins an attempt; from here on only its epoch may write. An invocation that is not restartable begins once. After a `StoreError` make
   * the call again with the same token: it may have taken effect.
   */
  async beginAttempt(id: string, runtimeId: string, token: string = randomUUID()): Promise<AttemptOutcome> {
    const reply = await this.#store.script(
      SCRIPTS.beginAttempt,
      [this.#store.keys.invocation(id)],
      [
        runtimeId,
        this.#store.clock(),
        token,
        this.#store.keys.cancels(runtimeId),
        this.#store.keys.cancelChannel(runtimeId),
      ],
    );
    const [begun, first, nextSeq, attempt] = tuple(reply);
    if (begun === 1) return { epoch: Number(first), nextSeq: Number(nextSeq), attempt: Number(attempt) };
    if (first === 'ended' || first === 'already-ran' || first === 'unknown') return { refused: first };
    throw unexpected('begin-attempt', reply);
  }

  /**
   * Stores the record of a child whose only attempt has begun; from here on its epoch may write. Until it has ended it is listed as its
   * runtime's, so that it ends with that runtime. After a `StoreError` make the call again with the same token.
   */
  async beginChild(child: NewChild, token: string): Promise<ChildOutcome> {
    const { keys } = this.#store;
    const { id, tenant, function: name } = child;
    const reply = await this.#store.script(
      SCRIPTS.beginChild,
      [keys.invocation(id), keys.invocation(child.parent), keys.deadlines, keys.recent(tenant, name), keys.children],
      [
        ...[id, child.submittedAt, child.deadlineMs, this.#retention.recentInvocations, this.#retention.recentMs],
        ...[child.runtimeId, token, child.parentEpoch, this.#store.clock()],
        ...['tenant', tenant, 'function', name, 'version', child.version, 'restartable', 0],
        ...['arrival', child.arrival, 'parent', child.parent, 'parentEpoch', child.parentEpoch, 'root', child.root],
        ...['rootKey', keys.invocation(child.root)],
        ...['cancelsKey', keys.cancels(child.runtimeId), 'cancelChannel', keys.cancelChannel(child.runtimeId)],
        ...this.#placeFields(tenant, name),
      ],
    );
    const [begun, first, nextSeq] = tuple(reply);
    if (begun === 1) return { epoch: Number(first), nextSeq: Number(nextSeq) };
    if (first === 'parent-ended' || first === 'already-ran') return { refused: first };
    throw unexpected('begin-child', reply);
  }

  /** Children that have not ended: id, and the runtime that runs it. */
  async children(): Promise<ReadonlyMap<string, string>> {
    const all = await this.#store.call((redis) => redis.hgetall(this.#store.keys.children));
    return new Map(Object.entries(all));
  }

  /** Ends a child whose runtime is dead, and answers true; one whose parent's attempt still runs is left alone. */
  async loseChild(id: string, runtimeId: string): Promise<boolean> {
    const { keys } = this.#store;
    const [parent, parentEpoch] = await this.#store.call((redis) =>
      redis.hmget(keys.invocation(id), 'parent', 'parentEpoch'),
    );
    const [status, epoch] =
      parent == null ? [] : await this.#store.call((redis) => redis.hmget(keys.invocation(parent), 'status', 'epoch'));
    if (status === 'running' && epoch === parentEpoch) return false;
    const outcome = await this.fail(id, 'runtime-lost', 'The runtime that ran this invocation was lost.', runtimeId);
    // The end took it off the list, unless its record had gone before.
    if (outcome !== 'ok') await this.#store.call((redis) => redis.hdel(keys.children, id));
    return true;
  }

  /**
   * Appends events, the first of them numbered `firstSeq`. Idempotent by number: after a `StoreError` make the same call again.
   * Terminal events are not appended, but given to `finish`.
   *
   * @throws SequenceGap when Redis has lost earlier events, or the caller left numbers out.
   */
  async append(id: string, epoch: number, firstSeq: number, events: readonly NewEvent[]): Promise<AppendOutcome> {
    const { keys } = this.#store;
    for (let start = 0; start < events.length; start += MAX_EVENTS_PER_CALL) {
      const chunk = events.slice(start, start + MAX_EVENTS_PER_CALL);
      const args: (string | number)[] = [
        keys.live(id),
        epoch,
        firstSeq + start,
        this.#retention.maxEvents,
        this.#retention.maxBytes,
        this.#store.clock(),
        this.#retention.logLines,
        this.#retention.logMs,
        this.#retention.familyBytes,
      ];
      for (const { event, data } of chunk) args.push(event, checkedData(data));
      const reply = await this.#store.script(SCRIPTS.append, [keys.invocation(id), keys.events(id)], args);
      if (reply === 1) continue;
      if (reply === 0) return 'stale';
      if (reply === -1) return 'ended';
      if (reply === -2) return 'full';
      throw gap(id, firstSeq + start, reply) ?? unexpected('append', reply);
    }
    return 'ok';
  }

  /**
   * Ends an invocation with its terminal event, numbered `seq`. The status follows from the event: `succeeded` for a result, `cancelled`
   * for an error with that code, else `failed`. Idempotent for the same epoch and number. A result for which its family has no room is
   * answered `full`: end it with an error, which is always taken.
   *
   * @throws SequenceGap like `append`.
   */
  async finish(
    id: string,
    epoch: number,
    seq: number,
    terminal: TerminalEvent,
    usage: Usage | null,
  ): Promise<FinishOutcome> {
    const failed = terminal.event === 'error' ? terminal : null;
    const status = failed === null ? 'succeeded' : failed.code === 'cancelled' ? 'cancelled' : 'failed';
    const { keys, args } = endingArguments(this.#store, this.#retention, id);
    const reply = await this.#store.script(SCRIPTS.finish, keys, [
      ...args,
      epoch,
      seq,
      terminal.event,
      checkedData(terminal.data),
      status,
      failed?.code ?? '',
      failed?.message ?? '',
      usage === null ? '' : JSON.stringify(usage),
      this.#retention.familyBytes,
    ]);
    if (reply === 1) return 'ok';
    if (reply === 0) return 'stale';
    if (reply === -1) return 'ended';
    if (reply === -2) return 'full';
    throw gap(id, seq, reply) ?? unexpected('finish', reply);
  }

  /**
   * Ends an invocation in the platform's name: in the next epoch, so that whoever runs it can write no more.
   *
   * @param owner when given, a running attempt of another runtime is left alone (`ended` is answered).
   */
  async fail(id: string, code: FailureCode, message: string, owner = ''): Promise<FailOutcome> {
    const { keys, args } = endingArguments(this.#store, this.#retention, id);
    const reply = await this.#store.script(SCRIPTS.fail, keys, [
      ...args,
      code,
      message,
      errorData(code, message),
      owner,
    ]);
    if (reply === 1) return 'ok';
    if (reply === -1 || reply === -2) return 'ended';
    if (reply === 0) return 'unknown';
    throw unexpected('fail', reply);
  }

  /** Where the function's log is, and where the tenant's files are counted; the scripts that write there read that from the record. */
  #placeFields(tenant: string, name: string): string[] {
    const { keys } = this.#store;
    return [
      ...['logs', keys.logs(tenant, name), 'logsChannel', keys.logsChannel(tenant, name)],
      ...['fileUsageKey', keys.fileUsage(tenant), 'fileExpiriesKey', keys.fileExpiries(tenant)],
    ];
  }
}

/** Event data travels with NUL between its parts, which no JSON text contains. */
function checkedData(data: string): string {
  if (data.includes('\0')) throw new StoreError('invalid-argument', 'The data of an event must be JSON text.');
  return data;
}

function tuple(reply: unknown): unknown[] {
  if (!Array.isArray(reply)) throw unexpected('script', reply);
  return reply;
}

/** The error in a reply `[-3, number of the last event]`, or null when it is another reply. */
function gap(id: string, seq: number, reply: unknown): SequenceGap | null {
  if (!Array.isArray(reply) || reply[0] !== -3 || typeof reply[1] !== 'number') return null;
  const lastSeq = reply[1];
  return new SequenceGap(
    `Event ${seq} of invocation ${id} does not follow ${lastSeq}, the last one of its log.`,
    lastSeq,
  );
}

function unexpected(script: string, reply: unknown): StoreError {
  return new StoreError('store-corrupt', `The script ${script} answered ${JSON.stringify(reply)}.`);
}
