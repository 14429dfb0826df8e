import type { Imported, RunRequest, TenantLimit } from './calls.ts';
import { err, type HandlerError, handlerError, type Outcome, ok } from './errors.ts';
import type { EncoderSummary, ModelSummary } from './host.ts';
import { type InferletOptions, Issuer, type LinkOrDown, TOO_LARGE } from './issuer.ts';
import {
  type AnswerOf,
  type AskedOperation,
  answerOf,
  type ImportOperation,
  type Operation,
  type SentOperation,
} from './operations.ts';
import { ADDRESSES, addresses, NO_ADDRESSES, PageBudget, type SharedPages, takePageAddresses } from './page-budget.ts';
import type { Answer, DecodedResult, DeviceUsage } from './results.ts';
import { failedRun, RemoteRun, type RunCredit, type RunHandle } from './run.ts';
import { MAX_ADDRESSES, MAX_EMBEDS, MAX_IMPORT_PAGES, MAX_LIST } from './wire.ts';

type List = Uint32Array;

/** Addresses of one model that the client has handed out. */
interface Space {
  nextPage: number;
  nextEmbed: number;
  heldEmbeds: number;
  readonly pages: PageBudget;
}

/**
 * One inferlet's calls to the device. `ask` and `send` make the calls that the table of operations marks `asked` and `sent`. Other calls have
 * methods, which mirror `wit/*.wit`: for these the client hands out addresses, counts held pages and embeds, or keeps other state. Calls
 * without a result never throw for device errors: these surface in later futures of the same queue and in `synchronize`. Lists may be views of
 * a guest's memory.
 */
export class DeviceClient {
  #issuer: Issuer;
  #maxPages: number;
  #sharedPages: SharedPages | undefined;
  #models: readonly ModelSummary[];
  readonly #encoders: readonly EncoderSummary[];
  #queues = new ClientQueues();
  #spaces = new Map<number, Space>();
  #unsentImages = 0;

  constructor(
    link: LinkOrDown,
    handle: number,
    options: InferletOptions,
    models: readonly ModelSummary[],
    encoders: readonly EncoderSummary[] = [],
  ) {
    this.#issuer = new Issuer(link, handle, options);
    this.#maxPages = options.maxPages;
    this.#sharedPages = options.sharedPages;
    this.#models = models;
    this.#encoders = encoders;
  }

  /** Pages held, by the client's own count. */
  get heldPages(): number {
    let total = 0;
    for (const space of this.#spaces.values()) total += space.pages.held;
    return total;
  }

  /** Pages held on one model, by the client's own count. */
  heldPagesOf(model: string): number {
    return this.#spaces.get(this.#models.findIndex(({ name }) => name === model))?.pages.held ?? 0;
  }

  /** Calls whose result is awaited, except images whose pixels have not come. */
  get pendingCalls(): number {
    // A call without its image waits for the image's source, not for the device.
    return Math.max(0, this.#issuer.pending - this.#unsentImages);
  }

  /** Cause of the loss of the host, with all that the inferlet held on it; undefined while the host can be called, and after `close`. */
  get lost(): string | undefined {
    return this.#issuer.lost?.val;
  }

  /**
   * Usage last reported by the host: every 250 ms while it changes, after each batch of an encoder, every 10 s while the inferlet holds pages,
   * and at its end.
   */
  get usage(): DeviceUsage {
    return this.#issuer.usage;
  }

  /** Calls issued so far. */
  get issuedCalls(): number {
    return this.#issuer.issued;
  }

  /** Calls issued on that queue so far; a call in several parts counts several times. */
  callsOn(queue: number): number {
    return this.#queues.get(queue)?.callCount ?? 0;
  }

  /** Opens a queue of calls on `model`. With an unknown model, every call on the queue fails with `not-found`. */
  createQueue(model: string): number {
    const index = this.#models.findIndex((known) => known.name === model);
    const { queue, kept: isKept } = this.#queues.add(index, model);
    if (isKept) this.#send(queue, { op: 'create-queue', model: index });
    return queue;
  }

  /** Makes a call without a result. */
  send(queue: number, operation: SentOperation): void {
    this.#send(queue, operation);
  }

  /** Makes a call with one result, which the table of operations converts. */
  ask<Asked extends AskedOperation>(queue: number, operation: Asked): Promise<Outcome<AnswerOf<Asked['op']>>> {
    return this.#ask(queue, operation, answerOf<Asked['op']>(operation.op).read);
  }

  /** Encodes texts on the encoder `name`: see `encode` in the table of operations. `signal` ends the call. */
  encode(
    name: string,
    texts: Pick<Operation<'encode'>, 'tokens' | 'lengths' | 'firsts'>,
    signal?: AbortSignal,
  ): Promise<Outcome<Float32Array>> {
    const encoder = this.#encoders.findIndex((known) => known.name === name);
    if (encoder < 0)
      return Promise.resolve(err(handlerError('not-found', `the GPU host has no encoder named ${name}`)));
    let call = 0;
    const answer = this.#issuer.ask(0, { op: 'encode', encoder, ...texts }, answerOf('encode').read, (id) => {
      call = id;
    });
    if (call === 0 || !signal) return answer;
    const stop = () => this.#issuer.send(0, { op: 'encode-stop' }, call);
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop);
    return answer.finally(() => signal.removeEventListener('abort', stop));
  }

  closeQueue(queue: number): void {
    this.#send(queue, { op: 'close-queue' });
    this.#queues.remove(queue);
  }

  allocatePages(queue: number, count: number): Outcome<Uint32Array> {
    const space = this.#spaceFor(queue);
    if ('tag' in space) return err(space);
    const refusal = space.pages.refuse(count);
    if (refusal) return err(refusal);
    const first = takePageAddresses(space, count);
    if (first === undefined) return err(NO_ADDRESSES);
    space.pages.allocate(first, count);
    this.#sendParts(queue, count, (from, to) => ({ op: 'allocate-pages', first: first + from, count: to - from }));
    return ok(addresses(first, count));
  }

  freePages(queue: number, pages: List): void {
    const space = this.#spaceFor(queue);
    const isSent = this.#sendParts(queue, pages.length, (from, to) => ({
      op: 'free-pages',
      pages: pages.subarray(from, to),
    }));
    if (isSent && !('tag' in space)) space.pages.free(pages);
  }

  allocateEmbeds(queue: number, count: number): Outcome<Uint32Array> {
    const space = this.#spaceFor(queue);
    if ('tag' in space) return err(space);
    if (space.heldEmbeds + count > MAX_EMBEDS) {
      return err(
        handlerError(
          'limit-exceeded',
          `${space.heldEmbeds} embeds are held and ${count} more were requested; the limit is ${MAX_EMBEDS}`,
        ),
      );
    }
    const first = space.nextEmbed;
    if (first + count > ADDRESSES) return err(NO_ADDRESSES);
    space.nextEmbed += count;
    space.heldEmbeds += count;
    this.#sendParts(queue, count, (from, to) => ({ op: 'allocate-embeds', first: first + from, count: to - from }));
    return ok(addresses(first, count));
  }

  freeEmbeds(queue: number, embeds: List): void {
    const space = this.#spaceFor(queue);
    const isSent = this.#sendParts(queue, embeds.length, (from, to) => ({
      op: 'free-embeds',
      embeds: embeds.subarray(from, to),
    }));
    if (isSent && !('tag' in space)) space.heldEmbeds = Math.max(0, space.heldEmbeds - embeds.length);
  }

  sharePages(queue: number, pages: List): Outcome<Uint32Array> {
    const space = this.#spaceFor(queue);
    if ('tag' in space) return err(space);
    if (pages.length > MAX_LIST) return err(TOO_LARGE);
    const refusal = space.pages.refuseShare(pages.length);
    if (refusal) return err(refusal);
    const first = takePageAddresses(space, pages.length);
    if (first === undefined) return err(NO_ADDRESSES);
    space.pages.share(pages, first);
    this.#sendParts(queue, pages.length, (from, to) => ({
      op: 'share-pages',
      first: first + from,
      pages: pages.subarray(from, to),
    }));
    return ok(addresses(first, pages.length));
  }

  /**
   * Encodes an image into `embeds`. The call takes its place in the queue at once; `pixels` (`imageSize × imageSize`, three bytes each) may resolve
   * later. If `pixels` resolves to an error, the call fails, and so does every call that needs its embeds.
   */
  embedImage(
    queue: number,
    positions: List,
    embeds: List,
    pixels: Promise<Outcome<Uint8Array>>,
  ): Promise<Outcome<undefined>> {
    let call = 0;
    const answer = this.#ask(queue, { op: 'embed-image', positions, embeds }, answerOf('embed-image').read, (id) => {
      call = id;
    });
    if (call === 0) return answer;
    this.#unsentImages++;
    const trackedPixels = pixels.finally(() => {
      this.#unsentImages--;
    });
    sendPixels(this.#issuer, call, trackedPixels);
    return answer;
  }

  /** @param credit bounds the tokens that the host decodes; by default, only the window of consumed tokens does */
  run(queue: number, request: RunRequest, credit?: RunCredit): RunHandle {
    const refusal = this.#refusalOfCall(queue);
    if (refusal) return failedRun(refusal);
    const operationOf = (sent: RunRequest): Operation =>
      sent.changes ? { op: 'start-run', request: sent, changes: sent.changes } : { op: 'run', request: sent };
    const run = this.#issuer.stream(
      queue,
      operationOf(request),
      (id, over) => {
        const report = (tokens: number) => this.#issuer.send(queue, { op: 'run-consumed', tokens }, id);
        return new RemoteRun({
          over,
          reportConsumed: credit ? (tokens) => credit.consumed(tokens, report) : report,
          stop: () => this.#issuer.send(queue, { op: 'run-stop' }, id),
          piped: () => this.#issuer.send(queue, { op: 'run-piped' }, id),
        });
      },
      credit?.whenSent &&
        (() => {
          const maxTokens = credit.whenSent?.() ?? request.maxTokens;
          return maxTokens === 0 ? null : operationOf({ ...request, maxTokens });
        }),
    );
    return 'tag' in run ? failedRun(run) : run;
  }

  /** Holds all later calls back, in their order, until `release` or `refuseHeld`. Lists of held calls are copied. */
  hold(): void {
    this.#issuer.hold();
  }

  /** Sends the held calls. */
  release(): void {
    this.#issuer.release();
  }

  /** Drops the held calls: those with a result answer with the error, and the others leave it to their queue's `synchronize`. */
  refuseHeld(error: HandlerError): void {
    for (const queue of this.#issuer.refuseHeld(error)) {
      const state = this.#queues.get(queue);
      if (state) state.failure ??= error;
    }
  }

  synchronize(queue: number): Promise<Outcome<undefined>> {
    const state = this.#queues.get(queue);
    const failure = state?.failure;
    if (state) state.failure = undefined;
    const answer = this.#ask(queue, { op: 'synchronize' }, answerOf('synchronize').read);
    return failure ? answer.then((outcome) => (outcome.tag === 'ok' ? err(failure) : outcome)) : answer;
  }

  importPages(queue: number, name: string): Promise<Outcome<Imported>> {
    return this.#import(queue, (first) => ({ op: 'import-pages', first, name }), `export ${name}`);
  }

  /** Maps a file's pages. With `write`, the inferlet holds the file's lock until the call `file-unlock` or its own end. */
  openFile(queue: number, name: string, write: boolean, functionName: string): Promise<Outcome<Imported>> {
    return this.#import(queue, (first) => ({ op: 'file-open', first, name, write, functionName }), `file ${name}`);
  }

  /** Maps the pages of a copy that the host keeps of another host's pages. */
  mapCopy(queue: number, version: string): Promise<Outcome<Imported>> {
    return this.#import(queue, (first) => ({ op: 'copy-map', first, version }));
  }

  /** Sets whether the inferlet waits for something other than the device: its pages may then be swapped out. Any call ends the wait. */
  setWaiting(waiting: boolean): void {
    this.#issuer.setWaiting(waiting);
  }

  /** Sets the span of the following calls: the high and low word of its id, 0 and 0 for none. */
  setSpan(high: number, low: number): void {
    this.#issuer.send(0, { op: 'set-span', high, low });
  }

  /** Sets the maximum pages of the tenant on the host. */
  setTenantLimit(limit: TenantLimit): void {
    this.#issuer.setTenantLimit(limit);
  }

  /** Ends the inferlet; pending calls answer `cancelled`. Resolves when the host has released what it held or is lost, or after 30 s. */
  close(): Promise<void> {
    for (const { pages } of this.#spaces.values()) pages.close();
    return this.#issuer.close();
  }

  /**
   * Sends a call that maps pages. Reserves addresses for the maximum number of pages.
   * @param source name of the imported pages: another import with this name maps the same pages. Undefined when each import maps different pages
   */
  #import(queue: number, operationAt: (first: number) => ImportOperation, source?: string): Promise<Outcome<Imported>> {
    const space = this.#spaceFor(queue);
    if ('tag' in space) return Promise.resolve(err(space));
    const first = takePageAddresses(space, MAX_IMPORT_PAGES);
    if (first === undefined) return Promise.resolve(err(NO_ADDRESSES));
    const operation = operationAt(first);
    const read = (result: DecodedResult): Outcome<Imported> | undefined => {
      const counts = answerOf(operation.op).read(result);
      if (counts?.tag !== 'ok') return counts;
      const { pages, tokens, nextPosition } = counts.val;
      if (source === undefined) space.pages.allocate(first, pages);
      else space.pages.import(source, first, pages);
      return ok({ pages: addresses(first, pages), tokens, nextPosition });
    };
    return this.#ask(queue, operation, read);
  }

  #ask<T>(
    queue: number,
    operation: Operation,
    read: Answer<T, never>['read'],
    onIssued?: (id: number) => void,
  ): Promise<Outcome<T>> {
    const refusal = this.#refusalOfCall(queue);
    return refusal ? Promise.resolve(err(refusal)) : this.#issuer.ask(queue, operation, read, onIssued);
  }

  /** Sends a call without a result. Returns false when the call was refused. */
  #send(queue: number, operation: Operation): boolean {
    if (this.#refusalOfCall(queue)) return false;
    const failure = this.#issuer.send(queue, operation);
    const state = this.#queues.get(queue);
    if (failure && state) state.failure ??= failure;
    return !failure;
  }

  /** Sends a call about `count` items in parts, which the host executes one by one. Returns false for too many items or a refused part. */
  #sendParts(queue: number, count: number, partOf: (from: number, to: number) => Operation): boolean {
    if (count > MAX_LIST) {
      const state = this.#queues.get(queue);
      if (state) state.failure ??= TOO_LARGE;
      return false;
    }
    for (let from = 0; from === 0 || from < count; from += MAX_ADDRESSES) {
      if (!this.#send(queue, partOf(from, Math.min(count, from + MAX_ADDRESSES)))) return false;
    }
    return true;
  }

  #refusal(queue: number): HandlerError | undefined {
    return this.#issuer.dead ?? this.#queues.refusal(queue);
  }

  /** Returns the error of a call that must be refused. Otherwise counts the call on its queue, and the caller must send it. */
  #refusalOfCall(queue: number): HandlerError | undefined {
    const refusal = this.#refusal(queue);
    const state = this.#queues.get(queue);
    if (!refusal && state) state.callCount++;
    return refusal;
  }

  #spaceFor(queue: number): Space | HandlerError {
    const refusal = this.#refusal(queue) ?? this.#issuer.refusal();
    if (refusal) return refusal;
    const index = (this.#queues.get(queue) as ClientQueue).model;
    let space = this.#spaces.get(index);
    if (!space) {
      const { pageCount = 0, name = '' } = this.#models[index] ?? {};
      const pages = new PageBudget(this.#maxPages, pageCount, this.#sharedPages, name);
      space = { nextPage: 1, nextEmbed: 1, heldEmbeds: 0, pages };
      this.#spaces.set(index, space);
    }
    return space;
  }
}

/** Sends the pixels of the embed-image call with the id `call` when they resolve, or the error: the host waits for one of the two. */
export function sendPixels(issuer: Issuer, call: number, pixels: Promise<Outcome<Uint8Array>>): void {
  const send = (bytes: Uint8Array) => issuer.send(0, { op: 'image-pixels', pixels: bytes }, call);
  const fail = (why: HandlerError) => issuer.send(0, { op: 'image-failed', why }, call);
  const deliver = (outcome: Outcome<Uint8Array>): void => {
    const failure = outcome.tag === 'ok' ? send(outcome.val) : outcome.val;
    if (failure) fail(failure);
  };
  pixels.then(deliver, (error: unknown) => fail(handlerError('internal', `the image was lost: ${error}`)));
}

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
