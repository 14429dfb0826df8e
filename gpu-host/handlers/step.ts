import type { OutputRequest, SequenceInput, SequenceOutput } from '../backends/backend.ts';
import type { KeyVisitor } from '../batcher/call.ts';
import { fault } from '../memory/fault.ts';
import type { Distribution, StepRequest } from '../protocol/calls.ts';
import type { HandlerError } from '../protocol/errors.ts';
import { encodeStepResult } from '../protocol/results.ts';
import { MAX_FRAME_WORDS } from '../protocol/wire.ts';
import { DeviceCall, type ModelContext, type Progress, pageKey } from './call.ts';
import { checkTokens } from './instant.ts';
import { ForwardPlan } from './plan.ts';
import { candidatesWanted, checkSampler, pick } from './sampler.ts';
import type { HostQueue } from './space.ts';

const NO_TOKENS = new Uint32Array(0);

/** `step` of `wit/fused.wit`: embed, forward and sample (or distributions) in one call. */
export class StepCall extends DeviceCall {
  readonly #request: StepRequest;
  readonly #model: ModelContext;
  #plan: ForwardPlan | undefined;
  #prepared = 0;
  /** Candidates that each row needs; 0 when nothing is handed back. */
  #topK = 0;
  #rows = 0;
  /** Greedy: nobody looks at the probabilities. */
  #tokensOnly = false;
  #tokens: Uint32Array = NO_TOKENS;
  #distributions: Distribution[] = [];
  #row = 0;

  constructor(queue: HostQueue, id: number, request: StepRequest, model: ModelContext) {
    super('forward', queue, id);
    this.#request = request;
    this.#model = model;
  }

  override get tokens(): number {
    return this.#plan ? this.#plan.left : this.#request.tokens.length;
  }

  override chunkable(): boolean {
    try {
      return this.#planned().chunkable;
    } catch {
      // It fails the same way, with its cause, when it is prepared.
      return false;
    }
  }

  override prepare(tokens: number): SequenceInput {
    const plan = this.#planned();
    this.#prepared = tokens;
    const all = this.#request.tokens;
    const inputs = plan.done === 0 && tokens === all.length ? all : all.subarray(plan.done, plan.done + tokens);
    const rows = Math.max(0, Math.min(tokens, plan.done + tokens - (all.length - this.#rows)));
    const output: OutputRequest =
      rows > 0 ? { kind: 'top', rows, topK: this.#topK, tokensOnly: this.#tokensOnly } : { kind: 'none' };
    return plan.sequence(tokens, { kind: 'tokens', tokens: inputs }, output);
  }

  override accept(output: SequenceOutput): Progress {
    const plan = this.#plan as ForwardPlan;
    if (output.kind === 'top') this.#take(plan, output.topK, output.tokens, output.logProbabilities);
    plan.commit(this.#prepared);
    if (plan.left > 0) return 'more';
    this.reply(() =>
      encodeStepResult(this.hostQueue.space.port.writer, this.id, {
        tokens: this.#tokens,
        distributions: this.#distributions,
      }),
    );
    return 'done';
  }

  /** Rows of the inputs just computed; `topK` is the device's stride and may be larger than what was asked. */
  #take(plan: ForwardPlan, topK: number, tokens: Uint32Array, logProbabilities: Float32Array): void {
    const rows = tokens.length / topK;
    const first = plan.done + this.#prepared - rows;
    for (let row = 0; row < rows; row++) {
      const offset = row * topK;
      const { output } = this.#request;
      if (output.tag === 'sample') {
        const choice = pick(
          output.val,
          logProbabilities,
          offset,
          Math.min(topK, this.#topK),
          plan.positions[first + row] as number,
        );
        this.#tokens[this.#row++] = tokens[offset + choice] as number;
      } else {
        this.#distributions.push({
          tokens: tokens.slice(offset, offset + this.#topK),
          logProbabilities: logProbabilities.slice(offset, offset + this.#topK),
        });
      }
    }
  }

  #planned(): ForwardPlan {
    if (this.#plan) return this.#plan;
    const { tokens, positions, inPages, outPages, mask } = this.#request;
    if (tokens.length === 0) throw fault('invalid-argument', 'a step without tokens');
    if (tokens.length !== positions.length) {
      throw fault(
        'invalid-argument',
        `${tokens.length} tokens and ${positions.length} positions; as many of each are expected`,
      );
    }
    const { config } = this.#model.backend;
    checkTokens(tokens, config.vocabularySize);
    this.#checkOutput();
    this.#plan = new ForwardPlan(
      this.hostQueue.space.pages,
      { positions, inPages, outPages, mask },
      config.contextLength,
    );
    return this.#plan;
  }

  #checkOutput(): void {
    const { output, rows, tokens } = this.#request;
    if (output.tag === 'none') return;
    if (rows === 0 || rows > tokens.length) {
      throw fault(
        'invalid-argument',
        `${rows} rows of output for ${tokens.length} inputs; 1 to ${tokens.length} are expected`,
      );
    }
    this.#rows = rows;
    if (output.tag === 'sample') {
      checkSampler(output.val);
      this.#topK = candidatesWanted(output.val, this.#model.maxTopK);
      this.#tokensOnly = output.val.temperature === 0;
      this.#tokens = new Uint32Array(rows);
      return;
    }
    checkTopK(output.val, this.#model.maxTopK);
    this.#topK = output.val;
    if (rows * (1 + 2 * this.#topK) > MAX_FRAME_WORDS / 2) {
      throw fault(
        'limit-exceeded',
        `${rows} distributions of ${this.#topK} tokens are more than one result holds; ask in parts`,
      );
    }
  }

  override visitKeys(visit: KeyVisitor): void {
    // What it writes first: a page that is both needs no second look.
    for (const page of this.#request.outPages) visit(pageKey(page), true);
    for (const page of this.#request.inPages) visit(pageKey(page), false);
  }

  protected override poison(cause: HandlerError): void {
    this.hostQueue.space.pages.fail(this.#request.outPages, cause, this.hostQueue);
  }
}

/** @throws CallFault `invalid-argument` */
export function checkTopK(topK: number, maxTopK: number): void {
  if (topK >= 1 && topK <= maxTopK) return;
  throw fault('invalid-argument', `top-k ${topK}; 1 to ${maxTopK} is expected`);
}
