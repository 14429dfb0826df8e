import type { RunRequest, StepRequest } from '#gpu-host/protocol/calls.ts';
import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { runRequest } from '#gpu-host/protocol/fields.ts';
import { TOO_LARGE } from '#gpu-host/protocol/issuer.ts';
import type { RunHandle } from '#gpu-host/protocol/run.ts';
import type { FinishReason, RunChunk } from '#wit/generated/host.ts';
import { fused, RUN_BUSY } from './fused.ts';
import type { InferletMatcher } from './grammar.ts';
import type { Inferlet } from './inferlet.ts';
import type { DeviceQueue } from './queue.ts';

/** Longest time that decoded tokens wait for later ones before the inferlet gets them. */
const SLICE_MS = 25;

/** Memory of one entry of a set of numbers. */
const SET_ENTRY_BYTES = 40;

const NONE = new Uint32Array(0);
const NO_STOPS: ReadonlySet<number> = new Set();
const NO_TOKENS = handlerError('invalid-argument', 'a run of 0 tokens');
const USED = handlerError('invalid-argument', 'the matcher was used during its run');

/**
 * A run under a grammar's masks. It decodes only while a `next` is pending. So when the inferlet makes calls after it got the tokens, no step
 * of the run enters the queue behind them.
 */
export class GrammarRun implements RunHandle {
  readonly #inferlet: Inferlet;
  readonly #queue: DeviceQueue;
  readonly #matcher: InferletMatcher;
  #request: Omit<RunRequest, 'stopTokens'>;
  #stopTokens: ReadonlySet<number>;
  /** The inputs of the next step: the last token that the inferlet got or will get, and the forced tokens behind it. */
  #inputs: readonly number[];
  /** Number of tokens decoded so far: the inputs of all steps. */
  #decodedCount = 0;
  #finished: FinishReason | undefined;
  #failure: HandlerError | undefined;
  #stopped = false;
  #isDecoding = false;
  /** True while its lists count as carried by a call under way. */
  #isCounted = true;
  readonly #bytes: number;

  /** @param request its lists may be views of the guest's memory */
  constructor(inferlet: Inferlet, queue: DeviceQueue, matcher: InferletMatcher, request: RunRequest) {
    this.#inferlet = inferlet;
    this.#queue = queue;
    this.#matcher = matcher;
    this.#inputs = [request.token];
    const { stopTokens, ...rest } = request;
    this.#bytes = rest.pages.byteLength + stopTokens.length * SET_ENTRY_BYTES;
    const tooLarge = runRequest.exceeds?.(request) === undefined ? null : TOO_LARGE;
    const empty = rest.maxTokens === 0 ? NO_TOKENS : null;
    const refused = empty ?? tooLarge ?? inferlet.outgoing.refusal(this.#bytes);
    inferlet.outgoing.begin(this.#bytes);
    this.#request = { ...rest, pages: refused ? NONE : rest.pages.slice() };
    this.#stopTokens = refused ? NO_STOPS : new Set(stopTokens);
    if (!refused) return;
    this.#failure = refused;
    this.#release();
  }

  async next(): Promise<Outcome<RunChunk>> {
    if (this.#isDecoding) return err(RUN_BUSY);
    this.#isDecoding = true;
    const chunk = await this.#slice();
    this.#isDecoding = false;
    if (this.#stopped || this.#finished || this.#failure) this.#release();
    return chunk;
  }

  async #slice(): Promise<Outcome<RunChunk>> {
    const sliceEndMs = performance.now() + SLICE_MS;
    const tokens: number[] = [];
    do {
      // A drop during this wait releases the queue, so that no step may follow.
      await this.#inferlet.grammarAccount.turn();
      if (this.#stopped) this.#finished ??= 'stopped';
      if (this.#failure || this.#finished) break;
      const failure = await this.#decode(tokens);
      if (failure) this.#failure = failure;
    } while (!this.#finished && performance.now() < sliceEndMs);
    // Tokens decoded before a failure are good.
    if (this.#failure && tokens.length === 0) return err(this.#failure);
    return ok({ tokens: Uint32Array.from(tokens), finished: this.#finished });
  }

  /** A pipe changes nothing: the runtime asks for each token itself. */
  piped(): void {}

  /** No token comes before a `next` asks for it. */
  readonly unread = 0;

  discard(): number {
    return 0;
  }

  stop(): void {
    this.#stopped = true;
    if (!this.#isDecoding) this.#release();
  }

  /** Forgets the lists. No step may follow or be under way. */
  #release(): void {
    if (this.#isCounted) this.#inferlet.outgoing.end(this.#bytes);
    this.#isCounted = false;
    this.#request = { ...this.#request, pages: NONE };
    this.#stopTokens = NO_STOPS;
  }

  /** Makes one step. Adds to `tokens` the forced tokens that the step computes, and the token that it samples. */
  async #decode(tokens: number[]): Promise<HandlerError | null> {
    const { sampler, maxTokens } = this.#request;
    const { grammarAccount: account } = this.#inferlet;
    const stepResult = await account.runCharged(() =>
      this.#matcher.step(this.#queue, this.#stepOf(this.#inputs, { tag: 'sample', val: sampler })),
    );
    if (stepResult.tag === 'err') return stepResult.val;
    const [token] = stepResult.val.tokens;
    if (token === undefined) return handlerError('internal', 'the device sampled no token');
    this.#decodedCount += this.#inputs.length;
    const remainingTokens = maxTokens - this.#decodedCount;
    const isStop = this.#stopTokens.has(token);
    const [accepted, jumped, status] = await account.runCharged(() =>
      Promise.all([
        this.#matcher.accept(Uint32Array.of(token)),
        isStop || remainingTokens === 0 ? ok(NONE) : this.#matcher.jump(remainingTokens),
        this.#matcher.status(),
      ]),
    );
    if (accepted.tag === 'err') return accepted.val;
    if (!accepted.val) return USED;
    account.runCharged(() => {
      for (const forced of this.#inputs.slice(1)) tokens.push(forced);
      tokens.push(token);
    });
    if (jumped.tag === 'err') return jumped.val;
    if (status.tag === 'err') return status.val;
    const stop = account.runCharged(() => jumped.val.findIndex((forced) => this.#stopTokens.has(forced)));
    const forced = stop < 0 ? jumped.val : jumped.val.subarray(0, stop + 1);
    const surplus = jumped.val.length - forced.length;
    const rolledBack = surplus > 0 ? await this.#matcher.rollback(surplus) : ok(undefined);
    if (rolledBack.tag === 'err') return rolledBack.val;
    this.#inputs = [token, ...forced];
    if (isStop || stop >= 0) this.#finished = 'stop-token';
    else if (status.val.mustEnd) this.#finished = 'stopped';
    else if (forced.length === remainingTokens) this.#finished = 'max-tokens';
    return this.#finished && forced.length > 0 ? this.#computeForced(tokens) : null;
  }

  /** Computes all inputs but the last, and adds the forced ones to `tokens`. */
  async #computeForced(tokens: number[]): Promise<HandlerError | null> {
    const { grammarAccount: account } = this.#inferlet;
    const computed = await account.runCharged(() =>
      fused.step(this.#inferlet, this.#queue, this.#stepOf(this.#inputs.slice(0, -1), { tag: 'none' })),
    );
    if (computed.tag === 'err') {
      this.#finished = undefined;
      return computed.val;
    }
    account.runCharged(() => {
      for (const token of this.#inputs.slice(1)) tokens.push(token);
    });
    return null;
  }

  #stepOf(inputs: readonly number[], output: StepRequest['output']): StepRequest {
    const { position, pages } = this.#request;
    const from = position + this.#decodedCount;
    return {
      tokens: Uint32Array.from(inputs),
      positions: Uint32Array.from(inputs, (_, i) => from + i),
      inPages: pages,
      outPages: pages,
      mask: undefined,
      rows: output.tag === 'none' ? 0 : 1,
      output,
    };
  }
}
