import type { ChatMessage } from '#gpu-host/models/chat-template.ts';
import type { CheckedFunction } from '#scheduler/functions/input-check.ts';

/** A job for a worker. */
export type TextJob =
  | { readonly kind: 'tokenize'; readonly directory: string; readonly text: string; readonly special: boolean }
  /** Renders a model's chat template, at most `maxCharacters` long. */
  | {
      readonly kind: 'render';
      readonly directory: string;
      readonly conversation: Conversation;
      readonly maxCharacters: number;
    }
  /** Parses JSON text, and checks it against the input schema of `fn`, if given. */
  | { readonly kind: 'check'; readonly text: string; readonly fn?: CheckedFunction | undefined }
  /** Loads the tokenizers of these models. */
  | { readonly kind: 'load'; readonly directories: readonly string[] };

/** Input of a chat template: messages, or the JSON text of all its variables. */
export type Conversation =
  | { readonly messages: readonly ChatMessage[]; readonly addGenerationPrompt: boolean }
  | { readonly variables: string };

/** Result of a job: tokens, a rendered chat, or nothing. */
export type TextValue = Uint32Array | string | undefined;
