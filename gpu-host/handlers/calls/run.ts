import type { InputRows, SequenceInput, SequenceOutput } from '../../backends/backend.ts';
import type { KeyVisitor } from '../../batcher/call.ts';
import { fault } from '../../memory/fault.ts';
import type { ModelConfig } from '../../models/config.ts';
import type { FinishReason, RunRequest } from '../../protocol/calls.ts';
import type { HandlerError } from '../../protocol/errors.ts';
import { RUN_WINDOW_TOKENS } from '../../protocol/wire.ts';
import type { RunUnderWay } from '../steps/run-ahead.ts';
import {
  DeviceCall,
  type HostQueue,
  type ModelContext,
  type OpenRun,
  type Progress,
  pageKey,
  type WaitEnds,
} from './call.ts';
import { candidatesWanted, checkSampler, checkTokens, drawsOf, tokenOf } from './checks.ts';
import { Penalties } from './penalties.ts';
import { ForwardPlan } from './plan.ts';
import type { RunSlices, SlicedRun } from './run-slices.ts';

/** Maximum stop tokens of a run: each sampled token is compared with all of them. */
const MAX_STOP_TOKENS = 256;

/** Maximum tokens that a run keeps. The consumer acknowledges each quarter of the window, so the run need not pause meanwhile. */
const MAX_KEPT_TOKENS = RUN_WINDOW_TOKENS / 4;

/**
 * `run` of `wit/fused.wit`: decodes on the device, one token a batch beside the steps of other calls, until a stop token, the limit, or a
 * stop. The run keeps its place in its queue until then. It pauses when the inferlet has not yet consumed its last `RUN_WINDOW_TOKENS` tokens.
 * It hands over its first token at once, later ones when their time slice ends, and the last ones with its end.
 */
export class RunCall extends DeviceCall implements OpenRun, RunUnderWay, SlicedRun {
  #request: RunRequest;
  readonly #model: ModelContext;
  /** Called when a paused run may go on, or must end, because the inferlet consumed tokens or stopped it. */
  readonly #engine: WaitEnds;
  #plan: ForwardPlan | undefined;
  /** The next input, or the one under way. */
  #token: number;
  /** True when the step under way took its token from the previous step on the device. */
  #isPicked = false;
  /** True when another step is under way behind that step. */
  #hasNextStep = false;
  #topK = 1;
  #penalties: Penalties | undefined;
  #producedCount = 0;
  #consumedCount = 0;
  /** Tokens computed and not handed over yet. */
  #pendingTokens: number[] = [];
  #isStopped = false;
  #slices: RunSlices;

  constructor(queue: HostQueue, id: number, request: RunRequest, model: ModelContext, engine: WaitEnds) {
    super('forward', queue, id);
    this.#request = request;
    this.#token = request.token;
    this.#model = model;
    this.#slices = model.slices;
    this.#engine = engine;
    queue.space.runs.set(id, this);
  }

  override get continues(): boolean {
    return true;
  }

  override get samples(): boolean {
    return true;
  }

  /** True when the run was asked to stop before its next step. */
  get stopped(): boolean {
    return this.#isStopped;
  }

  get maxTokens(): number {
    return this.#request.maxTokens;
  }

  /** Number of tokens produced so far. */
  get produced(): number {
    return this.#producedCount;
  }

  /** Number of produced tokens that the inferlet has taken. */
  get taken(): number {
    return this.#consumedCount;
  }

  /** Records that the inferlet has taken `tokens` tokens in all. */
  consumed(tokens: number): void {
    this.#consumedCount = Math.min(Math.max(tokens, this.#consumedCount), this.#producedCount);
    if (this.state === 'paused' && this.#hasRoom) this.#engine.resumeRun(this);
  }

  stop(): void {
    this.#isStopped = true;
    if (this.state === 'paused') this.#engine.resumeRun(this);
  }

  /** Hands over tokens in even slices from now on. */
  piped(): void {
    this.#slices.delete(this);
    this.#slices = this.#model.evenSlices;
    if (this.#pendingTokens.length > 0) this.#slices.add(this);
  }

  override prepare(): SequenceInput {
    this.#plan ??= this.#makePlan();
    return this.#begin(this.#plan, this.#position, { kind: 'tokens', tokens: Uint32Array.of(this.#token) });
  }

  /** The input after the one under way: the token that row `row` of the step under way picks. `retract` undoes this. */
  prepareAhead(row: number): SequenceInput {
    const plan = this.#plan as ForwardPlan;
    const sequence = this.#begin(plan, this.#position + 1, { kind: 'picked', rows: Uint32Array.of(row) });
    this.#hasNextStep = true;
    return sequence;
  }

  /** Gives up the input that was prepared last, which the device did not compute. It will be prepared again. */
  retract(): void {
    this.#plan?.retract(1);
    if (this.#hasNextStep) this.#hasNextStep = false;
    else this.#isPicked = false;
  }

  #begin(plan: ForwardPlan, position: number, inputs: InputRows): SequenceInput {
    const { sampler } = this.#request;
    const draws = drawsOf(sampler, [position]);
    const changes = this.#penalties?.changes.row;
    return plan.begin(1, inputs, {
      kind: 'top',
      rows: 1,
      topK: this.#topK,
      ...(draws ? { draws } : { tokensOnly: true }),
      ...(changes ? { changes } : {}),
    });
  }

  override accept(output: SequenceOutput): Progress {
    if (output.kind !== 'top') throw new Error(`a run's step gave ${output.kind}`);
    const token = tokenOf(output, 0);
    this.#penalties?.noteToken(token);
    this.#plan?.commit(1, this.#isPicked ? Uint32Array.of(this.#token) : undefined);
    this.#isPicked = this.#hasNextStep;
    this.#hasNextStep = false;
    this.#token = token;
    this.#producedCount++;
    const finishReason = this.#finishReasonAfter(token);
    // Undo the step under way behind this one: its token has no reader.
    if (finishReason) this.rollback();
    this.#pendingTokens.push(token);
    const isFirst = this.#producedCount === 1;
    if (finishReason || isFirst || !this.#hasRoom || this.#pendingTokens.length >= MAX_KEPT_TOKENS)
      this.handOver(finishReason);
    else this.#slices.add(this);
    if (finishReason) return 'done';
    if (this.#hasRoom) return 'more';
    this.parked();
    return 'held';
  }

  protected override rollback(): void {
    this.#plan?.rollback();
  }

  /** Ends a stopped run without another step. */
  endStopped(): void {
    this.handOver('stopped');
  }

  handOver(finished?: FinishReason): void {
    const tokens = this.#pendingTokens;
    this.#pendingTokens = [];
    this.#slices.delete(this);
    if (tokens.length === 0 && !finished) return;
    this.reply('run', { tokens, finished });
  }

  /** First hands over the tokens from before the failure: they are valid. */
  protected override replyError(error: HandlerError): void {
    this.handOver();
    super.replyError(error);
  }

  override parked(): void {
    // While the run waits, its pages may be swapped out and come back in other frames, so it needs a new plan afterwards.
    this.#plan = undefined;
  }

  override release(): void {
    this.#slices.delete(this);
    super.release();
  }

  /** Position of the next input. */
  get #position(): number {
    return this.#request.position + this.#producedCount;
  }

  get #hasRoom(): boolean {
    return this.#producedCount - this.#consumedCount < RUN_WINDOW_TOKENS;
  }

  #finishReasonAfter(token: number): FinishReason | undefined {
    if (this.#request.stopTokens.includes(token)) return 'stop-token';
    if (this.#producedCount === this.#request.maxTokens) return 'max-tokens';
    return this.#isStopped ? 'stopped' : undefined;
  }

  /** A plan for the remaining tokens. */
  #makePlan(): ForwardPlan {
    const { config } = this.#model.backend;
    if (this.#producedCount === 0) this.#check(config);
    const { position, pages, maxTokens } = this.#request;
    const positions = new Uint32Array(maxTokens - this.#producedCount);
    for (let i = 0; i < positions.length; i++) positions[i] = position + this.#producedCount + i;
    const tokens = Uint32Array.of(this.#token);
    // Every input's output is wanted, so none may come from the cache; decoded pages go to the cache.
    const request = {
      positions,
      inPages: pages,
      outPages: pages,
      mask: undefined,
      tokens,
      rows: positions.length,
      logits: 1,
      keepsParts: true,
      adapter: undefined,
    };
    return new ForwardPlan(this.hostQueue.space.pages, request, config, this.#model.bounds);
  }

  #check({ vocabularySize, contextLength }: ModelConfig): void {
    const { token, position, maxTokens, sampler, stopTokens, changes } = this.#request;
    checkTokens(Uint32Array.of(token), vocabularySize);
    if (stopTokens.length > MAX_STOP_TOKENS) {
      throw fault('invalid-argument', `${stopTokens.length} stop tokens; ${MAX_STOP_TOKENS} is the limit`);
    }
    checkTokens(stopTokens, vocabularySize);
    checkSampler(sampler);
    if (maxTokens === 0) throw fault('invalid-argument', 'a run of 0 tokens');
    if (position + maxTokens > contextLength) {
      throw fault(
        'context-overflow',
        `${maxTokens} tokens from position ${position} on reach past the model's context of ${contextLength} tokens`,
      );
    }
    this.#topK = candidatesWanted(sampler, this.#model.maxTopK);
    if (!changes) return;
    this.#penalties = new Penalties(changes, vocabularySize, position);
    // A run that waits before its first token is checked again, and must keep the penalties that it has.
    this.#request = { ...this.#request, changes: undefined };
  }

  override visitKeys(visit: KeyVisitor): void {
    for (const page of this.#request.pages) visit(pageKey(page), 'fill');
  }

  protected override poison(cause: HandlerError): void {
    this.hostQueue.space.pages.fail(this.#request.pages, cause, this.hostQueue);
  }
}
