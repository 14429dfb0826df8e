import assert from 'node:assert/strict';
import type { Batch, Grant } from '../batcher.ts';
import type { BatchCall } from '../call.ts';
import type { BatchLimits } from '../select.ts';
import type { WorldCall } from './world-call.ts';

/** Maximum inputs of a short call. */
const SHORT_TOKENS = 16;

/** Checks a batch that is about to start against the rules. */
export function checkBatch(batch: Batch, limits: BatchLimits): void {
  const forwards = batch.forwards.map((grant) => grant.call as WorldCall);
  const projections = batch.projections as WorldCall[];
  if (batch.encodings.length > 0) {
    checkEncodings(batch, limits);
    return;
  }
  assert.ok(forwards.length + projections.length > 0, 'an empty batch');
  assert.equal(new Set([...forwards, ...projections]).size, forwards.length + projections.length, 'a call twice');
  checkLimits(batch, limits);
  assert.ok(new Set(forwards.map(({ variant }) => variant)).size <= 1, 'calls of different variants in one batch');
  /** The calls checked so far whose last inputs go with this batch, with their places in the batch. */
  const leaving = new Map<WorldCall, number>();
  for (const [place, grant] of batch.forwards.entries()) {
    const call = grant.call as WorldCall;
    assert.ok(grant.tokens >= 1 && grant.tokens <= call.tokens);
    if (!call.shape.chunkable) assert.equal(grant.tokens, call.tokens, `${call.name} cannot be cut`);
    checkStart(call, leaving);
    checkNeeds(grant, batch.forwards.slice(0, place));
    const follows = call.conflicts.some(({ earlier }) => leaving.has(earlier));
    if (follows) assert.equal(grant.tokens, call.tokens, `${call.name} follows, and is cut`);
    if (!call.continues && grant.tokens === call.tokens) leaving.set(call, place);
  }
  for (const [place, call] of projections.entries()) {
    checkStart(call, leaving);
    leaving.set(call, forwards.length + place);
  }
  checkQueueOrder(forwards, projections, leaving);
}

/** Checks the turns of the model and its adapters, batch by batch. */
export class TurnChecker {
  /** Null before the first batch; undefined for the model alone. */
  #previousVariant: string | undefined | null = null;
  /** For each variant with a ready call that was passed over: the variants that went instead. */
  readonly #passed = new Map<string | undefined, (string | undefined)[]>();

  /**
   * Forwards of the model alone wait for at most one batch of other variants. Those of an adapter wait for at most one batch of each other
   * adapter, and for one of the model before each of these batches and before their own.
   */
  check({ forwards }: Batch, ready: readonly WorldCall[]): void {
    if (forwards.length === 0) return;
    const chosen = forwards[0]?.call.variant;
    const waiting = new Set(ready.filter(({ kind }) => kind === 'forward').map(({ variant }) => variant));
    for (const variant of this.#passed.keys()) if (!waiting.has(variant)) this.#passed.delete(variant);
    for (const variant of waiting) {
      const passed = [...(this.#passed.get(variant) ?? []), chosen];
      const twice = passed.filter((other) => other === chosen).length > 1;
      if (variant === chosen) this.#passed.delete(variant);
      else {
        if (variant === undefined) assert.equal(passed.length, 1, 'calls without an adapter wait for several batches');
        else assert.ok(chosen === undefined || !twice, `${chosen} goes twice while ${variant} waits`);
        assert.ok(
          chosen !== undefined || this.#previousVariant !== undefined,
          `${variant} waits for two batches of the model`,
        );
        this.#passed.set(variant, passed);
      }
    }
    this.#previousVariant = chosen;
  }
}

/** Encodings go alone; only a single one may pass the limit. */
function checkEncodings({ forwards, projections, encodings }: Batch, { maxCalls, maxTokens }: BatchLimits): void {
  assert.deepEqual([forwards.length, projections.length], [0, 0], 'encodings beside others');
  assert.equal(new Set(encodings).size, encodings.length, 'a call twice');
  assert.ok(encodings.length <= maxCalls, `${encodings.length} encodings`);
  const tokens = encodings.reduce((sum, call) => sum + call.tokens, 0);
  assert.ok(tokens <= maxTokens || encodings.length === 1, `${tokens} inputs of several encodings`);
  const leaving = new Map<WorldCall, number>();
  for (const [place, call] of (encodings as WorldCall[]).entries()) {
    checkStart(call, leaving);
    leaving.set(call, place);
  }
  checkQueueOrder(encodings as WorldCall[], [], leaving);
}

/**
 * Checks the limits of one batch. A single projection may exceed the scores; a forward that cannot be cut may exceed
 * the inputs, as the only forward.
 */
function checkLimits(batch: Batch, limits: BatchLimits): void {
  assert.ok(batch.forwards.length <= limits.maxCalls, `${batch.forwards.length} forwards`);
  const { projections } = batch;
  assert.ok(projections.length <= limits.maxCalls, `${projections.length} projections`);
  const scores = scoresOf(projections);
  assert.ok(scores <= limits.maxScores || projections.length === 1, `${scores} scores of several calls`);
  const tokens = sum(batch.forwards);
  if (tokens <= limits.maxTokens) return;
  assert.equal(batch.forwards.length, 1, `${tokens} inputs of several calls`);
  assert.equal(
    (batch.forwards[0]!.call as WorldCall).shape.chunkable,
    false,
    `${tokens} inputs of a call that can be cut`,
  );
}

/**
 * Checks that each earlier call with which this one conflicts is done, or leaves before it in this batch. The latter is allowed when the conflict is
 * soft, or when a projection rides with its forward.
 */
function checkStart(call: WorldCall, leaving: ReadonlyMap<WorldCall, number>): void {
  assert.ok(!call.finished && !call.dropped && !call.held && !call.hasLeft, `${call.name} goes twice`);
  assert.ok(!call.late, `${call.name} lacks what it needs`);
  for (const { earlier, conflict } of call.conflicts) {
    if (earlier.finished || earlier.dropped) continue;
    const isBefore = leaving.has(earlier);
    const rides = call.kind === 'project' && earlier.kind === 'forward';
    assert.ok(
      isBefore && (conflict === 'soft' || rides),
      `${call.name} did not wait for ${earlier.name} (${conflict})`,
    );
  }
}

/**
 * Checks that calls of one queue leave in order: every call ahead of a call has left, or leaves with this batch. In the batch, it stands before the
 * call if both are of the same kind.
 */
function checkQueueOrder(
  forwards: readonly WorldCall[],
  projections: readonly WorldCall[],
  leaving: ReadonlyMap<WorldCall, number>,
): void {
  for (const [place, call] of [...forwards, ...projections].entries()) {
    for (const ahead of call.ahead) {
      if (ahead.hasLeft || ahead.dropped) continue;
      const aheadPlace = leaving.get(ahead);
      assert.ok(aheadPlace !== undefined, `${call.name} went before ${ahead.name}`);
      if (ahead.kind === call.kind) assert.ok(aheadPlace < place, `${call.name} stands before ${ahead.name}`);
    }
  }
}

/**
 * Checks that `after` names only earlier calls of the batch whose fills the call needs. Followed from call to call, `after` must reach every such
 * call.
 */
function checkNeeds(grant: Grant, before: readonly Grant[]): void {
  const call = grant.call as WorldCall;
  const reached = new Set<WorldCall>();
  const visit = (from: Grant): void => {
    for (const earlier of (from.after ?? []) as WorldCall[]) {
      assert.ok(
        (from.call as WorldCall).needs(earlier),
        `${(from.call as WorldCall).name} does not need ${earlier.name}`,
      );
      const earlierGrant = before.find((other) => other.call === earlier);
      assert.ok(earlierGrant, `${earlier.name} is not before ${call.name}`);
      if (reached.has(earlier)) continue;
      reached.add(earlier);
      visit(earlierGrant);
    }
  };
  assert.notEqual(grant.after?.length, 0);
  visit(grant);
  for (const { earlier } of call.conflicts) {
    const isInBatch = before.some((other) => other.call === earlier);
    if (isInBatch && call.needs(earlier)) assert.ok(reached.has(earlier), `${call.name} needs ${earlier.name}`);
  }
}

/** Checks that a call that could have gone stays behind only for lack of room. */
export function checkFull(batch: Batch, ready: readonly WorldCall[], limits: BatchLimits): void {
  const { maxCalls, maxTokens, maxScores } = limits;
  if (batch.encodings.length > 0) {
    checkEncodingsFull(batch, ready, limits);
    return;
  }
  const taken = new Set([...batch.forwards.map((grant) => grant.call), ...batch.projections]);
  const calls = batch.forwards.length;
  const tokens = sum(batch.forwards);
  const short = Math.max(1, Math.min(SHORT_TOKENS, maxTokens >> 2));
  const leftScores = ready.filter((call) => call.kind === 'project' && !taken.has(call)).map((call) => call.scores);
  const isScoreLimitReached = scoresOf(batch.projections) + Math.max(...leftScores) > maxScores;
  for (const call of ready) {
    if (taken.has(call)) continue;
    if (call.kind === 'encode') continue;
    if (call.kind === 'project') {
      // Beside forwards, a batch takes only the projections that ride with them.
      const isFull = isScoreLimitReached || batch.projections.length === maxCalls;
      assert.ok(calls > 0 || isFull, `${call.name} was left behind`);
    } else if (calls > 0 && call.variant === batch.forwards[0]?.call.variant) {
      // A short call leaves a place and a quarter of the inputs to long ones.
      const isShort = call.tokens <= short;
      const isFull = calls >= (isShort ? maxCalls - 1 : maxCalls);
      const reserve = isShort ? Math.max(1, maxTokens >> 2) : 0;
      const leastTokens = call.shape.chunkable && !isShort ? 1 : call.tokens;
      assert.ok(isFull || tokens + leastTokens > maxTokens - reserve, `${call.name} was left behind`);
    }
  }
}

function checkEncodingsFull(
  { encodings }: Batch,
  ready: readonly WorldCall[],
  { maxCalls, maxTokens }: BatchLimits,
): void {
  const leftEncodings = ready.filter((call) => call.kind === 'encode' && !encodings.includes(call));
  if (leftEncodings.length === 0 || encodings.length === maxCalls) return;
  const tokens = encodings.reduce((sum, call) => sum + call.tokens, 0);
  const largest = Math.max(...leftEncodings.map((call) => call.tokens));
  assert.ok(tokens + largest > maxTokens, 'an encoding was left behind');
}

function sum(grants: readonly Grant[]): number {
  return grants.reduce((total, grant) => total + grant.tokens, 0);
}

function scoresOf(projections: readonly BatchCall[]): number {
  return projections.reduce((total, call) => total + call.scores, 0);
}
