import { wipeFreeChunks } from '../build/wasm/free-chunks.ts';
import { compileWorld } from '../lowering/compile.ts';
import type { Execution } from '../lowering/execution.ts';
import { type Heap, heapBetween } from '../lowering/heap.ts';
import { instantiate, type Program } from '../lowering/instance.ts';
import { SliceRunner } from '../lowering/slices.ts';
import type { GuestTrap } from '../lowering/trap.ts';
import { absentHost } from './measure.ts';

/** Files of a script's artifact besides its description: the encoded heap, and the table of places. */
export const HEAP_FILE = 'heap.bin';
export const PLACES_FILE = 'places.bin';

/** CPU time of a module's evaluation. */
const CPU_LIMIT_MS = 4000;

/** The reason that a script cannot be loaded. */
export class ScriptError extends Error {
  override readonly name = 'ScriptError';
  readonly hint: string;
  /** Place in the script, or, with `file`, in the author's file, counted from 1; null when the engine names none. */
  readonly place: { readonly file?: string; readonly line: number; readonly column: number } | null;

  constructor(message: string, hint: string, place: ScriptError['place'] = null) {
    super(message);
    this.hint = hint;
    this.place = place;
  }
}

const ONCE = 'A module is evaluated once, at deploy, without a host';

const CALL = 'host call while loading: ';

/**
 * Evaluates a script on a new instance of the engine, without a host, and returns what that changed in the instance's memory. The caller runs
 * this in a confined process. Throws ScriptError when the script cannot be loaded.
 * @param hash sha256 of the engine's component
 * @param script text made by `rewrite`
 */
export async function evaluateScript(
  engine: Program,
  hash: string,
  script: string,
  cpuLimitMs = CPU_LIMIT_MS,
): Promise<Heap> {
  const execution = instantiate(engine, compileWorld(absentHost((call) => `${CALL}${call}`)), {
    slices: new SliceRunner(),
    cpuLimitMs,
  });
  const { guest } = execution;
  guest.context = {} as never;
  const before = guest.u8.slice();
  const globals = globalsOf(execution);
  const ending = await execution.start(script);
  try {
    if (ending.kind === 'trapped') throw trapped(ending.trap, guest.stderr);
    if (!ending.ok) throw thrown(ending.text, execution.state.memoryBytes);
    guest.refresh();
    if (!guest.isQuiet)
      throw new ScriptError(
        'The module leaves work behind after it has loaded.',
        `${ONCE}: start the work inside run().`,
      );
    const later = globalsOf(execution);

    if (globals.some((value, index) => value !== later[index]))
      throw new ScriptError(
        'The engine is in the middle of work after the module has loaded.',
        `${ONCE}: move the work into run().`,
      );
    const after = guest.u8.slice();
    wipeFreeChunks(after);
    return heapBetween(hash, before, after);
  } finally {
    execution.dispose();
  }
}

/** Values of the instance's globals with full counters of fuel, which are globals too. */
function globalsOf({ fuel, state }: Execution): readonly (number | bigint)[] {
  fuel.drain();
  fuel.refill();
  return state.globals;
}

function trapped({ code, message }: GuestTrap, stderr: string): ScriptError {
  const call = message.split(CALL)[1];
  if (call !== undefined)
    return new ScriptError(`The module calls ${call} while it loads.`, `${ONCE}: move the call into run().`);
  if (message.includes('wasi:clocks/'))
    return new ScriptError('The module reads the clock while it loads.', `${ONCE}: call Date.now() inside run().`);
  if (code === 'cpu-limit')
    return new ScriptError('The module computes for too long while it loads.', `${ONCE}: move the work into run().`);
  if (/wait|deadlock|promise/i.test(message + stderr))
    return new ScriptError(
      'The module awaits a promise at its top level that never settles.',
      `${ONCE}: await inside run().`,
    );
  return new ScriptError(
    `The module fails while it loads: ${message} ${stderr}`.trim(),
    `${ONCE}: move the work into run().`,
  );
}

/** A place in the script, as the engine's stack traces write it. */
const PLACE = /<(?:input|eval|evalscript)>:(\d+):(\d+)/;

/** An engine without memory throws `null`. With this much memory, the module has used what an evaluation may. */
const MUCH_MEMORY_BYTES = 24 << 20;

function thrown(text: string, memoryBytes: number): ScriptError {
  if (text === 'thrown: null' && memoryBytes > MUCH_MEMORY_BYTES)
    return new ScriptError(
      `The module needs too much memory while it loads: it held ${Math.round(memoryBytes / 2 ** 20)} MiB and asked for more.`,
      `${ONCE}, and every instance starts with its memory: make large data inside run(), or read it from the input or a store.`,
    );
  const match = PLACE.exec(text);
  const place = match ? { line: Number(match[1]), column: Number(match[2]) } : null;
  const message = text.split('\n')[0] ?? '';
  return new ScriptError(
    `The module fails while it loads: ${message}`,
    'Correct the source at that place, or move the work into run().',
    place,
  );
}
