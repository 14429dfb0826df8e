import { z } from '@hono/zod-openapi';
import { ROLES } from '#scheduler/machines/types.ts';
import { DEMOTIONS, ISOLATION_LAYERS, MEMORY_LIMITS } from '#scheduler/runtimes/types.ts';
import { CODES } from '../errors/codes.ts';

const modelKind = z.enum(['causal', 'embedding', 'reranker']);

export const ModelSchema = z
  .object({
    id: z.string(),
    object: z.literal('model'),
    created: z.int(),
    owned_by: z.string(),
    kind: modelKind.openapi({ description: 'A causal model generates text; an encoder makes vectors or scores' }),
    /** Longest context that the model was trained on, in tokens. */
    contextLength: z.int(),
    /** 1 for a reranker. */
    size: z.int().optional().openapi({ description: 'Values of a vector; only of an encoder' }),
    vocabularySize: z
      .int()
      .optional()
      .openapi({ description: 'Absent for an encoder, like `pageSize` and `pageCount`' }),
    /** Slots of a KV page. */
    pageSize: z.int().optional(),
    pageCount: z.int().optional(),
    traits: z.array(z.string()).readonly(),
    chat: z.boolean().optional().openapi({
      description: 'True when the model has a chat template; absent for an encoder, and when the template is unknown',
    }),
    thoughts: z
      .object({ begin: z.string(), end: z.string() })
      .readonly()
      .optional()
      .openapi({
        description:
          'The marks before and behind a thought of a model that thinks before its answers. Absent for a model that does not, and where `chat` is absent',
        example: { begin: '<think>', end: '</think>' },
      }),
    unproven: z.string().optional().openapi({
      description: 'Why the model gave no answer when the platform last asked it; absent for a model that answered',
    }),
    aliasOf: z.string().optional().openapi({ description: 'The model that this name is an alias of' }),
  })
  .openapi('Model');

export const HealthSchema = z
  .object({
    ready: z.boolean(),
    checks: z.array(z.object({ name: z.string(), ok: z.boolean(), detail: z.string().optional() })).readonly(),
    pendingFunctions: z
      .array(
        z.object({
          name: z.string(),
          state: z.enum(['waiting', 'building', 'failed']),
          tries: z.int().openapi({ description: 'Failed tries' }),
          why: z.string().optional().openapi({ description: 'Why the last try failed' }),
          nextTryAt: z.iso.datetime().optional(),
        }),
      )
      .readonly()
      .optional()
      .openapi({ description: 'Bundled functions that are not deployed yet; absent when all are' }),
  })
  .openapi('Health');

export const ProblemSchema = z
  .looseObject({
    type: z.string().openapi({ description: "Address of the code's documentation page" }),
    title: z.string(),
    status: z.int(),
    detail: z.string(),
    code: z.enum(Object.keys(CODES) as [string, ...string[]]),
    hint: z.string(),
    field: z.string().optional().openapi({ description: 'The offending field (JSON pointer) or parameter' }),
    requestId: z.string(),
    error: z.object({ message: z.string(), type: z.string(), code: z.string(), param: z.string().optional() }),
  })
  .openapi('Problem', { description: 'RFC 9457, with the `error` object that OpenAI-style clients read.' });

const StepTimesSchema = z.array(z.object({ size: z.number(), ms: z.number() })).readonly();

const ModelLoadSchema = z.object({
  model: z.string(),
  gpuHost: z.string().nullable().openapi({ description: 'Name of its GPU host' }),
  pages: z.int(),
  freePages: z.int(),
  cachedPages: z.int(),
  batchSize: z.number().nullable().openapi({ description: 'Mean sequences of a batch; null when there was none' }),
  utilisation: z.number().openapi({ description: 'Share of time in which the device computed' }),
  hitRate: z.number().nullable().openapi({ description: 'Share of prompt tokens found in the prefix cache' }),
  efficientTokens: z.number().nullable().openapi({
    description:
      'Size of a device step, in tokens, up to which a larger step takes little more time; null before it is measured',
  }),
  stepTimes: z.object({ tokens: StepTimesSchema, sequences: StepTimesSchema }).openapi({
    description:
      'Measured times of device steps: by the tokens of all sequences, and by the sequences of steps that decode only',
  }),
});

const EncoderLoadSchema = z.object({
  encoder: z.string(),
  kind: modelKind.exclude(['causal']),
  gpuHost: z.string().nullable().openapi({ description: 'Name of its GPU host' }),
  device: z.string().openapi({ description: 'Name of the card, or CPU' }),
  deviceIndex: z.int().nullable().openapi({ description: 'Number of the device in the driver’s order' }),
  batchSize: z.number().nullable().openapi({ description: 'Mean texts of a batch; null when there was none' }),
  utilisation: z.number().openapi({ description: 'Share of time in which the device computed its texts' }),
  textsPerSecond: z.number(),
  tokensPerSecond: z.number(),
  waitingCalls: z.int().openapi({ description: 'Calls that wait for the device or are being computed' }),
  maxBatchTokens: z
    .int()
    .openapi({ description: 'Most tokens of the next batch, padding included: as many as take about 25 ms' }),
  latency: z
    .array(z.object({ tokens: z.int(), msPerToken: z.number() }))
    .readonly()
    .openapi({
      description:
        'Mean time per token of the batches that had at most `tokens` tokens, and more than half of that, padding included',
    }),
});

const HostedModelSchema = z.object({
  model: z.string(),
  backend: z.string(),
  precision: z.string().openapi({ description: 'Precision of the weights', example: 'bf16' }),
  kv: z
    .string()
    .nullable()
    .openapi({ description: 'Precision of keys and values; null when it equals that of the weights' }),
  reason: z
    .string()
    .nullable()
    .openapi({ description: 'Why the GPU host chose the backend; null when the configuration names it' }),
  device: z.string().openapi({ description: 'Name of the card, or CPU', example: 'NVIDIA H200' }),
  deviceIndex: z.int().nullable().openapi({ description: 'Number of the device in the driver’s order' }),
  memory: z
    .object({ takenBytes: z.int(), totalBytes: z.int() })
    .nullable()
    .openapi({ description: 'Device memory that the model uses, and the total; null for a CPU' }),
  pages: z.int(),
  pageSize: z.int().openapi({ description: 'Slots of a page' }),
});

const RuntimeLimitsSchema = z.object({
  memory: z.enum(MEMORY_LIMITS).openapi({ description: 'Mechanism that bounds the memory of a sandbox' }),
  demotion: z
    .enum(DEMOTIONS)
    .openapi({ description: 'Mechanism by which the kernel makes a sandbox yield after it has computed much' }),
  notice: z.string().nullable().openapi({ description: 'Limits that the machine lacks, and how to get them' }),
});

export const MachineSchema = z
  .object({
    name: z.string(),
    roles: z.array(z.enum(ROLES)).readonly(),
    alive: z.boolean().openapi({ description: 'True while its supervisor renews its lease' }),
    host: z
      .string()
      .nullable()
      .openapi({ description: 'Name of its operating system’s host; null while it is stopped' }),
    version: z.string().nullable().openapi({ description: 'Version of Pie; null while it is stopped' }),
    startedAt: z.string().nullable(),
    joinedAt: z.string().nullable().openapi({ description: 'When it joined with a token; null without one' }),
    drained: z.boolean().openapi({ description: 'True while an operator drains it: it takes no new invocations' }),
    running: z.int().openapi({
      description: 'The invocations in its runtime, and those in other machines’ runtimes that its GPU hosts serve',
    }),
  })
  .openapi('Machine');

const RuntimeSchema = z.object({
  name: z.string(),
  machine: z.string().nullable().openapi({ description: 'The machine that it runs on; null without a supervisor' }),
  alive: z.boolean(),
  slots: z.int(),
  isolation: z.enum(ISOLATION_LAYERS).nullable().openapi({
    description: 'Confinement of the processes that handle untrusted bytes; null when the runtime does not report it',
  }),
  isolationNotice: z
    .string()
    .nullable()
    .openapi({ description: 'Missing parts of the confinement, and how to get them' }),
  limits: RuntimeLimitsSchema.nullable().openapi({ description: 'How the kernel limits sandboxes' }),
  running: z.int(),
});

export const GpuHostSchema = z
  .object({
    name: z.string(),
    connected: z.boolean().openapi({ description: 'True while a runtime reaches it' }),
    drained: z.boolean().openapi({ description: 'True while an operator drains it: it takes no new invocations' }),
    running: z.int().openapi({ description: 'Invocations that it serves, including children' }),
    models: z.array(HostedModelSchema).readonly().openapi({ description: 'Its models when a runtime last reached it' }),
  })
  .openapi('GpuHost');

/** The body of a request that starts or ends a drain. `of` names the kind of object to people. */
const drainChange = (of: string) =>
  z
    .strictObject({
      drained: z.boolean().meta({ description: 'True to give it no new invocations' }),
      force: z
        .boolean()
        .optional()
        .meta({ description: `Drain even the last ${of}; new invocations then wait` }),
    })
    .refine(({ drained, force }) => drained || force !== true, {
      error: 'is allowed only with `drained: true`',
      path: ['force'],
    });

export const GpuHostChangeSchema = drainChange('GPU host');
export const MachineChangeSchema = drainChange('machine');

export const LoadSchema = z
  .object({
    machines: z
      .array(MachineSchema)
      .readonly()
      .openapi({ description: 'Machines that share the Redis, and machines that joined with a token and do not run' }),
    runtimes: z.array(RuntimeSchema).readonly(),
    otherContracts: z.array(z.string()).readonly().openapi({
      description:
        'Runtimes of other releases that take invocations and may lack calls that functions of this release import',
    }),
    gpuHosts: z.array(GpuHostSchema).readonly(),
    models: z.array(ModelLoadSchema).readonly(),
    encoders: z.array(EncoderLoadSchema).readonly(),
    waiting: z.int(),
    running: z.int(),
    tenants: z
      .array(z.object({ tenant: z.string(), waiting: z.int(), running: z.int(), weight: z.number() }))
      .readonly(),
  })
  .openapi('Load');

export const JoinTokenRequestSchema = z.strictObject({
  ttlSeconds: z.int().min(60).max(86_400).default(900).meta({ description: 'Seconds until the token expires' }),
  roles: z
    .array(z.enum(ROLES))
    .min(1)
    .default([...ROLES])
    .meta({ description: 'Roles that the machine may have; all by default' })
    .readonly(),
});

export const JoinTokenSchema = z
  .object({
    token: z.string().openapi({ description: 'Shown only once' }),
    expiresAt: z.string(),
  })
  .openapi('JoinToken');

export const JoinedSchema = z
  .object({
    sealed: z.string().openapi({ description: 'Settings and credentials for the machine, encrypted under the token' }),
  })
  .openapi('Joined');

export type ModelKind = z.infer<typeof modelKind>;
/** A model as `/v1/models` lists it. */
export type ListedModel = z.infer<typeof ModelSchema>;
export type ModelInfo = Omit<ListedModel, 'id' | 'object' | 'created' | 'owned_by'> & { readonly name: string };
/** Memory and batches of one model on one device, over the last seconds. */
export type ModelLoad = z.infer<typeof ModelLoadSchema>;
/** Batches of one encoder on one device, over the last seconds. */
export type EncoderLoad = z.infer<typeof EncoderLoadSchema>;
export type HostedModel = z.infer<typeof HostedModelSchema>;
export type RuntimeLimits = z.infer<typeof RuntimeLimitsSchema>;
export type GpuHostState = z.infer<typeof GpuHostSchema>;
export type GpuHostChange = z.infer<typeof GpuHostChangeSchema>;
export type MachineState = z.infer<typeof MachineSchema>;
export type MachineChange = z.infer<typeof MachineChangeSchema>;
/** A token with which one machine may join. */
export type JoinToken = z.infer<typeof JoinTokenSchema>;
/** Lifetime of a new join token, and the roles that its machine may have. */
export type JoinTokenRequest = z.infer<typeof JoinTokenRequestSchema>;
export type PlatformLoad = z.infer<typeof LoadSchema>;
export type Health = z.infer<typeof HealthSchema>;
/** An RFC 9457 problem with the members that OpenAI-style clients read. */
export type Problem = z.infer<typeof ProblemSchema>;
