import { excerpt } from '../bytes.ts';

/** A function that generated code may call. */
export type Given = (...args: never[]) => unknown;

const AsyncFunction = Object.getPrototypeOf(async () => {}).constructor as new (
  ...text: string[]
) => (...values: unknown[]) => Promise<unknown>;

/** Globals that only compute and give no access to anything else. Generated code sees no other globals. */
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
 * A JavaScript interpreter for generated code, like a notebook (compare CodeAct, Wang et al., ICML 2024): blocks share `state`, print with
 * `console.log`, may `await`, and call the `given` functions. Other globals are shadowed and `import` is refused. The call also removes the
 * `constructor` of functions in this inferlet, because generated code could use it to reach the hidden globals. All this prevents accidents
 * and is no security boundary: the Wasm component confines malicious code to the inferlet's grants and its limits of CPU time and memory.
 * @returns a function that runs a block and returns its output and result, or its error, in at most 4,000 characters
 *
 * @example
 * const execute = sandbox({ fetchPrice: async (item: string) => prices.get(item) });
 * const output = await execute("console.log(await fetchPrice('tea'))");
 */
export function sandbox(given: Readonly<Record<string, Given>>): (code: string) => Promise<string> {
  const state = {};
  const hiddenGlobals = Object.getOwnPropertyNames(globalThis).filter((name) => !PURE.has(name) && !(name in given));
  // Otherwise `(() => 0).constructor('…')` makes a function that sees all globals.
  for (const kind of [() => 0, async () => 0, function* () {}, async function* () {}]) {
    Object.defineProperty(Object.getPrototypeOf(kind), 'constructor', { value: undefined });
  }
  return async (code) => {
    const lines: string[] = [];
    let length = 0;
    const print = (...values: unknown[]) => {
      // The result of `excerpt` ends before this line, so the line need not be kept.
      if (length > MAX_OUTPUT) return;
      const line = values.map(show).join(' ');
      lines.push(line);
      length += line.length + 1;
    };
    const names = ['console', 'state', ...Object.keys(given), ...hiddenGlobals.filter((name) => name !== 'console')];
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
