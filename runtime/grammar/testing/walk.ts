import assert from 'node:assert/strict';
import type { Tokenizer } from '#gpu-host/models/tokenizer.ts';
import type { Outcome } from '#gpu-host/protocol/errors.ts';
import type { Random } from '#test/harness/random.ts';
import type { Matcher } from '../service.ts';

/** Number of tokens after which a walk heads for its end. Before, the walk rarely takes a token that leads there; afterwards, nearly always. */
const WANDER = 30;
/** Maximum tokens of a walk. */
const MAX_STEPS = 2000;
/** Texts that close open constructs of JSON and of the languages of our tests. A comma ends a value, but begins another one. */
const CLOSING = new Set(['"', '}', ']', '"}', '"]', '}}', ']}', ')', '>', ',']);
const BEGINNING = ',';

/** Tokens that lead a walk to its end. */
export interface Exits {
  /** Tokens of {@link CLOSING}. */
  readonly closing: ReadonlySet<number>;
  /** Those of them that begin no other construct. */
  readonly final: ReadonlySet<number>;
  /** Tokens of one byte, which lengthen a text least. */
  readonly short: ReadonlySet<number>;
}

export function exitsOf(tokenizer: Tokenizer): Exits {
  const all = Array.from({ length: tokenizer.vocabularySize }, (_, id) => id);
  const ids = all.filter((id) => !tokenizer.special.eos.includes(id));
  const closing = ids.filter((id) => CLOSING.has(Buffer.from(tokenizer.tokenBytes(id)).toString()));
  return {
    closing: new Set(closing),
    final: new Set(closing.filter((id) => Buffer.from(tokenizer.tokenBytes(id)).toString() !== BEGINNING)),
    short: new Set(ids.filter((id) => tokenizer.tokenBytes(id).length === 1)),
  };
}

/** The value of an outcome, which must be `ok`. */
export function value<T>(outcome: Outcome<T>): T {
  // `assert.equal` with this message would make the text for every outcome, and a mask has thousands of words.
  if (outcome.tag !== 'ok') assert.fail(JSON.stringify(outcome));
  return outcome.val;
}

/** Ids whose bits are set in `mask`, in ascending order. */
export function allowed(mask: Uint32Array): number[] {
  const ids: number[] = [];
  for (const [index, bits] of mask.entries()) {
    // Removes the lowest bit that is set.
    for (let word = bits; word !== 0; word &= word - 1) ids.push(index * 32 + 31 - Math.clz32(word & -word));
  }
  return ids;
}

/** Those of `ids` whose bits are set in `mask`. */
const among = (ids: Iterable<number>, mask: Uint32Array): number[] =>
  Array.from(ids).filter((id) => ((mask[id >>> 5] ?? 0) >>> (id & 31)) & 1);

/** Takes random allowed tokens until it takes an end-of-sequence token. Returns the bytes of the tokens before the end. */
export async function walk(matcher: Matcher, tokenizer: Tokenizer, exits: Exits, random: Random): Promise<Buffer> {
  const { eos } = tokenizer.special;
  const taken: number[] = [];
  for (let step = 0; step < MAX_STEPS; step += 1) {
    const mask = value(await matcher.mask());
    const ids = allowed(mask);
    const ends = among(eos, mask);
    const others = ends.length === 0 ? ids : ids.filter((id) => !ends.includes(id));
    const status = value(await matcher.status());
    assert.equal(status.mayEnd, ends.length > 0);
    assert.equal(status.mustEnd, others.length === 0 && ends.length > 0);
    const takesEnd = ends.length > 0 && (others.length === 0 || random.chance(step < WANDER ? 0.2 : 0.9));
    const token = takesEnd ? random.pick(ends) : nextToken(others, mask, step, exits, random);
    assert.equal(
      value(await matcher.accept(Uint32Array.of(token))),
      true,
      `the mask allows token ${token}, and the matcher refuses it`,
    );
    if (takesEnd) {
      // After the end, the mask still has the end-of-sequence tokens, and no others.
      assert.deepEqual(allowed(value(await matcher.mask())).sort(), [...eos].sort());
      assert.deepEqual(value(await matcher.status()), { mayEnd: true, mustEnd: true });
      return Buffer.concat(taken.map((id) => tokenizer.tokenBytes(id)));
    }
    taken.push(token);
  }
  throw new Error(`no end after ${MAX_STEPS} tokens: ${Buffer.concat(taken.map((id) => tokenizer.tokenBytes(id)))}`);
}

/** Picks one of `ids`: the tokens that `mask` allows, without the ends. */
function nextToken(
  ids: readonly number[],
  mask: Uint32Array,
  step: number,
  { closing, final, short }: Exits,
  random: Random,
): number {
  if (step < WANDER && random.chance(0.5)) return random.pick(ids);
  const finalIds = among(final, mask);
  if (finalIds.length > 0 && step >= WANDER && random.chance(0.8)) return random.pick(finalIds);
  const closingIds = among(closing, mask);
  if (closingIds.length > 0 && random.chance(step < WANDER ? 0.3 : 0.8)) return random.pick(closingIds);
  const shortIds = among(short, mask);
  return random.pick(shortIds.length > 0 ? shortIds : ids);
}
