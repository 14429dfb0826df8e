import * as wireAdapter from 'pie:inferlet/adapter@0.1.0';
import * as wireAllocate from 'pie:inferlet/allocate@0.1.0';
import * as wireChildren from 'pie:inferlet/children@0.1.0';
import * as wireEmbedding from 'pie:inferlet/embedding@0.1.0';
import * as wireEnvironment from 'pie:inferlet/environment@0.1.0';
import * as wireFileExchange from 'pie:inferlet/file-exchange@0.1.0';
import * as forward from 'pie:inferlet/forward@0.1.0';
import * as fused from 'pie:inferlet/fused@0.1.0';
import * as wireGrammar from 'pie:inferlet/grammar@0.1.0';
import * as wireHttp from 'pie:inferlet/http@0.1.0';
import * as wireIndex from 'pie:inferlet/index@0.1.0';
import * as inputImage from 'pie:inferlet/input-image@0.1.0';
import * as inputText from 'pie:inferlet/input-text@0.1.0';
import * as introspect from 'pie:inferlet/introspect@0.1.0';
import * as wireKvFiles from 'pie:inferlet/kv-files@0.1.0';
import * as wireMessaging from 'pie:inferlet/messaging@0.1.0';
import * as outputText from 'pie:inferlet/output-text@0.1.0';
import * as penalties from 'pie:inferlet/penalties@0.1.0';
import * as wirePerson from 'pie:inferlet/person@0.1.0';
import { Queue as WireQueue } from 'pie:inferlet/queue@0.1.0';
import * as wireRerank from 'pie:inferlet/rerank@0.1.0';
import * as wireRuntime from 'pie:inferlet/runtime@0.1.0';
import * as wireSession from 'pie:inferlet/session@0.1.0';
import * as wireStore from 'pie:inferlet/store@0.1.0';
import * as wireTokenize from 'pie:inferlet/tokenize@0.1.0';
import type { Future, Outcome } from 'pie:inferlet/types@0.1.0';
import { type AbortSignalLike, abortError, throwIfAborted } from './abort.ts';
import { InferletError } from './errors.ts';

/**
 * Wraps a host interface, or a resource of one, so that its calls take any JavaScript string. A client's input may hold a lone surrogate,
 * which WIT strings cannot represent: the engine would end the inferlet. The wrapper replaces lone surrogates by U+FFFD, as the web does
 * when it encodes UTF-8.
 */
function wellFormed<T extends object>(host: T): T {
  if (typeof host === 'function') return wrapped(host as unknown as Callable) as unknown as T;
  const calls = Object.entries(host).map(([name, value]) => [
    name,
    typeof value === 'function' ? wrapped(value as Callable) : value,
  ]);
  return Object.fromEntries(calls) as T;
}

type Callable = ((...args: unknown[]) => unknown) & { readonly prototype?: object };

const wrappers = new WeakMap<Callable, Callable>();

/** Wraps each function once, so that a resource's class is identical wherever code names it. */
function wrapped(call: Callable): Callable {
  let wrapper = wrappers.get(call);
  if (!wrapper) {
    wrapper = new Proxy(call, {
      apply: (target, self, args) => Reflect.apply(target, self, args.map(repaired)),
      construct: (target, args) => Reflect.construct(target, args.map(repaired)) as object,
    });
    wrappers.set(call, wrapper);
    if (call.prototype) wrapMethods(call.prototype);
  }
  return wrapper;
}

/** Replaces the methods of a resource on its own prototype: the engine makes instances of the original class, too. */
function wrapMethods(prototype: object): void {
  for (const [name, { value, writable }] of Object.entries(Object.getOwnPropertyDescriptors(prototype))) {
    if (name === 'constructor' || typeof value !== 'function' || !writable) continue;
    Object.defineProperty(prototype, name, {
      value(this: unknown, ...args: unknown[]): unknown {
        return Reflect.apply(value as Callable, this, args.map(repaired));
      },
      configurable: true,
      writable: true,
    });
  }
}

/**
 * A copy of the value with lone surrogates replaced. A list of numbers passes unchanged, because it has no text. So does a resource, because it
 * must stay the same object.
 */
function repaired(value: unknown): unknown {
  if (typeof value === 'string') return value.toWellFormed();
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return typeof value[0] === 'number' ? value : value.map(repaired);
  if (Object.getPrototypeOf(value) !== Object.prototype) return value;
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, repaired(member)]));
}

/**
 * The layer below this library: the typed WIT interfaces, and the two functions that turn their failures into an {@link InferletError}.
 * Import it as `@pie/inferlet/raw`.
 *
 * @example
 * import { allocate, fused, Queue, settle } from '@pie/inferlet/raw';
 * const queue = new Queue('stories15m');
 * const pages = allocate.allocatePages(queue, 1);
 * const request = { tokens: [1], positions: [0], inPages: [], outPages: pages, rows: 1, output: { tag: 'distributions', val: 5 } } as const;
 * const { distributions } = await settle(fused.step(queue, request));
 */

export { Run } from 'pie:inferlet/fused@0.1.0';
export { Matcher } from 'pie:inferlet/grammar@0.1.0';
export { InferletError, type InferletErrorCode } from './errors.ts';
// Bundlers drop the unused names of such a list, and thereby the unused interfaces from the component; `export * as` would keep them.
export { forward, fused, inputImage, inputText, introspect, outputText, penalties };

// The calls of these interfaces take text, in which `wellFormed` replaces lone surrogates.
export const adapter: typeof wireAdapter = /* @__PURE__ */ wellFormed(wireAdapter);
export const allocate: typeof wireAllocate = /* @__PURE__ */ wellFormed(wireAllocate);
export const children: typeof wireChildren = /* @__PURE__ */ wellFormed(wireChildren);
export const embedding: typeof wireEmbedding = /* @__PURE__ */ wellFormed(wireEmbedding);
export const person: typeof wirePerson = /* @__PURE__ */ wellFormed(wirePerson);
export const environment: typeof wireEnvironment = /* @__PURE__ */ wellFormed(wireEnvironment);
export const fileExchange: typeof wireFileExchange = /* @__PURE__ */ wellFormed(wireFileExchange);
export const grammar: typeof wireGrammar = /* @__PURE__ */ wellFormed(wireGrammar);
export const http: typeof wireHttp = /* @__PURE__ */ wellFormed(wireHttp);
export const index: typeof wireIndex = /* @__PURE__ */ wellFormed(wireIndex);
export const kvFiles: typeof wireKvFiles = /* @__PURE__ */ wellFormed(wireKvFiles);
export const messaging: typeof wireMessaging = /* @__PURE__ */ wellFormed(wireMessaging);
export const rerank: typeof wireRerank = /* @__PURE__ */ wellFormed(wireRerank);
export const runtime: typeof wireRuntime = /* @__PURE__ */ wellFormed(wireRuntime);
export const session: typeof wireSession = /* @__PURE__ */ wellFormed(wireSession);
export const store: typeof wireStore = /* @__PURE__ */ wellFormed(wireStore);
export const tokenize: typeof wireTokenize = /* @__PURE__ */ wellFormed(wireTokenize);

export const Child: typeof wireChildren.Child = /* @__PURE__ */ wellFormed(wireChildren.Child);
export type Child = wireChildren.Child;
export const Compiled: typeof wireGrammar.Compiled = /* @__PURE__ */ wellFormed(wireGrammar.Compiled);
export type Compiled = wireGrammar.Compiled;
export const Exchange: typeof wireHttp.Exchange = /* @__PURE__ */ wellFormed(wireHttp.Exchange);
export type Exchange = wireHttp.Exchange;
export const File: typeof wireKvFiles.File = /* @__PURE__ */ wellFormed(wireKvFiles.File);
export type File = wireKvFiles.File;
export const Subscription: typeof wireMessaging.Subscription = /* @__PURE__ */ wellFormed(wireMessaging.Subscription);
export type Subscription = wireMessaging.Subscription;
export const Queue: typeof WireQueue = /* @__PURE__ */ wellFormed(WireQueue);
export type Queue = WireQueue;
export const Detokenizer: typeof wireTokenize.Detokenizer = /* @__PURE__ */ wellFormed(wireTokenize.Detokenizer);
export type Detokenizer = wireTokenize.Detokenizer;

/**
 * Awaits the value of an asynchronous call. Throws {@link InferletError} when the call failed. An abort of the signal drops the future, which
 * ends a call of `embedding` or `rerank`, and throws the signal's error.
 */
export async function settle<T>(future: Future<Outcome<T>>, signal?: AbortSignalLike): Promise<T> {
  const cancel = () => {
    try {
      future.cancelRead();
    } catch {
      // The value has arrived in the same turn, so there is no read to cancel.
    }
  };
  signal?.addEventListener('abort', cancel);
  try {
    throwIfAborted(signal);
    const outcome = await future.read();
    if (outcome.tag === 'err') throw InferletError.of(outcome.val);
    return outcome.val;
  } catch (thrown) {
    // The engine rejects a cancelled read with a string.
    throw signal?.aborted ? abortError(signal) : thrown;
  } finally {
    signal?.removeEventListener('abort', cancel);
    // Without this, the handle stays open until the inferlet ends.
    future.drop();
  }
}

/** The value of a synchronous call. Throws {@link InferletError} when the call failed. */
export function attempt<T>(call: () => T): T {
  try {
    return call();
  } catch (thrown) {
    throw InferletError.from(thrown);
  }
}
