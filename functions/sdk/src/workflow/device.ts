import { type AbortSignalLike, abortable } from '../abort.ts';
import { Context, halt, sequenceOf } from '../context/context.ts';
import { SavedContext } from '../context/files.ts';
import { fillImage } from '../context/image.ts';
import { efficientTokens as measuredTokens, models } from '../context/models.ts';
import { InferletError } from '../errors.ts';
import { embed, encoders, rerank } from '../io/encoders.ts';
import { recordSpan } from '../io/inferlet.ts';
import { Queue, runtime, settle } from '../raw.ts';
import { type Engine, ItemSplitter, type NodeRun, type NodeValues } from './engine.ts';
import type { Items, Node, Operation } from './graph.ts';
import type { EngineName } from './sizes.ts';

/** Runs nodes on the platform's models, by the contexts and encoders of this library. */
export const deviceEngine: Engine = {
  async run(node: Node, inputs: NodeValues, run: NodeRun): Promise<NodeValues> {
    const { operation } = node;
    const { signal } = run;
    switch (operation.kind) {
      case 'prefilling':
      case 'partial-prefilling':
        return { context: await prefill(operation, inputs, run) };
      case 'decoding':
      case 'partial-decoding':
        return undoneOnFailure(marked(inputs.context, run), signal, (context) => decode(operation, context, run));
      case 'select':
        return undoneOnFailure(marked(inputs.context, run), signal, async (context) => {
          return { text: await context.choose(operation.choices, operation.options), context };
        });
      case 'join':
        return undoneOnFailure(inputs.context as Context, signal, (context) =>
          join(context, inputs.others as Context[], signal),
        );
      case 'cached-context': {
        const { name, model, tokens } = operation;
        const opened = Context.open(name, { ...(model !== undefined && { model }), ...(tokens && { tokens }) });
        return { context: await ownedUntil(opened, signal) };
      }
      case 'prefetching': {
        const saved = new SavedContext(operation.name, operation.model === undefined ? {} : { model: operation.model });
        await abortable(saved.prefetch(), signal);
        return {};
      }
      case 'embedding':
        markEncoders(run);
        return { vectors: (await embed(inputs.texts as string[], { model: operation.model, signal })).vectors };
      case 'reranking': {
        markEncoders(run);
        const { query, documents } = inputs as { readonly query: string; readonly documents: Documents };
        const { scores } = await rerank(query, documents.flat(), { model: operation.model, signal });
        return { scores: scoresOf(documents, scores) };
      }
      default:
        throw new InferletError('internal', `${operation.kind} needs no model.`);
    }
  },
  fork: (context, signal) => ownedUntil((context as Context).fork(), signal, context as Context),
  release: (context) => (context as Context).release(),
  report({ id, operation: { kind } }, began, failed) {
    // An argument exists from the start.
    if (kind !== 'argument') recordSpan(id, { began, kind, failed });
  },
  efficientTokens,
  pause: (milliseconds, signal) => settle(runtime.sleep(milliseconds), signal),
};

/**
 * The efficient batch of an engine in tokens, as the GPU host measured it. Undefined before the measurement, and for an
 * engine that does not exist: the node that uses it reports the error.
 */
function efficientTokens({ kind, model }: EngineName): number | undefined {
  const encoderKind = kind === 'embedding' ? 'embedding' : 'reranker';
  const name = model ?? (kind === 'model' ? models()[0] : encoders().find((each) => each.kind === encoderKind))?.name;
  try {
    return name === undefined ? undefined : measuredTokens(name);
  } catch (error) {
    if (InferletError.from(error).code === 'not-found') return undefined;
    throw error;
  }
}

type Prefilling = Extract<Operation, { kind: 'prefilling' | 'partial-prefilling' }>;
type Decoding = Extract<Operation, { kind: 'decoding' | 'partial-decoding' }>;

/** Gives the node's depth to the context's queue, so that the queue's later calls have it. Returns the context. */
function marked(context: unknown, { depth }: Pick<NodeRun, 'depth'>): Context {
  if (depth === undefined) return context as Context;
  sequenceOf(context as Context).queue.setDepth(depth);
  isMarked = true;
  return context as Context;
}

/** True when a queue of the invocation was given a depth. */
let isMarked = false;

/** Marks calls of encoders as calls of a workflow. Encoders have no queues: the depth of any queue of the invocation marks the calls. */
function markEncoders({ depth }: Pick<NodeRun, 'depth'>): void {
  const [model] = models();
  if (depth === undefined || isMarked || !model) return;
  new Queue(model.name).setDepth(depth);
  isMarked = true;
}

/** Texts to rank, or lists of texts. */
type Documents = readonly (string | readonly string[])[];

/** The scores of all texts in the shape of `documents`. */
function scoresOf(documents: Documents, scores: readonly number[]): (number | readonly number[])[] {
  let at = 0;
  return documents.map((each) => {
    const from = at;
    at += typeof each === 'string' ? 1 : each.length;
    return typeof each === 'string' ? (scores[from] ?? 0) : scores.slice(from, at);
  });
}

async function prefill({ kind, model }: Prefilling, inputs: NodeValues, { depth, signal }: NodeRun): Promise<Context> {
  const { context: given, parts } = inputs as { readonly context?: Context; readonly parts: readonly unknown[] };
  const context = marked(given ?? new Context(model === undefined ? {} : { model }), { depth });
  const before = context.length;
  try {
    for (const part of parts) {
      if (part instanceof Uint8Array) await haltedBy(signal, context, fillImage(context, part));
      else if (part !== '') context.fill(String(part));
    }
    // A whole prompt is left to the next node, which computes it together with the first token that it generates.
    if (kind === 'partial-prefilling') await haltedBy(signal, context, context.flush());
    return context;
  } catch (error) {
    if (!given) context.release();
    // After an abort, the context's owner releases it.
    else if (!signal.aborted) context.truncate(before);
    throw error;
  }
}

/** The outcome of a task on a context, or the signal's error: after an abort the device computes no more of the context. */
async function haltedBy<T>(signal: AbortSignalLike, context: Context, task: Promise<T>): Promise<T> {
  try {
    return await abortable(task, signal);
  } finally {
    if (signal.aborted) halt(context);
  }
}

/** Waits for a new context, a fork of `source` if that is given. After an abort, releases the context when it arrives. */
async function ownedUntil(
  pendingContext: Promise<Context>,
  signal: AbortSignalLike,
  source?: Context,
): Promise<Context> {
  try {
    return await (source ? haltedBy(signal, source, pendingContext) : abortable(pendingContext, signal));
  } catch (error) {
    pendingContext.then(
      (context) => context.release(),
      () => undefined,
    );
    throw error;
  }
}

async function decode({ kind, options, items, pipe }: Decoding, context: Context, run: NodeRun): Promise<NodeValues> {
  const generation = context.generate({ ...options, signal: run.signal });
  try {
    if (items) return await itemsOf(generation, kind, items, run);
    const { text } = await (pipe ? generation.pipe() : generation.collect());
    return { text, context };
  } catch (error) {
    // From its second call on, a generation with a window drops tokens for good. Another attempt would see less of the text.
    const hasDroppedTokens = options.window !== undefined && generation.forwardCalls > 1;
    const hasSentText = pipe && generation.text !== '';
    if (hasDroppedTokens || hasSentText) run.forbidRetry();
    throw error;
  }
}

/** The first items of a generation. A node of kind `partial-decoding` hands each item on as soon as it is complete. */
async function itemsOf(
  generation: AsyncIterable<string>,
  kind: Decoding['kind'],
  items: Items,
  run: NodeRun,
): Promise<Record<string, string>> {
  const outputs: Record<string, string> = {};
  const splitter = new ItemSplitter(items);
  const take = (complete: readonly { readonly index: number; readonly item: string }[]) => {
    for (const { index, item } of complete) {
      outputs[`item${index}`] = item;
      if (kind === 'partial-decoding') run.emit(`item${index}`, item);
    }
  };
  for await (const text of generation) {
    take(splitter.push(text));
    if (splitter.isFull) break;
  }
  take(splitter.end());
  return outputs;
}

async function join(context: Context, others: readonly Context[], signal: AbortSignalLike): Promise<NodeValues> {
  for (const other of others) await haltedBy(signal, other, context.append(other));
  return { context };
}

/** Runs `task`; when it fails, takes back what it appended to the context. */
async function undoneOnFailure(
  context: Context,
  signal: AbortSignalLike,
  task: (context: Context) => Promise<NodeValues>,
): Promise<NodeValues> {
  const before = context.length;
  const last = context.tokens.at(-1);
  try {
    return await haltedBy(signal, context, task(context));
  } catch (error) {
    // The first failure is the one to report.
    try {
      takeBack(context, before, last);
    } catch {
      context.release();
    }
    throw error;
  }
}

/** Cuts a context to the length `before`. A healed generation may have replaced the token at that end; then puts `last`, the old token, back. */
function takeBack(context: Context, before: number, last: number | undefined): void {
  const { length, tokens } = context;
  // Count from the end, because `tokens` may lack the first tokens of an opened context.
  const isHealed = last !== undefined && length >= before && tokens.at(before - 1 - length) !== last;
  if (isHealed) context.truncate(before - 1).fill([last]);
  else if (length > before) context.truncate(before);
}
