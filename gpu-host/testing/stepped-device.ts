import type { Backend, SequenceInput } from '../backends/backend.ts';
import type { GpuHostConnection } from '../protocol/client.ts';
import { wrapBackend } from './wrapped-backend.ts';

/** A device whose steps end when the test says so, one after the other. */
export class SteppedDevice {
  readonly batches: (readonly SequenceInput[])[] = [];
  /** Number of the step that fails, from 1 on; 0 for none. */
  failsAt = 0;
  #ends: (() => void)[] = [];
  #isFree = false;
  #onHandedOver: (() => void) | undefined;

  wrap = (inner: Backend): Backend =>
    wrapBackend(inner, {
      forward: async (batch: readonly SequenceInput[]) => {
        this.batches.push(batch);
        const fails = this.batches.length === this.failsAt;
        const computed = inner.forward(batch);
        await new Promise<void>((resolve) => {
          if (this.#isFree) resolve();
          else this.#ends.push(resolve);
          this.#onHandedOver?.();
        });
        if (fails) throw new Error('lost');
        return computed;
      },
    });

  /** Number of steps that were handed over and have not ended. */
  get underWay(): number {
    return this.#ends.length;
  }

  /** Number of steps with an input that the device picks in the step before. */
  get guesses(): number {
    return this.batches.filter((batch) => batch.some(({ inputs }) => inputs.kind === 'picked')).length;
  }

  /** Ends the oldest step under way. */
  end(): void {
    this.#ends.shift()?.();
  }

  /** Ends all steps, also later ones. Call it at the end of a test: a host that closes waits for its steps. */
  free(): void {
    this.#isFree = true;
    for (const end of this.#ends.splice(0)) end();
  }

  /** Resolves when `batches` steps have been handed over in all. */
  async reaches(batches: number): Promise<void> {
    while (this.batches.length < batches)
      await new Promise<void>((resolve) => {
        this.#onHandedOver = resolve;
      });
  }

  /** Ends step after step until `promise` is settled. */
  async endUntil<T>(connection: GpuHostConnection, promise: Promise<T>): Promise<T> {
    let isSettled = false;
    const settle = (): void => {
      isSettled = true;
    };
    void promise.then(settle, settle);
    while (!isSettled) {
      this.end();
      await connection.stats();
    }
    return promise;
  }
}
