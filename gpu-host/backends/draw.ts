import type { Draw } from './backend.ts';

/** Number of candidates that may be drawn. When fewer than `count` tokens are allowed, the candidates after them have -Infinity. */
export function allowedCount(logits: ArrayLike<number>, offset: number, count: number): number {
  let allowed = count;
  while (allowed > 1 && logits[offset + allowed - 1] === Number.NEGATIVE_INFINITY) allowed--;
  return allowed;
}

/**
 * Draws one of `count` candidates and returns its index. The candidates are all tokens that may be drawn, in order of falling logit, then rising
 * id; their logits (or log-probabilities) at temperature 1 start at `logits[offset]`. A candidate with -Infinity is never drawn unless it is the
 * first. The temperature applies first, then top-k, top-p and min-p, each to the candidates that the cut before it left. The random number depends
 * on seed and position alone.
 */
export function drawPlace(draw: Draw, logits: ArrayLike<number>, offset: number, count: number): number {
  const allowed = allowedCount(logits, offset, count);
  const weights = weightsOf(draw, logits, offset, draw.topK === 0 ? allowed : Math.min(draw.topK, allowed));
  return placeOf(draw, weights, 0) as number;
}

/**
 * Like {@link drawPlace}, but the `count` candidates are only the first of the tokens that may be drawn, unless their logits end with -Infinity.
 * Returns undefined when the draw depends on tokens behind them: {@link drawFromAll} then draws.
 * @param total sum of e^((logit - first logit) / temperature) over all tokens that may be drawn
 */
export function drawPlaceOfFirst(
  draw: Draw,
  logits: ArrayLike<number>,
  offset: number,
  count: number,
  total: number,
): number | undefined {
  const { topK } = draw;
  const allowed = allowedCount(logits, offset, count);
  if (allowed < count || (topK > 0 && topK <= count)) return drawPlace(draw, logits, offset, allowed);
  if (topK > 0) return undefined;
  const weights = weightsOf(draw, logits, offset, count);
  return placeOf(draw, weights, Math.max(0, total - weights.reduce((sum, weight) => sum + weight, 0)));
}

/** Weights of the candidates relative to the first one, in 64 bits. */
function weightsOf({ temperature }: Draw, logits: ArrayLike<number>, offset: number, count: number): Float64Array {
  const weights = new Float64Array(count);
  const first = logits[offset] as number;
  for (let i = 0; i < count; i++) weights[i] = Math.exp(((logits[offset + i] as number) - first) / temperature);
  return weights;
}

/**
 * The place that a draw falls on after top-p and min-p; undefined when that depends on the tokens behind the candidates.
 * @param weights of the candidates, in falling order; the first is 1
 * @param rest sum of the weights of all tokens behind them; 0 if there are none
 */
function placeOf(draw: Draw, weights: Float64Array, rest: number): number | undefined {
  const { topP, minP } = draw;
  let count = weights.length;
  let sum = 0;
  for (let i = 0; i < count; i++) sum += weights[i] as number;
  sum += rest;
  /** True when no token behind the candidates passes the cuts. */
  let isWhole = rest === 0;
  if (topP < 1) {
    const target = topP * sum;
    let reached = 0;
    let prefix = 0;
    while (prefix < count && reached < target) reached += weights[prefix++] as number;
    if (isWhole || reached >= target) {
      count = Math.max(1, prefix);
      sum = reached;
      isWhole = true;
    }
  }
  if (minP > 0) {
    // The first weight is 1, so each weight is already a probability relative to the most probable candidate.
    let kept = weights[0] as number;
    let prefix = 1;
    while (prefix < count && (weights[prefix] as number) >= minP) kept += weights[prefix++] as number;
    if (isWhole || prefix < count) {
      count = prefix;
      sum = kept;
      isWhole = true;
    }
  }
  // A cut behind the candidates keeps a sum that only the tokens there tell.
  if (!isWhole && (topP < 1 || minP > 0)) return undefined;
  let remaining = uniform(draw.seed, draw.position) * sum;
  for (let i = 0; i < count; i++) {
    remaining -= weights[i] as number;
    if (remaining < 0) return i;
  }
  return isWhole ? count - 1 : undefined;
}

/** All tokens of a row. */
export interface WholeRow {
  readonly logits: Float32Array;
  /** The largest logit. */
  readonly largest: number;
  /** e^((logit - largest) / temperature) of each token. */
  readonly weights: Float32Array;
}

/** Draws from all tokens of a row and returns the token, which is never one with the logit -Infinity. Each cut is that of {@link drawPlace}. */
export function drawFromAll({ topK, topP, minP, seed, position }: Draw, row: WholeRow): number {
  const order = new TokenOrder(row);
  let kept = order.weight;
  if (topK > 0) kept = order.prefix('count', topK).weight;
  if (topP < 1) kept = order.prefix('weight', topP * kept).weight;
  // Both cuts keep the first tokens, so the stricter one keeps less weight.
  if (minP > 0) kept = Math.min(kept, weightOf(row.weights, minP));
  return order.prefix('weight', uniform(seed, position) * kept).last;
}

/** Sum of the weights that are at least `minP`, which is above 0. */
function weightOf(weights: Float32Array, minP: number): number {
  let sum = 0;
  for (let token = 0; token < weights.length; token++) {
    const weight = weights[token] as number;
    sum += weight >= minP ? weight : 0;
  }
  return sum;
}

/** Parts of the range of the logits. */
const PARTS = 2048;
/** Number of tokens that are sorted at once. */
const FEW_TOKENS = 64;

/** The first tokens of a row, in order of falling logit, then rising id. */
interface Prefix {
  /** Sum of their weights. */
  readonly weight: number;
  readonly last: number;
}

/**
 * A row's tokens in order of falling logit, then rising id, without those of logit -Infinity. The range of the logits is divided into parts, and only a
 * part in which a prefix ends is divided or sorted further. (On one core, 32,000 tokens take about 0.2 ms; to sort them all takes 10 ms.)
 */
class TokenOrder {
  /** Sum of all weights. */
  readonly weight: number;
  readonly #row: WholeRow;
  /** The ids of the row's tokens, rising, when the row is a part of another. */
  readonly #ids: Uint32Array | undefined;
  /** The largest distance of a finite logit from the largest one. */
  readonly #spread: number;
  /** The part of each token, 0 for the largest logits; `PARTS` for tokens of logit -Infinity. */
  readonly #partOf: Uint16Array;
  /** Sum of the weights of each part. */
  readonly #weights: Float64Array;

  constructor(row: WholeRow, ids?: Uint32Array) {
    const { logits, largest, weights } = row;
    let spread = 0;
    for (let token = 0; token < logits.length; token++) {
      const below = largest - (logits[token] as number);
      if (below > spread && below !== Number.POSITIVE_INFINITY) spread = below;
    }
    const scale = spread > 0 ? (PARTS - 1) / spread : 1;
    const partOf = new Uint16Array(logits.length);
    const sums = new Float64Array(PARTS + 1);
    for (let token = 0; token < logits.length; token++) {
      const part = Math.min(PARTS, (largest - (logits[token] as number)) * scale) | 0;
      partOf[token] = part;
      (sums[part] as number) += weights[token] as number;
    }
    this.#row = row;
    this.#ids = ids;
    this.#spread = spread;
    this.#partOf = partOf;
    this.#weights = sums;
    this.weight = sums.subarray(0, PARTS).reduce((sum, weight) => sum + weight, 0);
  }

  /** The shortest prefix with this weight or number of tokens, or with more. */
  prefix(measure: 'weight' | 'count', target: number): Prefix {
    const sizes = measure === 'weight' ? this.#weights : this.#counts();
    let size = 0;
    let weight = 0;
    let last = { part: 0, weight: 0 };
    for (let part = 0; part < PARTS; part++) {
      const partSize = sizes[part] as number;
      if (partSize > 0) last = { part, weight };
      if (size + partSize >= target && partSize > 0) return this.#prefixIn(part, measure, target - size, weight);
      size += partSize;
      weight += this.#weights[part] as number;
    }
    return this.#prefixIn(last.part, measure, Number.POSITIVE_INFINITY, last.weight);
  }

  /** The shortest prefix whose tokens in `part` have this size; `weightBefore` is the weight of those before the part. */
  #prefixIn(part: number, measure: 'weight' | 'count', target: number, weightBefore: number): Prefix {
    const { logits, weights } = this.#row;
    const places = placesOf(part, this.#partOf);
    const { length } = places;
    if (length > FEW_TOKENS && this.#spread > 0) {
      const row = {
        logits: new Float32Array(length),
        largest: Number.NEGATIVE_INFINITY,
        weights: new Float32Array(length),
      };
      const ids = new Uint32Array(length);
      for (let i = 0; i < length; i++) {
        const place = places[i] as number;
        const logit = logits[place] as number;
        row.logits[i] = logit;
        if (logit > row.largest) row.largest = logit;
        row.weights[i] = weights[place] as number;
        ids[i] = this.#tokenAt(place);
      }
      const { weight, last } = new TokenOrder(row, ids).prefix(measure, target);
      return { weight: weightBefore + weight, last };
    }
    if (this.#spread > 0) places.sort((a, b) => (logits[b] as number) - (logits[a] as number) || a - b);
    let size = 0;
    let weight = weightBefore;
    let last = 0;
    for (const place of places) {
      size += measure === 'weight' ? (weights[place] as number) : 1;
      weight += weights[place] as number;
      last = this.#tokenAt(place);
      if (size >= target) break;
    }
    return { weight, last };
  }

  /** Number of tokens in each part. */
  #counts(): Uint32Array {
    const counts = new Uint32Array(PARTS + 1);
    for (const part of this.#partOf) (counts[part] as number)++;
    return counts;
  }

  #tokenAt(place: number): number {
    return this.#ids ? (this.#ids[place] as number) : place;
  }
}

/** The places at which `partOf` has `part`. Written as loops because half of a row's tokens may be in one part. */
function placesOf(part: number, partOf: Uint16Array): Uint32Array {
  let count = 0;
  for (let place = 0; place < partOf.length; place++) if (partOf[place] === part) count++;
  const places = new Uint32Array(count);
  for (let place = 0, next = 0; next < count; place++) if (partOf[place] === part) places[next++] = place;
  return places;
}

/** A number in [0, 1) with 53 random bits, a function of its two 32-bit arguments. */
export function uniform(seed: number, position: number): number {
  const a = mix(mix(seed ^ 0x9e3779b9) ^ position);
  const b = mix(mix(a ^ 0x85ebca6b) ^ seed);
  return ((a >>> 5) * 0x400_0000 + (b >>> 6)) / 0x20_0000_0000_0000;
}

/** The finalizer of MurmurHash3: a bijection of 32 bits in which every input bit reaches every output bit. */
function mix(value: number): number {
  let h = value | 0;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}
