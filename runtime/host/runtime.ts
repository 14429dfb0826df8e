import { err, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { LogLevel, ModelInfo, ModelMetadata } from '#wit/generated/host.ts';
import { world } from '#wit/generated/world.ts';
import { DEBUG_QUERIES, debugQuery } from './debug-query.ts';
import type { Inferlet } from './inferlet.ts';
import { randomWord } from './random.ts';
import { traitsOf } from './traits.ts';

/** Implements `wit/runtime.wit`. */
export const runtime = {
  version: () => world.version,
  'instance-id': (inferlet: Inferlet) => inferlet.description.id,
  tenant: (inferlet: Inferlet) => inferlet.description.tenant,
  'get-arguments': (inferlet: Inferlet) => inferlet.description.input,
  'function-name': (inferlet: Inferlet) => inferlet.description.functionName,
  'function-version': (inferlet: Inferlet) => inferlet.description.functionVersion,

  models: (inferlet: Inferlet): ModelInfo[] =>
    [...inferlet.description.models.values()].map((model) => ({
      name: model.summary.name,
      contextLength: model.summary.contextLength,
      vocabularySize: model.summary.vocabularySize,
      pageSize: model.summary.pageSize,
      traits: traitsOf(model),
    })),

  'model-traits': (inferlet: Inferlet, name: string): Outcome<readonly string[]> => {
    const model = inferlet.description.models.get(name);
    if (!model) return err(handlerError('not-found', `no model named ${name}; ask runtime.models`));
    return ok(traitsOf(model));
  },

  metadata: (inferlet: Inferlet, name: string): Outcome<ModelMetadata> => {
    const model = inferlet.description.models.get(name);
    if (!model) return err(handlerError('not-found', `no model named ${name}; ask runtime.models`));
    return model.metadata
      ? ok(model.metadata)
      : err(handlerError('unavailable', `the directory of ${name} cannot be read`));
  },

  'efficient-tokens': ({ description }: Inferlet, name: string): Outcome<number | undefined> => {
    const granted = description.models.get(name) ?? description.encoders?.get(name);
    if (!granted) return err(handlerError('not-found', `no model or encoder named ${name}; ask runtime.models`));
    return ok(granted.connection.efficientTokens(name));
  },

  'debug-query': (inferlet: Inferlet, query: string): Outcome<string> => {
    const answer = debugQuery(inferlet, query);
    if (answer !== undefined) return ok(JSON.stringify(answer));
    return err(handlerError('invalid-argument', `the query is unknown; the host answers ${DEBUG_QUERIES.join(', ')}`));
  },

  log: (inferlet: Inferlet, level: LogLevel, message: string): void => inferlet.session.log(level, message),
  'record-span': (
    inferlet: Inferlet,
    ...[name, kind, began, ended, failed]: [string, string, bigint, bigint, boolean]
  ): void => inferlet.spans.add(name, kind, Number(began), Number(ended), failed),

  'is-cancelled': (inferlet: Inferlet) => inferlet.stopped !== null,
  'time-left': (inferlet: Inferlet) => Math.floor(inferlet.description.deadline.leftMs),
  now: () => Date.now(),

  random: randomWord,

  sleep: (inferlet: Inferlet, milliseconds: number) =>
    inferlet.hooks.waits.during(inferlet.sleepers.sleep(milliseconds)),
};
