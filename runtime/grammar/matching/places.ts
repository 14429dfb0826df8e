import { tooLarge } from '../translate/error.ts';
import type { Rule, State } from './automaton.ts';

/** Ways through the grammar that are followed at once, at most. */
const MAX_WAYS = 4096;
/** Places that are remembered to be found again; then all are forgotten at once. */
const MAX_PLACES = 20_000;

/** Where the rules that are still open go on, the innermost first. Equal stacks are one object. */
interface Stack {
  readonly id: number;
  readonly target: State;
  readonly below: Stack | null;
}

interface Way {
  readonly state: State;
  readonly stack: Stack | null;
}

/** Where a text stands in a grammar: all ways to read it so far. Places that are equal are one object, as long as both are remembered. */
export class Place {
  readonly ways: readonly Way[];
  /** Whether the text may end here. */
  readonly mayEnd: boolean;
  /** By byte: the place after it, null where no text goes on, undefined before it was asked for. */
  readonly next: (Place | null | undefined)[] = new Array(256).fill(undefined);
  /** The tokens that may come here, once they were asked for. */
  mask: Uint32Array | undefined;

  constructor(ways: readonly Way[], mayEnd: boolean) {
    this.ways = ways;
    this.mayEnd = mayEnd;
  }
}

/**
 * The places of a grammar, made as texts come to them: a lazily determinized pushdown automaton. The grammar has no left recursion, so what can be
 * reached without a byte is finite.
 */
export class Places {
  readonly #root: Rule;
  readonly #start: Place;
  readonly #known = new Map<string, Place>();
  readonly #stacks = new Map<string, Stack>();
  #lastStack = 0;

  /** @throws GrammarError `limit-exceeded` when the beginning is too ambiguous already */
  constructor(root: Rule) {
    this.#root = root;
    this.#start = this.#close([{ state: root.start, stack: null }]);
  }

  get start(): Place {
    return this.#start;
  }

  /** The place after one byte more, or null if no text goes on so. @throws GrammarError `limit-exceeded` for too many ways */
  after(place: Place, byte: number): Place | null {
    const known = place.next[byte];
    if (known !== undefined) return known;
    // All bytes around this one that take the same edges lead to the same place.
    let low = 0;
    let high = 255;
    const reached: Way[] = [];
    for (const { state, stack } of place.ways) {
      for (const { from, to, target } of state.bytes) {
        if (byte < from) high = Math.min(high, from - 1);
        else if (byte > to) low = Math.max(low, to + 1);
        else {
          low = Math.max(low, from);
          high = Math.min(high, to);
          reached.push({ state: target, stack });
        }
      }
    }
    const next = reached.length === 0 ? null : this.#close(reached);
    place.next.fill(next, low, high + 1);
    return next;
  }

  /** The place of these ways and of all that they lead to without a byte. */
  #close(ways: readonly Way[]): Place {
    const seen = new Set<string>();
    const pending = [...ways];
    const reading: { readonly key: string; readonly way: Way }[] = [];
    let mayEnd = false;
    for (let way = pending.pop(); way !== undefined; way = pending.pop()) {
      const { state, stack } = way;
      const key = `${state.id}.${stack?.id ?? 0}`;
      if (seen.has(key)) continue;
      seen.add(key);
      if (seen.size > MAX_WAYS) {
        throw tooLarge(`the grammar can be read in more than ${MAX_WAYS} ways at one place; make it less ambiguous`);
      }
      if (state.bytes.length > 0) reading.push({ key, way });
      for (const target of state.empty) pending.push({ state: target, stack });
      for (const { rule, target } of state.calls) pending.push({ state: rule.start, stack: this.#push(target, stack) });
      if (!isEnd(state)) continue;
      if (stack) pending.push({ state: stack.target, stack: stack.below });
      else if (state === this.#root.end) mayEnd = true;
    }
    reading.sort((a, b) => (a.key < b.key ? -1 : 1));
    return this.#remember(`${mayEnd} ${reading.map(({ key }) => key).join(' ')}`, reading, mayEnd);
  }

  #remember(key: string, reading: readonly { readonly way: Way }[], mayEnd: boolean): Place {
    const known = this.#known.get(key);
    if (known) return known;
    if (this.#known.size >= MAX_PLACES || this.#stacks.size >= MAX_PLACES) {
      this.#known.clear();
      this.#stacks.clear();
    }
    const place = new Place(
      reading.map(({ way }) => way),
      mayEnd,
    );
    this.#known.set(key, place);
    return place;
  }

  /** A call in the last position leaves nothing to come back to: so lists written as right recursion need no stack. */
  #push(target: State, below: Stack | null): Stack | null {
    if (isEnd(target)) return below;
    const key = `${target.id}.${below?.id ?? 0}`;
    const known = this.#stacks.get(key);
    if (known) return known;
    this.#lastStack += 1;
    const stack = { id: this.#lastStack, target, below };
    this.#stacks.set(key, stack);
    return stack;
  }
}

/** Whether nothing leads on from a state: it is the end of its rule. */
function isEnd({ bytes, empty, calls }: State): boolean {
  return bytes.length === 0 && empty.length === 0 && calls.length === 0;
}
