import { type CallFault, fault } from '../../memory/fault.ts';
import { exceededLimit, type Operation, type QueuedOperation } from '../../protocol/operations.ts';
import { AdapterHold, type Adapters } from '../sharing/adapters.ts';
import type { StepGaps } from '../sharing/thread-share.ts';
import { type HostCall, type HostQueue, InstantCall, type ModelContext, type WaitEnds } from './call.ts';
import { CopyCall, SendCall } from './copies.ts';
import { EmbedImageCall } from './embed-image.ts';
import { ExportCall, FileCall, type NamedPages, ResidencyCall } from './exports.ts';
import { DistributionCall, ForwardCall, ForwardScoresCall, ScoreCall } from './forward.ts';
import { MemoryCall, type Outputs, ReadEmbedCall, RefusedCall, synchronizeCall } from './memory-call.ts';
import { RunCall } from './run.ts';
import { StepCall } from './step.ts';

/** The engine, as its calls see it. */
export interface CallMaker extends WaitEnds {
  readonly context: ModelContext;
  readonly names: NamedPages;
  readonly gaps: StepGaps;
}

/** Makes the call of an operation. An invalid operation fails when its turn comes. */
export function makeCall(queue: HostQueue, id: number, operation: QueuedOperation, maker: CallMaker): HostCall {
  const { context } = maker;
  const limit = exceededLimit(operation);
  // Reading lists of this length would hold up the host, so the refused call marks no outputs as failed.
  if (limit !== undefined)
    return new RefusedCall(queue, id, fault('invalid-argument', `a list in one call has more than ${limit} items`));
  switch (operation.op) {
    case 'step': {
      const { request } = operation;
      const outputs = { outPages: request.outPages, outEmbeds: NONE };
      const overflow = contextOverflow(request.tokens.length, context.backend.config.contextLength);
      if (overflow) return new RefusedCall(queue, id, overflow, outputs);
      return withAdapter(queue, id, request.adapter, outputs, maker, (hold) => {
        return new StepCall(queue, id, request, context, hold);
      });
    }
    case 'forward':
      return withAdapter(queue, id, operation.adapter, operation, maker, (hold) => {
        return new ForwardCall(queue, id, operation, context, maker, hold);
      });
    case 'forward-scores':
      return new ForwardScoresCall(queue, id, operation, context, maker);
    case 'run':
      return new RunCall(queue, id, operation.request, context, maker);
    case 'start-run': {
      const { request, changes } = operation;
      return new RunCall(queue, id, { ...request, changes }, context, maker);
    }
    case 'embed-image':
      return new EmbedImageCall(queue, id, operation, context, maker);
    case 'next-distribution':
      return new DistributionCall(queue, id, operation, context);
    case 'log-probabilities':
      return new ScoreCall(queue, id, operation.embed, operation.tokens, context);
    case 'entropy':
      return new ScoreCall(queue, id, operation.embed, undefined, context);
    case 'read-embed':
      return new ReadEmbedCall(queue, id, operation.embed, context);
    case 'synchronize':
      return synchronizeCall(queue, id);
    case 'export-pages':
    case 'import-pages':
    case 'unexport':
    case 'list-exports':
      return new ExportCall(queue, id, operation, maker.names);
    case 'export-residency':
    case 'pin-export':
    case 'unpin-export':
    case 'retain-export':
    case 'prefetch-export':
    case 'demote-export':
      return new ResidencyCall(queue, id, operation, maker.names);
    case 'file-open':
    case 'file-save':
    case 'file-unlock':
    case 'file-remove':
    case 'file-list':
      return new FileCall(queue, id, operation, maker.names);
    case 'name-version':
    case 'send-begin':
    case 'send-piece':
    case 'send-end':
      return new SendCall(queue, id, operation, maker.names);
    case 'copy-begin':
    case 'copy-piece':
    case 'copy-end':
    case 'copy-drop':
    case 'copy-map':
      return new CopyCall(queue, id, operation, maker.names);
    case 'list-adapters':
    case 'load-adapter':
      return new AdapterCall(queue, id, operation, context.adapters);
    default:
      return new MemoryCall(queue, id, operation, context.backend.config.vocabularySize, maker.gaps);
  }
}

const NONE = new Uint32Array(0);

/** Makes a call with the named adapter, if any. For an unknown adapter, makes a refused call, which marks `outputs` as failed. */
function withAdapter(
  queue: HostQueue,
  id: number,
  name: string | undefined,
  outputs: Outputs,
  maker: CallMaker,
  make: (hold?: AdapterHold) => HostCall,
): HostCall {
  if (name === undefined) return make();
  const { adapters } = maker.context;
  const refusal = adapters.refuse(name);
  if (refusal) return new RefusedCall(queue, id, refusal, outputs);
  const call = make(new AdapterHold(name, queue.space, adapters, () => maker.acquired(call)));
  return call;
}

function contextOverflow(inputs: number, contextLength: number): CallFault | undefined {
  if (inputs <= contextLength) return undefined;
  return fault('context-overflow', `${inputs} inputs in one call; the model's context has ${contextLength} tokens`);
}

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
