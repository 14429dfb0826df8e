import { type CallFault, fault } from '../../memory/fault.ts';
import { exceededLimit, type QueuedOperation } from '../../protocol/operations.ts';
import { AdapterHold } from '../sharing/adapter-hold.ts';
import type { StepGaps } from '../sharing/step-gaps.ts';
import { AdapterCall } from './adapter-call.ts';
import { type Outputs, RefusedCall, synchronizeCall } from './barrier.ts';
import type { HostCall, ModelContext } from './call.ts';
import { CopyCall, SendCall } from './copies.ts';
import { EmbedImageCall } from './embed-image.ts';
import { ExportCall } from './exports.ts';
import { FileCall } from './files.ts';
import { ForwardCall } from './forward.ts';
import { MemoryCall } from './memory-call.ts';
import type { NamedPages } from './named-pages.ts';
import { DistributionCall, ScoreCall } from './project.ts';
import { ReadEmbedCall } from './read-embed.ts';
import { ResidencyCall } from './residency.ts';
import { RunCall } from './run.ts';
import { ForwardScoresCall } from './scores.ts';
import type { HostQueue } from './space.ts';
import { StepCall } from './step.ts';

/** The engine, as its calls see it. */
export interface CallMaker {
  readonly context: ModelContext;
  readonly names: NamedPages;
  readonly gaps: StepGaps;
  /** Called when a held run may go on. */
  resume(run: RunCall): void;
  /** Called when a call has what its `acquire` waited for: an adapter, or its refusal, or rows of the embedding matrix. */
  acquired(call: HostCall): void;
  /** Called when an image of this many bytes, or its refusal, has arrived. */
  imageArrived(call: EmbedImageCall, bytes: number): void;
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
        return new ForwardCall(queue, id, operation, context, maker.acquired, hold);
      });
    case 'forward-scores':
      return new ForwardScoresCall(queue, id, operation, context, maker.acquired);
    case 'run':
      return new RunCall(queue, id, operation.request, context, (run) => maker.resume(run));
    case 'start-run': {
      const { request, changes } = operation;
      return new RunCall(queue, id, { ...request, changes }, context, (run) => maker.resume(run));
    }
    case 'embed-image':
      return new EmbedImageCall(queue, id, operation, context, (call, bytes) => maker.imageArrived(call, bytes));
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
  { context: { adapters }, acquired }: CallMaker,
  make: (hold?: AdapterHold) => HostCall,
): HostCall {
  if (name === undefined) return make();
  const refusal = adapters.refuse(name);
  if (refusal) return new RefusedCall(queue, id, refusal, outputs);
  const call = make(new AdapterHold(name, queue.space, adapters, () => acquired(call)));
  return call;
}

function contextOverflow(inputs: number, contextLength: number): CallFault | undefined {
  if (inputs <= contextLength) return undefined;
  return fault('context-overflow', `${inputs} inputs in one call; the model's context has ${contextLength} tokens`);
}
