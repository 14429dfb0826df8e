import { HostCall, InstantCall } from './call.ts';
import type { HostQueue } from './space.ts';

/** Something to do once every earlier call of a queue has completed. */
export class BarrierCall extends HostCall {
  readonly #action: (call: BarrierCall) => void;

  constructor(queue: HostQueue, id: number, action: (call: BarrierCall) => void) {
    super('barrier', queue, id);
    this.#action = action;
  }

  execute(): undefined {
    this.#action(this);
  }

  /** Answers with the first error of the queue since it was last asked, and lets what that error had blocked go on. */
  reportFailure(): void {
    const { hostQueue } = this;
    const { space, failure } = hostQueue;
    if (!failure) {
      this.replyDone();
      return;
    }
    hostQueue.failure = undefined;
    space.pages.failures.clear(hostQueue);
    space.embeds.failures.clear(hostQueue);
    this.replyError(failure);
  }

  override visitKeys(): void {}

  protected override poison(): void {}
}

/** `synchronize` of `wit/queue.wit`. */
export function synchronizeCall(queue: HostQueue, id: number): BarrierCall {
  return new BarrierCall(queue, id, (call) => call.reportFailure());
}

/** A call that was refused when it came; it fails when its turn comes. */
export class RefusedCall extends InstantCall {
  readonly #why: Error;

  constructor(queue: HostQueue, id: number, why: Error) {
    super('instant', queue, id);
    this.#why = why;
  }

  override execute(): undefined {
    throw this.#why;
  }

  override visitKeys(): void {}

  protected override poison(): void {}
}
