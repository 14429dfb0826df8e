import { jsonAutomata, LONGEST_LIKE } from './automaton.ts';
import { type Place, Places } from './places.ts';
import type { TokenTree } from './token-tree.ts';

const QUOTE = 0x22;

/**
 * Masks within JSON strings. Most tokens that may come there do not end the string, and are the same for all strings of all grammars
 * (context-independent tokens, as in Dong et al., "XGrammar", MLSys 2025). So they are found once for a vocabulary; what follows a closing
 * quote is looked up for each place.
 */
export class StringMasks {
  readonly #tree: TokenTree;
  #inside:
    | { readonly mask: Uint32Array; readonly exits: readonly number[]; readonly states: ReadonlySet<number> }
    | undefined;

  constructor(tree: TokenTree) {
    this.#tree = tree;
  }

  /** The mask of a place within a string, or null for other places. */
  mask(places: Places, place: Place): Uint32Array | null {
    const after = this.#isInside(place) ? places.after(place, QUOTE) : null;
    if (after === null) return null;
    const { mask, exits } = this.#known();
    const own = new Uint32Array(mask);
    for (const node of exits) this.#tree.add(own, places, after, node);
    return own;
  }

  /** True if the place is the one of any string's characters, above another stack. */
  #isInside({ ways }: Place): boolean {
    const { loop, quote } = jsonAutomata();
    const { states } = this.#known();
    if (ways.length !== states.size + 1) return false;
    const isLike = this.#tree.longest <= LONGEST_LIKE;
    const closing = ways.find(({ state }) => state === quote || (isLike && state.like === quote));
    if (!closing) return false;
    return ways.every((way) => {
      if (way === closing) return true;
      const [next, ...more] = way.frame.returns;
      if (!states.has(way.state.id) || !next || more.length > 0 || way.frame.isBottom) return false;
      return next.below === closing.frame && (next.target === loop || (isLike && next.target.like === loop));
    });
  }

  #known() {
    if (this.#inside) return this.#inside;
    const { string, quote } = jsonAutomata();
    const places = new Places(string);
    const start = places.after(places.start, QUOTE);
    if (!start) throw new Error('a string begins with a quote');
    const states = new Set(start.ways.flatMap(({ state }) => (state === quote ? [] : [state.id])));
    this.#inside = { ...this.#tree.inside(places, start), states };
    return this.#inside;
  }
}
