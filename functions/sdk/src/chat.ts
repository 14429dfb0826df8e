import { detokenize, tokenize, tokenizeContinuation } from './models.ts';
import { attempt, tokenize as wire } from './raw.ts';
import { type Effort, thoughtVariables } from './thought-marks.ts';
import { thoughtFormat } from './thoughts.ts';

/** A call that the assistant made, in a conversation. */
export interface ToolCall {
  readonly id?: string;
  readonly type?: 'function';
  readonly function: {
    readonly name: string;
    /** Most templates expect an object; a string is passed unchanged. */
    readonly arguments: string | Readonly<Record<string, unknown>>;
  };
}

/** One turn of a conversation, with further members if the model's template knows them. */
export interface ChatMessage {
  /** `system`, `user`, `assistant` or `tool`. */
  readonly role: string;
  readonly content: string;
  readonly name?: string;
  /** The assistant's thought. The template gets it in the member that it reads; a template without such a member gets no thought. */
  readonly thought?: string;
  /** The assistant's calls. */
  readonly tool_calls?: readonly ToolCall[];
  /** In a turn of a `tool`: id of the call that it answers. */
  readonly tool_call_id?: string;
}

/** Options for rendering a conversation. */
export interface ChatOptions {
  /** End with the beginning of the assistant's turn; true by default. */
  readonly addGenerationPrompt?: boolean;
  /** Functions that the model may call, in the template's form: `{type: 'function', function: {name, description, parameters}}`. */
  readonly tools?: readonly object[];
  /**
   * How much the model shall think before its answer, as variables of its template: a level that the template knows, or thoughts on and off. Without
   * effect for a model whose template has no such variables.
   */
  readonly effort?: Effort;
  /** Further variables of the template, such as `enable_thinking`. Special tokens in them are parsed: never put a user's text here. */
  readonly variables?: Readonly<Record<string, unknown>>;
}

/** The variables of a model's chat template, as JSON text. */
export function chatVariables(model: string, messages: readonly ChatMessage[], options: ChatOptions = {}): string {
  const { addGenerationPrompt = true, tools, effort, variables } = options;
  const hasThoughts = effort !== undefined || messages.some(({ thought }) => thought !== undefined);
  const format = hasThoughts ? thoughtFormat(model) : undefined;
  return JSON.stringify({
    ...(effort && format && thoughtVariables(format, effort)),
    ...variables,
    messages: messages.map(({ thought, ...message }) =>
      thought === undefined || !format?.field ? message : { ...message, [format.field]: thought },
    ),
    ...(tools !== undefined && tools.length > 0 && { tools }),
    add_generation_prompt: addGenerationPrompt,
  });
}

/**
 * The tokens of a chat. Special tokens are parsed where the template writes them, but not inside messages and tools or in the names of their
 * members: otherwise, a user could end a turn and begin another. This function replaces special tokens inside messages and tools by
 * unguessable marks before rendering, and tokenizes each mark's text separately. A chat without special tokens, the common case, is tokenized
 * in one piece. `variables` are not covered: never put a user's text there.
 */
export function chatTokens(model: string, messages: readonly ChatMessage[], options: ChatOptions): number[] {
  const render = (turns: readonly ChatMessage[], tools: ChatOptions['tools']): string =>
    attempt(() => wire.renderChat(model, chatVariables(model, turns, { ...options, tools })));
  const special = specialTexts(model, [messages, options.tools]);
  if (special.length === 0) return tokenize(render(messages, options.tools), { model, special: true });
  const key = Array.from({ length: 3 }, () => Math.random().toString(36).slice(2)).join('');
  const marks = new Map(special.map((text, i) => [text, `${key}x${i}x`]));
  const marked = <T>(value: T): T =>
    withTexts(value, (text) => special.reduce((all, one) => all.replaceAll(one, marks.get(one) ?? ''), text));
  const texts = new Map([...marks].map(([text, mark]) => [mark, text]));
  const pieces = render(marked(messages), marked(options.tools)).split(new RegExp(`(${key}x\\d+x)`));
  return pieces.flatMap((piece, i) => {
    const text = texts.get(piece);
    const how = { model, special: text === undefined };
    return i === 0 ? tokenize(piece, how) : tokenizeContinuation(text ?? piece, how);
  });
}

/** Special tokens of a model that occur in the strings and the members' names of a value, longest first. */
function specialTexts(model: string, value: unknown): string[] {
  const texts = new Set<string>();
  withTexts(value, (text) => {
    texts.add(text);
    return text;
  });
  const found = new Set<string>();
  for (const text of texts) {
    const tokens = tokenize(text, { model, special: true });
    const plain = tokenize(text, { model });
    if (tokens.length === plain.length && tokens.every((token, i) => token === plain[i])) continue;
    for (const token of new Set(tokens)) {
      const written = detokenize([token], { model, special: true });
      if (written !== '' && text.includes(written) && detokenize([token], { model }) === '') found.add(written);
    }
  }
  return [...found].sort((a, b) => b.length - a.length);
}

/** A copy of the value with `change` applied to each of its strings, the names of its members included. */
function withTexts<T>(value: T, change: (text: string) => string): T;
function withTexts(value: unknown, change: (text: string) => string): unknown {
  if (typeof value === 'string') return change(value);
  if (Array.isArray(value)) return value.map((item) => withTexts(item, change));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [change(key), withTexts(member, change)]));
}
