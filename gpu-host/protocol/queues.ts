import { type HandlerError, handlerError } from './errors.ts';

/** A queue of one inferlet as the client knows it. */
export interface ClientQueue {
  /** Its model's place in the hello; negative for an unknown one. */
  readonly model: number;
  /** Why every call on it fails: an unknown model. */
  readonly broken: HandlerError | undefined;
  /** First failure found on this side since the last `synchronize`. */
  failure: HandlerError | undefined;
  /** Looks at it before a call, so that what follows on a call can be told. */
  looks: number;
}

const MAX_QUEUES = 4096;

/** The queues of one inferlet, by number. Past their limit nothing is kept of one more, and every call on it is refused. */
export class ClientQueues {
  readonly #open = new Map<number, ClientQueue>();
  #last = 0;

  /** A number for one more queue; `model` is negative when nobody offers the one of that name. */
  add(model: number, name: string): { readonly queue: number; readonly kept: boolean } {
    const queue = ++this.#last;
    if (this.#open.size >= MAX_QUEUES) return { queue, kept: false };
    const broken = model < 0 ? handlerError('not-found', `no model named ${name}; ask runtime.models`) : undefined;
    this.#open.set(queue, { model, broken, failure: undefined, looks: 0 });
    return { queue, kept: true };
  }

  get(queue: number): ClientQueue | undefined {
    return this.#open.get(queue);
  }

  remove(queue: number): void {
    this.#open.delete(queue);
  }

  /** Why no call can be made on a queue, if so. Asked before each call. */
  refusal(queue: number): HandlerError | undefined {
    const state = this.#open.get(queue);
    if (state) {
      state.looks++;
      return state.broken;
    }
    if (this.#open.size >= MAX_QUEUES)
      return handlerError('limit-exceeded', `more than ${MAX_QUEUES} queues are open; close some`);
    return handlerError('not-found', `no queue ${queue}: it was closed or never made`);
  }
}
