import type { InferenceSession } from 'onnxruntime-node';

/** A session made by the first `get`. A failure rejects that call and concurrent ones; the next call tries again. */
export class LazySession {
  readonly #make: () => Promise<InferenceSession>;
  #session: Promise<InferenceSession> | null = null;

  constructor(make: () => Promise<InferenceSession>) {
    this.#make = make;
  }

  get(): Promise<InferenceSession> {
    if (this.#session === null) {
      this.#session = this.#make();
      this.#session.catch(() => {
        this.#session = null;
      });
    }
    return this.#session;
  }

  /** Frees the session, if it was made; a failed creation rejects the call of `get` only. */
  async release(): Promise<void> {
    const session = this.#session;
    this.#session = null;
    await (await session?.catch(() => null))?.release();
  }
}
