import type { OutputRequest, SequenceInput, SequenceOutput } from '../../backends/backend.ts';
import { allowedCount } from '../../backends/draw.ts';
import type { KeyVisitor, PagesAhead } from '../../batcher/call.ts';
import { fault } from '../../memory/fault.ts';
import type { Distribution, StepRequest } from '../../protocol/calls.ts';
import type { HandlerError } from '../../protocol/errors.ts';
import { MAX_FRAME_WORDS } from '../../protocol/wire.ts';
import type { AdapterHold } from '../sharing/adapters.ts';
import type { RemainingCall } from '../steps/step-bounds.ts';
import { DeviceCall, type HostQueue, type ModelContext, type Progress, pageKey } from './call.ts';
import { candidatesWanted, checkAllowed, checkSampler, checkTokens, checkTopK, drawsOf, tokenOf } from './checks.ts';
import { ForwardPlan, type ForwardRequest, isChunkable, Unplanned } from './plan.ts';

const NO_TOKENS = new Uint32Array(0);

/** `step` of `wit/fused.wit`: embed, forward and sample (or distributions) in one call. */
export class StepCall extends DeviceCall {
  readonly request: StepRequest;
  readonly #model: ModelContext;
  readonly #unplanned: Unplanned;
  #plan: ForwardPlan | undefined;
  /** Candidates that each row needs; 0 without output. */
  #topK = 0;
  #rows = 0;
  /** True for a greedy sampler, which needs no probabilities. */
  #tokensOnly = false;
  #sampledTokens: Uint32Array = NO_TOKENS;
  #distributions: Distribution[] = [];
  #sampledCount = 0;

  constructor(queue: HostQueue, id: number, request: StepRequest, model: ModelContext, hold?: AdapterHold) {
    super('forward', queue, id, hold);
    this.request = request;
    this.#model = model;
    this.#unplanned = new Unplanned(queue.space.pages, model);
  }

  override get tokens(): number {
    if (this.#plan) return this.#plan.remainingInputs;
    const { tokens } = this.request;
    return this.#unplanned.inputs(tokens.length, () => this.#requestIfWellFormed());
  }

  override get stepTokens(): number {
    const { tokens } = this;
    return tokens <= 1 ? Number.POSITIVE_INFINITY : this.#model.bounds.stepInputs(this.#remaining(tokens));
  }

  override get besideTokens(): number {
    const { tokens } = this;
    return tokens <= 1 ? Number.POSITIVE_INFINITY : this.#model.bounds.besideInputs(this.#remaining(tokens));
  }

  #remaining(inputs: number): RemainingCall {
    const { inPages, output, rows } = this.request;
    const outputs = output.tag === 'none' ? 0 : Math.min(rows, inputs);
    return this.#plan?.remaining(outputs) ?? this.#unplanned.remaining(inputs, inPages.length, outputs);
  }

  override get pagesAhead(): PagesAhead | undefined {
    const { tokens, adapter } = this.request;
    if (this.#plan) return this.#unplanned.pagesLeft(this.#plan, tokens, adapter);
    return this.#unplanned.pagesAhead(tokens.length, adapter, () => this.#requestIfWellFormed());
  }

  override get samples(): boolean {
    return this.#sampledTokens.length > 0;
  }

  /** The sampled token, once the call is done; undefined when it gave none, or several. */
  get token(): number | undefined {
    return this.#sampledCount === 1 && this.#sampledTokens.length === 1 ? this.#sampledTokens[0] : undefined;
  }

  override chunkable(): boolean {
    const { outPages, positions, mask } = this.request;
    return isChunkable(outPages.length, positions, mask);
  }

  override prepare(granted: number): SequenceInput {
    // A call that was granted as a whole is prepared as a whole, even if the cache has lost pages since: later calls of the batch depend on it.
    const isWhole = granted >= this.tokens;
    this.#plan ??= this.#makePlan();
    const plan = this.#plan;
    const count = isWhole ? plan.remainingInputs : Math.min(granted, plan.remainingInputs);
    const allTokens = this.request.tokens;
    const tokens =
      count === allTokens.length ? allTokens : allTokens.subarray(plan.doneInputs, plan.doneInputs + count);
    return plan.begin(count, { kind: 'tokens', tokens }, this.#output(plan, count));
  }

  override accept(output: SequenceOutput): Progress {
    const plan = this.#plan as ForwardPlan;
    if (output.kind === 'top') this.#take(output);
    plan.commit();
    if (plan.remainingInputs > 0) return 'more';
    this.hostQueue.trail.noteStep(this.request, this.token);
    this.reply('step', {
      tokens: this.#sampledTokens,
      distributions: this.#distributions,
      cachedTokens: plan.cachedInputs,
    });
    return 'done';
  }

  protected override rollback(): void {
    this.#plan?.rollback();
  }

  /** Undoes `prepare`: the call joins a later step. */
  unprepare(): void {
    this.rollback();
    this.#plan = undefined;
  }

  /** The output request for the next `count` inputs. */
  #output(plan: ForwardPlan, count: number): OutputRequest {
    const end = plan.doneInputs + count;
    // The last `#rows` inputs of the request have an output.
    const firstWithOutput = this.request.tokens.length - this.#rows;
    const rows = Math.max(0, Math.min(count, end - firstWithOutput));
    if (rows === 0) return { kind: 'none' };
    const { allowed, output } = this.request;
    const draws = output.tag === 'sample' ? drawsOf(output.val, plan.positions.subarray(end - rows, end)) : undefined;
    const wordsPerRow = allowed ? allowed.length / this.#rows : 0;
    const firstRow = end - rows - firstWithOutput;
    return {
      kind: 'top',
      rows,
      topK: this.#topK,
      tokensOnly: this.#tokensOnly,
      ...(allowed ? { allowed: allowed.subarray(firstRow * wordsPerRow, (firstRow + rows) * wordsPerRow) } : {}),
      ...(draws ? { draws } : {}),
    };
  }

  /** Takes the output rows of the inputs just computed. `topK` is the device's stride and may be larger than the request's. */
  #take(top: Extract<SequenceOutput, { kind: 'top' }>): void {
    const { topK, tokens, logProbabilities, drawn } = top;
    const rows = drawn?.length ?? tokens.length / topK;
    const { output } = this.request;
    for (let row = 0; row < rows; row++) {
      const offset = row * topK;
      if (output.tag === 'sample') {
        this.#sampledTokens[this.#sampledCount++] = tokenOf(top, row);
      } else {
        if (Number.isNaN(logProbabilities[offset]))
          throw fault('internal', 'the model computed no numbers for these inputs');
        const end = offset + allowedCount(logProbabilities, offset, Math.min(topK, this.#topK));
        this.#distributions.push({
          tokens: tokens.slice(offset, end),
          logProbabilities: logProbabilities.slice(offset, end),
        });
      }
    }
  }

  #makePlan(): ForwardPlan {
    const { tokens, positions } = this.request;
    if (tokens.length === 0) throw fault('invalid-argument', 'a step without tokens');
    if (tokens.length !== positions.length) {
      throw fault(
        'invalid-argument',
        `${tokens.length} tokens and ${positions.length} positions; give one position for each token`,
      );
    }
    const { config } = this.#model.backend;
    checkTokens(tokens, config.vocabularySize);
    this.#checkOutput();
    return new ForwardPlan(this.hostQueue.space.pages, this.#buildRequest(), config, this.#model.bounds);
  }

  #requestIfWellFormed(): ForwardRequest | undefined {
    const { tokens, positions } = this.request;
    return tokens.length === positions.length ? this.#buildRequest() : undefined;
  }

  #buildRequest(): ForwardRequest {
    const { tokens, positions, inPages, outPages, mask, output, adapter } = this.request;
    const rows = output.tag === 'none' ? 0 : this.request.rows;
    return { positions, inPages, outPages, mask, tokens, rows, logits: rows, keepsParts: false, adapter };
  }

  #checkOutput(): void {
    const { output, rows, tokens, allowed } = this.request;
    if (output.tag === 'none') {
      if (allowed) throw fault('invalid-argument', 'a token mask for a step without output');
      return;
    }
    if (rows === 0 || rows > tokens.length) {
      throw fault(
        'invalid-argument',
        `${rows} rows of output for ${tokens.length} inputs; 1 to ${tokens.length} are expected`,
      );
    }
    if (allowed) checkAllowed(allowed, rows, this.#model.backend.config.vocabularySize);
    this.#rows = rows;
    if (output.tag === 'sample') {
      checkSampler(output.val);
      this.#topK = candidatesWanted(output.val, this.#model.maxTopK);
      this.#tokensOnly = output.val.temperature === 0;
      this.#sampledTokens = new Uint32Array(rows);
      return;
    }
    checkTopK(output.val, this.#model.maxTopK);
    this.#topK = output.val;
    // A distribution takes a word, and two for each token. Half a frame leaves room for the rest of the result.
    if (rows * (1 + 2 * this.#topK) > MAX_FRAME_WORDS / 2) {
      throw fault(
        'limit-exceeded',
        `${rows} distributions of ${this.#topK} tokens are more than one result holds; ask in parts`,
      );
    }
  }

  override visitKeys(visit: KeyVisitor): void {
    // Visit written pages first: a page that is both written and read then counts as written only.
    for (const page of this.request.outPages) visit(pageKey(page), 'fill');
    for (const page of this.request.inPages) visit(pageKey(page), 'read');
  }

  protected override poison(cause: HandlerError): void {
    this.hostQueue.space.pages.fail(this.request.outPages, cause, this.hostQueue);
  }
}
