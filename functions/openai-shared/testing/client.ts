import OpenAI from 'openai';
import { deployFunction, functionsPlatform } from '#test/harness/functions.ts';

/** The official client on the platform that the tests of `functions/` share. */
export async function openAiClient(): Promise<OpenAI> {
  const platform = await functionsPlatform();
  await Promise.all(['openai-completions', 'openai-chat', 'openai-responses'].map(deployFunction));
  return new OpenAI({ baseURL: `${platform.url}/v1`, apiKey: platform.apiKey, maxRetries: 0 });
}

/** Keys of `logit_bias` that are not token ids, although `Number` would convert some of them to one. */
export const NOT_TOKENS = ['', ' 1', '1 ', '01', '+1', '-1', '-0', '1.5', '1.0', '1e2', '0x1', '1\n', '١'];
