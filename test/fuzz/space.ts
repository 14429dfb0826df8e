/** `grow` drops the oldest addresses of a longer list. */
const MAX_ALLOCATED = 40;

export interface Addresses {
  /** The next address to allocate. */
  next: number;
  /** Addresses that the session allocated recently, including freed addresses. */
  readonly allocated: number[];
}

/** Resources of an inferlet on one model. */
export interface Space {
  readonly inferlet: number;
  readonly model: number;
  readonly pages: Addresses;
  readonly embeds: Addresses;
  /** Number of `copy-begin` calls that the session sent; the host may have refused some. */
  copies: number;
}

export function emptySpace(inferlet: number, model: number): Space {
  return { inferlet, model, pages: { next: 1, allocated: [] }, embeds: { next: 1, allocated: [] }, copies: 0 };
}

export function grow(addresses: Addresses, count: number): void {
  for (let i = 0; i < count; i++) addresses.allocated.push(addresses.next++);
  if (addresses.allocated.length > MAX_ALLOCATED) addresses.allocated.splice(0, MAX_ALLOCATED / 2);
}
