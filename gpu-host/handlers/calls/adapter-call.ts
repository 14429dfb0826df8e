import type { Operation } from '../../protocol/operations.ts';
import type { Adapters } from '../sharing/adapters.ts';
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
    const operation = this.#operation;
    if (operation.op === 'load-adapter') {
      return this.#adapters.load(operation.name, this.hostQueue.space).then(() => this.replyDone(operation.op));
    }
    this.reply(operation.op, this.#adapters.list());
    return undefined;
  }

  override visitKeys(): void {}

  protected override poison(): void {}
}
