import { setImmediate } from 'node:timers/promises';
import type { PageDevice } from '../transfers.ts';

/** Content of a slot: a value that stands for its key and value, and the rotation of its key. */
export interface SlotContent {
  readonly value: number;
  readonly rotation: number;
}

/**
 * A device that holds two numbers per slot as key and value, so that tests can see which slot was copied where. A queued copy happens as late as
 * the order of calls allows; until then, the target of a queued read holds no valid page.
 */
export class ArrayDevice implements PageDevice {
  readonly pageBytes: number;
  readonly pageSize: number;
  readonly #slots: Int32Array;
  #queued: (() => void)[] = [];

  constructor(pageSize: number, pageCount: number) {
    this.pageSize = pageSize;
    // Two numbers of four bytes per slot.
    this.pageBytes = pageSize * 8;
    this.#slots = new Int32Array(pageCount * pageSize * 2);
  }

  /** Writes the key of `position` and a value, as a forward does. */
  write(slot: number, value: number, position: number): void {
    this.settlePages();
    this.#slots[slot * 2] = value;
    this.#slots[slot * 2 + 1] = position;
  }

  read(slot: number): SlotContent {
    this.settlePages();
    return { value: this.#slots[slot * 2] as number, rotation: this.#slots[slot * 2 + 1] as number };
  }

  copySlots(sources: Uint32Array, destinations: Uint32Array, shifts?: Int32Array): void {
    const read = Array.from(sources, (slot) => this.read(slot));
    for (const [i, { value, rotation }] of read.entries())
      this.write(destinations[i] as number, value, rotation + (shifts?.[i] ?? 0));
  }

  readPage(frame: number, into: Uint8Array): void {
    this.settlePages();
    into.set(this.#bytes(frame));
  }

  writePage(frame: number, from: Uint8Array): void {
    this.settlePages();
    this.#bytes(frame).set(from);
  }

  queueReadPage(frame: number, into: Uint8Array): void {
    this.settlePages();
    into.fill(0xee);
    this.#queued.push(() => into.set(this.#bytes(frame)));
  }

  queueWritePage(frame: number, from: Uint8Array): void {
    this.#queued.push(() => this.#bytes(frame).set(from));
  }

  async pagesSettled(): Promise<void> {
    await setImmediate();
    this.settlePages();
  }

  settlePages(): void {
    for (const copy of this.#queued.splice(0)) copy();
  }

  #bytes(frame: number): Uint8Array {
    return new Uint8Array(this.#slots.buffer, frame * this.pageBytes, this.pageBytes);
  }
}
