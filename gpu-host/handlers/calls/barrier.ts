import type { KeyVisitor } from '../../batcher/call.ts';
import type { HandlerError } from '../../protocol/errors.ts';
import { embedKey, HostCall, InstantCall, pageKey } from './call.ts';
import type { HostQueue } from './space.ts';

/** An action that runs once every earlier call of a queue has completed. */
export class BarrierCall extends HostCall {
  readonly #action: (call: BarrierCall) => void;

  constructor(queue: HostQueue, id: number, action: (call: BarrierCall) => void) {
    super('barrier', queue, id);
    this.#action = action;
  }

  execute(): undefined {
    this.#action(this);
  }

  /** Answers with the queue's first error since the last report, and clears the marks that failed calls have left. */
  reportFailure(): void {
    const { hostQueue } = this;
    const { space, failure } = hostQueue;
    if (!failure) {
      this.replyDone('synchronize');
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

/** Outputs that a call would have made. */
export interface Outputs {
  readonly outPages: Uint32Array;
  readonly outEmbeds: Uint32Array;
}

/** A call refused on arrival. It fails when its turn comes, and so do calls that need its `outputs`. */
export class RefusedCall extends InstantCall {
  readonly #why: Error;
  readonly #outputs: Outputs | undefined;

  constructor(queue: HostQueue, id: number, why: Error, outputs?: Outputs) {
    super('instant', queue, id);
    this.#why = why;
    this.#outputs = outputs;
  }

  override execute(): undefined {
    throw this.#why;
  }

  override visitKeys(visit: KeyVisitor): void {
    for (const page of this.#outputs?.outPages ?? []) visit(pageKey(page), 'write');
    for (const embed of this.#outputs?.outEmbeds ?? []) visit(embedKey(embed), 'write');
  }

  protected override poison(cause: HandlerError): void {
    if (!this.#outputs) return;
    const { pages, embeds } = this.hostQueue.space;
    pages.fail(this.#outputs.outPages, cause, this.hostQueue);
    embeds.fail(this.#outputs.outEmbeds, cause, this.hostQueue);
  }
}
