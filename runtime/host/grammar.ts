import type { Tokenizer } from '#gpu-host/models/tokenizer.ts';
import type { RunRequest, StepRequest } from '#gpu-host/protocol/calls.ts';
import { err, handlerError, type Outcome, ok, refuseName } from '#gpu-host/protocol/errors.ts';
import type { MatchStatus, Source, StepResult } from '#wit/generated/host.ts';
import type { CompiledGrammar, Matcher } from '../grammar/service.ts';
import { countStepTokens, RunResource, tokensOf } from './fused.ts';
import { GrammarRun } from './grammar-run.ts';
import type { Droppable } from './holdings.ts';
import type { GrantedModel, Inferlet } from './inferlet.ts';
import type { DeviceQueue } from './queue.ts';

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
