import { Template } from '@huggingface/jinja';
import { z } from 'zod';
import { causeText, ModelError } from './errors.ts';

/** One turn of a conversation. */
export interface ChatMessage {
  /** `system`, `user`, `assistant` or `tool`. */
  readonly role: string;
  readonly content: string;
}

const namedTemplates = z.array(z.looseObject({ name: z.string(), template: z.string() }));

/** The template of a `chat_template` field: a text, or a list in which the one named `default` is meant. */
export function pickChatTemplate(field: unknown): string | null {
  if (typeof field === 'string') return field;
  const named = namedTemplates.safeParse(field);
  if (!named.success) return null;
  return (named.data.find(({ name }) => name === 'default') ?? named.data[0])?.template ?? null;
}

/**
 * A renderer for a Jinja chat template as Hugging Face models carry it.
 *
 * @param specialTokens `bos_token`, `eos_token`, … as the template may name them
 * @throws ModelError `malformed-tokenizer` when the template does not parse; rendering throws `invalid-messages` with the template's own
 * words when it refuses the messages
 */
export function compileChatTemplate(
  source: string,
  specialTokens: Readonly<Record<string, string>>,
): (messages: readonly ChatMessage[], addGenerationPrompt: boolean) => string {
  let template: Template;
  try {
    template = new Template(source);
  } catch (cause) {
    throw new ModelError('malformed-tokenizer', `the chat template does not parse: ${causeText(cause)}`, { cause });
  }
  return (messages, addGenerationPrompt) => {
    try {
      return template.render({
        ...specialTokens,
        messages: messages.map(({ role, content }) => ({ role, content })),
        add_generation_prompt: addGenerationPrompt,
        tools: null,
        documents: null,
      });
    } catch (cause) {
      throw new ModelError('invalid-messages', `the chat template refused the messages: ${causeText(cause)}`, {
        cause,
      });
    }
  };
}
