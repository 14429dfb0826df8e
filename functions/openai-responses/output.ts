import type { MessageFrame } from '@pie/inferlet';
import type { Part } from '../openai-shared/chat.ts';
import { frameAround } from '../openai-shared/generate.ts';
import { chatLogprobs, type TokenTexts } from '../openai-shared/logprobs.ts';

type Send = (event: object) => Promise<void>;
type Status = 'in_progress' | 'completed' | 'incomplete';

/** The item under construction: text or a call. */
type OpenItem =
  | Message
  | {
      readonly kind: 'call' | 'custom';
      readonly id: string;
      readonly callId: string;
      readonly name: string;
      text: string;
    };

interface Message {
  readonly kind: 'message';
  readonly id: string;
  text: string;
  readonly logprobs: object[];
}

/** Builds the items of a response's output and sends their events. */
export class Output {
  readonly #items: object[] = [];
  readonly #idSuffix: string;
  readonly #texts: TokenTexts | undefined;
  readonly #send: Send;
  #open: OpenItem | undefined;

  constructor(responseId: string, texts: TokenTexts | undefined, send: Send) {
    this.#idSuffix = responseId.slice('resp_'.length);
    this.#texts = texts;
    this.#send = send;
  }

  /** The frame in which the platform sends the text of the first item, after `start` and the events that open the item. */
  textFrame(start: readonly object[]): MessageFrame {
    const { id } = this.#newMessage();
    const index = this.#index;
    return frameAround((text) => deltaOf(id, index, text, []), [...start, ...openingOf(id, index)]);
  }

  /** Takes the next part of the answer. */
  async take(part: Part): Promise<void> {
    switch (part.kind) {
      case 'text': {
        const open = this.#open?.kind === 'message' ? this.#open : await this.#openMessage();
        const logprobs = this.#texts ? chatLogprobs(this.#texts, part.logs) : [];
        open.text += part.text;
        open.logprobs.push(...logprobs);
        await this.#send(deltaOf(open.id, this.#index, part.text, logprobs));
        return;
      }
      case 'piped':
        // The platform has already sent the events of this text.
        this.#open = { ...this.#newMessage(), text: part.text };
        return;
      case 'call':
        await this.#close('completed');
        await this.#openCall(part.name, part.isCustom);
        return;
      case 'arguments':
        if (this.#open) this.#open.text += part.text;
        await this.#sendItemEvent(part.isCustom ? 'custom_tool_call_input.delta' : 'function_call_arguments.delta', {
          delta: part.text,
        });
        return;
      case 'called':
        await this.#close('completed');
    }
  }

  /** Closes the open item with this status. An answer without any item gets an empty message. @returns all items */
  async end(status: Status): Promise<readonly object[]> {
    if (!this.#open && this.#items.length === 0) await this.#openMessage();
    await this.#close(status);
    return this.#items;
  }

  async #openMessage(): Promise<Message> {
    await this.#close('completed');
    const open = this.#newMessage();
    this.#open = open;
    for (const event of openingOf(open.id, this.#index)) await this.#send(event);
    return open;
  }

  #newMessage(): Message {
    return { kind: 'message', id: `msg_${this.#idSuffix}_${this.#index}`, text: '', logprobs: [] };
  }

  async #openCall(name: string, isCustom: boolean): Promise<void> {
    const id = `${this.#idSuffix}_${this.#index}`;
    const [kind, prefix] = isCustom ? (['custom', 'ctc'] as const) : (['call', 'fc'] as const);
    this.#open = { kind, id: `${prefix}_${id}`, callId: `call_${id}`, name, text: '' };
    const item = itemOf(this.#open, 'in_progress');
    await this.#send({ type: 'response.output_item.added', output_index: this.#index, item });
  }

  async #close(status: Status): Promise<void> {
    const open = this.#open;
    if (!open) return;
    const item = itemOf(open, status);
    if (open.kind === 'message') {
      const { text, logprobs } = open;
      await this.#sendItemEvent('output_text.done', { content_index: 0, text, logprobs });
      await this.#sendItemEvent('content_part.done', { content_index: 0, part: textPart(text, logprobs) });
    } else if (open.kind === 'custom') {
      await this.#sendItemEvent('custom_tool_call_input.done', { input: open.text });
    } else {
      await this.#sendItemEvent('function_call_arguments.done', { name: open.name, arguments: open.text });
    }
    await this.#send({ type: 'response.output_item.done', output_index: this.#index, item });
    this.#items.push(item);
    this.#open = undefined;
  }

  /** Sends an event of the open item. */
  #sendItemEvent(type: string, event: object): Promise<void> {
    return this.#send({ type: `response.${type}`, item_id: this.#open?.id, output_index: this.#index, ...event });
  }

  get #index(): number {
    return this.#items.length;
  }
}

/** The events that open a message. */
const openingOf = (id: string, index: number): object[] => [
  {
    type: 'response.output_item.added',
    output_index: index,
    item: { id, type: 'message', status: 'in_progress', role: 'assistant', content: [] },
  },
  {
    type: 'response.content_part.added',
    item_id: id,
    output_index: index,
    content_index: 0,
    part: textPart('', []),
  },
];

const deltaOf = (id: string, index: number, delta: string, logprobs: readonly object[]): object => ({
  type: 'response.output_text.delta',
  item_id: id,
  output_index: index,
  content_index: 0,
  delta,
  logprobs,
});

const textPart = (text: string, logprobs: readonly object[]) => ({
  type: 'output_text',
  text,
  annotations: [],
  logprobs,
});

function itemOf(open: OpenItem, status: Status): object {
  if (open.kind === 'message') {
    const { id, text, logprobs } = open;
    return { id, type: 'message', status, role: 'assistant', content: [textPart(text, logprobs)] };
  }
  const { id, callId, name, text } = open;
  if (open.kind === 'custom') return { id, type: 'custom_tool_call', status, call_id: callId, name, input: text };
  return { id, type: 'function_call', status, call_id: callId, name, arguments: text };
}
