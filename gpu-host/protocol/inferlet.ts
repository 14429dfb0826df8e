import type { Distribution, Mask, RunChunk, RunRequest, StepRequest, StepResult } from './calls.ts';
import {
  encodeBare,
  encodeCopySlots,
  encodeForward,
  encodeLists,
  encodeOpenInferlet,
  encodeRun,
  encodeSharePages,
  encodeStep,
  encodeWords,
} from './encode-calls.ts';
import { err, type HandlerError, handlerError, type Outcome, ok } from './errors.ts';
import type { ModelSummary } from './host.ts';
import type { Link, Pending } from './link.ts';
import { PageBudget } from './page-budget.ts';
import type { DecodedResult } from './results.ts';
import { DeviceRun, failedRun, type RunHandle } from './run.ts';
import { MAX_EMBEDS, MAX_FRAME_BYTES, OP, type Op } from './wire.ts';

export type { RunHandle } from './run.ts';

export interface InferletOptions {
  /** The invocation's id, for logs and statistics. */
  readonly id: string;
  /** Most pages that it may hold, per model. */
  readonly maxPages: number;
  /** Its place in line: when memory must be taken back, the newest goes first. Milliseconds since the Unix epoch, or any other order. */
  readonly arrival: number;
}

/**
 * One inferlet's calls to the device; the methods mirror `wit/*.wit`. Methods that return nothing never throw for reasons of the device:
 * their failures surface in later futures of the same queue and in `synchronize`. Lists may be views of a guest's memory.
 */
export interface GpuInferlet {
  /** A queue of calls on `model`. With an unknown model, every call on it fails with `not-found`. */
  createQueue(model: string): number;
  setPriority(queue: number, priority: number): void;
  closeQueue(queue: number): void;
  allocatePages(queue: number, count: number): Outcome<Uint32Array>;
  freePages(queue: number, pages: List): void;
  allocateEmbeds(queue: number, count: number): Outcome<Uint32Array>;
  freeEmbeds(queue: number, embeds: List): void;
  sharePages(queue: number, pages: List): Outcome<Uint32Array>;
  copySlots(
    queue: number,
    source: number,
    sourceOffset: number,
    destination: number,
    destinationOffset: number,
    count: number,
  ): void;
  copyEmbeds(queue: number, sources: List, destinations: List): void;
  embedText(queue: number, tokens: List, positions: List, embeds: List): void;
  forward(queue: number, inPages: List, inEmbeds: List, outPages: List, outEmbeds: List, mask: Mask | undefined): void;
  maskPage(queue: number, page: number, slots: number): void;
  nextDistribution(queue: number, embed: number, topK: number): Promise<Outcome<Distribution>>;
  step(queue: number, request: StepRequest): Promise<Outcome<StepResult>>;
  run(queue: number, request: RunRequest): RunHandle;
  synchronize(queue: number): Promise<Outcome<undefined>>;
  /** Pages that it holds by the client's own count. */
  readonly heldPages: number;
  /** Releases everything held; pending futures answer `cancelled`. Resolves when the host has released it, or is gone, or after 30 s. */
  close(): Promise<void>;
}

type List = Uint32Array;

interface Queue {
  readonly model: number;
  /** Why every call on it fails: an unknown model. */
  readonly broken: HandlerError | undefined;
  /** First failure found on this side since the last `synchronize`. */
  failure: HandlerError | undefined;
}

/** Addresses of one model that were handed out. */
interface Space {
  nextPage: number;
  nextEmbed: number;
  heldEmbeds: number;
  readonly pages: PageBudget;
}

const MAX_QUEUES = 4096;
const CLOSE_DEADLINE_MS = 30_000;
/** Bytes of calls that may wait unsent; an inferlet that issues more without awaiting anything is flooding. */
const MAX_UNSENT_BYTES = 4 * MAX_FRAME_BYTES;

type LinkOrDown = Link | { readonly lost: HandlerError };

export class DeviceInferlet implements GpuInferlet {
  #link: Link | undefined;
  #handle: number;
  #options: InferletOptions;
  #models: readonly ModelSummary[];
  #queues = new Map<number, Queue>();
  #spaces = new Map<number, Space>();
  #lastQueue = 0;
  #pending = new Set<number>();
  /** Why nothing can be called any more: closed, lost, flooding. */
  #dead: HandlerError | undefined;
  #unsentBytes = 0;
  #unsentSince = 0;
  #closing: Promise<void> | undefined;

  constructor(link: LinkOrDown, handle: number, options: InferletOptions, models: readonly ModelSummary[]) {
    this.#handle = handle;
    this.#options = options;
    this.#models = models;
    if ('writer' in link && !link.lost) {
      this.#link = link;
      encodeOpenInferlet(link.writer, handle, options.id, options.maxPages, options.arrival);
      link.scheduleFlush();
    } else this.#dead = link.lost;
  }

  get heldPages(): number {
    let held = 0;
    for (const space of this.#spaces.values()) held += space.pages.held;
    return held;
  }

  createQueue(model: string): number {
    const queue = ++this.#lastQueue;
    // Past the limit nothing is kept of it, and every call on it is refused.
    if (this.#queues.size >= MAX_QUEUES) return queue;
    const index = this.#models.findIndex((known) => known.name === model);
    const broken = index < 0 ? handlerError('not-found', `no model named ${model}; ask runtime.models`) : undefined;
    this.#queues.set(queue, { model: index, broken, failure: undefined });
    this.#send(queue, (link) => encodeWords(link.writer, OP.createQueue, this.#handle, queue, 0, index));
    return queue;
  }

  setPriority(queue: number, priority: number): void {
    this.#send(queue, (link) => encodeWords(link.writer, OP.setPriority, this.#handle, queue, 0, priority));
  }

  closeQueue(queue: number): void {
    this.#send(queue, (link) => encodeBare(link.writer, OP.closeQueue, this.#handle, queue, 0));
    this.#queues.delete(queue);
  }

  allocatePages(queue: number, count: number): Outcome<Uint32Array> {
    const space = this.#spaceFor(queue);
    if ('tag' in space) return err(space);
    const refused = space.pages.refuse(count);
    if (refused) return err(refused);
    const first = space.nextPage;
    space.nextPage += count;
    space.pages.allocate(first, count);
    this.#send(queue, (link) => encodeWords(link.writer, OP.allocatePages, this.#handle, queue, 0, first, count));
    return ok(addresses(first, count));
  }

  freePages(queue: number, pages: List): void {
    const space = this.#spaceFor(queue);
    if (!('tag' in space)) space.pages.free(pages);
    this.#sendLists(OP.freePages, queue, [pages]);
  }

  allocateEmbeds(queue: number, count: number): Outcome<Uint32Array> {
    const space = this.#spaceFor(queue);
    if ('tag' in space) return err(space);
    if (space.heldEmbeds + count > MAX_EMBEDS) {
      return err(
        handlerError(
          'limit-exceeded',
          `${space.heldEmbeds} embeds are held and ${count} more were asked; ${MAX_EMBEDS} is the limit`,
        ),
      );
    }
    const first = space.nextEmbed;
    space.nextEmbed += count;
    space.heldEmbeds += count;
    this.#send(queue, (link) => encodeWords(link.writer, OP.allocateEmbeds, this.#handle, queue, 0, first, count));
    return ok(addresses(first, count));
  }

  freeEmbeds(queue: number, embeds: List): void {
    const space = this.#spaceFor(queue);
    if (!('tag' in space)) space.heldEmbeds = Math.max(0, space.heldEmbeds - embeds.length);
    this.#sendLists(OP.freeEmbeds, queue, [embeds]);
  }

  sharePages(queue: number, pages: List): Outcome<Uint32Array> {
    const space = this.#spaceFor(queue);
    if ('tag' in space) return err(space);
    const refused = space.pages.refuseShare(pages.length);
    if (refused) return err(refused);
    const first = space.nextPage;
    space.nextPage += pages.length;
    space.pages.share(pages, first);
    this.#send(queue, (link) => encodeSharePages(link.writer, this.#handle, queue, pages, first));
    return ok(addresses(first, pages.length));
  }

  copySlots(
    queue: number,
    source: number,
    sourceOffset: number,
    destination: number,
    destinationOffset: number,
    count: number,
  ): void {
    const fields = [source, sourceOffset, destination, destinationOffset, count];
    this.#send(queue, (link) => encodeCopySlots(link.writer, this.#handle, queue, fields));
  }

  copyEmbeds(queue: number, sources: List, destinations: List): void {
    this.#sendLists(OP.copyEmbeds, queue, [sources, destinations]);
  }

  embedText(queue: number, tokens: List, positions: List, embeds: List): void {
    this.#sendLists(OP.embedText, queue, [tokens, positions, embeds]);
  }

  forward(queue: number, inPages: List, inEmbeds: List, outPages: List, outEmbeds: List, mask: Mask | undefined): void {
    this.#send(queue, (link) =>
      encodeForward(link.writer, this.#handle, queue, inPages, inEmbeds, outPages, outEmbeds, mask),
    );
  }

  maskPage(queue: number, page: number, slots: number): void {
    this.#send(queue, (link) => encodeWords(link.writer, OP.maskPage, this.#handle, queue, 0, page, slots));
  }

  nextDistribution(queue: number, embed: number, topK: number): Promise<Outcome<Distribution>> {
    return this.#ask(queue, distributionOf, (link, id) =>
      encodeWords(link.writer, OP.nextDistribution, this.#handle, queue, id, embed, topK),
    );
  }

  step(queue: number, request: StepRequest): Promise<Outcome<StepResult>> {
    return this.#ask(queue, stepOf, (link, id) => encodeStep(link.writer, this.#handle, queue, id, request));
  }

  synchronize(queue: number): Promise<Outcome<undefined>> {
    const state = this.#queues.get(queue);
    const failure = state?.failure;
    if (state) state.failure = undefined;
    const done = this.#ask(queue, doneOf, (link, id) =>
      encodeBare(link.writer, OP.synchronize, this.#handle, queue, id),
    );
    return failure ? done.then((outcome) => (outcome.tag === 'ok' ? err(failure) : outcome)) : done;
  }

  run(queue: number, request: RunRequest): RunHandle {
    const refusal = this.#refusal(queue);
    const link = this.#writable();
    if (refusal || !link) return failedRun(refusal ?? this.#lostError());
    const id = link.nextId();
    if (!this.#sent(link, encodeRun(link.writer, this.#handle, queue, id, request))) return failedRun(TOO_LARGE);
    const run = new DeviceRun({
      over: () => this.#pending.delete(id),
      consumed: (tokens) =>
        this.#tell((writable) => encodeWords(writable.writer, OP.runConsumed, this.#handle, queue, id, tokens)),
      stop: () => this.#tell((writable) => encodeBare(writable.writer, OP.runStop, this.#handle, queue, id)),
    });
    link.pending.set(id, run);
    this.#pending.add(id);
    return run;
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const link = this.#link;
    const alreadyDead = this.#dead;
    this.#dead ??= handlerError('cancelled', 'the inferlet has ended');
    if (!link || link.lost) return;
    const error = alreadyDead ?? handlerError('cancelled', 'the inferlet ended before this call');
    this.#failPending(link, error);
    const { promise, resolve } = Promise.withResolvers<void>();
    const id = link.nextId();
    link.pending.set(id, {
      settle: () => {
        resolve();
        return true;
      },
      fail: () => resolve(),
    });
    encodeBare(link.writer, OP.closeInferlet, this.#handle, 0, id);
    link.scheduleFlush();
    const timer = setTimeout(resolve, CLOSE_DEADLINE_MS);
    try {
      await promise;
    } finally {
      clearTimeout(timer);
      link.pending.delete(id);
      this.#link = undefined;
    }
  }

  #failPending(link: Link, error: HandlerError): void {
    for (const id of [...this.#pending]) {
      const call = link.pending.get(id);
      link.pending.delete(id);
      call?.fail(error);
    }
    this.#pending.clear();
  }

  #ask<T>(
    queue: number,
    read: (result: DecodedResult) => Outcome<T> | undefined,
    encode: (link: Link, id: number) => boolean,
  ): Promise<Outcome<T>> {
    const refusal = this.#refusal(queue);
    const link = this.#writable();
    if (refusal || !link) return Promise.resolve(err(refusal ?? this.#lostError()));
    const id = link.nextId();
    if (!this.#sent(link, encode(link, id))) return Promise.resolve(err(TOO_LARGE));
    return new Promise((resolve) => {
      const call: Pending = {
        settle: (result) => {
          this.#pending.delete(id);
          resolve(read(result) ?? resultError(result));
          return true;
        },
        fail: (error) => {
          this.#pending.delete(id);
          resolve(err(error));
        },
      };
      link.pending.set(id, call);
      this.#pending.add(id);
    });
  }

  #send(queue: number, encode: (link: Link) => boolean): void {
    if (this.#refusal(queue)) return;
    const link = this.#writable();
    if (link && !this.#sent(link, encode(link))) this.#fail(queue, TOO_LARGE);
  }

  #sendLists(op: Op, queue: number, lists: readonly List[]): void {
    this.#send(queue, (link) => encodeLists(link.writer, op, this.#handle, queue, lists));
  }

  /** For what belongs to a call that was already let through. */
  #tell(encode: (link: Link) => boolean): void {
    const link = this.#writable();
    if (link) this.#sent(link, encode(link));
  }

  #sent(link: Link, fits: boolean): boolean {
    link.scheduleFlush();
    this.#unsentBytes += link.writer.entryWords * 4;
    if (this.#unsentBytes > MAX_UNSENT_BYTES) this.#flood(link);
    return fits;
  }

  /** Its calls are lost from here on; the host is told to release what it holds. */
  #flood(link: Link): void {
    this.#dead ??= handlerError(
      'limit-exceeded',
      `more than ${MAX_UNSENT_BYTES} bytes of calls were issued without awaiting one`,
    );
    this.#failPending(link, this.#dead);
    encodeBare(link.writer, OP.closeInferlet, this.#handle, 0, 0);
  }

  #fail(queue: number, error: HandlerError): void {
    const state = this.#queues.get(queue);
    if (state) state.failure ??= error;
  }

  #lostError(): HandlerError {
    return this.#dead ?? this.#link?.lost ?? UNREACHABLE;
  }

  #refusal(queue: number): HandlerError | undefined {
    if (this.#dead) return this.#dead;
    const state = this.#queues.get(queue);
    if (state) return state.broken;
    if (this.#queues.size >= MAX_QUEUES)
      return handlerError('limit-exceeded', `more than ${MAX_QUEUES} queues are open; close some`);
    return handlerError('not-found', `no queue ${queue}: it was closed or never made`);
  }

  #writable(): Link | undefined {
    const link = this.#link;
    if (this.#dead || !link) return undefined;
    if (link.lost) {
      this.#dead = link.lost;
      return undefined;
    }
    if (this.#unsentSince !== link.drains) {
      this.#unsentSince = link.drains;
      this.#unsentBytes = 0;
    }
    return link;
  }

  #spaceFor(queue: number): Space | HandlerError {
    const refusal = this.#refusal(queue) ?? (this.#writable() ? undefined : this.#lostError());
    if (refusal) return refusal;
    const index = (this.#queues.get(queue) as Queue).model;
    let space = this.#spaces.get(index);
    if (!space) {
      const pageCount = this.#models[index]?.pageCount ?? 0;
      space = { nextPage: 1, nextEmbed: 1, heldEmbeds: 0, pages: new PageBudget(this.#options.maxPages, pageCount) };
      this.#spaces.set(index, space);
    }
    return space;
  }
}

const UNREACHABLE = handlerError('unavailable', 'the GPU host cannot be reached');
const TOO_LARGE = handlerError('limit-exceeded', `the call is larger than ${MAX_FRAME_BYTES} bytes; split it`);

function addresses(first: number, count: number): Uint32Array {
  const list = new Uint32Array(count);
  for (let i = 0; i < count; i++) list[i] = first + i;
  return list;
}

function distributionOf(result: DecodedResult): Outcome<Distribution> | undefined {
  return result.kind === 'distribution' ? ok(result.value) : undefined;
}

function stepOf(result: DecodedResult): Outcome<StepResult> | undefined {
  return result.kind === 'step' ? ok(result.value) : undefined;
}

function doneOf(result: DecodedResult): Outcome<undefined> | undefined {
  return result.kind === 'done' ? ok(undefined) : undefined;
}

function resultError(result: DecodedResult): { readonly tag: 'err'; readonly val: HandlerError } {
  if (result.kind === 'error') return err(result.error);
  return err(handlerError('internal', `the GPU host answered with a result of kind ${result.kind}`));
}

export type { RunChunk };
