import { randomUUID } from 'node:crypto';
import type { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { COPIES_VERSION } from '#gpu-host/protocol/wire.ts';
import type { NameOwner, NameOwners, OwnedName } from '#scheduler/exports/owners.ts';
import type { DurableCopies } from './durable-copies.ts';
import { TransferTurns } from './turns.ts';

/** A GPU host that owns a name, and the entry that says so. */
export interface Place {
  readonly connection: GpuHostConnection;
  readonly owner: NameOwner;
}

/** Maximum entries that a claim replaces before it gives up; each comes from another save. */
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

  /** The removal of a name that is under way. A save that is sent after the removal must also be noted after it. */
  removalOf(name: OwnedName): Promise<unknown> | undefined {
    return this.#removals.get(keyOf(name));
  }

  /** Counts a removal as under way until it settles. */
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

  /** True when names of another host, or copies in shared storage, may be used at this one. */
  isShared(ownHost: GpuHostConnection): boolean {
    return (this.#hosts.list.length > 1 || this.durable !== undefined) && ownHost.version >= COPIES_VERSION;
  }

  /** The GPU host of that name; undefined when the platform has none. */
  host(name: string): GpuHostConnection | undefined {
    return this.#hosts.list.find((connection) => connection.name === name);
  }

  /**
   * The other GPU host that owns a name; null when `ownHost` owns the name, or no host does. An entry of a host
   * that the platform no longer has does not count, nor does one for a name that ended with an earlier process of its host.
   * @param owner the entry of the name
   */
  placeOf(name: string, owner: NameOwner | null, ownHost: GpuHostConnection): Outcome<Place | null> {
    if (!owner || owner.host === ownHost.name) return ok(null);
    const connection = this.host(owner.host);
    if (!connection) return ok(null);
    if (!connection.connected) return err(away(name, owner.host));
    if (connection.version < COPIES_VERSION || isOver(owner, connection)) return ok(null);
    return ok({ connection, owner });
  }

  /** Forgets a name that a host has removed. @throws StoreError */
  async forget(name: OwnedName, ownHost: GpuHostConnection): Promise<void> {
    const owner = await this.owners.of(name);
    if (owner?.host === ownHost.name) await this.owners.release(name, owner);
  }

  /** Adds the entry of a name that a host has without an entry: the name was stored before hosts shared names. @throws StoreError */
  async note(name: OwnedName, ownHost: GpuHostConnection): Promise<void> {
    await this.owners.claim(name, ownerOf(ownHost, true), null);
  }

  /** Replaces the entry of a name that a host has, and returns the new entry; null when a save came first. @throws StoreError */
  async replaceEntry(name: OwnedName, host: GpuHostConnection, replaced: NameOwner | null): Promise<NameOwner | null> {
    const owner = ownerOf(host, true);
    return (await this.owners.claim(name, owner, replaced)) ? null : owner;
  }

  /**
   * Notes that a host has stored a name, and ends the copy of the earlier content.
   * @param takenError asks another host for the name: null when the host no longer has it, else the error of a save under a taken name
   * @returns the error when another host owns the name; the caller must then remove what it has stored
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
      const otherOwner: NameOwner | null = await this.owners.claim(name, mine, replaced);
      if (!otherOwner) {
        // A copy of another claim does not count, whether or not its file is deleted now.
        await this.durable?.end(name, mine.claim).catch(() => undefined);
        return null;
      }
      const isOwn = otherOwner.host === ownHost.name;
      const refused =
        (isOwn ? null : await this.#refusal(name, otherOwner, takenError)) ??
        // Here `ownHost`, which has just stored the name, also has the entry. A KV file may replace its earlier content. A host refuses an export
        // under a name that it has, so `ownHost` no longer has the export of the entry. If its present process made the entry, a removal or
        // another save is under way. If an earlier process made the entry, the host has lost the export, and a durable copy may be left.
        (isOwn && (name.kind === 'file' || otherOwner.hostId === mine.hostId)
          ? null
          : await this.#copyRefusal(name, otherOwner));
      if (refused) return refused;
      replaced = otherOwner;
    }
    return handlerError('unavailable', `"${name.name}" is being saved by many inferlets at once; try again`);
  }

  /** The connected hosts besides `ownHost` that own some of these names, with the names. */
  holders(owners: ReadonlyMap<string, NameOwner>, ownHost: GpuHostConnection): Map<GpuHostConnection, Set<string>> {
    const holders = new Map<GpuHostConnection, Set<string>>();
    for (const [name, owner] of owners) {
      const connection = owner.host === ownHost.name ? undefined : this.host(owner.host);
      if (!connection?.connected || connection.version < COPIES_VERSION || isOver(owner, connection)) continue;
      const names = holders.get(connection) ?? new Set();
      holders.set(connection, names.add(name));
    }
    return holders;
  }

  /** The error for a name of which a copy is left. */
  async #copyRefusal(name: OwnedName, owner: NameOwner): Promise<HandlerError | null> {
    const looked = await this.durable?.look(name, owner.host);
    if (looked?.copy?.claim !== owner.claim) return null;
    const text = `the name "${name.name}" is taken: its GPU host has lost it, and a durable copy is left. Remove it first`;
    return handlerError('invalid-argument', text);
  }

  async #refusal(
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
    if (connection.version < COPIES_VERSION) return handlerError('invalid-argument', takenText);
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

/** True for a name that ended with the process of its host. */
function isOver({ persistent, hostId }: NameOwner, connection: GpuHostConnection): boolean {
  return !persistent && connection.hostId !== hostId;
}

function away(name: string, host: string): HandlerError {
  return handlerError(
    'unavailable',
    `"${name}" is kept by GPU host ${host}, which cannot be reached now; try again when it is back`,
  );
}
