import type { Call, ControlPlane } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { JsonText } from '../http/json-text.ts';

/** The function whose results are responses. */
const FUNCTION = 'openai-responses';
/** An id of a response or of one of its items: a prefix for the kind, the id of the invocation without `inv_`, and the index of an item. */
const ID = /^[a-z]+_([0-9a-z]{20,60})(?:_\d+)?$/;
/** Maximum kept responses that one request may refer to. */
const MAX_REFERENCES = 512;
/** Responses that are read at the same time. */
const CONCURRENT_READS = 4;
/** Maximum characters of one kept response with its input, which the gateway parses on its thread. */
const MAX_KEPT = 1_048_576;
/** Maximum characters of the kept responses that one request reads for single items, as a multiple of the bytes of an input. */
const MOST_READ = 4;
/** What a client can do about a reference to what is not kept. */
const SEND_ITEMS = 'Send the item itself instead of the reference: clients do so with `store: false`.';
const SEND_ALL = 'Leave it out, and send the whole conversation as `input`.';

/** A kept response. */
interface Response {
  readonly id: string;
  readonly object: 'response';
  readonly store?: boolean;
  readonly previous_response_id?: string | null;
  readonly output: readonly Item[];
}

interface Item {
  readonly id?: string;
}

/** The result of an invocation of `openai-responses` whose response may be stored. */
interface Kept {
  readonly response: Response;
  /** The items of the request itself; absent when they are too long to be kept. */
  readonly input?: readonly Item[];
  /** Characters of both as JSON. */
  readonly size: number;
}

type Body = Readonly<Record<string, unknown>>;

/**
 * Responses that later requests refer to. They are the results of their invocations, so they are kept as long as these, and only their tenant
 * finds them.
 */
export class StoredResponses {
  readonly #control: ControlPlane;
  readonly #maxBytes: number;

  /** @param maxBytes maximum bytes of an input, with all the items that it refers to */
  constructor(control: ControlPlane, maxBytes: number) {
    this.#control = control;
    this.#maxBytes = maxBytes;
  }

  /**
   * The body with the items that it refers to: each `item_reference` becomes the item itself, and the conversation of `previous_response_id` becomes
   * `previous_items`.
   *
   * @throws GatewayError `invalid-parameter` for a reference to what is not kept, and `body-too-large`
   */
  async resolve(call: Call, body: Body): Promise<Body> {
    const { input, previous_response_id: previous } = body;
    const room = new Room(this.#maxBytes);
    const items = Array.isArray(input) ? await this.#resolveItems(call, input, room) : input;
    if (previous === undefined) return { ...body, ...(items !== undefined && { input: items }) };
    return {
      ...body,
      previous_items: await this.#conversation(call, previous, room),
      ...(items !== undefined && { input: items }),
    };
  }

  /** A kept response. @throws GatewayError `unknown-invocation` */
  async find(call: Call, id: string): Promise<object> {
    const [, invocation] = ID.exec(id) ?? [];
    const kept = invocation === undefined ? null : await this.#read(call, `inv_${invocation}`);
    if (kept?.response.id === id) return kept.response;
    throw new GatewayError('unknown-invocation', `There is no response "${id}", or it is not kept any more.`, {
      hint: 'Responses are kept as long as the results of invocations, unless their request had `store: false`.',
    });
  }

  async #resolveItems(call: Call, input: readonly unknown[], room: Room): Promise<readonly unknown[]> {
    const ids = new Map(
      input.flatMap((item, i) => (isReference(item) ? [[invocationOf(item.id, `input[${i}].id`), i] as const] : [])),
    );
    if (ids.size === 0) return input;
    if (ids.size > MAX_REFERENCES)
      throw refusal(`The input refers to ${ids.size} responses; ${MAX_REFERENCES} are allowed.`, 'input');
    const kept = new Map<string, Kept | null>();
    const remaining = [...ids.keys()];
    const reads = new Room(MOST_READ * this.#maxBytes);
    const reader = async () => {
      for (let id = remaining.pop(); id !== undefined; id = remaining.pop()) {
        const found = await this.#read(call, id);
        reads.take(found?.size ?? 0);
        kept.set(id, found);
      }
    };
    await Promise.all(Array.from({ length: CONCURRENT_READS }, reader));
    const items = new Map(
      [...kept.values()].flatMap((each) => each?.response.output.map((item) => [item.id, item] as const) ?? []),
    );
    /** Characters of the items that have been referred to: many references may name the same item. */
    const sizes = new Map<string, number>();
    return input.map((item, i) => {
      if (!isReference(item)) return item;
      const at = `input[${i}]`;
      const found = items.get(item.id);
      if (found) {
        const size = sizes.get(item.id) ?? JSON.stringify(found).length;
        sizes.set(item.id, size);
        room.take(size);
        return found;
      }
      throw refusal(`${at} is an item_reference to "${item.id}", which is not kept, or no longer.`, `${at}.id`);
    });
  }

  /** The items of a response's conversation: the input and the output of each response that precedes it, and its own. */
  async #conversation(call: Call, last: unknown, room: Room): Promise<readonly Item[]> {
    const turns: Item[][] = [];
    const at = 'previous_response_id';
    const seen = new Set<unknown>();
    for (let id = last; id !== undefined && id !== null; ) {
      if (seen.has(id)) throw refusal(`The response "${String(id)}" of \`${at}\` precedes itself.`, at, SEND_ALL);
      seen.add(id);
      if (turns.length >= MAX_REFERENCES)
        throw refusal(`The conversation of \`${at}\` has more than ${MAX_REFERENCES} responses.`, at, SEND_ALL);
      const kept: Kept | null = typeof id === 'string' ? await this.#read(call, invocationOf(id, at)) : null;
      if (kept === null)
        throw refusal(`The response "${String(id)}" of \`${at}\` is not kept, or no longer.`, at, SEND_ALL);
      if (kept.input === undefined)
        throw refusal(`The input of the response "${String(id)}" of \`${at}\` was too long to be kept.`, at, SEND_ALL);
      room.take(kept.size);
      turns.push([...kept.input, ...kept.response.output]);
      id = kept.response.previous_response_id;
    }
    return turns.reverse().flat();
  }

  /** What is kept of the response that an invocation made. */
  async #read(call: Call, invocation: string): Promise<Kept | null> {
    const found = await this.#control.invocation(call, invocation);
    if (found === null || found.function !== FUNCTION || found.status !== 'succeeded') return null;
    return keptIn(found.output);
  }
}

/** The part of a function's output that the client gets: the response, if the output is a {@link Kept} response. */
export function responseIn(output: unknown): unknown {
  const isKept =
    output instanceof JsonText ? output.text.startsWith(KEPT_BEGINNING) : isObject(output) && 'response' in output;
  return isKept ? (keptIn(output)?.response ?? output) : output;
}

/** The beginning of a kept response as JSON. */
const KEPT_BEGINNING = '{"response":{';

/** A kept response; null for another output. A tenant's own function may write any output, so only one that is cheap to parse is looked at. */
function keptIn(output: unknown): Kept | null {
  const text = output instanceof JsonText ? output : new JsonText(JSON.stringify(output ?? null));
  const value = text.smallValue(MAX_KEPT);
  if (!isObject(value) || !isObject(value.response)) return null;
  const { response, input } = value;
  if (response.object !== 'response' || !Array.isArray(response.output)) return null;
  if (!response.output.every(isObject)) return null;
  const size = text.text.length;
  return { response: response as unknown as Response, size, ...(Array.isArray(input) && { input }) };
}

/** Room for the items that an input refers to. */
class Room {
  readonly #maxBytes: number;
  #left: number;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
    this.#left = maxBytes;
  }

  /** @throws GatewayError `body-too-large` */
  take(bytes: number): void {
    this.#left -= bytes;
    if (this.#left >= 0) return;
    throw new GatewayError(
      'body-too-large',
      `The input has more than ${this.#maxBytes} bytes with the items that it refers to.`,
    );
  }
}

function isReference(item: unknown): item is { readonly id: string } {
  if (!isObject(item) || typeof item.id !== 'string') return false;
  // The type of a reference may be left out.
  return item.type === 'item_reference' || (item.type === undefined && item.role === undefined);
}

/** The id of the invocation that made a response or an item. */
function invocationOf(id: string, at: string): string {
  const [, invocation] = ID.exec(id) ?? [];
  if (invocation !== undefined) return `inv_${invocation}`;
  const shown = id.length > 100 ? `${id.slice(0, 100)}…` : id;
  throw refusal(`${at} is "${shown}", which is the id of no response and of no item that this platform made.`, at);
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const refusal = (message: string, field: string, hint = SEND_ITEMS): GatewayError =>
  new GatewayError('invalid-parameter', message, { field, hint });
