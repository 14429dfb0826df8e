/** jco's rewritten glue, and the helper modules that jco had inlined. */
export interface Glue {
  readonly source: string;
  /** Helper modules taken out of the source, by file name. */
  readonly helpers: ReadonlyMap<string, Uint8Array>;
  /** Rewrites that matched; a missing rewrite costs speed, never correctness. */
  readonly rewrites: readonly string[];
}

const INLINE_MODULE = /new WebAssembly\.Module\(new Uint8Array\(\[([^\]]*)\]\)\)/g;

/**
 * Rewrites jco's glue:
 * - Helper modules that jco inlined become files, which `getCoreModule` returns: the glue compiles no bytes (workerd
 *   forbids that), and a process compiles each module once. `getCoreModule` must not return a promise.
 * - A constant switches off debug calls: each would build its arguments and read `process.env`.
 * - Suspended tasks wake on events instead of polling every 10 ms; the poll stays as a fallback.
 */
export function rewriteGlue(source: string): Glue {
  const helpers = new Map<string, Uint8Array>();
  const rewrites: string[] = [];
  let out = source.replace(INLINE_MODULE, (_, list: string) => {
    const bytes = list
      .split(',')
      .map((item) => item.trim())
      .filter(Boolean)
      .map(Number);
    const name = `glue${helpers.size}.wasm`;
    helpers.set(name, Uint8Array.from(bytes));
    return `getCoreModule('${name}')`;
  });
  if (/new (globalThis\.)?WebAssembly\.Module\(/.test(out)) throw new Error('jco made an inline module in a new way');
  for (const [name, rewrite] of [
    ['debug', disableDebugCalls],
    ['wake', wakeByEvent],
  ] as const) {
    const rewritten = rewrite(out);
    if (rewritten === null) continue;
    out = rewritten;
    rewrites.push(name);
  }
  return { source: out, helpers, rewrites };
}

function disableDebugCalls(source: string): string | null {
  if (!source.includes('const _debugLog = ')) return null;
  const calls = source.replace(/^(\s*)_debugLog\(/gm, '$1_DEBUG && _debugLog(');
  return `const _DEBUG = false;\n${calls}`;
}

// Passages of jco's glue that `wakeByEvent` changes. At EVENT, an event becomes ready. From LOOP_START to LOOP_END stands the loop that polls
// suspended tasks. STATES is the map of the objects that run such a loop.
const EVENT = 'this.#pendingEventFn = fn;';
const LOOP_START = 'async runTickLoop() {';
const LOOP_END = 'tick() {';
const STATES = 'const ASYNC_STATE = new Map();';

const LOOP = `poke() { const wake = this.wake; if (wake) { this.wake = null; wake(); } }

      async runTickLoop() {
        if (this.#tickLoop !== null) { this.poke(); return; }
        this.#tickLoop = 1;
        await _turn();
        let result = this.tick();
        while (result !== ComponentAsyncState.TickResult.DONE) {
          if (result === ComponentAsyncState.TickResult.IDLE) {
            _checkForDeadlock();
            await new Promise((resolve) => {
              const timer = setTimeout(resolve, 10);
              this.wake = () => { clearTimeout(timer); resolve(); };
            });
            this.wake = null;
          }
          await _turn();
          result = this.tick();
        }
        this.#tickLoop = null;
      }

      `;

const TURN = `
  const _turn = globalThis.setImmediate ? () => new Promise((resolve) => setImmediate(resolve)) : () => new Promise((resolve) => setTimeout(resolve, 0));
  const _pokeAll = () => { for (const state of ASYNC_STATE.values()) state.poke(); };`;

function wakeByEvent(source: string): string | null {
  const occursOnce = (text: string) => source.split(text).length === 2;
  if (![EVENT, LOOP_START, STATES].every(occursOnce)) return null;
  const start = source.indexOf(LOOP_START);
  const end = source.indexOf(LOOP_END, start + LOOP_START.length);
  if (end < 0 || !source.slice(start, end).includes('setTimeout(resolve, delay)')) return null;
  return `${source.slice(0, start)}${LOOP}${source.slice(end)}`
    .replace(EVENT, () => `${EVENT} _pokeAll();`)
    .replace(STATES, () => `${STATES}${TURN}`);
}
