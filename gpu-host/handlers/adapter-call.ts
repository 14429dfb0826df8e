import type { Operation } from '../protocol/operations.ts';
import { encodeText } from '../protocol/results.ts';
import type { Adapters } from './adapters.ts';
import { InstantCall } from './call.ts';
import type { HostQueue } from './space.ts';

/** `list-adapters` and `load-adapter` of `wit/adapter.wit`. */
export class AdapterCall extends InstantCall {
  readonly #operation: Operation<'list-adapters' | 'load-adapter'>;
  readonly #adapters: Adapters;

  constructor(
    queue: HostQueue,
    id: number,
    operation: Operation<'list-adapters' | 'load-adapter'>,
    adapters: Adapters,
  ) {
    super('instant', queue, id);
    this.#operation = operation;
    this.#adapters = adapters;
  }

  override execute(): undefined | Promise<void> {
    if (this.#operation.op === 'load-adapter') {
      return this.#adapters.load(this.#operation.name, this.hostQueue.space).then(() => this.replyDone());
    }
    const text = JSON.stringify(this.#adapters.list());
    this.reply(() => encodeText(this.hostQueue.space.port.writer, this.id, text));
    return undefined;
  }

  override visitKeys(): void {}

  protected override poison(): void {}
}
