import { err, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { LifecycleGrantedModel, LifecycleOpening } from '#wit/generated/channel.ts';
import type { ModelInfo, ModelMetadata } from '#wit/generated/host.ts';
import { world } from '#wit/generated/world.ts';
import type { SandboxInvocation } from '../channel/sandbox-invocation.ts';
import { randomWord } from '../host/session/random.ts';
import { type Decoding, detokenizing, noTokenizer, notGranted } from '../host/text/detokenize.ts';
import type { HostTable } from '../lowering/compile.ts';

/**
 * Calls that a sandbox answers without the runtime, from its data about the invocation and models (`wit/generate/channel-placement.ts`).
 *
 * @param vocabularyOf token tables of a model; undefined for a model without a tokenizer
 */
export const localTable = (vocabularyOf: (model: string) => Decoding | undefined): HostTable => ({
  tokenize: detokenizing<SandboxInvocation>(({ opening }, name) => {
    if (!modelOf(opening, name)) return notGranted(name);
    const decoding = vocabularyOf(name);
    return decoding ? ok(decoding) : noTokenizer(name);
  }),

  runtime: {
    version: () => world.version,
    'instance-id': ({ opening }: SandboxInvocation) => opening.id,
    tenant: ({ opening }: SandboxInvocation) => opening.tenant,
    'get-arguments': ({ opening }: SandboxInvocation) => opening.input,
    'function-name': ({ opening }: SandboxInvocation) => opening.functionName,
    'function-version': ({ opening }: SandboxInvocation) => opening.functionVersion,
    models: ({ opening }: SandboxInvocation): readonly ModelInfo[] => opening.models.map(({ info }) => info),

    'model-traits': ({ opening }: SandboxInvocation, name: string): Outcome<readonly string[]> => {
      const model = modelOf(opening, name);
      return model ? ok(model.info.traits) : unknownModel(name);
    },

    metadata: ({ opening }: SandboxInvocation, name: string): Outcome<ModelMetadata> => {
      const model = modelOf(opening, name);
      if (!model) return unknownModel(name);
      const { metadata } = model;
      return metadata ? ok(metadata) : err(handlerError('unavailable', `the directory of ${name} cannot be read`));
    },

    'is-cancelled': ({ stopped }: SandboxInvocation) => stopped !== null,
    'time-left': ({ leftMs }: SandboxInvocation) => leftMs,
    now: () => Date.now(),

    random: randomWord,
  },
});

const modelOf = ({ models }: LifecycleOpening, name: string): LifecycleGrantedModel | undefined =>
  models.find(({ info }) => info.name === name);

const unknownModel = (name: string): Outcome<never> =>
  err(handlerError('not-found', `no model named ${name}; ask runtime.models`));
