import type { EncoderShape } from '#gpu-host/models/encoder/tokenizer.ts';
import { err, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { CheckedFunction } from '#scheduler/functions/input-check.ts';
import { jsonValue } from '#scheduler/functions/schema/json-value.ts';
import type { ChatMessage } from '#wit/generated/host.ts';

/** A job for a worker. */
export type TextJob =
  /** Tokenizes a text. `special` is true to recognise special tokens that are written in the text. */
  | { readonly kind: 'tokenize'; readonly directory: string; readonly text: string; readonly special: boolean }
  /** Renders a model's chat template to at most `maxCharacters`. */
  | {
      readonly kind: 'render';
      readonly directory: string;
      readonly conversation: Conversation;
      readonly maxCharacters: number;
    }
  /** Converts texts, or a query with each of its documents, to the inputs of an encoder. */
  | {
      readonly kind: 'encode';
      readonly directory: string;
      readonly shape: EncoderShape;
      readonly texts: readonly string[];
      readonly query?: string | undefined;
    }
  /** Parses JSON text, and checks the value against the input schema of `fn`, if `fn` is present. */
  | { readonly kind: 'check'; readonly text: string; readonly fn?: CheckedFunction | undefined }
  /** Loads the tokenizers of these models. */
  | { readonly kind: 'load'; readonly directories: readonly string[] };

/** Input of a chat template: messages, or the JSON text of all its variables. */
export type Conversation =
  | { readonly messages: readonly ChatMessage[]; readonly addGenerationPrompt: boolean }
  | { readonly variables: string };

/** Inputs of an encoder, as `encode` of the GPU host takes them. `cut` is the number of texts that were too long and were cut. */
export interface EncodedTexts {
  readonly tokens: Uint32Array;
  readonly lengths: Uint32Array;
  readonly firsts: Uint32Array;
  readonly cut: number;
}

/** Result of a job: tokens, inputs of an encoder, a rendered chat, or nothing. */
export type TextValue = Uint32Array | EncodedTexts | string | undefined;

/** Parses JSON text. For any other text, returns `invalid-argument` with the parser's message. */
export function parseJson(text: string): Outcome<unknown> {
  try {
    return ok(jsonValue(text));
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return err(handlerError('invalid-argument', `the text is not JSON: ${reason}`));
  }
}
