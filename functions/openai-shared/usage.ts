import { attempt, runtime } from '@pie/inferlet/raw';

/** Tokens of a request: the tokens of its prompts and the generated tokens, calls and their frames included. */
export interface Usage {
  readonly prompt: number;
  readonly completion: number;
  /** The generated tokens that are thoughts with their marks. */
  readonly reasoning?: number;
}

/** `usage` of the chat and completions APIs. */
export const usageOf = ({ prompt, completion, reasoning }: Usage) => ({
  prompt_tokens: prompt,
  completion_tokens: completion,
  total_tokens: prompt + completion,
  prompt_tokens_details: { cached_tokens: Math.min(prompt, cachedTokens()) },
  ...(reasoning !== undefined && { completion_tokens_details: { reasoning_tokens: reasoning } }),
});

/** Tokens of this invocation that the platform's prefix cache supplied. */
export function cachedTokens(): number {
  const { cachedTokens } = JSON.parse(attempt(() => runtime.debugQuery('usage'))) as { cachedTokens: number };
  return cachedTokens;
}
