import type { Call, ControlPlane } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { JsonText } from '../http/json.ts';

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
const PAGE_HINT = 'Leave the parameter out for its default: `limit=20`, `order=desc`, from the first item on.';
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
  readonly type?: string;
  readonly role?: string;
  readonly content?: unknown;
}

/** A page of the items that a response answers. */
interface ItemPage {
  readonly object: 'list';
  readonly data: readonly Item[];
  readonly first_id: string | null;
  readonly last_id: string | null;
  readonly has_more: boolean;
}

/** Which items a page has. Undefined members take the defaults of OpenAI's API. */
interface PageQuery {
  /** Maximum number of items; 20 by default. */
  readonly limit?: string | undefined;
  /** `desc` (by default) begins with the last item. */
  readonly order?: string | undefined;
  /** Id of the item before the page. */
  readonly after?: string | undefined;
}

/** Items of a page when the request states no limit, and at most. */
const PAGE = { default: 20, most: 100 };

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

  /** A kept response. @throws GatewayError `unknown-response` */
  async find(call: Call, id: string): Promise<object> {
    return (await this.#find(call, id)).response;
  }

  /** Deletes a kept response, so that no later request finds it. @throws GatewayError `unknown-response` */
  async delete(call: Call, id: string): Promise<object> {
    await this.#find(call, id);
    const [, invocation] = ID.exec(id) ?? [];
    await this.#control.deleteEvents(call, `inv_${invocation}`);
    return { id, object: 'response', deleted: true };
  }

  /**
   * The items that a response answers: those of its request, after the conversation of the request's `previous_response_id`. An item without an id,
   * or with the id of an earlier item, gets one that names its place.
   *
   * @throws GatewayError `unknown-response`; `invalid-parameter` for a query that names no page; `body-too-large`
   */
  async inputItems(call: Call, id: string, { limit, order = 'desc', after }: PageQuery): Promise<ItemPage> {
    const most = limit === undefined ? PAGE.default : Number(limit);
    if (!Number.isInteger(most) || most < 1 || most > PAGE.most)
      throw refusal(`limit is not a whole number from 1 to ${PAGE.most}.`, 'limit', PAGE_HINT);
    if (order !== 'asc' && order !== 'desc') throw refusal('order is neither asc nor desc.', 'order', PAGE_HINT);
    const { response, input } = await this.#find(call, id);
    if (input === undefined) throw unknownResponse(`The input of the response "${shown(id)}" was too long to be kept.`);
    const room = new Room(this.#maxBytes);
    const { previous_response_id: previous } = response;
    const earlier = await this.#conversation(call, previous, room).catch((error: unknown) => {
      const isMissing = error instanceof GatewayError && error.code === 'invalid-parameter';
      throw isMissing ? unknownResponse(error.message) : error;
    });
    const ids = new Set<string>();
    const items = [...earlier, ...input].map((item, i) => listed(item, id, i, ids));
    if (order === 'desc') items.reverse();
    const before = after === undefined ? -1 : items.findIndex((item) => item.id === after);
    if (after !== undefined && before < 0)
      throw refusal(`after is "${shown(after)}", which is the id of no item of this list.`, 'after', PAGE_HINT);
    const data = items.slice(before + 1, before + 1 + most);
    return {
      object: 'list',
      data,
      first_id: data.at(0)?.id ?? null,
      last_id: data.at(-1)?.id ?? null,
      has_more: before + 1 + most < items.length,
    };
  }

  async #find(call: Call, id: string): Promise<Kept> {
    const [, invocation] = ID.exec(id) ?? [];
    const kept = invocation === undefined ? null : await this.#read(call, `inv_${invocation}`);
    if (kept?.response.id === id) return kept;
    throw unknownResponse(`There is no response "${shown(id)}", or it is not kept any more.`);
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
    if (last !== null && last !== undefined && typeof last !== 'string')
      throw refusal(`${at} must be the id of a response, a text.`, at);
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
  throw refusal(`${at} is "${shown(id)}", which is the id of no response and of no item that this platform made.`, at);
}

/** An item as a list of items shows it: every item has an id of its own, which is added to `ids`, and a message its type and a list of parts. */
function listed(item: Item, response: string, index: number, ids: Set<string>): Item {
  const { type = 'message', content } = item;
  const ownId = typeof item.id === 'string' && !ids.has(item.id) ? item.id : undefined;
  const id = ownId ?? `in_${response.slice(response.indexOf('_') + 1)}_${index}`;
  ids.add(id);
  if (type !== 'message' || typeof content !== 'string') return { ...item, id, type };
  const part =
    item.role === 'assistant'
      ? { type: 'output_text', text: content, annotations: [] }
      : { type: 'input_text', text: content };
  return { ...item, id, type, content: [part] };
}

/** An id as messages show it. */
const shown = (id: string): string => (id.length > 100 ? `${id.slice(0, 100)}…` : id);

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const unknownResponse = (message: string): GatewayError =>
  new GatewayError('unknown-response', message, { field: 'response_id' });

const refusal = (message: string, field: string, hint = SEND_ITEMS): GatewayError =>
  new GatewayError('invalid-parameter', message, { field, hint });
