import { Context, map, sendJson, specialTokens } from '@pie/inferlet';
import {
  type ChoiceOptions,
  choicesOf,
  finishOf,
  frameAround,
  generate,
  type PlacedLog,
  stopsOf,
  usageOf,
} from '../openai-shared/generate.ts';
import { completionLogprobs, type PromptLog, promptLogs, TokenTexts } from '../openai-shared/logprobs.ts';
import { prompting, RequestError, serve, stamp } from '../openai-shared/request.ts';
import type { SamplingInput } from '../openai-shared/sampling.ts';

/** The input that the schema in pie.json accepts. */
interface Input extends SamplingInput {
  readonly model: string;
  readonly prompt?: string | readonly string[] | readonly number[] | readonly (readonly number[])[];
  readonly max_tokens?: number;
  readonly n?: number;
  readonly best_of?: number;
  readonly echo?: boolean;
  readonly logprobs?: number;
  readonly stop?: string | readonly string[];
  readonly ignore_eos?: boolean;
  readonly return_token_ids?: boolean;
  readonly suffix?: string;
  readonly stream?: boolean;
  readonly stream_options?: { readonly include_usage?: boolean };
}

/** A choice in the API's form: the complete choice, or one piece of its stream. */
interface Choice {
  readonly text: string;
  readonly index: number;
  readonly logprobs: ReturnType<typeof completionLogprobs> | null;
  readonly finish_reason: 'stop' | 'length' | null;
  readonly token_ids?: readonly number[];
}

/** Streams choices while they are generated. */
interface Show {
  /** Sends a piece; does nothing when the client asked for no stream. */
  readonly send: (choice: Choice) => Promise<void>;
  /** Makes the message for a choice; undefined when the client asked for no stream. */
  readonly message: ((choice: Choice) => object) | undefined;
}

/** Maximum choices of all prompts together. */
const MAX_CHOICES = 1024;
/** The default of OpenAI's API. */
const DEFAULT_MAX_TOKENS = 16;

/** `POST /v1/completions`. */
export const run = serve(async (input: Input, invocation) => {
  const { model, n = 1, best_of = n, suffix, stream = false, stream_options } = input;
  if (suffix) throw new RequestError('No model here fills in the middle: leave `suffix` out.', 'suffix');
  if (best_of !== n)
    throw new RequestError('`best_of` must equal `n`: set both to the same value, or leave `best_of` out.', 'best_of');
  const head = { ...stamp('cmpl-', invocation, model), object: 'text_completion' };
  const includeUsage = stream_options?.include_usage === true;
  const message = (choice: Choice) => ({ ...head, choices: [choice], ...(includeUsage && { usage: null }) });
  const send = async (choice: Choice) => {
    if (stream) await sendJson(message(choice));
  };
  const show: Show = { send, message: stream ? message : undefined };
  const places = promptsOf(input.prompt ?? '');
  if (places.length * n > MAX_CHOICES)
    throw new RequestError(
      `\`n\` asks for ${places.length * n} choices in all, for each prompt ${n}; ${MAX_CHOICES} are allowed.`,
      'n',
    );
  const prompts = await map(places, ({ prompt, param }) => prepare(input, prompt, param));
  const answers = await Promise.all(prompts.map((prompt, i) => complete(input, prompt, i * n, show)));
  const sum = (of: 'prompt' | 'completion'): number => answers.reduce((total, { usage }) => total + usage[of], 0);
  const usage = usageOf({ prompt: sum('prompt'), completion: sum('completion') });
  if (!stream) return { ...head, choices: answers.flatMap(({ choices }) => choices), usage };
  if (includeUsage) await sendJson({ ...head, choices: [], usage });
  return null;
});

/** A prompt, ready for its choices. */
interface Prepared {
  readonly ctx: Context;
  /** Log entries of the echoed prompt. */
  readonly before: readonly PromptLog[];
}

/** Fills a context with the prompt of `param`, and scores the prompt when the request asks for it. */
async function prepare(
  { model, echo, logprobs }: Input,
  prompt: string | readonly number[],
  param: string,
): Promise<Prepared> {
  const ctx = new Context({ model });
  prompting(param, ctx, () => ctx.fill(prompt, { field: param }));
  if (!echo || logprobs === undefined) return { ctx, before: [] };
  const scored = await promptLogs(ctx, logprobs);
  // `fill` puts the begin-of-text token before a text; that token is not a part of the prompt.
  const isAdded = typeof prompt === 'string' && ctx.tokens[0] === specialTokens(ctx.model.name).bos;
  return { ctx, before: isAdded ? scored.slice(1) : scored };
}

/** Generates all choices of one prompt. The first choice has the index `firstIndex`. */
async function complete(input: Input, { ctx, before }: Prepared, firstIndex: number, show: Show) {
  const { model, n = 1, echo = false, logprobs, max_tokens: maxTokens = DEFAULT_MAX_TOKENS } = input;
  const { ignore_eos: ignoreEos = false, return_token_ids: returnsIds = false } = input;
  const promptTokens = ctx.length;
  const texts = logprobs === undefined ? undefined : new TokenTexts(model);
  const echoed = echo ? ctx.text : '';

  const choice = async (fork: Context, i: number): Promise<{ shown: Choice; tokens: number }> => {
    using _ = fork;
    const index = firstIndex + i;
    const reply = input.script?.[index];
    const { send, message } = show;
    const piece = (text: string): Choice => ({ text, index, logprobs: null, finish_reason: null });
    const options: ChoiceOptions = {
      sampling: input,
      choice: i,
      reply,
      stop: stopsOf(input.stop),
      topLogprobs: logprobs,
      frame: message && !texts ? frameAround((text) => message(piece(text))) : undefined,
    };
    const shownLogs = (logs: readonly PromptLog[]) => (texts ? completionLogprobs(texts, logs) : null);
    const afterEcho = (logs: readonly PlacedLog[]) => logs.map((log) => ({ ...log, at: echoed.length + log.at }));
    if (echo) await send({ text: echoed, index, logprobs: shownLogs(before), finish_reason: null });
    const generated = await generate(fork, options, { maxTokens, ignoreEos }, ({ text, logs }) =>
      send({ text, index, logprobs: shownLogs(afterEcho(logs)), finish_reason: null }),
    );
    const finish = finishOf(generated.reason);
    const ids = returnsIds ? { token_ids: generated.ids } : {};
    const ending = afterEcho(generated.ending);
    const last = ending.length > 0 ? shownLogs(ending) : null;
    await send({ text: '', index, logprobs: last, finish_reason: finish, ...ids });
    const logs = shownLogs([...before, ...afterEcho(generated.logs), ...ending]);
    return {
      shown: { text: echoed + generated.text, index, logprobs: logs, finish_reason: finish, ...ids },
      tokens: generated.tokens,
    };
  };

  const choices = await choicesOf(ctx, n, choice);
  const completion = choices.reduce((total, { tokens }) => total + tokens, 0);
  return { choices: choices.map(({ shown }) => shown), usage: { prompt: promptTokens, completion } };
}

/** The prompts of a request, each with its place in the request. */
function promptsOf(prompt: NonNullable<Input['prompt']>): { prompt: string | readonly number[]; param: string }[] {
  if (typeof prompt === 'string') return [{ prompt, param: 'prompt' }];
  if (typeof prompt[0] === 'number') return [{ prompt: prompt as readonly number[], param: 'prompt' }];
  return (prompt as readonly (string | number[])[]).map((each, i) => ({ prompt: each, param: `prompt[${i}]` }));
}
