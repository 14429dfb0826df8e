import type { FileInfo, Imported } from '#gpu-host/protocol/calls.ts';
import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { DurableCopy, NameOwner, Removal } from '#scheduler/exports/exports.ts';
import { ask } from '../services/ask.ts';
import { CHANGED, type Content } from './durable-copies.ts';
import { answerInTime, type Side } from './other-hosts.ts';
import {
  findName,
  isNotFound,
  namesOf,
  nothingNamed,
  type Shared,
  SYSTEM_TENANT,
  sharedFor,
  tenantOf,
  type UsedName,
} from './used-name.ts';

/** Attempts of one import to map a copy: a fetched copy may have to give way to others before it is mapped. */
export const MAX_FETCHES = 3;

/** The error for a copy that had to give way before it was mapped. */
export const GONE = handlerError(
  'unavailable',
  'the pages gave way to others that were fetched at the same time; try again, or place the function where they are',
);
const NO_STORAGE = handlerError(
  'unsupported',
  'this platform has no storage that its machines share: its operator sets shared_directory below [storage] in pie.toml',
);
const UNREACHED = handlerError('unavailable', 'the GPU host cannot be reached now; try again when it is back');
const OPERATORS = handlerError('unsupported', 'names under "system/" are written by operators only');

/** Writes the content of a name to the shared directory. @param open maps the pages at a host, for reading */
export async function makeDurable(
  usedName: UsedName,
  open: (side: Side) => Promise<Outcome<Imported>>,
): Promise<Outcome<undefined>> {
  const { inferlet, queue } = usedName;
  if (!queue.device || !queue.model) return queue.refusal();
  const durable = namesOf(inferlet)?.durable;
  if (!durable) return err(NO_STORAGE);
  const shared = sharedFor(usedName);
  if (!shared) return err(UNREACHED);
  const { names, ownHost, owned, here } = shared;
  const { tenant } = inferlet.description;
  if (owned.tenant === SYSTEM_TENANT && tenant !== SYSTEM_TENANT) return err(OPERATORS);
  return ask(inferlet, async (): Promise<Outcome<undefined>> => {
    const found = await findName(shared);
    if (found.tag === 'err') return found;
    const { owner, copy, removal } = found.val;
    const place = names.placeOf(usedName.name, owner, ownHost);
    if (place.tag === 'err') return copy ? durableAlready(usedName, shared, copy) : place;
    if (copy && !place.val && owner?.host !== ownHost.name) return durableAlready(usedName, shared, copy);
    if (!place.val && removal) return err(nothingNamed(usedName.name));
    const side = place.val ? inferlet.otherHosts.at(place.val.connection, queue.name) : here;
    const free = ({ pages }: Imported) => {
      if (pages.length > 0) side.device.freePages(side.queue, pages);
    };
    // The inferlet's own host may hold the call until it has memory for the pages, so the wait for it has no limit.
    const opening = open(side);
    const opened = await (place.val ? answerInTime(opening) : opening);
    if (opened.tag === 'err') {
      // A host that answers too late has mapped the pages all the same.
      void opening.then((outcome) => outcome.tag === 'ok' && free(outcome.val));
      return isNotFound(opened) && copy ? durableAlready(usedName, shared, copy) : opened;
    }
    const { pages, tokens, nextPosition } = opened.val;
    try {
      const access = await accessOf(usedName, side);
      if (access.tag === 'err') return access;
      const host = place.val?.connection ?? ownHost;
      const entry = owner?.host === host.name ? owner : await names.replaceEntry(owned, host, owner);
      if (!entry) return err(CHANGED);
      const content: Content = { name: owned, owner: entry, side, pages, tokens, nextPosition, access: access.val };
      return await names.durableTurns.during(tenant, inferlet.stopping, () =>
        durable.write(content, () => inferlet.stopped),
      );
    } finally {
      free(opened.val);
    }
  });
}

/** Maps the pages of a copy at the queue's host, for reading. */
export async function bringCopy(
  usedName: UsedName,
  shared: Shared,
  copy: DurableCopy,
  write: boolean,
): Promise<Outcome<Imported>> {
  const { names, here, owned } = shared;
  const { inferlet, name } = usedName;
  const { durable } = names;
  if (!durable) return err(NO_STORAGE);
  const refused = readRefusal(usedName, copy);
  if (refused) return err(refused);
  if (write) return err(readOnly(name));
  for (let tries = 0; tries < MAX_FETCHES; tries++) {
    const mappedCopy = await here.device.mapCopy(here.queue, copy.file);
    if (!isNotFound(mappedCopy)) return mappedCopy;
    if (tries === MAX_FETCHES - 1) break;
    const { tenant } = inferlet.description;
    const brought = await names.durableTurns.during(tenant, inferlet.stopping, () =>
      durable.bring(owned, copy, here, () => inferlet.stopped),
    );
    if (brought.tag === 'err') return (await changedSince(shared, copy)) ?? brought;
  }
  return err(GONE);
}

/**
 * Removes a name that has a copy.
 * @param isAway true when the owner cannot be asked and may still have the content
 * @param isAllowed true when the owner has removed the name, and so has checked the inferlet's right to it
 * @throws StoreError
 */
export async function removeCopy(
  usedName: UsedName,
  { names, owned }: Shared,
  owner: NameOwner,
  copy: DurableCopy,
  isAway: boolean,
  isAllowed = false,
): Promise<Outcome<undefined>> {
  const { durable } = names;
  const refused = isAllowed ? null : writeRefusal(usedName, copy.access);
  if (refused || !durable) return err(refused ?? NO_STORAGE);
  return durable.remove(owned, owner, copy, isAway);
}

/** Makes a removal that the queue's own host missed while it was away. Once the host has answered, forgets the removal. */
export async function finishRemoval(
  { inferlet, kind, name }: UsedName,
  { names, ownHost, owned, here }: Shared,
  removal: Removal,
): Promise<void> {
  // Ask as the owner of the file: the function that removed the name had the right to.
  const functionName = removal.owner ?? inferlet.description.functionName;
  const call =
    kind === 'file' ? ({ op: 'file-remove', name, functionName } as const) : ({ op: 'unexport', name } as const);
  const outcome = await answerInTime(here.device.ask(here.queue, call));
  // When the store is away, the entry of the removal stays, and the next use of the name tries again.
  if (outcome.tag === 'ok' || isNotFound(outcome))
    await names.durable?.forgotten(owned, ownHost.name, removal).catch(() => undefined);
}

/** The current copies that the inferlet may read, and the removals that the queue's own host must still make, by name. @throws StoreError */
export async function listCopies(
  usedName: Omit<UsedName, 'name'>,
  { names, ownHost }: Shared,
  tenants: readonly string[],
  owners: ReadonlyMap<string, NameOwner>,
): Promise<{ readonly copies: ReadonlyMap<string, DurableCopy>; readonly removed: ReadonlyMap<string, Removal> }> {
  const copies = new Map<string, DurableCopy>();
  const removed = new Map<string, Removal>();
  const { durable } = names;
  if (!durable) return { copies, removed };
  for (const lists of await Promise.all(tenants.map((tenant) => durable.list(tenant, ownHost.name)))) {
    const isAsked = ({ name }: { readonly name: { readonly model: string; readonly kind: string } }) =>
      name.model === usedName.queue.name && name.kind === usedName.kind;
    for (const {
      name: { name },
      copy,
    } of lists.copies.filter(isAsked)) {
      const isRead = readRefusal({ ...usedName, name }, copy) === null;
      if (owners.get(name)?.claim === copy.claim && isRead) copies.set(name, copy);
    }
    for (const {
      name: { name },
      removal,
    } of lists.removals.filter(isAsked))
      if (owners.get(name)?.host !== ownHost.name) removed.set(name, removal);
  }
  return { copies, removed };
}

/** The error for a copy that another copy or a removal has replaced; null while the copy counts. */
async function changedSince(shared: Shared, copy: DurableCopy): Promise<Outcome<never> | null> {
  const latest = await findName(shared);
  return latest.tag === 'ok' && latest.val.copy?.file !== copy.file ? err(CHANGED) : null;
}

/** Answers `make-durable` for a name of which only the durable copy is left: succeeds if the file of the copy is there. */
async function durableAlready(usedName: UsedName, shared: Shared, copy: DurableCopy): Promise<Outcome<undefined>> {
  const { names, owned } = shared;
  const refused = writeRefusal(usedName, copy.access);
  if (refused || !names.durable) return err(refused ?? NO_STORAGE);
  const checked = await names.durable.check(owned, copy);
  return checked.tag === 'ok' ? checked : ((await changedSince(shared, copy)) ?? checked);
}

/** The rights that a host has noted for a KV file; null for an export. An error when the inferlet may not write the file. */
async function accessOf(usedName: UsedName, { device, queue }: Side): Promise<Outcome<DurableCopy['access']>> {
  if (usedName.kind === 'export') return ok(null);
  const { functionName } = usedName.inferlet.description;
  const call = { op: 'file-list', prefix: usedName.name, functionName } as const;
  const listed: Outcome<readonly FileInfo[]> = await answerInTime(device.ask(queue, call));
  if (listed.tag === 'err') return listed;
  const info = listed.val.find(({ name }) => name === usedName.name);
  if (!info) return err(CHANGED);
  const access = { owner: info.owner, rights: info.rights };
  const refused = writeRefusal(usedName, access);
  return refused ? err(refused) : ok(access);
}

function readRefusal({ inferlet, name }: UsedName, { access }: DurableCopy): HandlerError | null {
  const isPrivate = access?.rights === 'private' && access.owner !== inferlet.description.functionName;
  if (!isPrivate || isOfOperators(name)) return null;
  return handlerError('unsupported', `"${name}" is private to the function "${access.owner}"`);
}

function writeRefusal({ inferlet, name }: UsedName, access: DurableCopy['access']): HandlerError | null {
  const { tenant, functionName } = inferlet.description;
  if (isOfOperators(name) && tenant !== SYSTEM_TENANT) return OPERATORS;
  if (!access || access.owner === functionName || access.rights === 'writable') return null;
  return handlerError(
    'unsupported',
    `only the function "${access.owner}" may write "${name}", which is ${access.rights}`,
  );
}

function isOfOperators(name: string): boolean {
  return tenantOf('', name) === SYSTEM_TENANT;
}

function readOnly(name: string): HandlerError {
  return handlerError(
    'unavailable',
    `"${name}" can only be read now: its GPU host, which has its lock, is away or has lost it. Save it under another name, or remove it first`,
  );
}
