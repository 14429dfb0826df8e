import type { Tokenizer } from '#gpu-host/models/tokenizer.ts';
import type { RunRequest, StepRequest } from '#gpu-host/protocol/calls.ts';
import { err, type HandlerError, handlerError, type Outcome, ok, refuseName } from '#gpu-host/protocol/errors.ts';
import { runRequest } from '#gpu-host/protocol/fields.ts';
import { TOO_LARGE } from '#gpu-host/protocol/issuer.ts';
import type { RunHandle } from '#gpu-host/protocol/run.ts';
import type { FinishReason, MatchStatus, RunChunk, Source, StepResult } from '#wit/generated/host.ts';
import type { CompiledGrammar, Matcher } from '../../grammar/service.ts';
import type { GrantedModel } from '../device/granted.ts';
import type { DeviceQueue } from '../device/queue.ts';
import type { Droppable } from '../session/holdings.ts';
import type { Inferlet } from '../session/inferlet.ts';
import { countStepTokens, fused, RUN_BUSY, RunResource, tokensOf } from './fused.ts';

/** The host's side of a `compiled` resource. */
class InferletGrammar implements Droppable {
  readonly #inferlet: Inferlet;
  /** The model's name; empty for a model that was not granted. */
  readonly model: string;
  readonly compiled: Outcome<CompiledGrammar>;

  /** Keeps no reference to a refused `model` or `source`: a guest can make thousands of refused grammars. */
  constructor(inferlet: Inferlet, model: string, source: Source) {
    this.#inferlet = inferlet;
    const grantedModel = inferlet.description.models.get(model);
    this.model = grantedModel ? grantedModel.summary.name : '';
    const refused = inferlet.grammars.take(this);
    this.compiled = refused ? err(refused) : this.#compile(grantedModel, source);
  }

  ready(): Promise<Outcome<undefined>> {
    return this.compiled.tag === 'ok' ? this.compiled.val.ready() : Promise.resolve(this.compiled);
  }

  drop(): void {
    this.#inferlet.grammars.give(this);
    if (this.compiled.tag === 'ok') this.compiled.val.drop();
  }

  #compile(grantedModel: GrantedModel | undefined, source: Source): Outcome<CompiledGrammar> {
    if (!grantedModel) {
      return err(handlerError('not-found', 'this function was granted no model of that name; ask runtime.models'));
    }
    const { tokenizer, grammars, summary } = grantedModel;
    const { name, vocabularySize } = summary;
    if (!tokenizer) return err(handlerError('unsupported', `${name} has no tokenizer`));
    const { description, grammarAccount } = this.#inferlet;
    return grammars.compile(description.tenant, { name, tokenizer, vocabularySize }, source, grammarAccount);
  }
}

/** The host's side of a `matcher` resource. */
export class InferletMatcher implements Droppable {
  readonly #inferlet: Inferlet;
  readonly #model: string;
  readonly #matcher: Outcome<Matcher>;

  /** @param make called only when the inferlet may hold one more matcher */
  constructor(inferlet: Inferlet, model: string, make: Outcome<() => Matcher>) {
    this.#inferlet = inferlet;
    this.#model = model;
    if (make.tag === 'err') {
      this.#matcher = make;
      return;
    }
    const refused = inferlet.matchers.take(this);
    this.#matcher = refused ? err(refused) : ok(make.val());
  }

  /** `tokens` may be a view of the guest's memory. */
  accept(tokens: Uint32Array): Promise<Outcome<boolean>> {
    return this.#ask((matcher) => matcher.accept(tokens));
  }

  mask(): Promise<Outcome<Uint32Array>> {
    return this.#ask((matcher) => matcher.mask());
  }

  status(): Promise<Outcome<MatchStatus>> {
    return this.#ask((matcher) => matcher.status());
  }

  jump(maxTokens: number): Promise<Outcome<Uint32Array>> {
    const { description, services, textUser } = this.#inferlet;
    const grantedModel = description.models.get(this.#model);
    return this.#ask((matcher) => {
      // A matcher exists for models with a tokenizer only.
      const { tokenizer, summary } = grantedModel as GrantedModel & { tokenizer: Tokenizer };
      const model = { tokenizer, directory: summary.directory };
      const encode = (text: string) => services.texts.tokenize(textUser, model, text, false);
      return matcher.jump({ tokenizer, encode }, maxTokens);
    });
  }

  rollback(tokenCount: number): Promise<Outcome<undefined>> {
    return this.#ask((matcher) => matcher.rollback(tokenCount));
  }

  fork(): InferletMatcher {
    const self = this.#matcher;
    return new InferletMatcher(this.#inferlet, this.#model, self.tag === 'ok' ? ok(() => self.val.fork()) : self);
  }

  /**
   * Makes a `fused.step`, or an `adapter.step` if `adapter` is given, under the matcher's masks. Lists of `request` may be views of the guest's
   * memory.
   */
  async step(queue: DeviceQueue, request: StepRequest, adapter?: string): Promise<Outcome<StepResult>> {
    const account = this.#inferlet.grammarAccount;
    const bytes = bytesOf(request);
    const refused =
      (adapter === undefined ? null : refuseName(adapter)) ??
      this.#inferlet.refuseTokens() ??
      refuseStep(queue, this.#model, request) ??
      account.begin(bytes);
    if (refused) return err(refused);
    const copiedRequest = copyRequest(request);
    queue.retain();
    try {
      // `verify` has one row of output for the input before the guesses, and one for each guess. Each row needs the mask after its input.
      const guesses = copiedRequest.tokens.subarray(copiedRequest.tokens.length - copiedRequest.rows + 1);
      const masks = await this.#ask((matcher) => (guesses.length > 0 ? matcher.masks(guesses) : matcher.mask()));
      if (masks.tag === 'err') return masks;
      const offered = queue.offering(adapter === undefined ? 'fused' : 'adapter');
      if (offered.tag === 'err') return offered;
      // Ask again: during the wait for the masks, other calls have counted their tokens.
      const lateRefusal = this.#inferlet.refuseTokens();
      if (lateRefusal) return err(lateRefusal);
      const step = this.#inferlet.hooks.steps?.begin(
        queue,
        copiedRequest.tokens.length,
        copiedRequest.output.tag !== 'none',
      );
      const call = () =>
        offered.val.ask(queue.id, { op: 'step', request: { ...copiedRequest, allowed: masks.val, adapter } });
      return await countStepTokens(this.#inferlet, tokensOf(copiedRequest), call, step);
    } finally {
      queue.release();
      account.end(bytes);
    }
  }

  drop(): void {
    this.#inferlet.matchers.give(this);
    if (this.#matcher.tag === 'ok') this.#matcher.val.drop();
  }

  #ask<T>(call: (matcher: Matcher) => Promise<Outcome<T>>): Promise<Outcome<T>> {
    return this.#matcher.tag === 'ok' ? call(this.#matcher.val) : Promise.resolve(this.#matcher);
  }
}

/** Implements `wit/grammar.wit`. */
export const grammar = {
  '[constructor]compiled': (inferlet: Inferlet, model: string, source: Source): InferletGrammar =>
    new InferletGrammar(inferlet, model, source),
  '[method]compiled.ready': (_inferlet: Inferlet, self: InferletGrammar): Promise<Outcome<undefined>> => self.ready(),
  '[resource-drop]compiled': (_inferlet: Inferlet, self: InferletGrammar): void => self.drop(),

  '[constructor]matcher': (inferlet: Inferlet, { compiled, model }: InferletGrammar): InferletMatcher =>
    new InferletMatcher(inferlet, model, compiled.tag === 'ok' ? ok(() => compiled.val.matcher()) : compiled),
  '[method]matcher.accept': (
    _inferlet: Inferlet,
    self: InferletMatcher,
    tokens: Uint32Array,
  ): Promise<Outcome<boolean>> => self.accept(tokens),
  '[method]matcher.mask': (_inferlet: Inferlet, self: InferletMatcher): Promise<Outcome<Uint32Array>> => self.mask(),
  '[method]matcher.status': (_inferlet: Inferlet, self: InferletMatcher): Promise<Outcome<MatchStatus>> =>
    self.status(),
  '[method]matcher.fork': (_inferlet: Inferlet, self: InferletMatcher): InferletMatcher => self.fork(),
  '[method]matcher.jump': (
    _inferlet: Inferlet,
    self: InferletMatcher,
    maxTokens: number,
  ): Promise<Outcome<Uint32Array>> => self.jump(maxTokens),
  '[method]matcher.rollback': (
    _inferlet: Inferlet,
    self: InferletMatcher,
    tokens: number,
  ): Promise<Outcome<undefined>> => self.rollback(tokens),
  '[resource-drop]matcher': (_inferlet: Inferlet, self: InferletMatcher): void => self.drop(),

  step: (
    _inferlet: Inferlet,
    queue: DeviceQueue,
    matcher: InferletMatcher,
    request: StepRequest,
  ): Promise<Outcome<StepResult>> =>
    request.rows === 1 ? matcher.step(queue, request) : Promise.resolve(err(ONE_ROW)),

  verify: (
    _inferlet: Inferlet,
    queue: DeviceQueue,
    matcher: InferletMatcher,
    adapter: string | undefined,
    request: StepRequest,
  ): Promise<Outcome<StepResult>> => matcher.step(queue, request, adapter),

  'start-run': (inferlet: Inferlet, queue: DeviceQueue, matcher: InferletMatcher, request: RunRequest): RunResource =>
    new RunResource(inferlet, queue, new GrammarRun(inferlet, queue, matcher, request)),
};

/** Maximum rows of output of one `verify`. */
const MAX_ROWS = 64;
const ONE_ROW = handlerError('invalid-argument', 'a step with a grammar has one row of output; `verify` takes more');

function refuseStep(queue: DeviceQueue, model: string, { tokens, rows, output }: StepRequest) {
  if (queue.name !== model) {
    return handlerError('invalid-argument', `the grammar was compiled for ${model} and the queue is of ${queue.name}`);
  }
  if (rows > MAX_ROWS) return handlerError('limit-exceeded', `${rows} rows with a grammar; ${MAX_ROWS} is the limit`);
  if (output.tag !== 'none' && rows >= 1 && rows <= tokens.length) return null;
  const text = 'a step with a grammar has rows of output, samples or distributions, for one or more of its inputs';
  return handlerError('invalid-argument', text);
}

function bytesOf({ tokens, positions, inPages, outPages, mask }: StepRequest): number {
  const lists = [tokens, positions, inPages, outPages, ...(mask ? [mask.runs, mask.rowLengths] : [])];
  return lists.reduce((bytes, list) => bytes + list.byteLength, 0);
}

/** Copies a request's lists, because the request is sent later. */
function copyRequest({ tokens, positions, inPages, outPages, mask, rows, output }: StepRequest): StepRequest {
  return {
    tokens: tokens.slice(),
    positions: positions.slice(),
    inPages: inPages.slice(),
    outPages: outPages.slice(),
    mask: mask && { runs: mask.runs.slice(), rowLengths: mask.rowLengths.slice() },
    rows,
    output,
  };
}

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
