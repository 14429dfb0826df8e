import { handlerError } from './errors.ts';

/** Number of possible addresses: an address is one 32-bit word. */
export const ADDRESSES = 0x1_0000_0000;
export const NO_ADDRESSES = handlerError('limit-exceeded', 'the inferlet has used up its addresses on this model');

/** Maximum page addresses that an inferlet holds on one model: an address costs memory even when its page is shared. */
export const MAX_PAGE_ADDRESSES = 1_048_576;
export const TOO_MANY_ADDRESSES = handlerError(
  'limit-exceeded',
  `an inferlet can have at most ${MAX_PAGE_ADDRESSES} page addresses; free some first`,
);

/** Reserves `count` unused page addresses and returns the first; undefined when too few are left. */
export function takePageAddresses(space: { nextPage: number }, count: number): number | undefined {
  const first = space.nextPage;
  if (first + count > ADDRESSES) return undefined;
  space.nextPage += count;
  return first;
}

/** `count` addresses from `first` on. */
export function addresses(first: number, count: number): Uint32Array {
  const list = new Uint32Array(count);
  for (let i = 0; i < count; i++) list[i] = first + i;
  return list;
}
