import { StringState, stringRule } from './automaton.ts';
import type { MemoryBound } from './memory.ts';
import { type Place, Places, type StringTokens } from './places.ts';
import type { TokenTree } from './token-tree.ts';

/**
 * The places within strings that the grammars of one vocabulary share. They do not depend on what follows the string, so their masks are computed
 * once (context-independent tokens, as in Dong et al., "XGrammar", MLSys 2025). At the start, any characters may follow and the string may end.
 */
export function stringPlaces(memory?: MemoryBound<Places>): Places {
  return new Places(stringRule({ min: 0, max: Number.POSITIVE_INFINITY, isBegun: true }), memory);
}

/** Tokens that may come at a place of a string. All places that are far from the string's length bounds share the tokens of the start. */
export function stringTokensAt(place: Place, strings: Places, tree: TokenTree): StringTokens {
  const representative = isFarFromBounds(place, strings.start, tree.longest) ? strings.start : place;
  if (representative.stringTokens) return representative.stringTokens;
  const stringTokens = tree.stringTokens(strings, representative);
  strings.keepStringTokens(representative, stringTokens);
  return stringTokens;
}

/** True if, as at `start`, any text of up to `longest` characters may follow, and the string may end after it. */
function isFarFromBounds({ ways }: Place, start: Place, longest: number): boolean {
  const stringState = ways.find(({ state }) => state instanceof StringState)?.state;
  if (!(stringState instanceof StringState) || stringState.min > 0 || stringState.max < longest) return false;
  if (ways.length !== start.ways.length) return false;
  const states = new Set(start.ways.map(({ state }) => state));
  // The other ways are within a character. They return to the string when the character ends, with one character fewer to come.
  return ways.every(({ state, frame }) => {
    if (state === stringState) return true;
    const [firstReturn, ...furtherReturns] = frame.returns;
    const stateAfter = firstReturn?.target;
    return (
      states.has(state) &&
      furtherReturns.length === 0 &&
      stateAfter instanceof StringState &&
      stateAfter.max === stringState.max - 1
    );
  });
}
