import { randomUUID } from 'node:crypto';
import type { Imported } from '#gpu-host/protocol/calls.ts';
import type { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { DurableCopy, NameOwner, Removal } from '#scheduler/exports/exports.ts';
import { ask, fromStore } from '../services/ask.ts';
import { bringCopy, finishRemoval, GONE, listCopies, MAX_FETCHES, removeCopy } from './durable-names.ts';
import { answerInTime, carry, LATE, type OtherSide, type Side } from './other-hosts.ts';
import type { Place } from './shared-names.ts';
import {
  findName,
  isNotFound,
  namesOf,
  nothingNamed,
  ownedName,
  type Shared,
  SYSTEM_TENANT,
  sharedFor,
  tenantOf,
  type UsedName,
} from './used-name.ts';

/** The pages of a name, mapped at the queue's GPU host. */
export interface Brought extends Imported {
  /** The GPU host that owns the name, when that is another one and the name was opened for writing. This host holds the name's lock. */
  readonly owner?: OtherSide;
}

/**
 * Maps the pages of a name. When another GPU host owns the name, its pages are fetched from there, unless the queue's host keeps a copy of the
 * same version.
 *
 * @param open maps the pages at a host, and takes the lock there if `write`
 */
export async function bring(
  usedName: UsedName,
  write: boolean,
  open: (side: Side) => Promise<Outcome<Imported>>,
): Promise<Outcome<Brought>> {
  const { inferlet, queue } = usedName;
  const { device } = queue;
  if (!device) return queue.refusal();
  const here = { device, queue: queue.id };
  const shared = sharedFor(usedName);
  if (!shared) return open(here);
  return ask(inferlet, async (): Promise<Outcome<Brought>> => {
    const { names, ownHost, owned } = shared;
    const found = await findName(shared);
    if (found.tag === 'err') {
      // The own host's names do not need the store.
      const outcome = await open(here);
      return isNotFound(outcome) ? found : outcome;
    }
    const { owner, copy, removal } = found.val;
    const place = names.placeOf(usedName.name, owner, ownHost);
    if (place.tag === 'err') return copy ? bringCopy(usedName, shared, copy, write) : place;
    if (place.val) {
      const fetched = await fetchPages(usedName, shared, place.val, copy, write, open);
      const isMissing = isNotFound(fetched) || (!write && fetched.tag === 'err' && fetched.val.tag === 'unavailable');
      return isMissing && copy ? bringCopy(usedName, shared, copy, write) : fetched;
    }
    if (removal) {
      await finishRemoval(usedName, shared, removal);
      return err(nothingNamed(usedName.name));
    }
    // When the owner cannot provide the content, its durable copy counts, not older content that the inferlet's own host may have.
    if (copy && (owner?.host !== ownHost.name || (await isLost(usedName, shared))))
      return bringCopy(usedName, shared, copy, write);
    const outcome = await open(here);
    // When the store does not answer, the next import updates the entry.
    if (outcome.tag === 'ok' && !owner) void names.note(owned, ownHost).catch(() => undefined);
    if (isNotFound(outcome) && !copy && owner?.host === ownHost.name)
      void names.owners.release(owned, owner).catch(() => undefined);
    return outcome;
  });
}

/**
 * Records in the store a save at the queue's own GPU host, and undoes the save when another host owns the name.
 * @param saved the outcome of the save
 * @param undo removes the saved name from the host
 * @param replaces true when the save replaced content of this host, which `undo` would remove with it
 */
export async function noteSave(
  usedName: UsedName,
  persistent: boolean,
  saved: Promise<Outcome<undefined>>,
  undo: (side: Side) => Promise<Outcome<undefined>>,
  replaces = false,
): Promise<Outcome<undefined>> {
  const { inferlet } = usedName;
  const names = namesOf(inferlet);
  const { device, model } = usedName.queue;
  if (!names || !device || !model) return saved;
  const { connection: ownHost } = model;
  const owned = ownedName(usedName);
  const removal = names.removalOf(owned);
  const work = saved.then(async (outcome): Promise<Outcome<undefined>> => {
    if (outcome.tag === 'err') return (await freeRemoved(usedName, outcome.val)) ?? outcome;
    await removal;
    let isClaimUnknown = false;
    const claiming = names
      .claim(owned, ownHost, persistent, (connection) => nameTakenError(usedName, connection))
      .catch((error: unknown) => {
        isClaimUnknown = true;
        return fromStore(error);
      });
    // A host that shares no names does not wait for the claim, so that its saves succeed while the store is away.
    if (!names.isShared) return outcome;
    const noting = claiming.then(async (refused): Promise<Outcome<undefined>> => {
      if (!refused) return outcome;
      // When the store did not answer, the entry of replaced content still names this host, so it also covers the new content.
      if (!(isClaimUnknown && replaces)) await undo({ device, queue: usedName.queue.id });
      return err(refused);
    });
    inferlet.noting.add(noting);
    return noting.finally(() => inferlet.noting.delete(noting));
  });
  return inferlet.interruptions.until(work);
}

/** Frees a name that was removed while its host was away. Returns an error that asks to try again; null when the host refused for another reason. */
async function freeRemoved(usedName: UsedName, error: HandlerError): Promise<Outcome<undefined> | null> {
  const shared = sharedFor(usedName);
  if (error.tag !== 'invalid-argument' || !shared?.names.durable) return null;
  const found = await findName(shared);
  if (found.tag === 'err' || !found.val.removal) return null;
  await finishRemoval(usedName, shared, found.val.removal);
  const text = `the name "${usedName.name}" was removed while its GPU host was away, and is free from now on; try again`;
  return err(handlerError('unavailable', text));
}

/** Makes a call about a name at the GPU host that has its pages. */
export async function atOwner<T>(usedName: UsedName, call: (side: Side) => Promise<Outcome<T>>): Promise<Outcome<T>> {
  const { inferlet, queue, name } = usedName;
  const { device } = queue;
  if (!device) return queue.refusal();
  const here = { device, queue: queue.id };
  const shared = sharedFor(usedName);
  if (!shared) return call(here);
  return ask(inferlet, async (): Promise<Outcome<T>> => {
    const { names, ownHost } = shared;
    const found = await findName(shared);
    if (found.tag === 'err') {
      // The own host's names do not need the store.
      const outcome = await call(here);
      return isNotFound(outcome) ? found : outcome;
    }
    const { owner, removal } = found.val;
    const place = names.placeOf(name, owner, ownHost);
    if (place.tag === 'err') return place;
    if (place.val) return callAt(usedName, place.val, call);
    if (!removal) return call(here);
    await finishRemoval(usedName, shared, removal);
    return err(nothingNamed(name));
  });
}

/** Removes a name at the inferlet's own host, at its owner and in the store. @param remove removes it at one host */
export async function removeName(
  usedName: UsedName,
  remove: (side: Side) => Promise<Outcome<undefined>>,
): Promise<Outcome<undefined>> {
  const { inferlet, queue } = usedName;
  const { device, model } = queue;
  if (!device || !model) return queue.refusal();
  const names = namesOf(inferlet);
  // Remove it at the own host first, so that the queue's later saves find the name free.
  const removing = remove({ device, queue: queue.id });
  if (!names) return removing;
  const shared = sharedFor(usedName);
  const owned = ownedName(usedName);
  const work = removing.then(async (outcome): Promise<Outcome<undefined>> => {
    if (outcome.tag === 'err' && outcome.val.tag !== 'not-found') return outcome;
    const ownHost = model.connection;
    if (!shared) {
      // If this fails, a stale entry stays. That is harmless: the next reader asks the host.
      void names.forget(owned, ownHost).catch(() => undefined);
      return outcome;
    }
    try {
      return await removeElsewhere(usedName, shared, outcome, remove);
    } catch (error) {
      // With durable copies, do not report success: a copy may be left, and a later use would find it.
      return outcome.tag === 'ok' && !names.durable ? outcome : err(fromStore(error));
    }
  });
  return inferlet.interruptions.until(names.removing(owned, work));
}

/** Removes a name at its owner and in the store, once the queue's own host has removed it. @throws StoreError */
async function removeElsewhere(
  usedName: UsedName,
  shared: Shared,
  ownOutcome: Outcome<undefined>,
  remove: (side: Side) => Promise<Outcome<undefined>>,
): Promise<Outcome<undefined>> {
  const { names, ownHost, owned } = shared;
  const found = await findName(shared);
  if (found.tag === 'err') return ownOutcome.tag === 'ok' && !names.durable ? ownOutcome : found;
  const { owner, copy, removal } = found.val;
  // The name was removed earlier, while the own host was away. That host has now removed it, too.
  if (removal) await names.durable?.forgotten(owned, ownHost.name, removal);
  const outcome = removal ? err(nothingNamed(usedName.name)) : ownOutcome;
  if (!owner) return outcome;
  const place = names.placeOf(usedName.name, owner, ownHost);
  if (place.tag === 'err') {
    if (copy) return removeCopy(usedName, shared, owner, copy, true);
    return outcome.tag === 'ok' ? outcome : place;
  }
  if (!place.val) {
    const isOwn = owner.host === ownHost.name;
    if (copy) return removeCopy(usedName, shared, owner, copy, !isOwn, isOwn && outcome.tag === 'ok');
    if (isOwn) await names.owners.release(owned, owner);
    return outcome;
  }
  const ownerOutcome = await callAt(usedName, place.val, remove);
  if (ownerOutcome.tag === 'err' && !isNotFound(ownerOutcome)) return ownerOutcome;
  if (copy) return removeCopy(usedName, shared, owner, copy, false, ownerOutcome.tag === 'ok');
  await names.owners.release(owned, owner);
  return isNotFound(ownerOutcome) ? outcome : ownerOutcome;
}

/**
 * Lists the tenant's names on all connected GPU hosts, and the names of which only a copy is left, sorted by name.
 * @param list lists the names of one host
 * @param ofCopy the list entry of a copy; null when the list leaves the copy out
 */
export async function listNames<T extends { readonly name: string }>(
  usedName: Omit<UsedName, 'name'>,
  list: (side: Side) => Promise<Outcome<readonly T[]>>,
  ofCopy: (name: string, copy: DurableCopy) => T | null,
): Promise<Outcome<readonly T[]>> {
  const { inferlet, queue, kind } = usedName;
  const { device } = queue;
  if (!device) return queue.refusal();
  const here = { device, queue: queue.id };
  const shared = sharedFor({ ...usedName, name: '' });
  const ownEntries = list(here);
  if (!shared) return ownEntries;
  return ask(inferlet, async (): Promise<Outcome<readonly T[]>> => {
    const { names, owned } = shared;
    const tenants = kind === 'file' ? [...new Set([owned.tenant, SYSTEM_TENANT])] : [owned.tenant];
    const maps = await Promise.all(tenants.map((tenant) => names.owners.list({ ...owned, tenant })));
    const owners = new Map<string, NameOwner>(
      maps.flatMap((map, i) => [...map].filter(([name]) => tenantOf(owned.tenant, name) === tenants[i])),
    );
    const holders = [...names.holders(owners, shared.ownHost)];
    const otherLists = await Promise.all(
      holders.map(async ([connection, heldNames]) => {
        const listed = await answerInTime(list(inferlet.otherHosts.at(connection, queue.name)));
        return listed.tag === 'ok' ? ok(listed.val.filter(({ name }) => heldNames.has(name))) : listed;
      }),
    );
    const ownListed = await ownEntries;
    if (ownListed.tag === 'err') return ownListed;
    const entriesByName = new Map<string, T>();
    const { copies, removed } = await listCopies(usedName, shared, tenants, owners);
    for (const [name, copy] of copies) {
      const entry = ofCopy(name, copy);
      if (entry) entriesByName.set(name, entry);
    }
    for (const entry of ownListed.val) if (!removed.has(entry.name)) entriesByName.set(entry.name, entry);
    // Makes the removals that the host missed while it was away, which frees the pages of those names.
    const removalsToFinish = [...removed].slice(0, MAX_FINISHED);
    await Promise.all(removalsToFinish.map(([name, removal]) => finishNamed({ ...usedName, name }, removal)));
    for (const [i, listed] of otherLists.entries()) {
      const connection = holders[i]?.[0];
      // Leave out the names of a host that was lost in the meantime.
      if (listed.tag === 'err' && connection?.connected) return listed;
      if (listed.tag === 'ok') for (const entry of listed.val) entriesByName.set(entry.name, entry);
    }
    return ok([...entriesByName.values()].sort((a, b) => (a.name < b.name ? -1 : 1)));
  });
}

/**
 * Saves pages under a name whose lock the inferlet holds at another GPU host: carries the pages to that host, saves them there, and records the
 * save in the store. Without the record, the entry of the earlier save would count. If that save was not persistent, its entry ends with the
 * owner's process, and other hosts could then take the name although the owner still has the new content.
 * @param save saves pages at the owner
 */
export async function saveAtOwner(
  usedName: UsedName,
  pages: Uint32Array,
  owner: OtherSide,
  persistent: boolean,
  save: (pages: Uint32Array) => Promise<Outcome<undefined>>,
): Promise<Outcome<undefined>> {
  const { inferlet, queue, name } = usedName;
  const { device } = queue;
  const names = namesOf(inferlet);
  if (!device || !names) return queue.refusal();
  const here = { device, queue: queue.id };
  const full = inferlet.stopped ?? inferlet.outgoing.refusal(0);
  if (full) return err(full);
  // Take a snapshot now: later calls may write the pages.
  const frozen = pages.length === 0 ? ok(pages) : device.sharePages(queue.id, pages);
  if (frozen.tag === 'err') return frozen;
  const free = ({ device, queue }: Side, heldPages: Uint32Array) => {
    if (heldPages.length > 0) device.freePages(queue, heldPages);
  };
  return ask(inferlet, async () => {
    try {
      const version = randomUUID();
      const carried = await names.turns.during(inferlet.description.tenant, inferlet.stopping, () =>
        carry(here, frozen.val, owner, version, () => inferlet.stopped),
      );
      // Map the copy outside of the turn: the owner may hold the call until it has memory for the pages.
      const mapping = carried.tag === 'ok' ? owner.device.mapCopy(owner.queue, version) : Promise.resolve(carried);
      const mapped = await answerInTime(mapping);
      if (mapped.tag === 'err') {
        void mapping.then((outcome) => outcome.tag === 'ok' && free(owner, outcome.val.pages));
        return err(isNotFound(mapped) ? GONE : ownersError(mapped.val, name, owner));
      }
      const saved = await answerInTime(save(mapped.val.pages));
      free(owner, mapped.val.pages);
      if (saved.tag === 'err') return saved;
      const { connection } = owner;
      const refused = await names.claim(ownedName(usedName), connection, persistent, (other) =>
        nameTakenError(usedName, other),
      );
      return refused ? err(refused) : saved;
    } finally {
      free(here, frozen.val);
    }
  });
}

async function fetchPages(
  usedName: UsedName,
  { names, here, owned }: Shared,
  { connection, owner }: Place,
  copy: DurableCopy | null,
  write: boolean,
  open: (side: Side) => Promise<Outcome<Imported>>,
): Promise<Outcome<Brought>> {
  const { inferlet, queue, kind, name } = usedName;
  const { tenant, functionName } = inferlet.description;
  const ownerSide = inferlet.otherHosts.at(connection, queue.name);
  let opened: Outcome<Imported> | undefined;
  let outcome: Outcome<Brought> = err(GONE);
  try {
    // Opening for writing takes the lock first, so that the version cannot change. A read asks for the version before it opens the name:
    // otherwise a save in between would make this host keep older content under the newer version.
    if (write) opened = await answerInTime(open(ownerSide));
    outcome = opened?.tag === 'err' ? await releaseIfUnknown(opened) : await mapPages();
  } finally {
    if (opened?.tag === 'ok') {
      if (opened.val.pages.length > 0) ownerSide.device.freePages(ownerSide.queue, opened.val.pages);
      if (write && outcome.tag === 'err') void ownerSide.device.ask(ownerSide.queue, { op: 'file-unlock', name });
    }
  }
  if (outcome.tag === 'ok') return ok(write ? { ...outcome.val, owner: ownerSide } : outcome.val);
  // Closing the inferlet's side of a silent host ends the calls that the host has not answered.
  if (outcome.val === LATE) inferlet.otherHosts.drop(connection);
  return err(ownersError(outcome.val, name, ownerSide));

  async function mapPages(): Promise<Outcome<Imported>> {
    for (let tries = 0; tries < MAX_FETCHES; tries++) {
      const call = { op: 'name-version', file: kind === 'file', name, functionName } as const;
      const version = await answerInTime(ownerSide.device.ask(ownerSide.queue, call));
      if (version.tag === 'err') return releaseIfUnknown(version);
      // Map the copy outside of the turn: the queue's host may hold the call until it has memory for the pages.
      const mappedCopy = await here.device.mapCopy(here.queue, version.val.version);
      if (!isNotFound(mappedCopy)) return mappedCopy;
      if (tries === MAX_FETCHES - 1) break;
      const fetched = await names.turns.during(tenant, inferlet.stopping, () => fetchNow(version.val.version));
      if (fetched.tag === 'err') return fetched;
    }
    return err(GONE);
  }

  async function fetchNow(version: string): Promise<Outcome<undefined>> {
    const pages = opened ?? (await answerInTime(open(ownerSide)));
    if (pages.tag === 'err') return releaseIfUnknown(pages);
    try {
      const carried = await carry(ownerSide, pages.val.pages, here, version, () => inferlet.stopped);
      // `not-found` means here that a host has ended its part of a transfer that made no progress. The name still exists.
      return isNotFound(carried) ? err(STOOD_STILL) : carried;
    } finally {
      if (!opened && pages.val.pages.length > 0) ownerSide.device.freePages(ownerSide.queue, pages.val.pages);
    }
  }

  /** Returns an error of the owner. Releases the entry of a name that the owner does not know, unless a copy is left. */
  async function releaseIfUnknown<E extends Extract<Outcome<never>, { tag: 'err' }>>(outcome: E): Promise<E> {
    if (isNotFound(outcome) && !copy) await names.owners.release(owned, owner);
    return outcome;
  }
}

async function finishNamed(usedName: UsedName, removal: Removal): Promise<void> {
  const shared = sharedFor(usedName);
  if (shared) await finishRemoval(usedName, shared, removal);
}

/** Maximum removals that one list of names finishes; a later list finishes the others. */
const MAX_FINISHED = 32;
const STOOD_STILL = handlerError(
  'unavailable',
  'the transfer from another GPU host stood still for too long; try again',
);

/** Makes a call at another host, which owns a name. */
async function callAt<T>(
  { inferlet, queue, name }: UsedName,
  { connection }: Place,
  call: (side: Side) => Promise<Outcome<T>>,
): Promise<Outcome<T>> {
  const side = inferlet.otherHosts.at(connection, queue.name);
  const outcome = await answerInTime(call(side));
  return outcome.tag === 'ok' ? outcome : err(ownersError(outcome.val, name, side));
}

/** True when the queue's own host does not know the name. */
async function isLost({ inferlet, kind, name }: UsedName, { here }: Shared): Promise<boolean> {
  const { functionName } = inferlet.description;
  const call = { op: 'name-version', file: kind === 'file', name, functionName } as const;
  return isNotFound(await answerInTime(here.device.ask(here.queue, call)));
}

/** The error with which a save fails when a host has the name or gives no answer; null when the host does not have the name. */
async function nameTakenError({ inferlet, queue, kind, name }: UsedName, connection: GpuHostConnection) {
  const other = inferlet.otherHosts.at(connection, queue.name);
  const { functionName } = inferlet.description;
  const call = { op: 'name-version', file: kind === 'file', name, functionName } as const;
  const version = await answerInTime(other.device.ask(other.queue, call));
  if (isNotFound(version)) return null;
  if (version.tag === 'err' && other.device.lost !== undefined) return ownersError(version.val, name, other);
  // The host has the name, though perhaps private to another function, or of another model.
  return version.tag === 'ok' || version.val.tag === 'unsupported' || version.val.tag === 'invalid-argument'
    ? handlerError('invalid-argument', `the name "${name}" is taken`)
    : version.val;
}

/** The inferlet's error for an error of a transfer, or of a call at the host that owns a name. */
function ownersError(error: HandlerError, name: string, { device }: Side): HandlerError {
  if (device.lost !== undefined) {
    const text = `the GPU host that keeps "${name}" was lost before its pages had come (${device.lost}); nothing of them was kept. Try again when the host is back`;
    return handlerError('unavailable', text);
  }
  if (error.tag !== 'terminated') return error;
  return handlerError(
    'unavailable',
    `the GPU host that keeps "${name}" is out of memory now (${error.val}); try again`,
  );
}
