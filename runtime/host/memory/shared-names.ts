import { randomUUID } from 'node:crypto';
import type { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { NameOwner, NameOwners, OwnedName } from '#scheduler/exports/exports.ts';
import { TenantTurns } from '#scheduler/policies/tenant-turns.ts';
import type { DurableCopies } from './durable-copies.ts';

/** A GPU host that owns a name, and the name's entry in the store. */
export interface Place {
  readonly connection: GpuHostConnection;
  readonly owner: NameOwner;
}

/** Maximum attempts of one claim. The first fails when the name has an entry, each later one when another save has replaced the entry meanwhile. */
const MAX_TRIES = 8;

/** The names that a runtime's GPU hosts share: which host owns an export or a KV file, and the turns of transfers between hosts. */
export class SharedNames {
  readonly turns = new TransferTurns();
  /** Turns of transfers to and from the shared directory, which may hang: transfers between hosts do not wait for them. */
  readonly durableTurns = new TransferTurns();
  readonly owners: Pick<NameOwners, 'of' | 'list' | 'claim' | 'release'>;
  /** Copies of names in storage that all machines share; without it, a name is as durable as its host. */
  readonly durable: DurableCopies | undefined;
  /** Removals under way, by name. */
  readonly #removals = new Map<string, Promise<unknown>>();
  readonly #hosts: { readonly list: readonly GpuHostConnection[] };

  constructor(
    owners: SharedNames['owners'],
    hosts: { readonly list: readonly GpuHostConnection[] },
    durable?: DurableCopies,
  ) {
    this.owners = owners;
    this.durable = durable;
    this.#hosts = hosts;
  }

  /**
   * The removal of a name that is under way. A later save must wait until the removal has ended before it claims the name: otherwise the removal
   * would release the entry of the save.
   */
  removalOf(name: OwnedName): Promise<unknown> | undefined {
    return this.#removals.get(keyOf(name));
  }

  /** Counts a removal as under way until it settles, and returns it. */
  removing<T>(name: OwnedName, removal: Promise<T>): Promise<T> {
    const key = keyOf(name);
    const settling = removal
      .catch(() => undefined)
      .finally(() => {
        if (this.#removals.get(key) === settling) this.#removals.delete(key);
      });
    this.#removals.set(key, settling);
    return removal;
  }

  /** True when hosts may use names of other hosts, or copies in shared storage. */
  get isShared(): boolean {
    return this.#hosts.list.length > 1 || this.durable !== undefined;
  }

  /** The GPU host of that name; undefined when the platform has none. */
  host(name: string): GpuHostConnection | undefined {
    return this.#hosts.list.find((connection) => connection.name === name);
  }

  /**
   * The other GPU host that owns a name; null when `ownHost` owns the name, or no host does. An entry does not count when the platform no
   * longer has the host, or when the name ended with an earlier process of the host.
   * @param owner the entry of the name
   * @returns an error when the owning host cannot be reached now
   */
  placeOf(name: string, owner: NameOwner | null, ownHost: GpuHostConnection): Outcome<Place | null> {
    if (!owner || owner.host === ownHost.name) return ok(null);
    const connection = this.host(owner.host);
    if (!connection) return ok(null);
    if (!connection.connected) return err(away(name, owner.host));
    if (isOver(owner, connection)) return ok(null);
    return ok({ connection, owner });
  }

  /** Removes the entry of a name that `ownHost` has removed, unless another host owns the name. @throws StoreError */
  async forget(name: OwnedName, ownHost: GpuHostConnection): Promise<void> {
    const owner = await this.owners.of(name);
    if (owner?.host === ownHost.name) await this.owners.release(name, owner);
  }

  /** Adds the missing entry of a name that a host has: the name was stored before hosts shared names. @throws StoreError */
  async note(name: OwnedName, ownHost: GpuHostConnection): Promise<void> {
    await this.owners.claim(name, ownerOf(ownHost, true), null);
  }

  /** Replaces the entry of a name that a host has, and returns the new entry; null when a save came first. @throws StoreError */
  async replaceEntry(name: OwnedName, host: GpuHostConnection, replaced: NameOwner | null): Promise<NameOwner | null> {
    const owner = ownerOf(host, true);
    return (await this.owners.claim(name, owner, replaced)) ? null : owner;
  }

  /**
   * Makes `ownHost`, which has stored content under a name, the name's owner, and ends the durable copy of the earlier content.
   * @param takenError asks another host whether it has the name; resolves to null when it does not, else to the error of the save
   * @returns the error when the name is taken or other saves keep coming first; the caller must then undo its save
   * @throws StoreError
   */
  async claim(
    name: OwnedName,
    ownHost: GpuHostConnection,
    persistent: boolean,
    takenError: (connection: GpuHostConnection) => Promise<HandlerError | null>,
  ): Promise<HandlerError | null> {
    const mine = ownerOf(ownHost, persistent);
    let replaced: NameOwner | null = null;
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const notedOwner: NameOwner | null = await this.owners.claim(name, mine, replaced);
      if (!notedOwner) {
        // Ignore errors: a copy of an earlier claim no longer counts, even if its file stays.
        await this.durable?.end(name, mine.claim).catch(() => undefined);
        return null;
      }
      const refused =
        notedOwner.host === ownHost.name
          ? await this.#ownRefusal(name, notedOwner, mine)
          : ((await this.#otherRefusal(name, notedOwner, takenError)) ?? (await this.#copyRefusal(name, notedOwner)));
      if (refused) return refused;
      replaced = notedOwner;
    }
    return handlerError('unavailable', `"${name.name}" is being saved by many inferlets at once; try again`);
  }

  /** The connected hosts besides `ownHost` that own some of these names, with the names. */
  holders(owners: ReadonlyMap<string, NameOwner>, ownHost: GpuHostConnection): Map<GpuHostConnection, Set<string>> {
    const holders = new Map<GpuHostConnection, Set<string>>();
    for (const [name, owner] of owners) {
      const connection = owner.host === ownHost.name ? undefined : this.host(owner.host);
      if (!connection?.connected || isOver(owner, connection)) continue;
      const names = holders.get(connection) ?? new Set();
      holders.set(connection, names.add(name));
    }
    return holders;
  }

  /**
   * Decides between two saves of a name at the same host. Returns the error when the entry of the earlier save stays; null when the new entry may
   * replace it.
   * @param noted the entry of the earlier save
   * @param saved the entry of the new save
   */
  async #ownRefusal(name: OwnedName, noted: NameOwner, saved: NameOwner): Promise<HandlerError | null> {
    // A host lets a save replace a KV file.
    if (name.kind === 'file') return null;
    // A host refuses an export under a name that it has. It accepted the new one, so it does not have the earlier one. If its present process
    // stored the earlier export, an inferlet has removed it since, and the removal has not reached the store yet.
    if (noted.hostId === saved.hostId) return null;
    // Otherwise the earlier export was lost with the process that stored it. A durable copy may be left.
    return this.#copyRefusal(name, noted);
  }

  /** The error when a durable copy of an owner's content is left: the save would end that copy. Null when no copy is left. */
  async #copyRefusal(name: OwnedName, owner: NameOwner): Promise<HandlerError | null> {
    const looked = await this.durable?.look(name, owner.host);
    if (looked?.copy?.claim !== owner.claim) return null;
    const text = `the name "${name.name}" is taken: its GPU host has lost it, and a durable copy is left. Remove it first`;
    return handlerError('invalid-argument', text);
  }

  /** The error when the other host that owns a name still has it, or cannot be asked; null when the save may replace the owner's entry. */
  async #otherRefusal(
    { name, kind }: OwnedName,
    owner: NameOwner,
    takenError: (connection: GpuHostConnection) => Promise<HandlerError | null>,
  ): Promise<HandlerError | null> {
    const connection = this.host(owner.host);
    if (!connection) return null;
    if (!connection.connected) return away(name, owner.host);
    if (isOver(owner, connection)) return null;
    const advice = kind === 'export' ? 'unexport it first' : 'only the holder of its lock may save it anew';
    const takenText = `the name "${name}" is taken on GPU host ${owner.host}; ${advice}`;
    const refused = await takenError(connection);
    return refused?.tag === 'invalid-argument' ? handlerError('invalid-argument', takenText) : refused;
  }
}

function keyOf({ tenant, model, kind, name }: OwnedName): string {
  return JSON.stringify([tenant, model, kind, name]);
}

function ownerOf({ name, hostId = '' }: GpuHostConnection, persistent: boolean): NameOwner {
  return { host: name, hostId, persistent, claim: randomUUID() };
}

/** True when the owner's content was not persistent and the process of the host that stored it has ended. */
function isOver({ persistent, hostId }: NameOwner, connection: GpuHostConnection): boolean {
  return !persistent && connection.hostId !== hostId;
}

function away(name: string, host: string): HandlerError {
  return handlerError(
    'unavailable',
    `"${name}" is kept by GPU host ${host}, which cannot be reached now; try again when it is back`,
  );
}

/** Maximum transfers at once, of one tenant and of all tenants: each transfer has two pieces in memory. */
const LIMITS = { tenant: 2, all: 8 };
/** Longest wait for a turn. */
const WAIT_MS = 60_000;

/** Bounds the transfers of saved pages, and the wait for each. Tenants whose transfers wait take turns. */
export class TransferTurns {
  readonly #turns = new TenantTurns(LIMITS);
  readonly #waitMs: number;

  constructor(waitMs = WAIT_MS) {
    this.#waitMs = waitMs;
  }

  /** Transfers that run or wait. */
  get size(): number {
    return this.#turns.size;
  }

  /** Makes a transfer when the tenant's turn comes. Returns an error when the turn does not come in time or the signal aborts first. */
  async during<T>(tenant: string, signal: AbortSignal, transfer: () => Promise<Outcome<T>>): Promise<Outcome<T>> {
    if (signal.aborted) return err(STOPPED);
    const refused = await this.#waitForTurn(tenant, signal);
    if (refused) return err(refused);
    try {
      return await transfer();
    } finally {
      this.#turns.leave(tenant);
    }
  }

  /** Resolves to null when the turn has come, and to an error when the wait has ended without it. */
  #waitForTurn(tenant: string, signal: AbortSignal): Promise<HandlerError | null> {
    return new Promise((resolve) => {
      const end = (error: HandlerError | null): void => {
        clearTimeout(timer);
        signal.removeEventListener('abort', onAbort);
        resolve(error);
      };
      const leaveQueue = (error: HandlerError): void => {
        cancel();
        end(error);
      };
      const onAbort = () => leaveQueue(STOPPED);
      const timer = setTimeout(() => leaveQueue(TOO_MANY), this.#waitMs);
      signal.addEventListener('abort', onAbort);
      const cancel = this.#turns.request(tenant, () => end(null));
    });
  }
}

const STOPPED = handlerError('cancelled', 'the inferlet was stopped before its pages were fetched');
const TOO_MANY = handlerError(
  'unavailable',
  'too many saved contexts are being fetched from other GPU hosts; try again, or place the function where they are',
);
