import type { ChatMessage } from '#gpu-host/models/chat-template.ts';
import type { CheckedFunction } from '#scheduler/functions/input-check.ts';

/** What a worker is asked. */
export type TextJob =
  | { readonly kind: 'tokenize'; readonly directory: string; readonly text: string; readonly special: boolean }
  /** Renders a model's chat template, to `maxCharacters` at most. */
  | {
      readonly kind: 'render';
      readonly directory: string;
      readonly conversation: Conversation;
      readonly maxCharacters: number;
    }
  /** Parses JSON text, and holds it against the input schema of a function when one is given. */
  | { readonly kind: 'check'; readonly text: string; readonly fn?: CheckedFunction | undefined }
  /** Loads the tokenizers of these models. */
  | { readonly kind: 'load'; readonly directories: readonly string[] };

/** What a template is applied to: messages, or the JSON text of all its variables. */
export type Conversation =
  | { readonly messages: readonly ChatMessage[]; readonly addGenerationPrompt: boolean }
  | { readonly variables: string };

/** What a job answers: tokens, a rendered chat, or nothing. */
export type TextValue = Uint32Array | string | undefined;
