import type { MessageFrame } from '@pie/inferlet';
import type { Part } from '../openai-shared/chat.ts';
import { frameAround } from '../openai-shared/generate.ts';

/** A content block of the answer, with all that was generated for it so far. */
type Block = { readonly kind: 'text' | 'thought'; text: string } | (OpenCall & { json: string });

interface OpenCall {
  readonly kind: 'call';
  readonly id: string;
  readonly name: string;
}

/** Collects the content blocks of an answer and sends the events of its stream. */
export class Output {
  readonly #callId: (index: number) => string;
  readonly #send: (event: object) => Promise<void>;
  readonly #blocks: Block[] = [];
  #isOpen = false;

  /** @param callId makes the id of the call with an index */
  constructor(callId: (index: number) => string, send: (event: object) => Promise<void>) {
    this.#callId = callId;
    this.#send = send;
  }

  /** The frame in which the platform sends a text by itself, behind the events `start` and those that end a block and begin the text's. */
  textFrame(start: readonly object[]): MessageFrame {
    const index = this.#blocks.length;
    const opening = [...start, ...this.#closing(), blockStart(index, { kind: 'text', text: '' })];
    return frameAround((text) => textDelta(index, text), opening);
  }

  async take(part: Part): Promise<void> {
    switch (part.kind) {
      case 'thought': {
        const open = this.#openBlock;
        const block = open?.kind === 'thought' ? open : await this.#begin({ kind: 'thought', text: '' });
        if (block.kind === 'thought') block.text += part.text;
        return this.#send(delta(this.#blocks.length - 1, { type: 'thinking_delta', thinking: part.text }));
      }
      case 'piped':
        // The platform has sent the events of this text, except for the end of its block.
        this.#blocks.push({ kind: 'text', text: part.text });
        this.#isOpen = true;
        return;
      case 'text': {
        if (part.text === '') return;
        const open = this.#openBlock;
        const block = open?.kind === 'text' ? open : await this.#begin({ kind: 'text', text: '' });
        if (block.kind === 'text') block.text += part.text;
        return this.#send(textDelta(this.#blocks.length - 1, part.text));
      }
      case 'call': {
        await this.#begin({ kind: 'call', id: this.#callId(part.index), name: part.name, json: '' });
        return;
      }
      case 'arguments': {
        const block = this.#openBlock;
        if (block?.kind === 'call') block.json += part.text;
        return this.#send(delta(this.#blocks.length - 1, { type: 'input_json_delta', partial_json: part.text }));
      }
      case 'called':
        return this.#end();
    }
  }

  /** Ends the last block. @returns the content of the answer */
  async end(): Promise<readonly object[]> {
    await this.#end();
    return this.#blocks.map(contentOf);
  }

  get #openBlock(): Block | undefined {
    return this.#isOpen ? this.#blocks.at(-1) : undefined;
  }

  async #begin(block: Block): Promise<Block> {
    await this.#end();
    await this.#send(blockStart(this.#blocks.length, block));
    this.#blocks.push(block);
    this.#isOpen = true;
    return block;
  }

  async #end(): Promise<void> {
    for (const event of this.#closing()) await this.#send(event);
    this.#isOpen = false;
  }

  /** The events that end the open block. */
  #closing(): object[] {
    return this.#isOpen ? [{ type: 'content_block_stop', index: this.#blocks.length - 1 }] : [];
  }
}

const blockStart = (index: number, block: Block): object => ({
  type: 'content_block_start',
  index,
  content_block: contentOf(block),
});

const delta = (index: number, content: object): object => ({ type: 'content_block_delta', index, delta: content });
const textDelta = (index: number, text: string): object => delta(index, { type: 'text_delta', text });

function contentOf(block: Block): object {
  switch (block.kind) {
    case 'text':
      return { type: 'text', text: block.text, citations: null };
    case 'thought':
      // Signatures let Anthropic recognise its own thoughts. Here, thoughts are plain text.
      return { type: 'thinking', thinking: block.text, signature: '' };
    case 'call':
      return { type: 'tool_use', id: block.id, name: block.name, input: inputIn(block.json) };
  }
}

/** The input of a call; empty before the end of its JSON. */
function inputIn(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return {};
  }
}
