import { ProtocolFault } from './errors.ts';
import { MAX_ADDRESSES } from './wire.ts';
import type { FrameWriter, WordReader } from './words.ts';

/** Number of queues whose last context each end of a stream remembers. */
const SLOTS = 1024;
/** Addresses kept of a context: 32,768 tokens with pages of 16. The rest of a longer context is sent again with every call. */
const MAX_KEPT = 2048;
const EMPTY = new Uint32Array(0);

/**
 * The last context of each queue, as one end of a stream knows it. A context is the list of pages that a call reads. A decode loop reads the same
 * pages in each call, or one more. A list is therefore sent in two parts: the number of leading addresses that it shares with the last context,
 * and the addresses after these. Both ends keep the same contexts, because both see the calls in the same order.
 */
export class PageLists {
  readonly #slots: (KeptList | undefined)[] = new Array(SLOTS);

  /** The last context of a queue; an empty one when another queue has used the slot since. */
  of(inferlet: number, queue: number): KeptList {
    const slot = (Math.imul(inferlet, 31) + queue) & (SLOTS - 1);
    const keptList = this.#slots[slot];
    if (keptList?.inferlet === inferlet && keptList.queue === queue) return keptList;
    const newList = new KeptList(inferlet, queue);
    this.#slots[slot] = newList;
    return newList;
  }
}

/** The last context of one queue. */
export class KeptList {
  readonly inferlet: number;
  readonly queue: number;
  /** Never changed in place: calls share it. */
  #list = EMPTY;

  constructor(inferlet: number, queue: number) {
    this.inferlet = inferlet;
    this.queue = queue;
  }

  /** Forgets the list of an operation that did not fit a frame: the other end never saw that list. The next `put` then sends its list whole. */
  forget(): void {
    this.#list = EMPTY;
  }

  /** Writes a list. @param keep true when the list is a context (the field `contextPages`): it becomes the last one of the queue */
  put(writer: FrameWriter, values: Uint32Array, keep: boolean): void {
    const sameCount = this.#commonLength(values);
    writer.put(sameCount);
    // The limit holds for the whole list, with the addresses that are not sent.
    writer.putList(values.subarray(sameCount), MAX_ADDRESSES - sameCount);
    if (keep && (sameCount < this.#list.length || values.length > sameCount)) this.#list = values.slice(0, MAX_KEPT);
  }

  /** Reads a list as `put` wrote it. The caller must not change the list. @throws ProtocolFault */
  read(reader: WordReader, keep: boolean): Uint32Array {
    const sameCount = reader.u32();
    if (sameCount > this.#list.length)
      throw new ProtocolFault('malformed', `a list repeats ${sameCount} of ${this.#list.length} addresses`);
    const tail = reader.list();
    if (tail.length === 0 && sameCount === this.#list.length) return this.#list;
    const list = new Uint32Array(sameCount + tail.length);
    list.set(this.#list.subarray(0, sameCount));
    list.set(tail, sameCount);
    if (keep) this.#list = list.length > MAX_KEPT ? list.slice(0, MAX_KEPT) : list;
    return list;
  }

  #commonLength(values: Uint32Array): number {
    const list = this.#list;
    const maxSame = Math.min(list.length, values.length);
    let sameCount = 0;
    while (sameCount < maxSame && list[sameCount] === values[sameCount]) sameCount++;
    return sameCount;
  }
}
