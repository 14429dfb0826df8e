import type { KeyVisitor } from '../../batcher/call.ts';
import { fault } from '../../memory/fault.ts';
import type { Page } from '../../memory/pool.ts';
import { TokenCopying } from '../../memory/space-snapshot.ts';
import type { HandlerError } from '../../protocol/errors.ts';
import type { Operation } from '../../protocol/operations.ts';
import { GAP_MS, type StepGaps } from '../sharing/thread-share.ts';
import { embedKey, HostCall, type HostQueue, InstantCall, type ModelContext, pageKey } from './call.ts';
import { checkTokens } from './checks.ts';

/** The operations on an inferlet's own pages and embeds that need no step of the device. */
export type MemoryOperation = Operation<
  | ('allocate-pages' | 'allocate-embeds' | 'free-pages' | 'free-embeds' | 'share-pages')
  | ('copy-slots' | 'copy-tokens' | 'copy-embeds' | 'embed-text' | 'mask-page')
>;

/** Allocations, frees, copies, masks and token embeds: executed as soon as their turn in the queue comes. */
export class MemoryCall extends InstantCall {
  readonly operation: MemoryOperation;
  readonly #vocabularySize: number;
  readonly #gaps: StepGaps;
  #isPaid = false;
  /** A copy of tokens under way. */
  #copying: TokenCopying | undefined;

  constructor(queue: HostQueue, id: number, operation: MemoryOperation, vocabularySize: number, gaps: StepGaps) {
    super(copies(operation) ? 'idle' : 'instant', queue, id);
    this.operation = operation;
    this.#vocabularySize = vocabularySize;
    this.#gaps = gaps;
  }

  override get claims(): boolean {
    const { op } = this.operation;
    return op === 'allocate-pages' || op === 'copy-slots' || op === 'copy-tokens';
  }

  /** True for an allocation of one page. */
  get allocatesPage(): boolean {
    return this.operation.op === 'allocate-pages' && this.operation.count === 1;
  }

  /** The page that was set aside for this allocation; with such a page, the allocation claims no memory. */
  get spared(): Page | undefined {
    return this.allocatesPage ? this.hostQueue.sparePage : undefined;
  }

  /** Pages that the call allocates and that its tenant has not paid for; a page that was set aside for the call costs nothing. */
  get unpaidPages(): number {
    const { operation } = this;
    return operation.op !== 'allocate-pages' || this.#isPaid || this.spared ? 0 : operation.count;
  }

  /** Counts the pages as paid, also if the call has to wait for memory. @returns the pages that were not paid before */
  payPages(): number {
    const pages = this.unpaidPages;
    this.#isPaid = true;
    return pages;
  }

  override execute(): undefined | Promise<void> {
    const { pages, embeds } = this.hostQueue.space;
    const { operation } = this;
    switch (operation.op) {
      case 'allocate-pages':
        pages.allocate(operation.first, operation.count, this.spared);
        if (this.spared) this.hostQueue.sparePage = undefined;
        if (operation.count === 1) this.hostQueue.takesSpares = true;
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
        pages.copySlots(operation);
        break;
      case 'copy-tokens':
        this.#copying ??= new TokenCopying(pages, operation);
        return this.#copyTokens(this.#copying);
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
    this.replyDone(this.operation.op);
    return undefined;
  }

  /** Copies for a short time at once, and the rest in the gaps between steps. */
  #copyTokens(copying: TokenCopying): undefined | Promise<void> {
    const untilMs = performance.now() + GAP_MS;
    while (copying.next()) if (performance.now() > untilMs) return this.#goOn(copying);
    this.replyDone(this.operation.op);
    return undefined;
  }

  async #goOn(copying: TokenCopying): Promise<void> {
    const { space } = this.hostQueue;
    // The pages of a closed space may belong to another inferlet by now.
    await this.#gaps.work(() => (space.closed ? undefined : copying.next()), space.owner.tenant, space.port.meter);
    this.replyDone(this.operation.op);
  }

  #embedText(tokens: Uint32Array, positions: Uint32Array, addresses: Uint32Array): void {
    const { embeds } = this.hostQueue.space;
    checkTokens(tokens, this.#vocabularySize);
    if (tokens.length !== positions.length || tokens.length !== addresses.length) {
      throw fault(
        'invalid-argument',
        `${tokens.length} tokens, ${positions.length} positions and ${addresses.length} embeds; the three numbers must be equal`,
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
        for (const page of operation.pages) visit(pageKey(page), 'write');
        break;
      case 'free-embeds':
        for (const embed of operation.embeds) visit(embedKey(embed), 'write');
        break;
      case 'share-pages':
        for (const page of operation.pages) visit(pageKey(page), 'read');
        visitRange(visit, operation.first, operation.pages.length, pageKey);
        break;
      case 'copy-slots':
        visit(pageKey(operation.destination), 'write');
        visit(pageKey(operation.source), 'read');
        break;
      case 'copy-tokens':
        for (const page of operation.destinations) visit(pageKey(page), 'write');
        for (const page of operation.sources) visit(pageKey(page), 'read');
        break;
      case 'copy-embeds':
        for (const embed of operation.destinations) visit(embedKey(embed), 'write');
        for (const embed of operation.sources) visit(embedKey(embed), 'read');
        break;
      case 'embed-text':
        for (const embed of operation.embeds) visit(embedKey(embed), 'write');
        break;
      case 'mask-page':
        visit(pageKey(operation.page), 'write');
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
      case 'copy-tokens':
        pages.fail(operation.destinations, cause, this.hostQueue);
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

/** True for copies, whose calls have the kind `idle`: they touch memory between two batches only. */
function copies({ op }: MemoryOperation): boolean {
  return op === 'copy-slots' || op === 'copy-tokens' || op === 'copy-embeds';
}

function visitRange(visit: KeyVisitor, first: number, count: number, key: (address: number) => number): void {
  for (let i = 0; i < count; i++) visit(key(first + i), 'write');
}

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

/** `read-embed` of `wit/output-text.wit`: a token's embedding, a state, or a part of an image. */
export class ReadEmbedCall extends InstantCall {
  readonly #embed: number;
  readonly #model: ModelContext;

  constructor(queue: HostQueue, id: number, embed: number, model: ModelContext) {
    super('instant', queue, id);
    this.#embed = embed;
    this.#model = model;
  }

  override execute(): undefined | Promise<void> {
    const embed = this.hostQueue.space.embeds.get(this.#embed);
    if (embed.kind !== 'token') {
      this.reply('read-embed', embed.values);
      return;
    }
    const { embeddings } = this.#model;
    if (!embeddings)
      throw fault('unsupported', 'this host cannot look up the embedding of a token; read a state instead');
    const { token } = embed;
    const reading = embeddings.prefetch([token]);
    if (reading) return reading.then(() => this.reply('read-embed', embeddings.row(token)));
    this.reply('read-embed', embeddings.row(token));
  }

  override visitKeys(visit: KeyVisitor): void {
    visit(embedKey(this.#embed), 'read');
  }

  protected override poison(): void {}
}
