/**
 * The layer below: the WIT interfaces as they are, typed, and the two functions that turn their ways of failing into an
 * {@link InferletError}. Import it as `@pie/inferlet/raw`.
 *
 * @example
 * import { allocate, fused, Queue, settle } from '@pie/inferlet/raw';
 * const queue = new Queue('stories15m');
 * const pages = allocate.allocatePages(queue, 1);
 * const request = { tokens: [1], positions: [0], inPages: [], outPages: pages, rows: 1, output: { tag: 'distributions', val: 5 } } as const;
 * const { distributions } = await settle(fused.step(queue, request));
 */
import * as adapter from 'pie:inferlet/adapter@0.1.0';
import * as allocate from 'pie:inferlet/allocate@0.1.0';
import * as children from 'pie:inferlet/children@0.1.0';
import * as fileExchange from 'pie:inferlet/file-exchange@0.1.0';
import * as forward from 'pie:inferlet/forward@0.1.0';
import * as fused from 'pie:inferlet/fused@0.1.0';
import * as grammar from 'pie:inferlet/grammar@0.1.0';
import * as http from 'pie:inferlet/http@0.1.0';
import * as inputImage from 'pie:inferlet/input-image@0.1.0';
import * as inputText from 'pie:inferlet/input-text@0.1.0';
import * as introspect from 'pie:inferlet/introspect@0.1.0';
import * as kvFiles from 'pie:inferlet/kv-files@0.1.0';
import * as messaging from 'pie:inferlet/messaging@0.1.0';
import * as outputText from 'pie:inferlet/output-text@0.1.0';
import * as runtime from 'pie:inferlet/runtime@0.1.0';
import * as session from 'pie:inferlet/session@0.1.0';
import * as store from 'pie:inferlet/store@0.1.0';
import * as tokenize from 'pie:inferlet/tokenize@0.1.0';
import type { Future, Outcome } from 'pie:inferlet/types@0.1.0';
import { InferletError } from './errors.ts';

export { Child } from 'pie:inferlet/children@0.1.0';
export { Run } from 'pie:inferlet/fused@0.1.0';
export { Compiled, Matcher } from 'pie:inferlet/grammar@0.1.0';
export { Exchange } from 'pie:inferlet/http@0.1.0';
export { File } from 'pie:inferlet/kv-files@0.1.0';
export { Subscription } from 'pie:inferlet/messaging@0.1.0';
export { Queue } from 'pie:inferlet/queue@0.1.0';
export { Detokenizer } from 'pie:inferlet/tokenize@0.1.0';
export { InferletError, type InferletErrorCode } from './errors.ts';
// Not `export * as`: bundlers leave out what is not used of these, and with it the interface from the component.
export {
  adapter,
  allocate,
  children,
  fileExchange,
  forward,
  fused,
  grammar,
  http,
  inputImage,
  inputText,
  introspect,
  kvFiles,
  messaging,
  outputText,
  runtime,
  session,
  store,
  tokenize,
};

/** The value of a waiting call; throws {@link InferletError} when it failed. */
export async function settle<T>(future: Future<Outcome<T>>): Promise<T> {
  const outcome = await future.read();
  // Nothing else gives its handle back before the inferlet ends.
  future.drop();
  if (outcome.tag === 'err') throw InferletError.of(outcome.val);
  return outcome.val;
}

/** The value of a call that is answered at once; throws {@link InferletError} when it failed. */
export function attempt<T>(call: () => T): T {
  try {
    return call();
  } catch (thrown) {
    throw InferletError.from(thrown);
  }
}
