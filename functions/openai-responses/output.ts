import type { MessageFrame } from '@pie/inferlet';
import type { Part } from '../openai-shared/chat.ts';
import { frameAround } from '../openai-shared/generate.ts';
import { chatLogprobs, type TokenTexts } from '../openai-shared/logprobs.ts';

type Send = (event: object) => Promise<void>;
type Status = 'in_progress' | 'completed' | 'incomplete';

/** The item under construction: a thought, text or a call. */
type OpenItem =
  | Message
  | { readonly kind: 'reasoning'; readonly id: string; text: string }
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
  readonly #thoughts: ThoughtForm;
  readonly #send: Send;
  #open: OpenItem | undefined;

  constructor(responseId: string, texts: TokenTexts | undefined, thoughts: ThoughtForm, send: Send) {
    this.#idSuffix = responseId.slice('resp_'.length);
    this.#texts = texts;
    this.#thoughts = thoughts;
    this.#send = send;
  }

  /** The frame in which the platform sends the text of a message, after `start` and the events that end a thought and open the message. */
  textFrame(start: readonly object[]): MessageFrame {
    const closing = this.#closing('completed');
    const index = this.#index + (this.#open ? 1 : 0);
    const { id } = this.#newMessage(index);
    return frameAround((text) => deltaOf(id, index, text, []), [...start, ...closing, ...openingOf(id, index)]);
  }

  /** Takes the next part of the answer. */
  async take(part: Part): Promise<void> {
    switch (part.kind) {
      case 'thought': {
        const open = this.#open?.kind === 'reasoning' ? this.#open : await this.#openThought();
        open.text += part.text;
        await this.#send(thoughtDelta(open.id, this.#index, this.#thoughts, part.text));
        return;
      }
      case 'text': {
        const open = this.#open?.kind === 'message' ? this.#open : await this.#openMessage();
        const logprobs = this.#texts ? chatLogprobs(this.#texts, part.logs) : [];
        open.text += part.text;
        open.logprobs.push(...logprobs);
        await this.#send(deltaOf(open.id, this.#index, part.text, logprobs));
        return;
      }
      case 'piped':
        // The platform has already sent the events of this text, and those that precede it.
        if (this.#open) this.#items.push(itemOf(this.#open, 'completed', this.#thoughts));
        this.#open = { ...this.#newMessage(), text: part.text };
        return;
      case 'call':
        await this.#close('completed');
        await this.#openCall(part.name, part.isCustom);
        return;
      case 'arguments':
        if (this.#open) this.#open.text += part.text;
        await this.#send({
          type: `response.${part.isCustom ? 'custom_tool_call_input' : 'function_call_arguments'}.delta`,
          item_id: this.#open?.id,
          output_index: this.#index,
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

  async #openThought(): Promise<OpenItem> {
    await this.#close('completed');
    const open: OpenItem = { kind: 'reasoning', id: `rs_${this.#idSuffix}_${this.#index}`, text: '' };
    this.#open = open;
    const item = { id: open.id, type: 'reasoning', status: 'in_progress', summary: [], content: [] };
    await this.#send({ type: 'response.output_item.added', output_index: this.#index, item });
    await this.#send(thoughtPartEvent('added', open.id, this.#index, this.#thoughts, ''));
    return open;
  }

  #newMessage(index = this.#index): Message {
    return { kind: 'message', id: `msg_${this.#idSuffix}_${index}`, text: '', logprobs: [] };
  }

  async #openCall(name: string, isCustom: boolean): Promise<void> {
    const id = `${this.#idSuffix}_${this.#index}`;
    const [kind, prefix] = isCustom ? (['custom', 'ctc'] as const) : (['call', 'fc'] as const);
    this.#open = { kind, id: `${prefix}_${id}`, callId: `call_${id}`, name, text: '' };
    const item = itemOf(this.#open, 'in_progress', this.#thoughts);
    await this.#send({ type: 'response.output_item.added', output_index: this.#index, item });
  }

  async #close(status: Status): Promise<void> {
    const open = this.#open;
    if (!open) return;
    for (const event of this.#closing(status)) await this.#send(event);
    this.#items.push(itemOf(open, status, this.#thoughts));
    this.#open = undefined;
  }

  /** The events that close the open item. */
  #closing(status: Status): object[] {
    const open = this.#open;
    if (!open) return [];
    const index = this.#index;
    const event = (type: string, members: object): object => ({
      type: `response.${type}`,
      item_id: open.id,
      output_index: index,
      ...members,
    });
    const item = itemOf(open, status, this.#thoughts);
    const done = { type: 'response.output_item.done', output_index: index, item };
    const { text } = open;
    switch (open.kind) {
      case 'reasoning':
        return [
          event(`${THOUGHT_EVENTS[this.#thoughts]}.done`, { [`${this.#thoughts}_index`]: 0, text }),
          thoughtPartEvent('done', open.id, index, this.#thoughts, text),
          done,
        ];
      case 'message': {
        const { logprobs } = open;
        return [
          event('output_text.done', { content_index: 0, text, logprobs }),
          event('content_part.done', { content_index: 0, part: textPart(text, logprobs) }),
          done,
        ];
      }
      case 'custom':
        return [event('custom_tool_call_input.done', { input: text }), done];
      case 'call':
        return [event('function_call_arguments.done', { name: open.name, arguments: text }), done];
    }
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

/** Form of thoughts in a response: their own text as `content`, or as a `summary` for clients that read summaries only. */
type ThoughtForm = 'content' | 'summary';

const THOUGHT_EVENTS = { content: 'reasoning_text', summary: 'reasoning_summary_text' } as const;

const thoughtPart = (form: ThoughtForm, text: string) => ({
  type: form === 'content' ? 'reasoning_text' : 'summary_text',
  text,
});

const thoughtPartEvent = (
  step: 'added' | 'done',
  ...[id, index, form, text]: [string, number, ThoughtForm, string]
): object => ({
  type: `response.${form === 'content' ? 'content_part' : 'reasoning_summary_part'}.${step}`,
  item_id: id,
  output_index: index,
  [`${form}_index`]: 0,
  part: thoughtPart(form, text),
});

const thoughtDelta = (id: string, index: number, form: ThoughtForm, delta: string): object => ({
  type: `response.${THOUGHT_EVENTS[form]}.delta`,
  item_id: id,
  output_index: index,
  [`${form}_index`]: 0,
  delta,
});

function itemOf(open: OpenItem, status: Status, thoughts: ThoughtForm): object {
  if (open.kind === 'reasoning') {
    const { id, text } = open;
    return { id, type: 'reasoning', status, summary: [], [thoughts]: [thoughtPart(thoughts, text)] };
  }
  if (open.kind === 'message') {
    const { id, text, logprobs } = open;
    return { id, type: 'message', status, role: 'assistant', content: [textPart(text, logprobs)] };
  }
  const { id, callId, name, text } = open;
  if (open.kind === 'custom') return { id, type: 'custom_tool_call', status, call_id: callId, name, input: text };
  return { id, type: 'function_call', status, call_id: callId, name, arguments: text };
}
