import type { WitFunction, WitInterface, WitWorld } from './model.ts';

/**
 * The process that implements a function of the contract.
 *
 * - `sandbox`: the process that runs the guest. It answers without a wait, from the facts that came with the invocation's opening.
 * - `runtime`: the runtime, asked by a frame. It holds the data and the devices, and checks the right to them.
 * - `outbox`: the runtime, told by a one-way frame. The sandbox answers the guest from its credit for events.
 */
export type Place = 'sandbox' | 'runtime' | 'outbox';

/**
 * Functions and resources for which the runtime need not be asked. All others go to the runtime: code that has taken over a sandbox can answer the
 * sandbox's own calls as it likes.
 */
const PLACEMENT: Readonly<Record<string, Readonly<Record<string, Exclude<Place, 'runtime'>>>>> = {
  runtime: {
    // Facts of the invocation come with its opening; clocks and random numbers are the process's own.
    version: 'sandbox',
    'instance-id': 'sandbox',
    tenant: 'sandbox',
    'get-arguments': 'sandbox',
    'function-name': 'sandbox',
    'function-version': 'sandbox',
    models: 'sandbox',
    'model-traits': 'sandbox',
    metadata: 'sandbox',
    'is-cancelled': 'sandbox',
    'time-left': 'sandbox',
    now: 'sandbox',
    random: 'sandbox',
    log: 'outbox',
  },
  // Tables of tokens are no tenant's: a sandbox has them, so that no guest waits at each token (`runtime/guest/vocabulary.ts`).
  tokenize: { detokenize: 'sandbox', 'special-tokens': 'sandbox', vocabulary: 'sandbox', detokenizer: 'sandbox' },
  // A message is not worth a round trip: its credit is the room in the event log.
  session: { send: 'outbox' },
};

/** The process that implements a function. */
export function placeOf(entry: WitInterface, fn: WitFunction): Place {
  return PLACEMENT[entry.name]?.[fn.resource ?? fn.name] ?? 'runtime';
}

/** Refuses places of functions that the contract does not have. @throws TypeError */
export function checkPlacement(world: WitWorld, placement = PLACEMENT): void {
  for (const [name, places] of Object.entries(placement)) {
    const entry = world.imports.find((one) => one.name === name);
    const known = [...(entry?.functions ?? []), ...(entry?.resources ?? [])].map((one) => one.name);
    const unknown = Object.keys(places).find((fn) => !known.includes(fn));
    if (unknown !== undefined) throw new TypeError(`${name} ${unknown} has a place and is not in the contract`);
  }
}
