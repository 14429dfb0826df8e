import { excerpt } from './excerpt.ts';

/** A function that generated code may call. */
export type Given = (...args: never[]) => unknown;

const AsyncFunction = Object.getPrototypeOf(async () => {}).constructor as new (
  ...text: string[]
) => (...values: unknown[]) => Promise<unknown>;

/** Globals that compute and reach nothing; generated code sees no other. */
const PURE = new Set(
  `
    Object Error EvalError RangeError ReferenceError SyntaxError TypeError URIError AggregateError Iterator Array
    parseInt parseFloat isNaN isFinite decodeURI decodeURIComponent encodeURI encodeURIComponent escape unescape
    Infinity NaN undefined Number Boolean String Math Symbol BigInt Date RegExp JSON Map Set WeakMap WeakSet
    ArrayBuffer Uint8ClampedArray Int8Array Uint8Array Int16Array Uint16Array Int32Array Uint32Array BigInt64Array
    BigUint64Array Float32Array Float64Array DataView Promise btoa atob TextEncoder TextDecoder
  `.split(/\s+/),
);
const MAX_OUTPUT = 4000;

/**
 * A JavaScript interpreter for generated code, like a notebook (as CodeAct's, Wang et al., ICML 2024): blocks share `state`, print with
 * `console.log`, may `await`, and call what they are given. Names of other globals are shadowed, `import` is refused, and from the first
 * call on no function of this inferlet can be made of text, so that code which means well finds only its tools. This is no wall: what holds
 * code that means ill is the Wasm component around it, which can do what this inferlet was granted and nothing else, within its limits of
 * CPU time and memory.
 * @returns runs a block; answers what it printed and returned, or why it failed, 4,000 characters at most
 *
 * @example
 * const execute = sandbox({ fetchPrice: async (item: string) => prices.get(item) });
 * const output = await execute("console.log(await fetchPrice('tea'))");
 */
export function sandbox(given: Readonly<Record<string, Given>>): (code: string) => Promise<string> {
  const state = {};
  const hidden = Object.getOwnPropertyNames(globalThis).filter((name) => !PURE.has(name) && !(name in given));
  // Else `(() => 0).constructor('…')` makes a function that sees all globals.
  for (const kind of [() => 0, async () => 0, function* () {}, async function* () {}]) {
    Object.defineProperty(Object.getPrototypeOf(kind), 'constructor', { value: undefined });
  }
  return async (code) => {
    const lines: string[] = [];
    const print = (...values: unknown[]) => lines.push(values.map(show).join(' '));
    const names = ['console', 'state', ...Object.keys(given), ...hidden.filter((name) => name !== 'console')];
    try {
      if (/\bimport\b/.test(code)) throw new SyntaxError('import is not available here');
      const block = new AsyncFunction(...names, `return (async function () { "use strict"; ${code}\n})()`);
      const value = await block({ log: print, error: print }, state, ...Object.values(given));
      if (value !== undefined) print(value);
    } catch (error) {
      print(String(error));
    }
    return excerpt(lines.join('\n'), MAX_OUTPUT) || '(no output)';
  };
}

const show = (value: unknown): string => (typeof value === 'string' ? value : (JSON.stringify(value) ?? String(value)));
