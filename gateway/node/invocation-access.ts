import type { Invocation } from '#scheduler/invocations/types.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { includesScope } from '#scheduler/tenants/scopes.ts';
import type { Call, Principal } from '../app/control.ts';

type Act = 'read' | 'read-file' | 'message' | 'answer' | 'put-file' | 'cancel';

const INVOCATION_ID = /^[A-Za-z0-9_-]{1,128}$/;

/** Time in which repeated reads make one entry: a page of the dashboard reads its invocation every 1.5 s while an operator follows it. */
const SAME_READ_MS = 60_000;
/** Maximum reads remembered; beyond it the oldest one counts as new. */
const MAX_READS = 10_000;

/** Finds the invocations that a caller may reach, and records in the audit log what operators do to invocations of other tenants. */
export class InvocationAccess {
  readonly #scheduler: Pick<Scheduler, 'invocations' | 'audit'>;
  readonly #clock: () => number;
  /** Recorded reads, oldest first, with their times. */
  readonly #reads = new Map<string, number>();

  /** @param clock milliseconds, monotonic */
  constructor(scheduler: Pick<Scheduler, 'invocations' | 'audit'>, clock: () => number) {
    this.#scheduler = scheduler;
    this.#clock = clock;
  }

  /** The invocation, when it belongs to the caller's tenant or the caller is an operator. */
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
   * Records that an operator listed another tenant's invocations, whose questions and failures a list shows. All lists of a tenant with one key
   * share an entry, once a minute: `pie ps --watch` asks every second, each time by a request of its own.
   */
  async recordList({ principal }: Call, owner: string): Promise<void> {
    const { tenant, keyId } = principal;
    if (owner === tenant) return;
    await this.#once(JSON.stringify([keyId, owner, 'list']), () =>
      this.#scheduler.audit.record(keyId, owner, 'invocation.list', owner),
    );
  }

  /** Writes the entry of a read, once a minute. A read whose entry could not be written counts as not recorded. */
  async #once(read: string, write: () => Promise<unknown>): Promise<void> {
    const now = this.#clock();
    const recordedAt = this.#reads.get(read);
    if (recordedAt !== undefined && now - recordedAt < SAME_READ_MS) return;
    this.#reads.delete(read);
    for (const oldest of this.#reads.keys()) {
      if (this.#reads.size < MAX_READS) break;
      this.#reads.delete(oldest);
    }
    this.#reads.set(read, now);
    try {
      await write();
    } catch (error) {
      this.#reads.delete(read);
      throw error;
    }
  }
}
