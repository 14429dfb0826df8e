import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import { unexpected } from './replies.ts';
import { hasEnded, INVOCATION_CURSOR, type ListQuery } from './types.ts';

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
