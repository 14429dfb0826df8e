import type { TokenStream } from '#gpu-host/models/token-stream.ts';
import type {
  AdapterInfo,
  StepResult as DeviceStepResult,
  LogitChanges,
  RunRequest,
  RunRequest as WireRunRequest,
  StepRequest as WireStepRequest,
} from '#gpu-host/protocol/calls.ts';
import type { RunHandle } from '#gpu-host/protocol/client.ts';
import { err, type HandlerError, handlerError, type Outcome, ok, refuseName } from '#gpu-host/protocol/errors.ts';
import { failedRun } from '#gpu-host/protocol/run.ts';
import { MAX_CHOSEN } from '#gpu-host/protocol/wire.ts';
import type { FinishReason, Frame, Mask, Piped, PipeRequest, RunChunk, StepResult } from '#wit/generated/host.ts';
import { StopScanner } from '../../../functions/sdk/src/stop.ts';
import type { Step } from '../../telemetry/step-trace.ts';
import type { DeviceQueue } from '../device/queue.ts';
import type { Inferlet } from '../session/inferlet.ts';
import { MAX_MESSAGE_BYTES } from '../session/session-state.ts';
import { attempt, noTokenizer, notGranted } from './detokenize.ts';
import type { CallTokens, RunTokens } from './tokens.ts';

/** A pipe's time on the runtime's thread is charged in portions of at least this size. */
const CHARGED_MS = 0.25;
/** Refuses a call of a run while an earlier one is unanswered. */
export const RUN_BUSY = handlerError('invalid-argument', 'the last next or pipe of this run has not been answered yet');

/** The host's side of a `run` resource. */
export class RunResource {
  #handle: RunHandle | null;
  /** The answer of `next` and `pipe` when the run has no handle. */
  #refusal: Outcome<RunChunk> | null;
  readonly #inferlet: Inferlet;
  readonly #queue: DeviceQueue;
  readonly #step: Step | undefined;
  /**
   * While a quota has room only for a part of the run: the request for the tokens that the inferlet has not taken yet. Null when the device
   * decodes them all. While this is set, `inferlet.outgoing` counts the bytes of the request's lists like those of a call under way.
   */
  #restOfRun: WireRunRequest | null = null;
  /** Bytes counted for the lists of `#restOfRun`, without the tokens that the run has added to the lists since. */
  #restBytes = 0;
  /** The tokens of the device's call; null when the device has none. */
  #tokens: RunTokens | null = null;
  /** The error of a run whose next token has no room in a quota. */
  #quotaRefusal: HandlerError | null = null;
  /** Number of calls on the queue right after the device began the run, or the run's latest part. */
  #callsAtStart = 0;
  /** False when the run's source is a handle: the handle counts the run's tokens itself. */
  readonly #countsTokens: boolean;
  #stopped = false;
  #dropped = false;
  /** True after a pipe's stop string: tokens decoded after it are not charged. */
  #foundStop = false;
  /** True while a `next` or `pipe` is unanswered. */
  #isBusy = false;
  #unchargedMs = 0;

  /** @param source either a request to the device, or a handle that counts and refuses its tokens itself */
  constructor(inferlet: Inferlet, queue: DeviceQueue, source: WireRunRequest | RunHandle) {
    this.#inferlet = inferlet;
    this.#queue = queue;
    queue.retain();
    this.#countsTokens = !('next' in source);
    const refused: HandlerError | null = this.#countsTokens ? inferlet.refuseTokens() : null;
    const noDevice: Outcome<RunChunk> | null = queue.device ? null : queue.refusal();
    this.#refusal = refused ? err(refused) : noDevice;
    this.#step = this.#refusal || !this.#countsTokens ? undefined : inferlet.hooks.steps?.begin(queue, 1, true);
    let handle: RunHandle | null = null;
    if (!this.#refusal) handle = 'next' in source ? source : this.#begin(source);
    else if ('next' in source) source.stop();
    this.#handle = handle;
    inferlet.runs.add(this);
  }

  async next(): Promise<Outcome<RunChunk>> {
    if (this.#isBusy) return err(RUN_BUSY);
    const nextChunk = this.#handle?.next();
    if (!nextChunk) return this.#refusal as Outcome<RunChunk>;
    this.#isBusy = true;
    const outcome = await nextChunk;
    this.#isBusy = false;
    if (outcome.tag === 'err') this.#end();
    const chunk = outcome.tag === 'ok' ? ok(this.#countChunk(outcome.val)) : outcome;
    if (this.#dropped) {
      this.#discard();
      this.#end();
    }
    return chunk;
  }

  /** Runs `next` until the end and sends the text to the client. */
  async pipe(request: PipeRequest): Promise<Outcome<Piped>> {
    const opened = TextPipe.open(this.#queue, request);
    if (opened.tag === 'err') return opened;
    if (this.#isBusy) return err(RUN_BUSY);
    const { pipes, stopping, stopped } = this.#inferlet;
    const refused = stopped ?? pipes.take(this);
    if (refused) return err(refused);
    this.#isBusy = true;
    const decodedBefore = this.#handle?.unread ?? 0;
    this.#handle?.piped();
    const stop = () => this.stop();
    stopping.addEventListener('abort', stop, { once: true });
    try {
      return await this.#pipeAll(opened.val, decodedBefore);
    } finally {
      this.#chargePipe(0);
      this.#isBusy = false;
      pipes.give(this);
      stopping.removeEventListener('abort', stop);
    }
  }

  /** @param decodedBefore number of tokens decoded before the pipe: they are charged even when a stop string comes before them */
  async #pipeAll(pipe: TextPipe, decodedBefore: number): Promise<Outcome<Piped>> {
    const endWith = (finished?: FinishReason): Outcome<Piped> => {
      const { sent: text, held, stop } = pipe;
      return ok({ tokens: Uint32Array.from(pipe.tokens), text, held, stop, finished });
    };
    // Report the sent text first; the next call returns the error.
    const failWith = (error: HandlerError): Outcome<Piped> => {
      this.#end();
      if (pipe.tokens.length === 0) return err(error);
      this.stop();
      this.#discard();
      this.#handle = null;
      this.#refusal = err(error);
      return endWith();
    };
    for (;;) {
      const outcome = (await this.#handle?.next()) ?? (this.#refusal as Outcome<RunChunk>);
      if (outcome.tag === 'err') return failWith(outcome.val);
      const { tokens, finished } = outcome.val;
      if (this.#dropped) {
        this.#count(tokens.length);
        return failWith(handlerError('closed', 'the run was dropped'));
      }
      const tokensBefore = pipe.tokens.length;
      const startMs = performance.now();
      const pushed = pipe.push(tokens, finished === 'stop-token');
      const text = pushed.tag === 'ok' ? pushed.val : '';
      this.#foundStop ||= pipe.stop !== undefined;
      const sending = text === '' ? null : this.#send(pipe.messages(text));
      this.#chargePipe(performance.now() - startMs);
      const unsent = pushed.tag === 'err' ? pushed.val : await sending;
      if (!unsent) pipe.sent += text;
      const takenCount = pipe.tokens.length - tokensBefore;
      if (pipe.stop !== undefined) {
        this.#count(Math.max(takenCount, decodedBefore - tokensBefore));
        this.#end();
        this.stop();
        return unsent ? failWith(unsent) : endWith();
      }
      const chunk = this.#countChunk(outcome.val);
      if (unsent) return failWith(unsent);
      if (chunk.finished !== undefined) return endWith(chunk.finished);
    }
  }

  stop(): void {
    this.#stopped = true;
    this.#handle?.stop();
  }

  /** Stops the run and releases its queue. */
  drop(): void {
    if (this.#dropped) return;
    this.#dropped = true;
    this.#inferlet.runs.delete(this);
    this.#discard();
    // The last tokens of a pending `next` or `pipe` still count.
    if (!this.#isBusy) this.#end();
    this.stop();
    this.#queue.release();
  }

  /** Sends messages to the client, waiting for room. Resolves to an error when the session takes no more messages. */
  async #send(messages: readonly string[]): Promise<HandlerError | null> {
    const { session } = this.#inferlet;
    for (const message of messages) {
      // A token's text may have any length. A message beyond the limit would find no room even after a flush.
      if (Buffer.byteLength(message) > MAX_MESSAGE_BYTES) {
        return handlerError('limit-exceeded', `a piece of text has more than ${MAX_MESSAGE_BYTES} bytes`);
      }
      while (session.send({ tag: 'text', val: message }).tag === 'err') {
        const flushed = await session.flush();
        if (flushed.tag === 'err') return flushed.val;
      }
    }
    return null;
  }

  /** Charges the inferlet for time on the runtime's thread. Collects small amounts; `ms` 0 charges what is collected. */
  #chargePipe(ms: number): void {
    this.#unchargedMs += ms;
    if (this.#unchargedMs === 0 || (ms > 0 && this.#unchargedMs < CHARGED_MS)) return;
    this.#inferlet.hooks.cpu.charge(this.#unchargedMs);
    this.#unchargedMs = 0;
  }

  /** Counts a chunk's tokens. Returns the chunk that the inferlet gets. */
  #countChunk(chunk: RunChunk): RunChunk {
    const { tokens, finished } = chunk;
    this.#count(tokens.length);
    const restOfRun = this.#restOfRun;
    if (restOfRun && finished === 'max-tokens' && tokens.length < restOfRun.maxTokens)
      return this.#atCap(restOfRun, tokens);
    if (this.#quotaRefusal && finished === 'stopped' && !this.#stopped) return this.#refuse(this.#quotaRefusal, tokens);
    // The limits of the invocation or of its family may be reached by now.
    if (this.#inferlet.refuseTokens()) this.stop();
    if (finished !== undefined) this.#end();
    else if (restOfRun) this.#restOfRun = restAfter(restOfRun, tokens);
    return chunk;
  }

  #count(tokens: number): void {
    if (this.#tokens) this.#inferlet.countRun(this.#tokens, tokens);
    this.#step?.took(tokens);
  }

  /** Counts the tokens that the device has decoded and that the inferlet will not read. */
  #discard(): void {
    const tokens = this.#handle?.discard() ?? 0;
    if (tokens > 0 && !this.#foundStop) this.#count(tokens);
  }

  /** Starts the run on the device, for as many tokens as the quota has room for. */
  #begin(request: WireRunRequest): RunHandle | null {
    const { device, id } = this.#queue;
    if (!device) return null;
    const { tokens } = this.#inferlet;
    const run = tokens.openRun(request.maxTokens);
    this.#tokens = run;
    // A held run knows its tokens only when it is sent.
    const whenSent = tokens.isHeld ? () => run.deviceTokens : undefined;
    const mayBeCapped = whenSent !== undefined || run.deviceTokens < request.maxTokens;
    const refused = mayBeCapped ? this.#keep(request) : null;
    if (refused) {
      this.#refusal = err(refused);
      this.#end();
      return null;
    }
    if (!mayBeCapped) this.#forget();
    run.onRefused = (error) => {
      this.#quotaRefusal = error;
      this.#handle?.stop();
    };
    const ownRequest = this.#restOfRun ?? request;
    const handle = device.run(id, whenSent ? ownRequest : { ...ownRequest, maxTokens: run.deviceTokens }, {
      whenSent,
      consumed: (consumed, report) => run.consumed(consumed, report),
    });
    this.#callsAtStart = device.callsOn(id);
    return handle;
  }

  /** Takes the last tokens of a part that the quota capped. Begins the next part, which waits for room in the quota. */
  #atCap(request: WireRunRequest, tokens: Uint32Array): RunChunk {
    const restOfRun = restAfter(request, tokens);
    this.#restOfRun = restOfRun;
    if (this.#stopped) {
      this.#end();
      return { tokens, finished: 'stopped' };
    }
    const { device, id } = this.#queue;
    // Do not continue behind later calls on the queue: the run would see their effects.
    const inTurn = device?.callsOn(id) === this.#callsAtStart;
    const refused = inTurn ? this.#inferlet.refuseTokens() : this.#refuseOutOfTurn();
    if (refused) return this.#refuse(refused, tokens);
    this.#tokens?.end();
    this.#handle = this.#begin(restOfRun);
    return { tokens, finished: undefined };
  }

  /** Hands over the last tokens of a run whose next call gets the error. */
  #refuse(error: HandlerError, tokens: Uint32Array): RunChunk {
    this.#handle = null;
    this.#refusal = err(error);
    this.#end();
    return { tokens, finished: undefined };
  }

  /** Keeps the rest of a capped run. Copies its lists the first time: they may be views of the guest's memory. */
  #keep(request: WireRunRequest): HandlerError | null {
    if (!this.#restOfRun) {
      const { outgoing } = this.#inferlet;
      const bytes = bytesOf(request);
      const refused = outgoing.refusal(bytes);
      if (refused) return refused;
      outgoing.begin(bytes);
      this.#restBytes = bytes;
      this.#restOfRun = copyRequest(request);
    } else this.#restOfRun = request;
    return null;
  }

  #forget(): void {
    if (this.#restOfRun) this.#inferlet.outgoing.end(this.#restBytes);
    this.#restOfRun = null;
  }

  /** Ends the run's step in the trace, gives back its tokens and forgets the rest: the run gives no more tokens. */
  #end(): void {
    this.#step?.end();
    this.#tokens?.end();
    this.#forget();
  }

  /** The error of a run that the quota cut and that cannot continue, because other calls have been made on its queue since. */
  #refuseOutOfTurn(): HandlerError {
    this.#inferlet.hooks.quotaReached();
    const text =
      'quota tokens: there was room for a part of the run, and other calls have been made on its queue since';
    return handlerError('limit-exceeded', text);
  }
}

function bytesOf({ pages, stopTokens, changes }: WireRunRequest): number {
  const lists = changes ? [changes.biasTokens, changes.biasValues, changes.chosen] : [];
  return [pages, stopTokens, ...lists].reduce((bytes, { byteLength }) => bytes + byteLength, 0);
}

/** A request with copies of its lists. */
function copyRequest({ changes, ...request }: WireRunRequest): WireRunRequest {
  const lists = { pages: request.pages.slice(), stopTokens: request.stopTokens.slice() };
  if (!changes) return { ...request, ...lists };
  const { biasTokens, biasValues, chosen } = changes;
  const copies = { biasTokens: biasTokens.slice(), biasValues: biasValues.slice(), chosen: chosen.slice() };
  return { ...request, ...lists, changes: { ...changes, ...copies } };
}

/** The rest of a run after some of its tokens. */
function restAfter({ changes, ...request }: WireRunRequest, tokens: Uint32Array): WireRunRequest {
  const count = tokens.length;
  const token = tokens[count - 1] ?? request.token;
  const rest = { ...request, token, position: request.position + count, maxTokens: request.maxTokens - count };
  return changes ? { ...rest, changes: { ...changes, chosen: joined(changes.chosen, tokens) } } : rest;
}

function joined(first: Uint32Array, second: Uint32Array): Uint32Array {
  const all = new Uint32Array(first.length + second.length);
  all.set(first);
  all.set(second, first.length);
  return all;
}

/** Tokens of a step. For an unmasked step, a prefix cache may have the inputs, except those with an output row. */
export function tokensOf({ tokens, output, rows, mask }: WireStepRequest): CallTokens {
  const inputs = tokens.length;
  const outputs = output.tag === 'none' ? 0 : rows;
  // A decode step has one new input, which is never cached.
  const cacheable = inputs === 1 || mask !== undefined ? 0 : Math.max(0, inputs - outputs);
  return { inputs, outputs, cacheable };
}

const cachedOf = ({ cachedTokens }: DeviceStepResult): number => cachedTokens;

/** Makes the call of a fused step and counts its tokens, including those that the prefix cache had, for the inferlet; returns the result. */
export function countStepTokens(
  inferlet: Inferlet,
  tokens: CallTokens,
  call: () => Promise<Outcome<DeviceStepResult>>,
  step?: Step,
): Promise<Outcome<StepResult>> {
  const result = inferlet.countDuring(tokens, call, cachedOf);
  if (step) void step.until(result);
  return result;
}

/** Implements `wit/fused.wit`. */
export const fused = {
  '[constructor]run': (inferlet: Inferlet, queue: DeviceQueue, request: WireRunRequest) =>
    new RunResource(inferlet, queue, request),
  '[method]run.next': (_inferlet: Inferlet, self: RunResource) => self.next(),
  '[method]run.pipe': (_inferlet: Inferlet, self: RunResource, request: PipeRequest) => self.pipe(request),
  '[method]run.stop': (_inferlet: Inferlet, self: RunResource): void => self.stop(),
  '[resource-drop]run': (_inferlet: Inferlet, self: RunResource): void => self.drop(),

  step: (inferlet: Inferlet, queue: DeviceQueue, request: WireStepRequest): Promise<Outcome<StepResult>> => {
    const refused = inferlet.refuseTokens();
    if (refused) return Promise.resolve(err(refused));
    const { device } = queue;
    if (!device) return Promise.resolve(queue.refusal());
    const step = inferlet.hooks.steps?.begin(queue, request.tokens.length, request.output.tag !== 'none');
    return countStepTokens(inferlet, tokensOf(request), () => device.ask(queue.id, { op: 'step', request }), step);
  },
};

/** Maximum tokens of `before`. Only those of an incomplete character matter, and no character takes so many. */
const MAX_BEFORE = 64;
const MAX_STOPS = 64;
const MAX_STOP_BYTES = 1024;
const MAX_FRAME_BYTES = 8192;

/** Turns a run's tokens into the messages of its text as they come, up to a stop string, without waking the guest. */
export class TextPipe {
  /** Tokens so far, up to the one that completed a stop string. */
  readonly tokens: number[] = [];
  /** Text sent so far; the caller appends the text that it sends. */
  sent = '';
  /** The stop string that was found. */
  stop: string | undefined;
  readonly #stream: TokenStream;
  readonly #scanner: StopScanner;
  readonly #frame: Frame | undefined;

  private constructor(stream: TokenStream, scanner: StopScanner, frame: Frame | undefined) {
    this.#stream = stream;
    this.#scanner = scanner;
    this.#frame = frame;
  }

  static open({ name, model }: DeviceQueue, { before, held, stops, frame }: PipeRequest): Outcome<TextPipe> {
    if (!model) return notGranted(name);
    if (!model.tokenizer) return noTokenizer(name);
    const bytes = stops.reduce((sum, stop) => sum + Buffer.byteLength(stop), 0);
    if (stops.length > MAX_STOPS || bytes > MAX_STOP_BYTES || Buffer.byteLength(held) > MAX_STOP_BYTES) {
      return err(
        handlerError('limit-exceeded', `at most ${MAX_STOPS} stop strings of ${MAX_STOP_BYTES} bytes together`),
      );
    }
    if (frame && frameBytes(frame) > MAX_FRAME_BYTES) {
      return err(
        handlerError('limit-exceeded', `the frame has ${frameBytes(frame)} bytes; ${MAX_FRAME_BYTES} is the limit`),
      );
    }
    if (before.length > MAX_BEFORE) {
      return err(handlerError('limit-exceeded', `${before.length} tokens before the run; ${MAX_BEFORE} is the limit`));
    }
    const stream = model.tokenizer.stream();
    return attempt(() => {
      stream.push(before);
      return ok(new TextPipe(stream, new StopScanner(stops, held), frame));
    });
  }

  /** The messages for the next piece of text. The opening of the frame comes before the first piece. */
  messages(text: string): readonly string[] {
    if (!this.#frame) return [text];
    const { opening, before, after } = this.#frame;
    const message = `${before}${JSON.stringify(text)}${after}`;
    return opening === '' || this.sent !== '' ? [message] : [opening, message];
  }

  /** The end of the text, not sent because it may be the beginning of a stop string. */
  get held(): string {
    return this.#scanner.held;
  }

  /**
   * Takes tokens, up to the one that completes a stop string. With `hasStopToken`, the last token is a stop token and adds no text. Returns the
   * added text, or an error for a token that the tokenizer does not know: a model may have more tokens than its tokenizer.
   */
  push(tokens: Uint32Array, hasStopToken: boolean): Outcome<string> {
    return attempt(() => ok(this.#push(tokens, hasStopToken)));
  }

  #push(tokens: Uint32Array, hasStopToken: boolean): string {
    let addedText = '';
    for (const [index, token] of tokens.entries()) {
      this.tokens.push(token);
      if (hasStopToken && index === tokens.length - 1) break;
      const scanned = this.#scanner.push(this.#stream.push([token]));
      addedText += scanned.text;
      this.stop = scanned.stop;
      if (this.stop !== undefined) break;
    }
    return addedText;
  }
}

const frameBytes = ({ opening, before, after }: Frame): number =>
  Buffer.byteLength(opening) + Buffer.byteLength(before) + Buffer.byteLength(after);

/** Implements `wit/penalties.wit`. */
export const penalties = {
  'start-run': (inferlet: Inferlet, queue: DeviceQueue, request: RunRequest, changes: LogitChanges): RunResource => {
    const offered = queue.offering('penalties');
    const refused = offered.tag === 'err' ? offered.val : refuseChosen(changes);
    return new RunResource(inferlet, queue, refused ? failedRun(refused) : { ...request, changes });
  },
};

/**
 * The error for a list of chosen tokens that is too long. The GPU host accepts longer ones: when a quota caps a run, the request for the rest of the
 * run also lists the tokens before the cap.
 */
function refuseChosen({ chosen: { length } }: LogitChanges): HandlerError | null {
  if (length <= MAX_CHOSEN) return null;
  return handlerError('limit-exceeded', `${length} chosen tokens; ${MAX_CHOSEN} is the limit`);
}

/** Implements `wit/adapter.wit`. */
export const adapter = {
  'list-adapters': (_inferlet: Inferlet, queue: DeviceQueue): Promise<Outcome<readonly AdapterInfo[]>> => {
    const offered = queue.offering('adapter');
    return offered.tag === 'err' ? Promise.resolve(offered) : offered.val.ask(queue.id, { op: 'list-adapters' });
  },

  'load-adapter': (_inferlet: Inferlet, queue: DeviceQueue, name: string): Promise<Outcome<undefined>> => {
    const refused = refuseName(name);
    if (refused) return Promise.resolve(err(refused));
    const offered = queue.offering('adapter');
    return offered.tag === 'err' ? Promise.resolve(offered) : offered.val.ask(queue.id, { op: 'load-adapter', name });
  },

  /** If the model has no adapters, the device refuses the call when its turn in the queue comes. */
  'forward-with-adapter': (
    inferlet: Inferlet,
    queue: DeviceQueue,
    name: string,
    inPages: Uint32Array,
    inEmbeds: Uint32Array,
    outPages: Uint32Array,
    outEmbeds: Uint32Array,
    mask: Mask | undefined,
  ): void => {
    const refused = refuseName(name) ?? inferlet.tokens.forward(inEmbeds.length);
    if (refused) {
      queue.fail(refused);
      return;
    }
    inferlet.hooks.steps?.forward(queue, inEmbeds.length, outEmbeds.length > 0);
    queue.device?.send(queue.id, { op: 'forward', inPages, inEmbeds, outPages, outEmbeds, mask, adapter: name });
  },

  step: (
    inferlet: Inferlet,
    queue: DeviceQueue,
    name: string,
    request: WireStepRequest,
  ): Promise<Outcome<StepResult>> => {
    const refused = refuseName(name) ?? inferlet.refuseTokens();
    if (refused) return Promise.resolve(err(refused));
    const offered = queue.offering('adapter');
    if (offered.tag === 'err') return Promise.resolve(offered);
    const step = inferlet.hooks.steps?.begin(queue, request.tokens.length, request.output.tag !== 'none');
    const call = () => offered.val.ask(queue.id, { op: 'step', request: { ...request, adapter: name } });
    return countStepTokens(inferlet, tokensOf(request), call, step);
  },
};
