import type { InferenceSession } from 'onnxruntime-node';

/** A session that is made when first wanted; a failure to make it is told to who wanted it, and tried again by the next. */
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

  /** Frees it, if it was made. */
  async release(): Promise<void> {
    const session = this.#session;
    this.#session = null;
    if (session !== null) await (await session).release();
  }
}
