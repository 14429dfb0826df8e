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

/** A `next` returns after the first step that ends at least this long after the start of the `next`. */
const SLICE_MS = 25;

/** Memory of one number in a `Set`. */
const SET_ENTRY_BYTES = 40;

const NONE = new Uint32Array(0);
const NO_STOPS: ReadonlySet<number> = new Set();
const EMPTY_RUN = handlerError('invalid-argument', 'a run of 0 tokens');
const MATCHER_USED = handlerError('invalid-argument', 'the matcher was used during its run');

/**
 * A run under a grammar's masks. It decodes only while a `next` is pending, so that no step of the run enters the queue behind calls that the
 * inferlet makes after it got the tokens.
 *
 * Forced tokens are those that the grammar leaves no choice about. The device computes them without sampling. There can be thousands of
 * them, so `runCharged` charges the inferlet even for plain loops over them on the runtime's thread.
 */
export class GrammarRun implements RunHandle {
  readonly #inferlet: Inferlet;
  readonly #queue: DeviceQueue;
  readonly #matcher: InferletMatcher;
  #request: Omit<RunRequest, 'stopTokens'>;
  #stopTokens: ReadonlySet<number>;
  /**
   * The inputs of the next step: the last sampled token (at first the request's token) and the forced tokens behind it. The inferlet gets the
   * forced tokens once the step has computed them.
   */
  #inputs: readonly number[];
  /** Number of tokens decoded so far. The steps have computed equally many inputs. */
  #decodedCount = 0;
  #finished: FinishReason | undefined;
  #failure: HandlerError | undefined;
  #stopped = false;
  #isDecoding = false;
  /** True while `inferlet.outgoing` counts the run and the bytes of its lists, as it counts a call under way. */
  #isCounted = true;
  /** Memory of the run's lists: `pages` and `stopTokens`. */
  readonly #listBytes: number;

  /** @param request its lists may be views of the guest's memory, so this class copies them */
  constructor(inferlet: Inferlet, queue: DeviceQueue, matcher: InferletMatcher, request: RunRequest) {
    this.#inferlet = inferlet;
    this.#queue = queue;
    this.#matcher = matcher;
    this.#inputs = [request.token];
    const { stopTokens, ...rest } = request;
    this.#listBytes = rest.pages.byteLength + stopTokens.length * SET_ENTRY_BYTES;
    const tooLarge = runRequest.exceeds?.(request) === undefined ? null : TOO_LARGE;
    const emptyRun = rest.maxTokens === 0 ? EMPTY_RUN : null;
    const refused = emptyRun ?? tooLarge ?? inferlet.outgoing.refusal(this.#listBytes);
    // Counted even for a refused run, because `#release` ends the count.
    inferlet.outgoing.begin(this.#listBytes);
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
      // During this wait, the inferlet may drop the run, which stops it and releases the queue. Then no step may follow.
      await this.#inferlet.grammarAccount.turn();
      if (this.#stopped) this.#finished ??= 'stopped';
      if (this.#failure || this.#finished) break;
      const failure = await this.#decode(tokens);
      if (failure) this.#failure = failure;
    } while (!this.#finished && performance.now() < sliceEndMs);
    // The inferlet first gets the tokens decoded before a failure. Its next `next` gets the error.
    if (this.#failure && tokens.length === 0) return err(this.#failure);
    return ok({ tokens: Uint32Array.from(tokens), finished: this.#finished });
  }

  /** Does nothing: `piped` asks for even slices of the tokens that the device decodes ahead, and it decodes none ahead for this run. */
  piped(): void {}

  /** Always 0: no token comes before a `next` asks for it. */
  readonly unread = 0;

  discard(): number {
    return 0;
  }

  stop(): void {
    this.#stopped = true;
    if (!this.#isDecoding) this.#release();
  }

  /** Forgets the lists and ends their count. No step may follow or be under way. */
  #release(): void {
    if (this.#isCounted) this.#inferlet.outgoing.end(this.#listBytes);
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
    // The device sampled the token under the matcher's mask, so a matcher that no other call has changed accepts it.
    if (!accepted.val) return MATCHER_USED;
    account.runCharged(() => {
      for (const forced of this.#inputs.slice(1)) tokens.push(forced);
      tokens.push(token);
    });
    if (jumped.tag === 'err') return jumped.val;
    if (status.tag === 'err') return status.val;
    const stopIndex = account.runCharged(() => jumped.val.findIndex((forced) => this.#stopTokens.has(forced)));
    const forced = stopIndex < 0 ? jumped.val : jumped.val.subarray(0, stopIndex + 1);
    // The matcher has accepted all of `jumped`: take back the tokens behind the stop token.
    const surplus = jumped.val.length - forced.length;
    const rolledBack = surplus > 0 ? await this.#matcher.rollback(surplus) : ok(undefined);
    if (rolledBack.tag === 'err') return rolledBack.val;
    this.#inputs = [token, ...forced];
    if (isStop || stopIndex >= 0) this.#finished = 'stop-token';
    else if (status.val.mustEnd) this.#finished = 'stopped';
    else if (forced.length === remainingTokens) this.#finished = 'max-tokens';
    return this.#finished && forced.length > 0 ? this.#computeForced(tokens) : null;
  }

  /**
   * Makes the step that computes the last forced tokens of a finished run, and adds them to `tokens`. It leaves out the last input: a run never
   * computes its last token.
   */
  async #computeForced(tokens: number[]): Promise<HandlerError | null> {
    const { grammarAccount: account } = this.#inferlet;
    const computed = await account.runCharged(() =>
      fused.step(this.#inferlet, this.#queue, this.#stepOf(this.#inputs.slice(0, -1), { tag: 'none' })),
    );
    if (computed.tag === 'err') {
      // The run ends with the error instead.
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
