/** Addresses that this session allocated, including freed ones. */
export interface Addresses {
  next: number;
  readonly known: number[];
}

/** Resources of an inferlet on one model. */
export interface Space {
  readonly inferlet: number;
  readonly model: number;
  readonly pages: Addresses;
  readonly embeds: Addresses;
  /** Copies that the inferlet has begun and the host has allowed. */
  copies: number;
}

export function emptySpace(inferlet: number, model: number): Space {
  return { inferlet, model, pages: { next: 1, known: [] }, embeds: { next: 1, known: [] }, copies: 0 };
}

export function grow(addresses: Addresses, count: number): void {
  for (let i = 0; i < count; i++) addresses.known.push(addresses.next++);
  if (addresses.known.length > 40) addresses.known.splice(0, 20);
}
