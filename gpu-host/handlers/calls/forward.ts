import type {
  InputRows,
  OutputRequest,
  SequenceInput,
  SequenceOutput,
  StateScores,
  TopTokens,
} from '../../backends/backend.ts';
import { checkStates } from '../../backends/check.ts';
import type { KeyVisitor, PagesAhead } from '../../batcher/call.ts';
import type { Embed } from '../../memory/embeds.ts';
import { fault } from '../../memory/fault.ts';
import type { HandlerError } from '../../protocol/errors.ts';
import type { Operation } from '../../protocol/operations.ts';
import { MAX_FRAME_WORDS } from '../../protocol/wire.ts';
import type { AdapterHold } from '../sharing/adapters.ts';
import type { RemainingCall } from '../steps/step-bounds.ts';
import {
  DeviceCall,
  embedKey,
  HostCall,
  type HostQueue,
  type ModelContext,
  type Progress,
  pageKey,
  type WaitEnds,
} from './call.ts';
import { checkTokens, checkTopK } from './checks.ts';
import { ForwardPlan, type ForwardRequest, isChunkable, Unplanned } from './plan.ts';
import { visiblePlaces } from './visibility.ts';

type HeldEmbed = Exclude<Embed, { kind: 'empty' }>;

/** `forward` of `wit/forward.wit`: computes embeds over pages, and writes the last states into embeds. */
export class ForwardCall extends DeviceCall {
  protected readonly operation: Operation<'forward' | 'forward-scores'>;
  protected readonly model: ModelContext;
  protected plan: ForwardPlan | undefined;
  readonly #unplanned: Unplanned;
  #inputs: HeldEmbed[] = [];
  /** States of the output rows so far: a batch limit may cut the call inside its output rows. */
  #states: Float32Array[] = [];
  #riders: readonly DistributionCall[] = [];
  /** Projections that this step answers as well, with the row of each. */
  fusion: Fusion | undefined;
  /** Called when the call has the rows of the embedding matrix for which `acquire` waited. */
  readonly #engine: WaitEnds;
  #isReading = false;

  constructor(
    queue: HostQueue,
    id: number,
    operation: Operation<'forward' | 'forward-scores'>,
    model: ModelContext,
    engine: WaitEnds,
    hold?: AdapterHold,
  ) {
    super('forward', queue, id, hold);
    this.operation = operation;
    this.model = model;
    this.#engine = engine;
    this.#unplanned = new Unplanned(queue.space.pages, model);
  }

  override get tokens(): number {
    if (this.plan) return this.plan.remainingInputs;
    return this.#unplanned.inputs(this.operation.inEmbeds.length, () => this.#peekRequest());
  }

  override get stepTokens(): number {
    const { tokens } = this;
    return tokens <= 1 ? Number.POSITIVE_INFINITY : this.model.bounds.stepInputs(this.#remaining(tokens));
  }

  override get besideTokens(): number {
    const { tokens } = this;
    return tokens <= 1 ? Number.POSITIVE_INFINITY : this.model.bounds.besideInputs(this.#remaining(tokens));
  }

  #remaining(inputs: number): RemainingCall {
    return this.plan?.remaining(0) ?? this.#unplanned.remaining(inputs, this.operation.inPages.length, 0);
  }

  override get pagesAhead(): PagesAhead | undefined {
    const { inEmbeds } = this.operation;
    if (!this.plan) return this.#unplanned.pagesAhead(inEmbeds.length, this.#adapter, () => this.#peekRequest());
    const tokens = tokensOf(this.#inputs);
    return tokens && this.#unplanned.pagesLeft(this.plan, tokens, this.#adapter);
  }

  override chunkable(): boolean {
    const { outPages, mask } = this.operation;
    const inputs = this.#peekInputs();
    // A call with an empty in-embed is not cut: it fails with the cause when it is prepared.
    return inputs !== undefined && isChunkable(outPages.length, positionsOf(inputs), mask);
  }

  /** Also reads the embeddings of a call that mixes tokens with states or images. A part whose embeddings are not kept reads them later, from the disk. */
  override acquire(): boolean {
    if (!super.acquire() || this.#isReading) return false;
    const reading = this.#readAhead(this.#peekInputs() ?? []);
    if (!reading) return true;
    this.#isReading = true;
    void reading.then(() => {
      this.#isReading = false;
      // A call that was dropped meanwhile goes no more, and one that waits for its turn again asks again.
      if (this.state === 'paused') this.#engine.acquired(this);
    });
    return false;
  }

  #readAhead(inputs: readonly HeldEmbed[]): Promise<void> | undefined {
    return tokensOf(inputs) ? undefined : this.model.embeddings?.prefetch(tokensAmong(inputs));
  }

  /** Sets the batch's projections of this call's states. After `prepare`, `fusion` has the projections that the same step computes. */
  ride(riders: readonly DistributionCall[]): void {
    this.#riders = riders;
  }

  /** True when the call writes the state of `embed`. */
  makes(embed: number): boolean {
    return this.operation.outEmbeds.includes(embed);
  }

  override prepare(granted: number): SequenceInput {
    // A grant of the whole call stays one when the cache has since lost pages of it: calls that follow in the batch need the whole call.
    const isWhole = granted >= this.tokens;
    this.plan ??= this.makePlan();
    const { plan } = this;
    const count = isWhole ? plan.remainingInputs : Math.min(granted, plan.remainingInputs);
    const inputs = inputRows(this.#inputs, plan.doneInputs, count, this.model);
    return plan.begin(count, inputs, this.#output(plan, count));
  }

  override accept(output: SequenceOutput): Progress {
    const plan = this.plan as ForwardPlan;
    if (output.kind !== 'none' && output.states) this.#states.push(output.states);
    // Write before the commit: if the write fails, the call can still be rolled back.
    if (plan.remainingInputs === plan.reservedInputs) this.#writeStates(plan);
    plan.commit();
    if (plan.remainingInputs === 0) return 'done';
    void this.#readAhead(this.#inputs.slice(plan.doneInputs));
    return 'more';
  }

  protected override rollback(): void {
    this.plan?.rollback();
    this.fusion = undefined;
  }

  protected makePlan(): ForwardPlan {
    const { inEmbeds, outEmbeds } = this.operation;
    const { pages, embeds } = this.hostQueue.space;
    if (inEmbeds.length === 0) throw fault('invalid-argument', 'a forward without in-embeds');
    if (outEmbeds.length > inEmbeds.length) {
      throw fault('invalid-argument', `${outEmbeds.length} out-embeds for ${inEmbeds.length} inputs`);
    }
    const inputs = Array.from(inEmbeds, (address) => embeds.get(address));
    embeds.checkHeld(outEmbeds);
    this.#checkStateRoom();
    const plan = new ForwardPlan(pages, this.#request(inputs), this.model.backend.config, this.model.bounds);
    this.#inputs = inputs;
    return plan;
  }

  get #adapter(): string | undefined {
    return this.operation.op === 'forward' ? this.operation.adapter : undefined;
  }

  #request(inputs: readonly HeldEmbed[]): ForwardRequest {
    const { inPages, outPages, outEmbeds, mask } = this.operation;
    const tokens = this.takesFromCache ? tokensOf(inputs) : undefined;
    return {
      positions: positionsOf(inputs),
      inPages,
      outPages,
      mask,
      tokens,
      rows: outEmbeds.length,
      logits: 0,
      keepsParts: false,
      adapter: this.#adapter,
    };
  }

  #peekRequest(): ForwardRequest | undefined {
    const inputs = this.#peekInputs();
    return inputs && this.#request(inputs);
  }

  /** The current content of the in-embeds; undefined when one has none. */
  #peekInputs(): HeldEmbed[] | undefined {
    try {
      return Array.from(this.operation.inEmbeds, (address) => this.hostQueue.space.embeds.get(address));
    } catch {
      return undefined;
    }
  }

  /** True when keys of the prefix cache may replace inputs. */
  protected get takesFromCache(): boolean {
    return true;
  }

  #output(plan: ForwardPlan, count: number): OutputRequest {
    const { outEmbeds } = this.operation;
    const rows = Math.max(0, Math.min(count, plan.doneInputs + count - (plan.positions.length - outEmbeds.length)));
    this.fusion = undefined;
    if (rows === 0) return { kind: 'none' };
    // The logits of a fused step may not fit its memory: projections alone are computed in parts.
    const mayFuse = plan.remainingInputs === count && this.model.bounds.stepInputs(plan.remaining(rows)) === count;
    if (mayFuse) this.fusion = fuse(this.#riders, outEmbeds, rows);
    if (!this.fusion) return { kind: 'states', rows };
    return { kind: 'top', rows, topK: this.fusion.topK, states: true };
  }

  #checkStateRoom(): void {
    const { hiddenSize } = this.model.backend.config;
    this.hostQueue.space.embeds.checkStateRoom(
      this.operation.outEmbeds.length * hiddenSize * Float32Array.BYTES_PER_ELEMENT,
    );
  }

  #writeStates(plan: ForwardPlan): void {
    const { outEmbeds } = this.operation;
    const { hiddenSize } = this.model.backend.config;
    const firstOutput = plan.positions.length - outEmbeds.length;
    // Other calls of the same step may have taken the room.
    this.#checkStateRoom();
    let row = 0;
    for (const states of this.#states) {
      for (let offset = 0; offset < states.length; offset += hiddenSize) {
        // A state gets the position of the next input: fed back, it follows the input that it came from.
        const position = (plan.positions[firstOutput + row] as number) + 1;
        const values = states.slice(offset, offset + hiddenSize);
        this.hostQueue.space.embeds.setState(outEmbeds[row++] as number, values, position);
      }
    }
    this.#states = [];
  }

  override visitKeys(visit: KeyVisitor): void {
    const { inPages, inEmbeds, outPages, outEmbeds } = this.operation;
    // Visit written pages first: the scoreboard then skips a read of the same page.
    for (const page of outPages) visit(pageKey(page), 'fill');
    for (const embed of outEmbeds) visit(embedKey(embed), 'write');
    for (const page of inPages) visit(pageKey(page), 'read');
    for (const embed of inEmbeds) visit(embedKey(embed), 'read');
  }

  protected override poison(cause: HandlerError): void {
    const { pages, embeds } = this.hostQueue.space;
    pages.fail(this.operation.outPages, cause, this.hostQueue);
    embeds.fail(this.operation.outEmbeds, cause, this.hostQueue);
  }
}

function positionsOf(inputs: readonly HeldEmbed[]): Uint32Array {
  return Uint32Array.from(inputs, (embed) => embed.position);
}

/** The inputs' tokens when all inputs are tokens. */
function tokensOf(inputs: readonly HeldEmbed[]): Uint32Array | undefined {
  const tokens = new Uint32Array(inputs.length);
  for (let i = 0; i < inputs.length; i++) {
    const embed = inputs[i] as HeldEmbed;
    if (embed.kind !== 'token') return undefined;
    tokens[i] = embed.token;
  }
  return tokens;
}

function* tokensAmong(inputs: readonly HeldEmbed[]): Generator<number> {
  for (const embed of inputs) if (embed.kind === 'token') yield embed.token;
}

/** Embeds as device inputs: tokens when all embeds are tokens; otherwise rows of values, with the embeddings of the tokens among them. */
function inputRows(embeds: readonly HeldEmbed[], from: number, count: number, model: ModelContext): InputRows {
  const selected = embeds.length === count ? embeds : embeds.slice(from, from + count);
  const tokens = tokensOf(selected);
  if (tokens) return { kind: 'tokens', tokens };
  const { hiddenSize, embeddingScale } = model.backend.config;
  const rows = new Float32Array(count * hiddenSize);
  for (let i = 0; i < count; i++) {
    const embed = selected[i] as HeldEmbed;
    const values = embed.kind === 'token' ? model.embeddings?.row(embed.token) : embed.values;
    if (!values)
      throw fault('unsupported', 'this host cannot mix tokens with states or images in one forward; split it');
    // Backends scale the embeddings of tokens, and take embeds as they are.
    const isScaled = embed.kind === 'token' && embeddingScale !== 1;
    rows.set(isScaled ? values.map((value) => value * embeddingScale) : values, i * hiddenSize);
  }
  return { kind: 'embeds', embeds: rows };
}

/** A call about one state. It needs the head (the projection onto the vocabulary), but no step over pages. */
export abstract class ProjectCall extends HostCall {
  readonly embed: number;
  protected readonly model: ModelContext;

  constructor(queue: HostQueue, id: number, embed: number, model: ModelContext) {
    super('project', queue, id);
    this.embed = embed;
    this.model = model;
  }

  /** Checks the arguments except the state. @throws CallFault */
  abstract check(): void;

  /** The state to project. @throws CallFault */
  input(): Float32Array {
    const embed = this.hostQueue.space.embeds.get(this.embed);
    if (embed.kind !== 'state') {
      throw fault(
        'invalid-argument',
        `embed ${this.embed} holds ${embed.kind === 'token' ? 'a token' : 'a part of an image'}, not a state; name it in a forward's out-embeds first`,
      );
    }
    checkStates(this.model.backend.config, embed.values, 1);
    return embed.values;
  }

  override visitKeys(visit: KeyVisitor): void {
    visit(embedKey(this.embed), 'read');
  }

  protected override poison(): void {}
}

/** `next-distribution` of `wit/output-text.wit`: the most probable tokens after a state. */
export class DistributionCall extends ProjectCall {
  readonly topK: number;

  constructor(queue: HostQueue, id: number, operation: Operation<'next-distribution'>, model: ModelContext) {
    super(queue, id, operation.embed, model);
    this.topK = operation.topK;
  }

  override check(): void {
    checkTopK(this.topK, this.model.maxTopK);
  }

  /** Replies with row `row` of the device's projection. */
  accept(top: TopTokens, row: number): void {
    const offset = row * top.topK;
    const value = {
      tokens: top.tokens.slice(offset, offset + this.topK),
      logProbabilities: top.logProbabilities.slice(offset, offset + this.topK),
    };
    if (Number.isNaN(value.logProbabilities[0]))
      throw fault('internal', 'the model computed no numbers for this state');
    this.reply('next-distribution', value);
  }
}

/** `log-probabilities` and `entropy` of `wit/output-text.wit`: the log-probabilities of some tokens after a state, or its entropy. */
export class ScoreCall extends ProjectCall {
  /** Tokens to score; undefined for the entropy. */
  readonly #tokens: Uint32Array | undefined;

  constructor(queue: HostQueue, id: number, embed: number, tokens: Uint32Array | undefined, model: ModelContext) {
    super(queue, id, embed, model);
    this.#tokens = tokens;
  }

  get scoredTokens(): Uint32Array {
    return this.#tokens ?? NO_TOKENS;
  }

  override get scores(): number {
    return this.scoredTokens.length;
  }

  override check(): void {
    checkTokens(this.scoredTokens, this.model.backend.config.vocabularySize);
  }

  /** Replies with row `row` of the device's scores. */
  accept(scores: StateScores, row: number): void {
    if (this.#tokens) this.reply('log-probabilities', scores.logProbabilities[row] as Float32Array);
    else this.reply('entropy', scores.entropies[row] as number);
  }
}

const NO_TOKENS = new Uint32Array(0);

/** Projections that one forward computes in its own step: embed, forward and next-distribution become one device call. */
export interface Fusion {
  /** The largest `topK` of the members. */
  readonly topK: number;
  readonly members: readonly {
    readonly call: DistributionCall;
    /** Index among the rows of the step. */
    readonly row: number;
  }[];
}

/**
 * Chooses the projections of a forward's states (`riders`) that the forward's step computes; undefined for none. The step outputs the last `rows` of
 * the states for `outEmbeds`. Its projection covers all rows or none, so it runs when the riders ask for at least half of the rows. All other
 * projections are computed from their embeds afterwards.
 */
export function fuse(riders: readonly DistributionCall[], outEmbeds: Uint32Array, rows: number): Fusion | undefined {
  const members: { call: DistributionCall; row: number }[] = [];
  const askedRows = new Set<number>();
  let topK = 1;
  for (const call of riders) {
    // An embed that is named twice keeps the later state.
    const row = outEmbeds.lastIndexOf(call.embed) - (outEmbeds.length - rows);
    if (row < 0) continue;
    members.push({ call, row });
    askedRows.add(row);
    topK = Math.max(topK, call.topK);
  }
  return members.length > 0 && askedRows.size * 2 >= rows ? { topK, members } : undefined;
}

/** `forward-scores` of `wit/introspect.wit`: a forward that also returns the attention that each slot received from its inputs. */
export class ForwardScoresCall extends ForwardCall {
  /** Attention received so far by each context slot, then by each input. */
  #receivedAttention = new Float32Array(0);
  /** Index of each context slot among the in-pages' slots. */
  #places: readonly number[] = [];

  /** The guest wants every input's attention, so every input is computed. */
  protected override get takesFromCache(): boolean {
    return false;
  }

  override prepare(granted: number): SequenceInput {
    return { ...super.prepare(granted), attention: true };
  }

  protected override makePlan(): ForwardPlan {
    const { inPages, inEmbeds } = this.operation;
    const numbers = inPages.length * this.model.backend.pageSize + inEmbeds.length;
    // Half a frame leaves room for the rest of the result.
    if (numbers > MAX_FRAME_WORDS / 2) {
      throw fault(
        'limit-exceeded',
        `the scores of ${numbers} slots and inputs are more than one result holds; split the call`,
      );
    }
    const plan = super.makePlan();
    this.#places = visiblePlaces(this.hostQueue.space.pages, inPages);
    this.#receivedAttention = new Float32Array(this.#places.length + inEmbeds.length);
    return plan;
  }

  override accept(output: SequenceOutput): Progress {
    const { attention } = output;
    if (!attention) throw new Error('the backend gave no attention');
    // Inputs of earlier parts are context of later ones, in the same order, so index `i` stands for the same slot or input in every part.
    for (let i = 0; i < attention.length; i++)
      this.#receivedAttention[i] = (this.#receivedAttention[i] as number) + (attention[i] as number);
    const progress = super.accept(output);
    if (progress === 'done') this.reply('forward-scores', this.#bySlot());
    return progress;
  }

  /** `page-size` numbers for each in-page, then one for each input. */
  #bySlot(): Float32Array {
    const { pageSize } = this.model.backend;
    const { inPages, inEmbeds } = this.operation;
    const scores = new Float32Array(inPages.length * pageSize + inEmbeds.length);
    this.#places.forEach((place, i) => {
      scores[place] = this.#receivedAttention[i] as number;
    });
    scores.set(this.#receivedAttention.subarray(this.#places.length), inPages.length * pageSize);
    return scores;
  }
}
