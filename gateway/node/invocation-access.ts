import { INVOCATION_ID, type Invocation } from '#scheduler/invocations/types.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { includesScope } from '#scheduler/tenants/rules.ts';
import type { Call, Principal } from '../app/control.ts';

type Act = 'read' | 'read-file' | 'message' | 'answer' | 'put-file' | 'cancel' | 'delete-events';

/** Time in which repeated reads make one entry: while an operator watches an invocation, the dashboard's page reads it every 1.5 s. */
const SAME_READ_MS = 60_000;
/** Maximum number of remembered reads. Beyond it, the oldest read is forgotten, so a repetition of it is recorded again. */
const MAX_READS = 10_000;

/** Finds the invocations that a caller may reach, and records in the audit log what operators do to invocations of other tenants. */
export class InvocationAccess {
  readonly #scheduler: Pick<Scheduler, 'invocations' | 'audit'>;
  readonly #clock: () => number;
  /** Times of the recorded reads, by their keys, oldest first. */
  readonly #reads = new Map<string, number>();

  /** @param clock milliseconds, monotonic */
  constructor(scheduler: Pick<Scheduler, 'invocations' | 'audit'>, clock: () => number) {
    this.#scheduler = scheduler;
    this.#clock = clock;
  }

  /** The invocation, if it belongs to the caller's tenant or the caller is an operator; else null. */
  async find(principal: Principal, id: string): Promise<Invocation | null> {
    // The id becomes part of a Redis key: any other text could address another key.
    if (!INVOCATION_ID.test(id)) return null;
    const record = await this.#scheduler.invocations.get(id);
    if (record === null) return null;
    return record.tenant === principal.tenant || includesScope(principal.scopes, 'operator') ? record : null;
  }

  /** Finds the invocation, and records the act. */
  async open(
    call: Call,
    id: string,
    act: Act,
    details?: Readonly<Record<string, unknown>>,
  ): Promise<Invocation | null> {
    const record = await this.find(call.principal, id);
    if (record !== null) await this.record(call, record, act, details);
    return record;
  }

  /**
   * Records an operator's act on another tenant's invocation in that tenant's audit log; a tenant's own acts are not recorded.
   *
   * For a minute, all reads of one invocation, or of one of its files, share an entry if they have the same request id: an edge gateway makes
   * several requests with one id. A client that repeats an id on purpose hides only its further reads of the same invocation or file in that
   * minute.
   */
  async record(
    { principal, requestId }: Call,
    { id, tenant: owner }: Invocation,
    act: Act,
    details: Readonly<Record<string, unknown>> = {},
  ): Promise<void> {
    const { tenant, keyId } = principal;
    if (owner === tenant) return;
    const write = () => this.#scheduler.audit.record(keyId, owner, `invocation.${act}`, id, details);
    const isRead = act === 'read' || act === 'read-file';
    await (isRead ? this.#once(JSON.stringify([keyId, id, act, details, requestId]), write) : write());
  }

  /**
   * Records that an operator listed another tenant's invocations: a list shows their questions and failures. All lists of a tenant with one API
   * key share an entry for a minute: `pie ps --watch` asks every second, each time with another request id.
   */
  async recordList({ principal }: Call, owner: string): Promise<void> {
    const { tenant, keyId } = principal;
    if (owner === tenant) return;
    await this.#once(JSON.stringify([keyId, owner, 'list']), () =>
      this.#scheduler.audit.record(keyId, owner, 'invocation.list', owner),
    );
  }

  /** Writes the entry of the reads with this key, once a minute. A read whose entry could not be written counts as not recorded. */
  async #once(readKey: string, write: () => Promise<unknown>): Promise<void> {
    const now = this.#clock();
    const recordedAt = this.#reads.get(readKey);
    if (recordedAt !== undefined && now - recordedAt < SAME_READ_MS) return;
    // Delete the old time first, so that the new one becomes the last in the order of the map.
    this.#reads.delete(readKey);
    for (const oldest of this.#reads.keys()) {
      if (this.#reads.size < MAX_READS) break;
      this.#reads.delete(oldest);
    }
    this.#reads.set(readKey, now);
    try {
      await write();
    } catch (error) {
      this.#reads.delete(readKey);
      throw error;
    }
  }
}
