import type { DeviceAdapter } from '../../backends/backend.ts';
import type { ModelSpace } from '../calls/space.ts';
import type { AdapterWant } from './adapter-queue.ts';
import type { Adapters } from './adapters.ts';

/** One call's hold on its adapter. It begins at the call's turn or when the adapter arrives, and ends when the call is done or has to wait again. */
export class AdapterHold implements AdapterWant {
  readonly name: string;
  readonly space: ModelSpace;
  readonly #adapters: Adapters;
  /** Called when the adapter has arrived or been refused. */
  readonly #onSettled: () => void;
  /** `unasked` at first, and again once the call has given the adapter back; `over` when the call is done or dropped. */
  #state: 'unasked' | 'waiting' | 'held' | 'refused' | 'over' = 'unasked';
  #adapter: DeviceAdapter | undefined;
  #failureReason: unknown;

  constructor(name: string, space: ModelSpace, adapters: Adapters, onSettled: () => void) {
    this.name = name;
    this.space = space;
    this.#adapters = adapters;
    this.#onSettled = onSettled;
  }

  /**
   * The adapter's name on a backend that cannot mix adapters, since the batcher puts no two variants into one batch. Undefined, as for a call without
   * adapter, on a backend that mixes adapters, and for a refused adapter, since the call fails in every batch.
   */
  get variant(): string | undefined {
    return this.#state === 'refused' || this.#adapters.mixesAdapters ? undefined : this.name;
  }

  /** The adapter, once `acquire` returned true or `arrived` was called. @throws the reason why the adapter was refused */
  get adapter(): DeviceAdapter {
    if (this.#state === 'refused') throw this.#failureReason;
    if (!this.#adapter) throw new Error(`a call computes without its adapter ${this.name}`);
    return this.#adapter;
  }

  /** Asks for the adapter, unless the call has asked already. Returns false until the adapter has arrived or been refused. */
  acquire(): boolean {
    if (this.#state === 'unasked') {
      this.#adapter = this.#adapters.hold(this);
      this.#state = this.#adapter ? 'held' : 'waiting';
    }
    return this.#state !== 'waiting';
  }

  arrived(adapter: DeviceAdapter): void {
    this.#adapter = adapter;
    this.#state = 'held';
    this.#onSettled();
  }

  failed(why: unknown): void {
    this.#failureReason = why;
    this.#state = 'refused';
    this.#onSettled();
  }

  /** Gives the adapter back, or stops waiting for it, until the next `acquire`. A refusal stays. */
  giveBack(): void {
    const state = this.#state;
    if (state !== 'held' && state !== 'waiting') return;
    this.#state = 'unasked';
    this.#adapter = undefined;
    if (state === 'held') this.#adapters.release(this.name);
    else this.#adapters.drop(this);
  }

  /** Call when the call is done or dropped. */
  release(): void {
    this.giveBack();
    this.#state = 'over';
  }
}
