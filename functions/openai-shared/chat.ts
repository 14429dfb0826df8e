import {
  type Constraint,
  Context,
  type Effort,
  type GenerateOptions,
  InferletError,
  jsonSchema,
  type MessageFrame,
  type MixedMessage,
  type PreparedChat,
  prepareChat,
  regex,
  type ThoughtFormat,
  thoughtFormat,
  tokenize,
} from '@pie/inferlet';
import {
  type ChoiceOptions,
  finishOf,
  type Generated,
  generate,
  isLimit,
  type Piece,
  type PlacedLog,
} from './generate.ts';
import { loadImages, type RequestMessage, refusedImage } from './images.ts';
import { callBeginnings } from './marker.ts';
import { prompting, RequestError } from './request.ts';
import { type SamplingInput, samplerOf } from './sampling.ts';
import {
  type CallConstraints,
  type CallFormat,
  callFormat,
  TEXT_PARAMETER,
  type Tool,
  type ToolChoice,
  textConstraint,
} from './tools.ts';

/** A conversation that the model answers. Requests of the chat API and of the responses API are both converted to this form. */
export interface Conversation {
  readonly model: string;
  readonly messages: readonly RequestMessage[];
  readonly tools: readonly Tool[];
  readonly toolChoice: ToolChoice;
  readonly calls: CallConstraints;
  readonly parallelCalls: boolean;
  /** Constrains the text of the answer, but not its calls. */
  readonly constraint: Constraint | undefined;
  readonly maxTokens: number | undefined;
  /** True to drop the oldest messages of a conversation that is too long for the model. */
  readonly truncates?: boolean;
  readonly templateVariables: Readonly<Record<string, unknown>> | undefined;
  readonly thinking?: ThoughtWish;
  /** True when the context holds the beginning of the answer, so that no thought precedes the answer. */
  readonly isBegun?: boolean;
}

/** How a model shall think before its answer. Without effect for a model that has no thoughts. */
export interface ThoughtWish {
  readonly effort?: Effort | undefined;
  /**
   * Maximum tokens of a thought. By default half of the answer's tokens if the text after the thought must fit a constraint, otherwise all of them.
   */
  readonly maxTokens?: number | undefined;
}

/** A part of an answer, as it is generated. */
export type Part =
  /** Text of the thought that precedes everything else. */
  | { readonly kind: 'thought'; readonly text: string }
  | ({ readonly kind: 'text' } & Piece)
  /** Text that the platform has already sent to the client, in messages made with `ChoiceOptions.frame`. */
  | { readonly kind: 'piped'; readonly text: string }
  | { readonly kind: 'call'; readonly index: number; readonly name: string; readonly isCustom: boolean }
  | { readonly kind: 'arguments'; readonly index: number; readonly text: string; readonly isCustom: boolean }
  /** The arguments of the call with this index are complete. */
  | { readonly kind: 'called'; readonly index: number };

export interface Call {
  readonly name: string;
  /** JSON, or the text for a custom tool. */
  readonly arguments: string;
  readonly isCustom: boolean;
}

export interface Answer {
  /** The model's thought before its answer; empty if there is none. */
  readonly thought: string;
  readonly text: string;
  readonly calls: readonly Call[];
  /** Log-probabilities of the tokens of `text`, if requested. */
  readonly logs: readonly PlacedLog[];
  readonly finish: 'stop' | 'length' | 'tool_calls';
  /** The stop string of the request that ended the answer. */
  readonly stopString: string | undefined;
  /** Number of tokens of the answer. Counts the template's text around calls, but no end token. Never above `Conversation.maxTokens`. */
  readonly tokens: number;
  /** Number of those tokens that are the thought with its marks. */
  readonly thoughtTokens: number;
}

/** Options of one answer. */
export interface AnswerOptions extends Omit<ChoiceOptions, 'frame' | 'reply'> {
  /** Called before text that the platform may send itself; returns the frame of its messages. Only without log-probabilities. */
  readonly frame?: (() => MessageFrame) | undefined;
}

/** Maximum tokens of the header of a message. */
const HEADER_TOKENS = 48;

/** Makes a context that holds the conversation, ready for the answer. @param param names the field of the request that an error refers to */
export async function begin(conversation: Conversation, param: string): Promise<Context> {
  const ctx = new Context({ model: conversation.model });
  try {
    const chat = await prepare(ctx, conversation, param);
    await chat.fill();
    return ctx;
  } catch (error) {
    ctx.release();
    throw refusedImage(error);
  }
}

/** Number of tokens that {@link begin} would make of the conversation, and then of the beginning of its answer. Computes nothing. */
export async function lengthOf(conversation: Conversation, prefill: string, param: string): Promise<number> {
  using ctx = new Context({ model: conversation.model });
  try {
    const { length, tail } = await prepare(ctx, conversation, param);
    if (prefill === '') return length;
    ctx.fill(tail);
    return length - tail.length + prompting(param, ctx, () => ctx.beginAnswer(prefill)).length;
  } catch (error) {
    throw refusedImage(error);
  }
}

async function prepare(ctx: Context, conversation: Conversation, param: string): Promise<PreparedChat> {
  const messages = await loadImages(conversation.model, conversation.messages);
  if (!conversation.truncates || messages.every(({ role }) => role === 'system'))
    return prepareWith(ctx, conversation, messages, param);
  const first = messages.findIndex(({ role }) => role !== 'system');
  // A shortened conversation begins with a user's message, as chat templates expect.
  const beginnings = [...messages.keys()].filter((i) => i > first && messages[i]?.role === 'user');
  const from = (i: number) => [...messages.slice(0, first), ...messages.slice(i === 0 ? first : beginnings[i - 1])];
  // Find the first beginning from which on the conversation fits: the later ones fit, too.
  let [low, high] = [0, beginnings.length];
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if (fits(ctx, conversation, from(middle), param)) high = middle;
    else low = middle + 1;
  }
  return prepareWith(ctx, conversation, from(low), param);
}

/** True when the model's context has room for the messages and for an answer. */
function fits(ctx: Context, conversation: Conversation, messages: readonly MixedMessage[], param: string): boolean {
  try {
    const { length } = prepareWith(ctx, conversation, messages, param);
    const answerTokens = Math.min(conversation.maxTokens ?? ANSWER_TOKENS, ctx.model.contextLength / 4);
    return length + answerTokens <= ctx.model.contextLength;
  } catch (error) {
    if (error instanceof RequestError && error.code === 'context_length_exceeded') return false;
    throw error;
  }
}

/** Room for an answer without `maxTokens` that a shortened conversation leaves. */
const ANSWER_TOKENS = 1024;

function prepareWith(
  ctx: Context,
  { tools, toolChoice, templateVariables: variables, thinking }: Conversation,
  messages: readonly MixedMessage[],
  param: string,
): PreparedChat {
  const effort = thinking?.effort;
  const offeredTools = toolChoice.mode === 'none' ? [] : tools;
  const specs = offeredTools.map(({ name, description, parameters }) => ({
    type: 'function',
    function: { name, description, parameters },
  }));
  const options = { tools: specs, variables, ...(effort && { effort }) };
  return prompting(param, ctx, () => prepareChat(ctx, messages, options));
}

/** Answers a conversation on a context of {@link begin}, or on a fork of it. */
export async function answer(
  ctx: Context,
  conversation: Conversation,
  options: AnswerOptions,
  emit: (part: Part) => Promise<void>,
): Promise<Answer> {
  return new Turn(ctx, conversation, options, emit).run();
}

/** The assistant's turn: a thought if the model has thoughts, then text, calls, or text followed by calls. */
class Turn {
  readonly #ctx: Context;
  readonly #conversation: Conversation;
  readonly #options: AnswerOptions;
  readonly #emit: (part: Part) => Promise<void>;
  /** Length of the context before the answer. */
  readonly #start: number;
  readonly #calls: Call[] = [];
  readonly #logs: PlacedLog[] = [];
  #thought = '';
  #thoughtTokens = 0;
  /** The template's text at the end of the context that opens an answer; empty in most templates. */
  #header = '';
  #headerTokens = 0;
  #text = '';
  #stopString: string | undefined;
  /** The replies of the script that no generation has used up. */
  readonly #replies: string[];
  /** Seed of all generations, if the request has one or the model may think. */
  #seed: number | undefined;

  constructor(ctx: Context, conversation: Conversation, options: AnswerOptions, emit: (part: Part) => Promise<void>) {
    this.#ctx = ctx;
    this.#conversation = conversation;
    this.#options = options;
    this.#emit = emit;
    this.#start = ctx.length;
    this.#replies = [...(options.sampling.script ?? [])];
    this.#seed = options.sampling.seed;
  }

  async run(): Promise<Answer> {
    const { model, toolChoice, constraint } = this.#conversation;
    const { mode, names } = toolChoice;
    const finish = await this.#think(constraint !== undefined || mode === 'required');
    if (finish) return this.#answer(finish);
    if (mode === 'required') {
      this.#removeHeader();
      return this.#answer(await this.#call(callFormat(model), names));
    }
    if (names.length === 0 || mode === 'none') {
      const { reason } = await this.#say({ constraint });
      return this.#answer(finishOf(reason));
    }
    const format = callFormat(model);
    if (this.#header !== '') return this.#answer(await this.#callOrSayByHeader(format, constraint));
    return this.#answer(await (constraint ? this.#callOrSay(format, constraint) : this.#sayAndCall(format)));
  }

  /**
   * Lets the model think. The thought has no constraint, the request's stop strings do not apply to it, and it gets no log-probabilities.
   *
   * @param isConstrained true if what follows must fit a constraint
   * @returns the finish reason if nothing can follow the thought
   */
  async #think(isConstrained: boolean): Promise<Answer['finish'] | undefined> {
    const format = thoughtFormat(this.#conversation.model);
    if (!format || this.#conversation.isBegun) return undefined;
    // A text that turns out to be no thought is generated again, with the same seed, so that it stays the same text.
    this.#seed ??= Math.floor(Math.random() * 2 ** 32);
    const { maxTokens } = this.#conversation;
    const limit = this.#thoughtLimit(format, isConstrained);
    const [reply, rest] = splitReply(this.#replies[0], format);
    // A thought that is ended at its beginning takes nothing of a reply.
    const afterThought = rest ?? (limit === 0 ? reply : undefined);
    const { choice, topLogprobs } = this.#options;
    // These log-probabilities are not reported. But a sampler that records them draws in another way, and must draw like that of the answer.
    const logs = topLogprobs === undefined ? undefined : [];
    const thinking = this.#ctx.think({
      maxTokens: limit,
      sampler: samplerOf(this.#sampling, { choice, reply, special: true }, logs, topLogprobs ?? 0),
    });
    try {
      for await (const text of thinking) await this.#emit({ kind: 'thought', text });
    } catch (error) {
      // The platform's limits have cut the thought off.
      if (!isLimit(error) || thinking.text === '') throw error;
      thinking.ending = 'context-length';
    }
    this.#header = thinking.header;
    this.#headerTokens = thinking.headerTokens;
    if (thinking.ending === 'none') {
      if (this.#header !== '' && reply?.startsWith(this.#header)) this.#replies[0] = reply.slice(this.#header.length);
      return undefined;
    }
    if (afterThought) this.#replies[0] = afterThought;
    else this.#replies.shift();
    this.#thought = thinking.text;
    const isOver = this.#usedTokens() > (maxTokens ?? Number.POSITIVE_INFINITY);
    // The template's end of the thought may go beyond the request's limit.
    if (isOver) this.#ctx.truncate(this.#start + (maxTokens ?? 0));
    // A model may end its turn without an answer. A constraint demands one.
    const goesOn = thinking.ending !== 'stop-token' || (isConstrained && this.#fillTemplate(format.close));
    this.#thoughtTokens = this.#usedTokens();
    if (isOver || thinking.ending === 'context-length') return 'length';
    if (goesOn) return undefined;
    return isConstrained ? 'length' : 'stop';
  }

  /** Maximum tokens of the thought. */
  #thoughtLimit({ toggles, efforts }: ThoughtFormat, isConstrained: boolean): number {
    const { maxTokens, thinking = {} } = this.#conversation;
    const room = this.#ctx.model.contextLength - this.#start;
    const most = Math.max(0, Math.min(maxTokens ?? room, room));
    // If the template has no switch, the platform itself ends a thought at its beginning.
    if (thinking.effort === 'none' && toggles.length === 0 && efforts.length === 0) return 0;
    return Math.min(most, thinking.maxTokens ?? (isConstrained ? Math.floor(most / 2) : most));
  }

  get #sampling(): SamplingInput {
    const { sampling } = this.#options;
    return this.#seed === undefined ? sampling : { ...sampling, seed: this.#seed };
  }

  /** Lets the model write text until it begins a call, then generates this call under a grammar. Repeats both if parallel calls are allowed. */
  async #sayAndCall(format: CallFormat): Promise<Answer['finish']> {
    const { toolChoice, parallelCalls } = this.#conversation;
    const { marker, markerToken } = format;
    const stops = markerToken === undefined ? { marker } : { stopTokens: [markerToken] };
    for (;;) {
      const from = this.#ctx.length;
      const said = await this.#say(stops);
      const beginsCall = said.stoppedBy === (markerToken ?? marker);
      if (!beginsCall) {
        return this.#calls.length > 0 && said.reason !== 'max-tokens' ? 'tool_calls' : finishOf(said.reason);
      }
      // Remove the beginning of a call that the model wrote: `#call` writes the template's own text. Keep the text before the call.
      this.#ctx.truncate(from);
      if (said.text.trim() !== '') this.#ctx.fill(said.text.trimEnd());
      const finish = await this.#call(format, toolChoice.names);
      if (finish !== 'tool_calls' || !parallelCalls) return finish;
    }
  }

  /**
   * Lets the model write its first characters without a constraint, only to see if they begin a call, and removes them. If they do, generates a call.
   * Otherwise generates a text under `constraint`. With parallel calls, repeats this after each call, until the characters begin no call.
   */
  async #callOrSay(format: CallFormat, constraint: Constraint): Promise<Answer['finish']> {
    const { toolChoice, parallelCalls } = this.#conversation;
    const { names } = toolChoice;
    const { markerToken } = format;
    const stop = markerToken === undefined ? callBeginnings(format, names) : [];
    const stopTokens = markerToken === undefined ? [] : [markerToken];
    const until: GenerateOptions['until'] = (_, { text }) => text.trim() !== '';
    for (;;) {
      const from = this.#ctx.length;
      const [scripted] = this.#replies;
      const { reason, stoppedBy } = await this.#silently({ stop, stopTokens, until });
      this.#ctx.truncate(from);
      const beginsCall = [...stop, ...stopTokens].some((each) => each === stoppedBy);
      if (!beginsCall && this.#calls.length > 0) return reason === 'max-tokens' ? 'length' : 'tool_calls';
      if (!beginsCall) {
        // The removed characters may have come from a scripted reply. That reply is the whole answer, so `#say` must use it again.
        if (scripted !== undefined) this.#replies.unshift(scripted);
        return finishOf((await this.#say({ constraint })).reason);
      }
      const finish = await this.#call(format, names);
      if (finish !== 'tool_calls' || !parallelCalls) return finish;
    }
  }

  /**
   * Lets the model write the header of its message, which names the function that it calls (harmony: `<|channel|>commentary to=functions.look`), and
   * removes it. Then generates this call, or a text.
   */
  async #callOrSayByHeader(format: CallFormat, constraint: Constraint | undefined): Promise<Answer['finish']> {
    const { model, toolChoice } = this.#conversation;
    const header = this.#header;
    this.#removeHeader();
    const from = this.#ctx.length;
    const stopTokens = tokenize(header, { model, special: true }).slice(-1);
    const [scripted] = this.#replies;
    const until: GenerateOptions['until'] = (_, { tokens }) => tokens.length >= HEADER_TOKENS;
    const { text } = await this.#silently({ stopTokens, until, special: true });
    this.#ctx.truncate(from);
    if (text.includes(format.marker)) return this.#call(format, toolChoice.names);
    if (scripted !== undefined)
      this.#replies.unshift(scripted.startsWith(header) ? scripted.slice(header.length) : scripted);
    if (!this.#fillTemplate(header)) return 'length';
    return finishOf((await this.#say({ constraint })).reason);
  }

  #removeHeader(): void {
    this.#ctx.truncate(this.#ctx.length - this.#headerTokens);
  }

  async #say(how: { constraint?: Constraint; marker?: string; stopTokens?: readonly number[] }): Promise<Generated> {
    // After a call, `blank` collects white space, which is emitted only when other text follows. It is undefined before the first call, and after
    // other text has followed.
    let blank: Piece | undefined = this.#calls.length > 0 ? { text: '', logs: [] } : undefined;
    const options = this.#nextOptions();
    // With a frame, the platform sends text to the client and would not hold white space back. So a text after a call has no frame.
    const frame = blank ? undefined : this.#options.frame?.();
    const generated = await generate(
      this.#ctx,
      { ...options, frame },
      { ...how, maxTokens: this.#remainingTokens() },
      async (piece) => {
        const withBlank = blank ? { text: blank.text + piece.text, logs: [...blank.logs, ...piece.logs] } : piece;
        blank = blank && withBlank.text.trim() === '' ? withBlank : undefined;
        if (blank) return;
        this.#text += withBlank.text;
        this.#logs.push(...withBlank.logs);
        await this.#emit({ kind: 'text', ...withBlank });
      },
    );
    if (frame && generated.text !== '') {
      this.#text += generated.text;
      await this.#emit({ kind: 'piped', text: generated.text });
    }
    this.#stopString = options.stop.find((stop) => stop === generated.stoppedBy);
    return generated;
  }

  /** Generates one call: the template's text around the call, one of the function names `names`, and arguments that fit the function's schema. */
  async #call({ open, middle, close }: CallFormat, names: readonly string[]): Promise<Answer['finish']> {
    const { model, tools, calls } = this.#conversation;
    const index = this.#calls.length;
    let [name = ''] = names;
    if (!this.#fillTemplate(names.length === 1 ? open + name + middle : open)) return 'length';
    if (names.length > 1) {
      // The pattern includes the character after the name. Without it, a name that is the beginning of a longer name could end the pattern early.
      const afterName = middle.slice(0, 1);
      const pattern = `(${names.map(escaped).join('|')})${escaped(afterName)}`;
      const chosen = await this.#silently({ constraint: regex(pattern) });
      if (finishOf(chosen.reason) === 'length') return 'length';
      name = chosen.text.slice(0, chosen.text.length - afterName.length);
      if (!this.#fillTemplate(middle.slice(afterName.length))) return 'length';
    }
    const tool = tools.find((candidate) => candidate.name === name);
    if (!tool) throw new RequestError(`The model called "${name}", which is not a tool.`, 'tools');
    const isCustom = tool.text !== undefined;
    const textOnly = await textConstraint(model, tool);
    const constraint = textOnly ?? calls.byName.get(name) ?? jsonSchema({ type: 'object' });
    await this.#emit({ kind: 'call', index, name, isCustom });
    const emit = (text: string) => this.#emit({ kind: 'arguments', index, text, isCustom });
    const args = textOnly
      ? await this.#customText(textOnly, emit)
      : isCustom
        ? await this.#customJson(constraint, emit)
        : await this.#silently({ constraint }, emit);
    this.#calls.push({ name, arguments: args.text, isCustom });
    if (finishOf(args.reason) === 'length') return 'length';
    await this.#emit({ kind: 'called', index });
    return this.#fillTemplate(close) ? 'tool_calls' : 'length';
  }

  /** Generates the arguments of a custom tool that takes any text: JSON with one string. Emits and returns this string. */
  async #customJson(
    constraint: Constraint,
    emit: (text: string) => Promise<void>,
  ): Promise<Pick<Generated, 'text' | 'reason'>> {
    let written = '';
    let shown = '';
    const { reason } = await this.#silently({ constraint }, async (piece) => {
      written += piece;
      const text = stringIn(written);
      if (text.length > shown.length) await emit(text.slice(shown.length));
      shown = text;
    });
    return { text: shown, reason };
  }

  /**
   * Generates the text of a custom tool under its grammar. The grammar describes the text itself, so the model writes it without JSON's escapes; the
   * context then gets the JSON in which a template shows the text.
   */
  async #customText(
    constraint: Constraint,
    emit: (text: string) => Promise<void>,
  ): Promise<Pick<Generated, 'text' | 'reason'>> {
    const from = this.#ctx.length;
    if (!this.#fillTemplate(`{"${TEXT_PARAMETER}": "`)) return { text: '', reason: 'max-tokens' };
    const { text, reason } = await this.#silently({ constraint }, emit);
    this.#ctx.truncate(from);
    const isWhole = this.#fillTemplate(JSON.stringify({ [TEXT_PARAMETER]: text }), { special: false });
    return { text, reason: isWhole ? reason : 'max-tokens' };
  }

  /** Adds text of the template to the context. @returns false when the context or the request's limit has no room for the text */
  #fillTemplate(text: string, { special = true } = {}): boolean {
    const before = this.#ctx.length;
    try {
      this.#ctx.fill(text, { special });
    } catch (error) {
      if (error instanceof InferletError && error.code === 'context-overflow') return false;
      throw error;
    }
    if (this.#usedTokens() <= (this.#conversation.maxTokens ?? Number.POSITIVE_INFINITY)) return true;
    this.#ctx.truncate(before);
    return false;
  }

  /** Generates text that does not belong to `Answer.text`. The request's stop strings do not apply, and no log-probabilities are recorded. */
  async #silently(
    {
      stop = [],
      special,
      ...how
    }: Pick<GenerateOptions, 'constraint' | 'stopTokens' | 'until'> & { stop?: readonly string[]; special?: boolean },
    emit: (text: string) => Promise<void> = async () => {},
  ): Promise<Generated> {
    const options = { ...this.#nextOptions(), stop, special, topLogprobs: undefined };
    return generate(this.#ctx, options, { ...how, maxTokens: this.#remainingTokens() }, ({ text }) => emit(text));
  }

  /** Options of the next generation. Takes the next reply of the script, which has one reply for each generation. */
  #nextOptions(): ChoiceOptions {
    return { ...this.#options, sampling: this.#sampling, reply: this.#replies.shift(), frame: undefined };
  }

  #remainingTokens(): number | undefined {
    const { maxTokens } = this.#conversation;
    return maxTokens === undefined ? undefined : Math.max(0, maxTokens - this.#usedTokens());
  }

  #usedTokens(): number {
    return this.#ctx.length - this.#start;
  }

  #answer(finish: Answer['finish']): Answer {
    return {
      thought: this.#thought,
      text: this.#text,
      calls: this.#calls,
      logs: this.#logs,
      finish,
      stopString: this.#stopString,
      tokens: this.#usedTokens(),
      thoughtTokens: this.#thoughtTokens,
    };
  }
}

/** A scripted reply up to the end of a thought, and what follows it without the template's text between both; undefined if nothing follows. */
function splitReply(reply: string | undefined, format: ThoughtFormat): [string | undefined, string | undefined] {
  const { close, end } = format;
  const at = reply?.indexOf(end) ?? -1;
  if (reply === undefined || at < 0) return [reply, undefined];
  const thought = reply.slice(0, at + end.length);
  let rest = reply.slice(thought.length).trimStart();
  // The reply may have a header of its own in place of the template's.
  for (const tag of close
    .trim()
    .slice(end.length)
    .match(/<[^<>]+>[^<>]*/g) ?? [])
    if (rest.startsWith(tag)) rest = rest.slice(tag.length);
  rest = rest.trimStart();
  return [thought, rest === '' ? undefined : rest];
}

/** The beginning of a custom tool's text, in the beginning of its JSON: without an escape or a character that is not complete. */
export function stringIn(json: string): string {
  const [, body = ''] = STRING_BODY.exec(json) ?? [];
  const text = JSON.parse(`"${body}"`) as string;
  return /[\ud800-\udbff]$/.test(text) ? text.slice(0, -1) : text;
}

const STRING_BODY = /^\s*\{\s*"\w+"\s*:\s*"((?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*)/;

/** A regular expression that matches exactly this text. */
const escaped = (text: string): string => text.replaceAll(/[^\w]/g, (character) => `\\${character}`);
