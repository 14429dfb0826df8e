import assert from 'node:assert/strict';
import { type CallResult, callFunction, ENCODER, RANKER } from '#test/harness/functions.ts';

/** A document with more passages than an answer uses. */
export const DOCUMENT = [
  'Lily has a cat. The cat sleeps on the soft sofa all day and never goes out.',
  'Tom has a dog. The dog swims in the lake every morning with the ducks.',
  'Mom baked a big cake with sweet apples. The whole house smelled good.',
  'The fast train goes to the city. It takes two hours to get there.',
  'A doctor helps people who are sick. She lives near the old bridge.',
  'It rained all night. The street is wet and the children stay at home.',
].join(' ');

export const ENCODERS = { encoder: ENCODER, ranker: RANKER };

/** Invokes an application with all passes and with none, and asserts that the outputs are equal. @returns the output */
export async function samePasses(name: string, input: object): Promise<CallResult['output']> {
  const { output } = await callFunction(name, input);
  const { output: plain } = await callFunction(name, { ...input, passes: [] });
  assert.deepEqual(output, plain);
  return output;
}
