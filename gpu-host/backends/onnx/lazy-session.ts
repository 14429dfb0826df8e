import type { InferenceSession } from 'onnxruntime-node';

/** A session that the first `get` creates. If the creation fails, this call and concurrent ones reject, and the next call tries again. */
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

  /** Frees the session, if there is one. A creation that fails rejects `get`, not this method. */
  async release(): Promise<void> {
    const session = this.#session;
    this.#session = null;
    await (await session?.catch(() => null))?.release();
  }
}
