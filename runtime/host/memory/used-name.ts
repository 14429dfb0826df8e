import type { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { DurableCopy, NamedKind, NameOwner, OwnedName, Removal } from '#scheduler/exports/exports.ts';
import type { DeviceQueue } from '../device/queue.ts';
import { fromStore } from '../services/ask.ts';
import type { Inferlet } from '../session/inferlet.ts';
import type { Side } from './other-hosts.ts';
import type { SharedNames } from './shared-names.ts';

/** Names under this prefix belong to the tenant `SYSTEM_TENANT`, whichever tenant uses them. */
const SYSTEM_PREFIX = 'system/';
export const SYSTEM_TENANT = 'system';

/** A name as an inferlet uses it on one of its queues. */
export interface UsedName {
  readonly inferlet: Inferlet;
  readonly queue: DeviceQueue;
  readonly kind: NamedKind;
  readonly name: string;
}

/** The participants of a call about a name that another GPU host may own. */
export interface Shared {
  readonly names: SharedNames;
  /** The GPU host of the inferlet's queue. */
  readonly ownHost: GpuHostConnection;
  /** The inferlet's queue at `ownHost`. */
  readonly here: Side;
  readonly owned: OwnedName;
}

/** The entries of a name in the platform's store. */
export interface NameEntries {
  readonly owner: NameOwner | null;
  /** The copy of the owner's content in the shared directory. */
  readonly copy: DurableCopy | null;
  /** The removal that the queue's own host must still make. Until then, the host's content under the name does not count. */
  readonly removal: Removal | null;
}

/** Reads the entries of a name. Returns an error when the store does not answer. */
export async function findName({ names, ownHost, owned }: Shared): Promise<Outcome<NameEntries>> {
  try {
    const looking = names.durable?.look(owned, ownHost.name);
    const [owner, looked] = await Promise.all([names.owners.of(owned), looking]);
    // A copy with another claim than the owner's is obsolete: a later save replaced it.
    const copy = looked?.copy && looked.copy.claim === owner?.claim ? looked.copy : null;
    // A later save by this host makes the removal obsolete.
    const isSavedAgain = owner?.host === ownHost.name && owner.claim !== looked?.removal?.claim;
    return ok({ owner, copy, removal: isSavedAgain ? null : (looked?.removal ?? null) });
  } catch (error) {
    return err(fromStore(error));
  }
}

/** The participants of a call about a name; undefined when the name is not shared with other GPU hosts. */
export function sharedFor(usedName: UsedName): Shared | undefined {
  const names = namesOf(usedName.inferlet);
  const { device, model, id } = usedName.queue;
  if (!names || !device || !model || !names.isShared) return undefined;
  return { names, ownHost: model.connection, here: { device, queue: id }, owned: ownedName(usedName) };
}

export function namesOf({ services }: Inferlet): SharedNames | undefined {
  return services.names;
}

/** The name with its tenant and its model, as the platform's store knows it. */
export function ownedName({ inferlet, queue, kind, name }: UsedName): OwnedName {
  return { tenant: tenantOf(inferlet.description.tenant, name), model: queue.name, kind, name };
}

export function tenantOf(tenant: string, name: string): string {
  return name.startsWith(SYSTEM_PREFIX) ? SYSTEM_TENANT : tenant;
}

export function isNotFound(outcome: Outcome<unknown>): boolean {
  return outcome.tag === 'err' && outcome.val.tag === 'not-found';
}

/** The error for a name that was removed while its host was away, although the host still has content under it. */
export function nothingNamed(name: string): HandlerError {
  return handlerError(
    'not-found',
    `no export or file has the name "${name}"; it was removed while its GPU host was away`,
  );
}
