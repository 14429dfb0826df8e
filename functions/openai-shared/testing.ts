import OpenAI from 'openai';
import { deployFunction, functionsPlatform } from '#test/harness/functions.ts';

/** The official client on the platform that the tests of `functions/` share. */
export async function openAiClient(): Promise<OpenAI> {
  const platform = await functionsPlatform();
  await Promise.all(['openai-completions', 'openai-chat', 'openai-responses'].map(deployFunction));
  return new OpenAI({ baseURL: `${platform.url}/v1`, apiKey: platform.apiKey, maxRetries: 0 });
}
