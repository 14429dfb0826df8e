import type { ThoughtFormat } from 'pie:inferlet/tokenize@0.1.0';
import { InferletError } from '../errors.ts';
import { attempt, inputImage, tokenize as wire } from '../raw.ts';
import { detokenize, model, tokenize, tokenizeContinuation } from './models.ts';
import { type Effort, thoughtVariables } from './thought-marks.ts';

export type { ThoughtFormat } from 'pie:inferlet/tokenize@0.1.0';

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

/** An image in a message. */
export interface ImagePart {
  readonly type: 'image';
  /** A PNG or JPEG, of at most 8 MiB and 16 million pixels. */
  readonly image: Uint8Array;
}

/** A text in a message, before, between or after images. */
export interface TextPart {
  readonly type: 'text';
  readonly text: string;
}

/** One turn of a conversation, whose content may have images. */
export interface MixedMessage extends Omit<ChatMessage, 'content'> {
  readonly content: string | readonly (TextPart | ImagePart)[];
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

/** A message with its content in a form that some template reads. */
type RenderedMessage = Omit<ChatMessage, 'content'> & { readonly content: unknown };

/** The variables of a model's chat template, as JSON text. */
export function chatVariables(model: string, messages: readonly RenderedMessage[], options: ChatOptions = {}): string {
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
 * members: otherwise, a user could end a turn and begin another. `variables` are not covered: never put a user's text there.
 */
export const chatTokens = (model: string, messages: readonly ChatMessage[], options: ChatOptions): number[] =>
  renderedPieces(model, messages, options).flatMap(tokensIn);

/** The tokens of a chat, and its images where their embeds belong. */
export type ChatPiece = readonly number[] | ImagePart;

/** The tokens of a piece; none for an image. */
export const tokensIn = (piece: ChatPiece): readonly number[] => ('type' in piece ? [] : piece);

/**
 * The pieces of a chat with images, in the order of the prompt. A template that shows images decides where they stand; the token that it writes for
 * an image is left out. For any other template, an image stands where its message has it, with a line break behind it.
 */
export function chatPieces(model: string, messages: readonly MixedMessage[], options: ChatOptions): ChatPiece[] {
  const images = messages.flatMap(({ content }) => (typeof content === 'string' ? [] : content.filter(isImage)));
  if (images.length === 0) {
    const texts = messages.map((message) => ({ ...message, content: textIn(message.content) }));
    return [chatTokens(model, texts, options)];
  }
  return piecesByTemplate(model, messages, images, options) ?? piecesByMarks(model, messages, images, options);
}

const isImage = (part: TextPart | ImagePart): part is ImagePart => part.type === 'image';

const textIn = (content: MixedMessage['content']): string =>
  typeof content === 'string' ? content : content.map((part) => (isImage(part) ? '' : part.text)).join('');

/** The pieces of a chat whose template shows each image; undefined for other templates. */
function piecesByTemplate(
  model: string,
  messages: readonly MixedMessage[],
  images: readonly ImagePart[],
  options: ChatOptions,
): ChatPiece[] | undefined {
  const withoutBytes = messages.map(({ content, ...message }) => ({
    ...message,
    content:
      typeof content === 'string' ? content : content.map((part) => (isImage(part) ? { type: 'image' } : { ...part })),
  }));
  let token: number;
  let tokens: number[];
  try {
    token = attempt(() => inputImage.imageToken(model));
    tokens = renderedPieces(model, withoutBytes, options).flatMap(tokensIn);
  } catch (error) {
    // The model has no token for images, or its template reads the content of a message as a text.
    if (error instanceof InferletError && ['unsupported', 'invalid-argument'].includes(error.code)) return undefined;
    throw error;
  }
  const places = tokens.flatMap((each, i) => (each === token ? [i] : []));
  if (places.length !== images.length) return undefined;
  return [...images, undefined].flatMap((image, i) => {
    const text = tokens.slice(i === 0 ? 0 : (places[i - 1] ?? 0) + 1, places[i]);
    return [...(text.length > 0 ? [text] : []), ...(image ? [image] : [])];
  });
}

/** The pieces of a chat whose template shows no images. An unguessable mark stands for each image in the text of its message. */
function piecesByMarks(
  model: string,
  messages: readonly MixedMessage[],
  images: readonly ImagePart[],
  options: ChatOptions,
): ChatPiece[] {
  const key = unguessable();
  let count = 0;
  const marked = messages.map(({ content, ...message }) => ({
    ...message,
    content:
      typeof content === 'string'
        ? content
        : content.map((part) => (isImage(part) ? `${key}y${count++}y\n` : part.text)).join(''),
  }));
  const byMark = new Map(images.map((image, i) => [`${key}y${i}y`, image]));
  const pieces = renderedPieces(model, marked, options, { pattern: `${key}y\\d+y`, marks: byMark });
  const shown = pieces.filter((piece) => 'type' in piece).length;
  if (shown === images.length) return pieces;
  throw new InferletError(
    'invalid-argument',
    `The chat template of ${model} shows ${shown} of ${images.length} images: put images into messages of the user.`,
  );
}

/** Texts to look for in a rendered chat, and what each of them stands for. */
interface Marks {
  /** A regular expression without groups. */
  readonly pattern: string;
  readonly marks: ReadonlyMap<string, ImagePart>;
}

const NO_MARKS: Marks = { pattern: '(?!)', marks: new Map() };

/**
 * Renders a chat and tokenizes it, cut at `images`. Special tokens inside messages and tools are replaced by unguessable marks before rendering, and
 * the text of each mark is tokenized separately. A chat without special tokens and images, the common case, is tokenized in one piece.
 */
function renderedPieces(
  model: string,
  messages: readonly RenderedMessage[],
  options: ChatOptions,
  images: Marks = NO_MARKS,
): ChatPiece[] {
  const { tools } = options;
  const special = specialTexts(model, [messages, tools]);
  if (special.length === 0 && images === NO_MARKS) {
    const text = attempt(() => wire.renderChat(model, chatVariables(model, messages, options)));
    return [tokenize(text, { model, special: true })];
  }
  const key = unguessable();
  const marks = new Map(special.map((text, i) => [text, `${key}x${i}x`]));
  const marked = <T>(value: T): T =>
    withTexts(value, (text) => special.reduce((all, one) => all.replaceAll(one, marks.get(one) ?? ''), text));
  const texts = new Map([...marks].map(([text, mark]) => [mark, text]));
  const variables = chatVariables(model, marked(messages), { ...options, ...(tools && { tools: marked(tools) }) });
  return attempt(() => wire.renderChat(model, variables))
    .split(new RegExp(`(${key}x\\d+x|${images.pattern})`))
    .map((piece, i) => {
      const image = images.marks.get(piece);
      if (image) return image;
      const text = texts.get(piece);
      const how = { model, special: text === undefined };
      return i === 0 ? tokenize(piece, how) : tokenizeContinuation(text ?? piece, how);
    });
}

const unguessable = (): string => Array.from({ length: 3 }, () => Math.random().toString(36).slice(2)).join('');

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

const formats = new Map<string, ThoughtFormat | undefined>();

/** How a model writes thoughts before its answers; undefined for a model that writes none, or whose thoughts cannot be told from its answers. */
export function thoughtFormat(name?: string): ThoughtFormat | undefined {
  const key = model(name).name;
  if (!formats.has(key)) formats.set(key, attempt(() => wire.thoughts(key)) ?? undefined);
  return formats.get(key);
}
