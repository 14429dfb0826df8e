import type { Logger } from '#scheduler/policies/logger.ts';
import { InferletShare } from '#scheduler/policies/shares.ts';
import type { Encoder, EncoderInput } from '../backends/encoder.ts';
import { type DeviceShare, type DeviceTurns, LONGEST_USE_MS } from '../handlers/sharing/device-share.ts';
import { DeviceTime, type Meter } from '../handlers/sharing/meter.ts';
import { nextTurn, Pause } from '../handlers/sharing/thread-share.ts';
import type { HostBytes } from '../memory/host-bytes.ts';
import { type HandlerError, handlerError } from '../protocol/errors.ts';
import type { FrameWriter } from '../protocol/frames.ts';
import type { Device, EncoderStats } from '../protocol/host.ts';
import { answerOf, type Operation } from '../protocol/operations.ts';
import { encodeError } from '../protocol/results.ts';
import { MAX_ENCODED_TEXTS, MAX_RESULT_FLOATS } from '../protocol/wire.ts';
import { LatencyProfile } from './latency-profile.ts';
import { EncodeQueue, type PickedText } from './queue.ts';

/** An encoder that a host serves. */
export interface HostedEncoder {
  readonly name: string;
  readonly encoder: Encoder;
  readonly device: Device;
  /** Hugging Face directory, sent to runtimes for the tokenizer. */
  readonly directory: string;
  /** Times measured before the encoder serves; the engine goes on measuring. */
  readonly profile?: LatencyProfile;
}

/** Destination of one inferlet's results. */
export interface EncodePort {
  readonly owner: { readonly tenant: string };
  /** Rank of the inferlet's workflow among those of its tenant; undefined for an inferlet that marks no calls as calls of a workflow. */
  readonly query?: number | undefined;
  readonly writer: FrameWriter;
  /** Pays for the inferlet's device time, and counts its tokens. */
  readonly meter: Meter;
  /** Writes the inferlet's usage so far. */
  writeUsage(): void;
  /** Announces a written result, to be sent with the next flush. */
  touched(): void;
  /** Announces that a call has completed. Too many unread results end the inferlet. */
  finished(): void;
}

/** Bytes of waiting calls that every inferlet may have, on the heap and outside, whatever the tenant's other inferlets have. */
const LEAST_BYTES = 256 * 1024;
/** JavaScript heap of a waiting call; more than its few tokens take. */
const CALL_HEAP_BYTES = 2048;
/** Bytes of a waiting text besides its arguments: the four lists of {@link inOrder}. */
const TEXT_BYTES = 4 * Uint32Array.BYTES_PER_ELEMENT;

interface EncodeCall {
  readonly tenant: string;
  readonly port: EncodePort;
  readonly id: number;
  readonly tokens: Uint32Array;
  /** Place of each text in the call. This list and the next three have the longest text first. */
  readonly places: Uint32Array;
  /** Index of each text's first token in `tokens`. */
  readonly starts: Uint32Array;
  /** Number of tokens in each text's first segment. */
  readonly firsts: Uint32Array;
  /** Number of tokens of each text. */
  readonly lengths: Uint32Array;
  readonly results: Float32Array;
  /** Number of texts that batches have taken. */
  taken: number;
  readonly query: number | undefined;
  /** Texts without a result. */
  remainingTexts: number;
  /** Bytes of arguments and results. */
  readonly bytes: number;
}

/** One inferlet's calls. */
interface InferletCalls {
  readonly calls: Set<EncodeCall>;
  /** The calls that want an answer, by their id. */
  readonly byId: Map<number, EncodeCall>;
  readonly heap: InferletShare;
  readonly values: InferletShare;
}

/**
 * One encoder at work: takes the texts of all inferlets and computes them batch by batch. Calls are not ordered among each other or with calls of a
 * causal model; a call is answered when all its texts are encoded.
 */
export class EncoderEngine {
  readonly model: HostedEncoder;
  readonly #queue = new EncodeQueue<EncodeCall>();
  readonly #inferlets = new Map<EncodePort, InferletCalls>();
  readonly #profile: LatencyProfile;
  readonly #time = new DeviceTime();
  readonly #turns: DeviceTurns;
  readonly #pause = new Pause();
  readonly #bytes: HostBytes;
  readonly #flush: () => void;
  readonly #log: Logger;
  #isRunning = false;
  #isStopped = false;
  /** Called when the batch on the device has ended. */
  readonly #batchEndListeners: (() => void)[] = [];
  /** Calls and inferlets with texts in the batch on the device. */
  #computingCalls: ReadonlySet<EncodeCall> = new Set();
  #computingPorts: ReadonlySet<EncodePort> = new Set();
  /** Calls that their inferlets gave up during the batch on the device. */
  readonly #stoppedCalls = new Set<EncodeCall>();
  #counts = NO_COUNTS;
  #spentNsAtReset = 0;

  /** @param flush sends the written results */
  constructor(model: HostedEncoder, bytes: HostBytes, share: DeviceShare, flush: () => void, log: Logger) {
    this.model = model;
    this.#profile = model.profile ?? new LatencyProfile();
    this.#bytes = bytes;
    this.#flush = flush;
    this.#log = log;
    this.#turns = share.join(this, this.#pause);
  }

  /** Takes a call with `bytes` of arguments. A call that cannot be computed is answered at once. */
  submit(port: EncodePort, id: number, operation: Operation<'encode'>, bytes: number): void {
    const { config } = this.model.encoder;
    const size = config.head.kind === 'reranker' ? 1 : config.hiddenSize;
    const resultBytes = operation.lengths.length * size * Float32Array.BYTES_PER_ELEMENT;
    const inferlet = this.#inferlets.get(port) ?? this.#newInferlet(port);
    const callBytes = bytes + resultBytes + operation.lengths.length * TEXT_BYTES;
    const fits = inferlet.heap.fits(CALL_HEAP_BYTES) && inferlet.values.fits(callBytes);
    const refusal = this.#refuse(operation) ?? (fits ? undefined : TOO_MANY);
    if (refusal) {
      this.#answer(port, id, () => encodeError(port.writer, id, refusal));
      return;
    }
    const results = new Float32Array(resultBytes / Float32Array.BYTES_PER_ELEMENT);
    if (results.length === 0) {
      this.#answer(port, id, () => answerOf('encode').write(port.writer, id, results));
      return;
    }
    inferlet.heap.add(CALL_HEAP_BYTES);
    inferlet.values.add(callBytes);
    this.#inferlets.set(port, inferlet);
    const { tenant } = port.owner;
    const textCount = operation.lengths.length;
    const { query } = port;
    const call: EncodeCall = {
      tenant,
      port,
      id,
      results,
      ...inOrder(operation),
      taken: 0,
      query,
      remainingTexts: textCount,
      bytes: callBytes,
    };
    inferlet.calls.add(call);
    if (id !== 0) inferlet.byId.set(id, call);
    this.#queue.add(call);
    this.#wake();
  }

  /**
   * Ends a call of an inferlet with an error. Its texts in the batch on the device are still computed and billed. The answer then comes after that
   * batch: until it comes, the runtime reserves the call's tokens in the tenant's quota.
   */
  stopCall(port: EncodePort, id: number): void {
    const call = this.#inferlets.get(port)?.byId.get(id);
    if (!call) return;
    this.#queue.remove(call);
    this.#finish(call);
    if (this.#computingCalls.has(call)) this.#stoppedCalls.add(call);
    else this.#answerStopped(call);
  }

  /** Forgets the calls of an inferlet, and answers them if there is a `why`. Calls `onReleased` once the device computes none of its texts. */
  drop(port: EncodePort, onReleased: () => void, why?: HandlerError): void {
    const inferlet = this.#inferlets.get(port);
    this.#inferlets.delete(port);
    inferlet?.heap.close();
    inferlet?.values.close();
    const stopped = [...this.#stoppedCalls].filter((call) => call.port === port);
    for (const call of stopped) this.#stoppedCalls.delete(call);
    for (const call of [...(inferlet?.calls ?? []), ...stopped]) {
      this.#queue.remove(call);
      if (!why || call.id === 0) continue;
      encodeError(port.writer, call.id, why);
      port.touched();
    }
    if (this.#computingPorts.has(port)) this.#batchEndListeners.push(onReleased);
    else onReleased();
  }

  get stats(): EncoderStats {
    const { name, device, encoder } = this.model;
    return {
      name,
      kind: encoder.config.head.kind,
      device,
      ...this.#counts,
      waitingCalls: [...this.#inferlets.values()].reduce((sum, { calls }) => sum + calls.size, 0),
      deviceBusyMs: (this.#time.spentNs - this.#spentNsAtReset) / 1e6,
      maxBatchTokens: this.#profile.maxTokens,
      latency: this.#profile.curve,
    };
  }

  resetStats(): void {
    this.#counts = NO_COUNTS;
    this.#spentNsAtReset = this.#time.spentNs;
  }

  /** Begins no further batch; resolves when the device is free. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#pause.wake();
    if (this.#computingPorts.size > 0) await new Promise<void>((resolve) => this.#batchEndListeners.push(resolve));
  }

  /** Tenants with waiting texts or with texts on the device. */
  *tenants(): Iterable<string> {
    yield* this.#queue.tenants;
    for (const { owner } of this.#computingPorts) yield owner.tenant;
  }

  #newInferlet({ owner: { tenant } }: EncodePort): InferletCalls {
    const newShare = (shares: HostBytes['heap']) => new InferletShare(shares, tenant, LEAST_BYTES);
    return {
      calls: new Set(),
      byId: new Map(),
      heap: newShare(this.#bytes.heap),
      values: newShare(this.#bytes.values),
    };
  }

  #wake(): void {
    this.#pause.wake();
    if (this.#isRunning || this.#isStopped) return;
    this.#isRunning = true;
    setImmediate(() => void this.#work());
  }

  async #work(): Promise<void> {
    while (!this.#isStopped && !this.#queue.isEmpty) {
      if (this.#turns.mustWait()) {
        if (this.#turns.isUsed()) await this.#pause.wait(LONGEST_USE_MS);
        else await nextTurn();
        continue;
      }
      await this.#compute(this.#queue.take(this.#profile.maxTokens));
      this.#flush();
      await nextTurn();
    }
    this.#isRunning = false;
  }

  async #compute(batch: readonly PickedText<EncodeCall>[]): Promise<void> {
    this.#computingCalls = new Set(batch.map(({ call }) => call));
    this.#computingPorts = new Set(batch.map(({ call }) => call.port));
    this.#turns.begin(batch.reduce((sum, pick) => sum + lengthOf(pick), 0));
    const startedMs = performance.now();
    const outcome = await this.model.encoder.encode(batch.map(inputOf)).then(
      (values) => ({ values }),
      (error: unknown) => ({ error }),
    );
    const ms = performance.now() - startedMs;
    this.#turns.end(ms);
    this.#time.spend(ms, batch, lengthOf, ({ call }) => call.port.meter);
    if ('error' in outcome) this.#fail(batch, outcome.error);
    else {
      const width = Math.max(...batch.map(lengthOf));
      this.#profile.note(width * batch.length, ms);
      this.#count(batch);
      for (const [i, pick] of batch.entries()) this.#accept(pick, outcome.values[i] ?? EMPTY);
    }
    this.#counts = { ...this.#counts, batches: this.#counts.batches + 1 };
    this.#computingCalls = new Set();
    this.#computingPorts = new Set();
    for (const call of this.#stoppedCalls) this.#answerStopped(call);
    this.#stoppedCalls.clear();
    for (const tell of this.#batchEndListeners.splice(0)) tell();
  }

  /** Counts and bills the texts of a batch, also of ended calls and inferlets. The runtime must know the tokens before it reads an answer. */
  #count(batch: readonly PickedText<EncodeCall>[]): void {
    const { texts, tokens } = this.#counts;
    const batchTokens = batch.reduce((sum, pick) => sum + lengthOf(pick), 0);
    this.#counts = { ...this.#counts, texts: texts + batch.length, tokens: tokens + batchTokens };
    for (const pick of batch) pick.call.port.meter.encoded(lengthOf(pick));
    for (const port of this.#computingPorts) port.writeUsage();
  }

  #accept({ call, index }: PickedText<EncodeCall>, values: Float32Array): void {
    call.results.set(values, (call.places[index] ?? 0) * values.length);
    call.remainingTexts--;
    if (call.remainingTexts > 0 || !this.#finish(call)) return;
    const { port, id, results } = call;
    this.#answer(port, id, () => answerOf('encode').write(port.writer, id, results));
  }

  /** Ends all calls of a batch. Their texts were checked before, so the fault is the device's, and no single text is to blame. */
  #fail(batch: readonly PickedText<EncodeCall>[], error: unknown): void {
    this.#log.error({ error, model: this.model.name }, 'a batch of texts failed');
    for (const call of new Set(batch.map((pick) => pick.call))) {
      this.#queue.remove(call);
      if (!this.#finish(call)) continue;
      this.#counts = { ...this.#counts, failedCalls: this.#counts.failedCalls + 1 };
      this.#answer(call.port, call.id, () => encodeError(call.port.writer, call.id, FAILED));
    }
  }

  /** Forgets a call. Returns false when the call or its inferlet has ended before. */
  #finish(call: EncodeCall): boolean {
    const inferlet = this.#inferlets.get(call.port);
    if (!inferlet?.calls.delete(call)) return false;
    inferlet.byId.delete(call.id);
    inferlet.heap.add(-CALL_HEAP_BYTES);
    inferlet.values.add(-call.bytes);
    if (inferlet.calls.size === 0) this.#inferlets.delete(call.port);
    return true;
  }

  #answerStopped({ port, id }: EncodeCall): void {
    this.#answer(port, id, () => encodeError(port.writer, id, STOPPED));
  }

  /** Writes the answer of a call that wants one. */
  #answer(port: EncodePort, id: number, write: () => boolean): void {
    if (id === 0) return;
    write();
    port.touched();
    port.finished();
  }

  #refuse({ tokens, lengths, firsts }: Operation<'encode'>): HandlerError | undefined {
    const { contextLength, vocabularySize, tokenTypes, hiddenSize, head } = this.model.encoder.config;
    const invalid = (text: string) => handlerError('invalid-argument', text);
    const size = head.kind === 'reranker' ? 1 : hiddenSize;
    const maxTexts = Math.min(MAX_ENCODED_TEXTS, Math.floor(MAX_RESULT_FLOATS / size));
    if (lengths.length > maxTexts) {
      return handlerError('limit-exceeded', `${lengths.length} texts in one call; ${maxTexts} is the limit`);
    }
    if (firsts.length !== lengths.length) return invalid(`${firsts.length} segments of ${lengths.length} texts`);
    let totalTokens = 0;
    for (const [i, length] of lengths.entries()) {
      if (length === 0 || length > contextLength) {
        return invalid(`text ${i} has ${length} tokens; from 1 to ${contextLength} are possible`);
      }
      const firstSegmentLength = firsts[i] ?? 0;
      if (firstSegmentLength > length || (firstSegmentLength < length && tokenTypes < 2))
        return invalid(
          `text ${i} has ${firstSegmentLength} of ${length} tokens in the first of ${tokenTypes} segments`,
        );
      totalTokens += length;
    }
    if (totalTokens !== tokens.length) return invalid(`${tokens.length} tokens for texts of ${totalTokens} in all`);
    const unknownToken = tokens.find((token) => token >= vocabularySize);
    return unknownToken === undefined
      ? undefined
      : invalid(`token ${unknownToken} of a vocabulary of ${vocabularySize}`);
  }
}

/** Longest texts first, so that a batch has texts of about one length and little padding. */
function inOrder({ tokens, lengths, firsts }: Operation<'encode'>) {
  const starts = new Uint32Array(lengths.length);
  for (let i = 1; i < lengths.length; i++) starts[i] = (starts[i - 1] ?? 0) + (lengths[i - 1] ?? 0);
  const places = Uint32Array.from(lengths.keys()).sort((a, b) => (lengths[b] ?? 0) - (lengths[a] ?? 0) || a - b);
  const sorted = (list: Uint32Array) => places.map((place) => list[place] ?? 0);
  return { tokens, places, starts: sorted(starts), firsts: sorted(firsts), lengths: sorted(lengths) };
}

function inputOf({ call, index }: PickedText<EncodeCall>): EncoderInput {
  const [start = 0, length = 0, first = 0] = [call.starts[index], call.lengths[index], call.firsts[index]];
  return { tokens: call.tokens.subarray(start, start + length), types: new Uint8Array(length).fill(1, first) };
}

const lengthOf = ({ call, index }: PickedText<EncodeCall>): number => call.lengths[index] ?? 0;

const NO_COUNTS = { batches: 0, texts: 0, tokens: 0, failedCalls: 0 };
const EMPTY = new Float32Array(0);
const STOPPED = handlerError('closed', 'the inferlet gave up the call');
const FAILED = handlerError('internal', 'the encoder failed; its log on the GPU host says why');
const TOO_MANY = handlerError(
  'limit-exceeded',
  'too many texts of this tenant wait to be encoded; await some before sending more',
);
