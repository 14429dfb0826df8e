import { seeded } from '../../../test/harness/random.ts';
import { type Engine, ItemSplitter, type NodeRun, type NodeValues } from '../src/workflow/engine.ts';
import type { Node } from '../src/workflow/graph.ts';
import type { EngineName } from '../src/workflow/sizes.ts';

interface TextContext {
  text: string;
  isReleased: boolean;
}

const WORDS = ['the', 'cat', 'sat', 'on', 'a', 'mat', 'and.', 'dog!', 'ran', 'home?', 'so', 'far'];

/**
 * An engine over plain texts, so that graphs run without a device: its model chooses the next words by the text's hash. It waits for random times,
 * so that nodes end in another order with each seed. It fails when a context is used after its release.
 */
export class TextEngine implements Engine {
  /** Contexts that were made and not released. */
  readonly live = new Set<TextContext>();
  /** Ids of the nodes that ran, in the order of their starts. */
  readonly ran: string[] = [];
  /** Pauses before further attempts, in milliseconds. The engine only records them, and does not wait that long. */
  readonly pauses: number[] = [];
  /** Ids of the nodes that were reported as ended. The id of a failed node has a "!" at its end. */
  readonly reported: string[] = [];
  readonly #random: (below: number) => number;

  constructor(seed = 1) {
    this.#random = seeded(seed);
  }

  async run(node: Node, inputs: NodeValues, { emit }: NodeRun): Promise<NodeValues> {
    this.ran.push(node.id);
    const { operation } = node;
    const given = inputs.context ? this.#used(inputs.context) : undefined;
    await this.#wait();
    switch (operation.kind) {
      case 'prefilling':
      case 'partial-prefilling': {
        const context = given ?? this.#make('');
        context.text += (inputs.parts as readonly unknown[]).join('');
        return { context };
      }
      case 'decoding':
      case 'partial-decoding': {
        const context = given ?? this.#make('');
        const words = wordsAfter(context.text, operation.options.maxTokens ?? 12);
        if (!operation.items) {
          context.text += words.join('');
          return { text: words.join(''), context };
        }
        const outputs: Record<string, string> = {};
        const splitter = new ItemSplitter(operation.items);
        const take = (items: readonly { index: number; item: string }[]) => {
          for (const { index, item } of items) {
            outputs[`item${index}`] = item;
            if (operation.kind === 'partial-decoding') emit(`item${index}`, item);
          }
        };
        for (const word of words) {
          take(splitter.push(word));
          await this.#wait();
        }
        take(splitter.end());
        return outputs;
      }
      case 'select': {
        const context = given ?? this.#make('');
        const text = operation.choices[hash(context.text) % operation.choices.length] ?? '';
        context.text += text;
        return { text, context };
      }
      case 'join': {
        const context = given ?? this.#make('');
        for (const other of inputs.others as object[]) context.text += this.#used(other).text;
        return { context };
      }
      case 'cached-context':
        return { context: this.#make(`<${operation.name}>`) };
      case 'embedding':
        return { vectors: (inputs.texts as string[]).map((text) => Float32Array.of(hash(text) % 1000, text.length)) };
      case 'reranking':
        return { scores: (inputs.documents as (string | string[])[]).map((each) => scoreOf(`${inputs.query}`, each)) };
      default:
        return {};
    }
  }

  async fork(context: object, _signal?: NodeRun['signal']): Promise<object> {
    const { text } = this.#used(context);
    await this.#wait();
    return this.#make(text);
  }

  /** Efficient sizes. The key is the engine's kind, a space and the engine's name, which is empty for the default engine. */
  readonly sizes = new Map<string, number>();

  efficientTokens({ kind, model = '' }: EngineName): number | undefined {
    return this.sizes.get(`${kind} ${model}`);
  }

  async pause(milliseconds: number, _signal?: NodeRun['signal']): Promise<void> {
    this.pauses.push(milliseconds);
    await this.#wait();
  }

  report({ id }: Node, _began: number, failed: boolean): void {
    this.reported.push(failed ? `${id}!` : id);
  }

  release(context: object): void {
    (context as TextContext).isReleased = true;
    this.live.delete(context as TextContext);
  }

  #make(text: string): TextContext {
    const context = { text, isReleased: false };
    this.live.add(context);
    return context;
  }

  #used(context: object): TextContext {
    const used = context as TextContext;
    if (used.isReleased) throw new Error('A context was used after its release.');
    return used;
  }

  async #wait(): Promise<void> {
    for (let turns = this.#random(6); turns > 0; turns--) await undefined;
  }
}

function wordsAfter(text: string, count: number): string[] {
  const next = seeded(hash(text));
  return Array.from({ length: count }, () => `${WORDS[next(WORDS.length)]} `);
}

/** FNV-1a. */
function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 0x01000193) >>> 0;
  return value;
}

const scoreOf = (query: string, document: string | string[]): number | number[] =>
  typeof document === 'string'
    ? hash(`${query}|${document}`) % 1000
    : document.map((text) => hash(`${query}|${text}`) % 1000);
