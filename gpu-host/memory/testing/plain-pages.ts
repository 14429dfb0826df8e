/** Content of one slot of an unshared page. */
export interface PlainSlot {
  readonly position: number;
  readonly value: number;
}

/** A page of the oracle: it belongs to one address, and a share is a deep copy. */
export interface PlainPage {
  readonly slots: (PlainSlot | undefined)[];
  readonly masked: boolean[];
}

export function emptyPage(pageSize: number): PlainPage {
  return { slots: new Array(pageSize).fill(undefined), masked: new Array(pageSize).fill(false) };
}

export function copyOf(page: PlainPage): PlainPage {
  return { slots: [...page.slots], masked: [...page.masked] };
}

/** True when the pages look the same to every reader. */
export function samePage(a: PlainPage, b: PlainPage): boolean {
  return a.slots.every((slot, i) => {
    const other = b.slots[i];
    return slot?.value === other?.value && slot?.position === other?.position && a.masked[i] === b.masked[i];
  });
}

/** The unmasked filled slots of pages, in order. */
export function visibleSlots(pages: readonly PlainPage[]): PlainSlot[] {
  return pages.flatMap(({ slots, masked }) => slots.filter((slot, i): slot is PlainSlot => !!slot && !masked[i]));
}

/**
 * Values that a forward writes for its inputs. Like keys and values, each number depends on the adapter, on the input's token and position,
 * and on everything that the input sees, in order. So a slot that was computed for another text is right only when all before it is the same.
 */
export function forwardValues(
  context: readonly PlainSlot[],
  tokens: readonly number[],
  positions: readonly number[],
  adapter: string | undefined,
): number[] {
  const values: number[] = [];
  for (const [i, token] of tokens.entries()) {
    const position = positions[i] as number;
    // The names of the adapters in these tests differ in length.
    let value = mix(mix(mix(0x9e3779b9, adapter?.length ?? 0), token), position);
    for (const seen of context) if (seen.position < position) value = mix(mix(value, seen.value), seen.position);
    for (let j = 0; j < i; j++) {
      if ((positions[j] as number) < position) value = mix(mix(value, values[j] as number), positions[j] as number);
    }
    values.push(value);
  }
  return values;
}

function mix(hash: number, value: number): number {
  const mixed = Math.imul(hash ^ value, 0x85ebca6b);
  return mixed ^ (mixed >>> 15);
}
