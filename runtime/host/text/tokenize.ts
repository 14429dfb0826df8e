import { thoughtsOf } from '#gpu-host/models/thoughts.ts';
import { err, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { ChatMessage, ThoughtFormat } from '#wit/generated/host.ts';
import type { TextModel } from '../../texts/service.ts';
import type { GrantedModel } from '../device/granted.ts';
import type { Inferlet } from '../session/inferlet.ts';
import { detokenizing, noTokenizer, notGranted } from './detokenize.ts';

/** An answer at once, or the answer of a worker, for which the guest waits suspended. */
type Answer<T> = Outcome<T> | Promise<Outcome<T>>;

/**
 * A text of this length takes a worker 30 to 600 ms. The guest library cuts texts of more than 32,768 characters where it can, so that only a word
 * of such a length takes so long.
 */
export const MAX_TEXT_CHARACTERS = 131_072;
/** Characters of a conversation that one token of the model's context allows. */
const CHARACTERS_PER_TOKEN = 16;
/** Characters that every model allows in a conversation, however short its context. */
const MIN_CHAT_CHARACTERS = 65_536;
/** Maximum messages of one call. */
const MAX_MESSAGES = 8192;

/** Implements `wit/tokenize.wit`. Work whose length a guest controls runs in workers. */
export const tokenize = {
  tokenize: (inferlet: Inferlet, model: string, text: string, special: boolean): Answer<Uint32Array> =>
    withTokenizer(inferlet, model, (textModel) =>
      text.length > MAX_TEXT_CHARACTERS
        ? tooLong('text', text.length, MAX_TEXT_CHARACTERS, 'cut it at the end of a line')
        : inferlet.services.texts.tokenize(inferlet.textUser, textModel, text, special),
    ),

  'chat-template': (
    inferlet: Inferlet,
    model: string,
    messages: readonly ChatMessage[],
    addGenerationPrompt: boolean,
  ): Answer<string> =>
    withTemplate(inferlet, model, (textModel, limit) => {
      if (messages.length > MAX_MESSAGES) {
        const text = `the conversation has ${messages.length} messages; ${MAX_MESSAGES} is the limit of one call`;
        return err(handlerError('limit-exceeded', text));
      }
      const characters = messages.reduce((sum, { role, content }) => sum + role.length + content.length, 0);
      if (characters > limit) return tooLong('conversation', characters, limit);
      const conversation = { messages, addGenerationPrompt };
      return inferlet.services.texts.render(inferlet.textUser, textModel, conversation, limit);
    }),

  'render-chat': (inferlet: Inferlet, model: string, variables: string): Answer<string> =>
    withTemplate(inferlet, model, (textModel, limit) =>
      variables.length > limit
        ? tooLong('conversation', variables.length, limit)
        : inferlet.services.texts.render(inferlet.textUser, textModel, { variables }, limit),
    ),

  thoughts: ({ description }: Inferlet, model: string): Outcome<ThoughtFormat | undefined> => {
    const granted = description.models.get(model);
    if (!granted) return notGranted(model);
    const { tokenizer, summary } = granted;
    if (!tokenizer) return noTokenizer(model);
    const thoughts = thoughtsOf(tokenizer, summary.thoughts);
    return ok(thoughts === null ? undefined : { ...thoughts, field: thoughts.field ?? undefined });
  },

  ...detokenizing<Inferlet>(({ description }, model) => {
    const granted = description.models.get(model);
    if (!granted) return notGranted(model);
    return granted.tokenizer ? ok(granted.tokenizer) : noTokenizer(model);
  }),
};

/** Maximum characters of one call's input, and of its rendered text. */
const chatLimit = ({ summary }: GrantedModel): number =>
  Math.max(MIN_CHAT_CHARACTERS, summary.contextLength * CHARACTERS_PER_TOKEN);

/** Runs `call` if the model has a chat template; passes the maximum characters of the call's input, and of its rendered text. */
const withTemplate = (
  inferlet: Inferlet,
  model: string,
  call: (model: TextModel, maxCharacters: number) => Answer<string>,
): Answer<string> =>
  withTokenizer(inferlet, model, (textModel, granted) => {
    if (textModel.tokenizer.chatTemplate !== null) return call(textModel, chatLimit(granted));
    const text = `${model} has no chat template, so it cannot chat; take a model that has one, or continue plain text`;
    return err(handlerError('unsupported', text));
  });

function withTokenizer<T>(
  inferlet: Inferlet,
  model: string,
  call: (model: TextModel, granted: GrantedModel) => Answer<T>,
): Answer<T> {
  const granted = inferlet.description.models.get(model);
  if (!granted) return notGranted(model);
  const { tokenizer, summary } = granted;
  return tokenizer ? call({ tokenizer, directory: summary.directory }, granted) : noTokenizer(model);
}

const tooLong = (what: string, length: number, limit: number, advice = 'send less'): Outcome<never> =>
  err(
    handlerError(
      'limit-exceeded',
      `the ${what} has ${length} characters; ${limit} is the limit of one call, ${advice}`,
    ),
  );
