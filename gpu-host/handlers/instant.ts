import type { KeyVisitor } from '../batcher/call.ts';
import { fault } from '../memory/fault.ts';
import type { QueuedOperation } from '../protocol/decode-calls.ts';
import type { HandlerError } from '../protocol/errors.ts';
import { embedKey, HostCall, pageKey } from './call.ts';
import type { HostQueue } from './space.ts';

/** The operations that need no step of the device. */
export type InstantOperation = Exclude<
  QueuedOperation,
  { op: 'forward' | 'step' | 'run' | 'next-distribution' | 'synchronize' }
>;

/** Allocations, frees, copies, masks and token embeds: done as soon as their turn in the queue comes. */
export class InstantCall extends HostCall {
  readonly operation: InstantOperation;
  readonly #vocabularySize: number;

  constructor(queue: HostQueue, id: number, operation: InstantOperation, vocabularySize: number) {
    super(operation.op === 'copy-slots' || operation.op === 'copy-embeds' ? 'idle' : 'instant', queue, id);
    this.operation = operation;
    this.#vocabularySize = vocabularySize;
  }

  /** Does it. @throws CallFault */
  execute(): void {
    const { pages, embeds } = this.hostQueue.space;
    const { operation } = this;
    switch (operation.op) {
      case 'allocate-pages':
        pages.allocate(operation.first, operation.count);
        break;
      case 'allocate-embeds':
        embeds.allocate(operation.first, operation.count);
        break;
      case 'free-pages':
        pages.free(operation.pages);
        break;
      case 'free-embeds':
        embeds.free(operation.embeds);
        break;
      case 'share-pages':
        pages.share(operation.pages, operation.first);
        break;
      case 'copy-slots':
        pages.copySlots(
          operation.source,
          operation.sourceOffset,
          operation.destination,
          operation.destinationOffset,
          operation.count,
        );
        break;
      case 'copy-embeds':
        embeds.copy(operation.sources, operation.destinations);
        break;
      case 'embed-text':
        this.#embedText(operation.tokens, operation.positions, operation.embeds);
        break;
      case 'mask-page':
        pages.mask(operation.page, operation.slots);
        break;
    }
    if (this.id !== 0) this.replyDone();
  }

  #embedText(tokens: Uint32Array, positions: Uint32Array, addresses: Uint32Array): void {
    const { embeds } = this.hostQueue.space;
    checkTokens(tokens, this.#vocabularySize);
    if (tokens.length !== positions.length || tokens.length !== addresses.length) {
      throw fault(
        'invalid-argument',
        `${tokens.length} tokens, ${positions.length} positions and ${addresses.length} embeds; as many of each are expected`,
      );
    }
    embeds.checkHeld(addresses);
    for (let i = 0; i < tokens.length; i++) {
      embeds.setToken(addresses[i] as number, tokens[i] as number, positions[i] as number);
    }
  }

  override visitKeys(visit: KeyVisitor): void {
    const { operation } = this;
    switch (operation.op) {
      case 'allocate-pages':
        visitRange(visit, operation.first, operation.count, pageKey);
        break;
      case 'allocate-embeds':
        visitRange(visit, operation.first, operation.count, embedKey);
        break;
      case 'free-pages':
        for (const page of operation.pages) visit(pageKey(page), true);
        break;
      case 'free-embeds':
        for (const embed of operation.embeds) visit(embedKey(embed), true);
        break;
      case 'share-pages':
        for (const page of operation.pages) visit(pageKey(page), false);
        visitRange(visit, operation.first, operation.pages.length, pageKey);
        break;
      case 'copy-slots':
        visit(pageKey(operation.source), false);
        visit(pageKey(operation.destination), true);
        break;
      case 'copy-embeds':
        for (const embed of operation.sources) visit(embedKey(embed), false);
        for (const embed of operation.destinations) visit(embedKey(embed), true);
        break;
      case 'embed-text':
        for (const embed of operation.embeds) visit(embedKey(embed), true);
        break;
      case 'mask-page':
        visit(pageKey(operation.page), true);
        break;
    }
  }

  protected override poison(cause: HandlerError): void {
    const { pages, embeds } = this.hostQueue.space;
    const { operation } = this;
    switch (operation.op) {
      case 'allocate-pages':
        pages.failures.markRange(operation.first, operation.count, cause, this.hostQueue);
        break;
      case 'allocate-embeds':
        embeds.failures.markRange(operation.first, operation.count, cause, this.hostQueue);
        break;
      case 'share-pages':
        pages.failures.markRange(operation.first, operation.pages.length, cause, this.hostQueue);
        break;
      case 'copy-slots':
        pages.fail(Uint32Array.of(operation.destination), cause, this.hostQueue);
        break;
      case 'copy-embeds':
        embeds.fail(operation.destinations, cause, this.hostQueue);
        break;
      case 'embed-text':
        embeds.fail(operation.embeds, cause, this.hostQueue);
        break;
      case 'mask-page':
        pages.fail(Uint32Array.of(operation.page), cause, this.hostQueue);
        break;
      case 'free-pages':
      case 'free-embeds':
        break;
    }
  }
}

/** Something to do once every earlier call of a queue has completed. */
export class BarrierCall extends HostCall {
  readonly #action: (call: BarrierCall) => void;

  constructor(queue: HostQueue, id: number, action: (call: BarrierCall) => void) {
    super('barrier', queue, id);
    this.#action = action;
  }

  execute(): void {
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

/** A call that was refused when it came; it fails when its turn comes. */
export class RefusedCall extends HostCall {
  readonly #why: Error;

  constructor(queue: HostQueue, id: number, why: Error) {
    super('instant', queue, id);
    this.#why = why;
  }

  execute(): void {
    throw this.#why;
  }

  override visitKeys(): void {}

  protected override poison(): void {}
}

/** `synchronize` of `wit/queue.wit`. */
export function synchronizeCall(queue: HostQueue, id: number): BarrierCall {
  return new BarrierCall(queue, id, (call) => call.reportFailure());
}

function visitRange(visit: KeyVisitor, first: number, count: number, key: (address: number) => number): void {
  for (let i = 0; i < count; i++) visit(key(first + i), true);
}

/** Length of the longest list that an operation carries or asks for. */
export function longestList(operation: QueuedOperation): number {
  switch (operation.op) {
    case 'allocate-pages':
    case 'allocate-embeds':
      return operation.count;
    case 'free-pages':
    case 'share-pages':
      return operation.pages.length;
    case 'free-embeds':
      return operation.embeds.length;
    case 'copy-embeds':
      return Math.max(operation.sources.length, operation.destinations.length);
    case 'embed-text':
      return Math.max(operation.tokens.length, operation.positions.length, operation.embeds.length);
    case 'forward':
      return Math.max(
        operation.inPages.length,
        operation.inEmbeds.length,
        operation.outPages.length,
        operation.outEmbeds.length,
      );
    case 'step': {
      const { tokens, positions, inPages, outPages } = operation.request;
      return Math.max(tokens.length, positions.length, inPages.length, outPages.length);
    }
    case 'run':
      return Math.max(operation.request.pages.length, operation.request.stopTokens.length);
    default:
      return 0;
  }
}

/** @throws CallFault `invalid-argument` naming the first token that is none. */
export function checkTokens(tokens: Uint32Array, vocabularySize: number): void {
  for (let i = 0; i < tokens.length; i++) {
    if ((tokens[i] as number) >= vocabularySize) {
      throw fault(
        'invalid-argument',
        `token ${tokens[i]} (number ${i}) is outside the vocabulary of ${vocabularySize}`,
      );
    }
  }
}
