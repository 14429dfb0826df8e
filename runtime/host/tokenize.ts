import { z } from 'zod';
import type { Tokenizer } from '#gpu-host/models/tokenizer.ts';
import { err, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { ChatMessage } from '#wit/generated/host.ts';
import { attempt, detokenizing, noTokenizer, notGranted } from './detokenize.ts';
import type { GrantedModel, Inferlet } from './inferlet.ts';

/** Everybody's calls wait while one is answered: what one of them may name takes some tens of milliseconds. */
export const MAX_TEXT_CHARACTERS = 32_768;
/** Characters of a conversation for each token of the model's context, and at least. */
const CHARACTERS_PER_TOKEN = 16;
const MIN_CHAT_CHARACTERS = 65_536;
/** What is in a message counts as two values. */
const MAX_MESSAGES = 8192;

/** `wit/tokenize.wit`. */
export const tokenize = {
  tokenize: (inferlet: Inferlet, model: string, text: string, special: boolean): Outcome<Uint32Array> =>
    withTokenizer(inferlet, model, (tokenizer) =>
      text.length > MAX_TEXT_CHARACTERS
        ? tooLong('text', text.length, MAX_TEXT_CHARACTERS, 'cut it at the end of a line')
        : ok(tokenizer.encode(text, { special })),
    ),

  'chat-template': (
    inferlet: Inferlet,
    model: string,
    messages: readonly ChatMessage[],
    addGenerationPrompt: boolean,
  ): Outcome<string> =>
    withTokenizer(inferlet, model, (tokenizer, granted) => {
      if (tokenizer.chatTemplate === null)
        return err(
          handlerError(
            'unsupported',
            `${model} has no chat template, so it cannot chat; take a model that has one, or continue plain text`,
          ),
        );
      if (messages.length > MAX_MESSAGES) {
        const text = `the conversation has ${messages.length} messages; ${MAX_MESSAGES} is the limit of one call`;
        return err(handlerError('limit-exceeded', text));
      }
      const limit = chatLimit(granted);
      const characters = messages.reduce((sum, { role, content }) => sum + role.length + content.length, 0);
      if (characters > limit) return tooLong('conversation', characters, limit);
      return bounded(tokenizer.applyChatTemplate(messages, addGenerationPrompt), limit);
    }),

  'render-chat': (inferlet: Inferlet, model: string, variables: string): Outcome<string> =>
    withTokenizer(inferlet, model, (tokenizer, granted) => {
      if (tokenizer.chatTemplate === null)
        return err(
          handlerError(
            'unsupported',
            `${model} has no chat template, so it cannot chat; take a model that has one, or continue plain text`,
          ),
        );
      const limit = chatLimit(granted);
      if (variables.length > limit) return tooLong('variables', variables.length, limit);
      return bounded(tokenizer.renderChat(parseVariables(variables)), limit);
    }),

  ...detokenizing<Inferlet>((inferlet, model) => withTokenizer(inferlet, model, (tokenizer) => ok(tokenizer))),
};

/** Characters that one call may render, or be given to render. */
const chatLimit = ({ summary }: GrantedModel): number =>
  Math.max(MIN_CHAT_CHARACTERS, summary.contextLength * CHARACTERS_PER_TOKEN);

const bounded = (rendered: string, limit: number): Outcome<string> =>
  rendered.length > limit ? tooLong('rendered chat', rendered.length, limit) : ok(rendered);

const variablesSchema = z.record(z.string(), z.unknown());

/** Throws with words for the inferlet. */
function parseVariables(text: string): Record<string, unknown> {
  const parsed = variablesSchema.safeParse(JSON.parse(text));
  if (!parsed.success) throw new TypeError('the variables of a chat template are a JSON object');
  return parsed.data;
}

function withTokenizer<T>(
  inferlet: Inferlet,
  model: string,
  call: (tokenizer: Tokenizer, granted: GrantedModel) => Outcome<T>,
): Outcome<T> {
  const granted = inferlet.description.models.get(model);
  if (!granted) return notGranted(model);
  const { tokenizer } = granted;
  if (!tokenizer) return noTokenizer(model);
  return attempt(() => call(tokenizer, granted));
}

const tooLong = (what: string, length: number, limit: number, advice = 'send less'): Outcome<never> =>
  err(
    handlerError(
      'limit-exceeded',
      `the ${what} has ${length} characters; ${limit} is the limit of one call, ${advice}`,
    ),
  );
