import { type HandlerError, handlerError } from './errors.ts';

/** The client's record of one queue. */
export interface ClientQueue {
  /** Index of the model in the hello; negative for an unknown one. */
  readonly model: number;
  /** Error of every call on the queue if its model is unknown. */
  readonly broken: HandlerError | undefined;
  /** First failure found by the client since the last `synchronize`. */
  failure: HandlerError | undefined;
  /** Number of calls on the queue that the client has not refused. */
  callCount: number;
}

const MAX_QUEUES = 4096;

/** The queues of one inferlet, by number. A queue past the limit is not kept, and every call on it is refused. */
export class ClientQueues {
  readonly #openQueues = new Map<number, ClientQueue>();
  #lastNumber = 0;

  /** Adds a queue and returns its number; `model` is negative for an unknown model. */
  add(model: number, name: string): { readonly queue: number; readonly kept: boolean } {
    const queue = ++this.#lastNumber;
    if (this.#openQueues.size >= MAX_QUEUES) return { queue, kept: false };
    const broken = model < 0 ? handlerError('not-found', `no model named ${name}; ask runtime.models`) : undefined;
    this.#openQueues.set(queue, { model, broken, failure: undefined, callCount: 0 });
    return { queue, kept: true };
  }

  get(queue: number): ClientQueue | undefined {
    return this.#openQueues.get(queue);
  }

  remove(queue: number): void {
    this.#openQueues.delete(queue);
  }

  /** The error with which a call on the queue is refused, if any. A queue that was made past the limit is unknown here, like a closed one. */
  refusal(queue: number): HandlerError | undefined {
    const state = this.#openQueues.get(queue);
    if (state) return state.broken;
    if (this.#openQueues.size >= MAX_QUEUES)
      return handlerError('limit-exceeded', `more than ${MAX_QUEUES} queues are open; close some`);
    return handlerError('not-found', `no queue ${queue}: it was closed, or could not be made`);
  }
}
