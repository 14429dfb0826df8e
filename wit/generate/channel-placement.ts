import type { WitFunction, WitInterface, WitWorld } from './model.ts';

/**
 * The place of a function: the part of the platform that answers a guest's call of the function.
 *
 * - `sandbox`: the sandbox, the process that runs the guest, answers at once from data that it has.
 * - `runtime`: the sandbox sends the call to the runtime in a frame. The runtime has the data and the devices, and checks the guest's right to them.
 * - `outbox`: the call is an event for the invocation's log. The sandbox sends the event to the runtime in a frame that gets no answer. The sandbox
 *   answers the guest from its count of the bytes that the log has not taken yet (`runtime/channel/event-credit.ts`).
 */
export type Place = 'sandbox' | 'runtime' | 'outbox';

/**
 * Functions and resources that the sandbox answers, by interface. All others have the place `runtime`, because code that has taken over a sandbox
 * can forge every answer that the sandbox gives itself.
 */
const PLACEMENT: Readonly<Record<string, Readonly<Record<string, Exclude<Place, 'runtime'>>>>> = {
  runtime: {
    // The sandbox gets the invocation's facts with its opening (the runtime's first message about it), and a cancellation with a later message.
    // The sandbox has its own clock and random numbers.
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
  // Token tables hold no tenant's data, so each sandbox has a copy (`runtime/guest/guests.ts`).
  // A guest therefore does not wait for the runtime at each token.
  tokenize: { detokenize: 'sandbox', 'special-tokens': 'sandbox', vocabulary: 'sandbox', detokenizer: 'sandbox' },
  // The sandbox's own count of unwritten bytes saves a round trip for each message.
  session: { send: 'outbox' },
};

/** The place of a function. All functions of a resource have the same place. */
export function placeOf(entry: WitInterface, fn: WitFunction): Place {
  return PLACEMENT[entry.name]?.[fn.resource ?? fn.name] ?? 'runtime';
}

/** @throws TypeError when `placement` names a function or resource that the contract does not have */
export function checkPlacement(world: WitWorld, placement = PLACEMENT): void {
  for (const [name, places] of Object.entries(placement)) {
    const entry = world.imports.find((one) => one.name === name);
    const known = [...(entry?.functions ?? []), ...(entry?.resources ?? [])].map((one) => one.name);
    const unknown = Object.keys(places).find((fn) => !known.includes(fn));
    if (unknown !== undefined) throw new TypeError(`${name} ${unknown} has a place and is not in the contract`);
  }
}
