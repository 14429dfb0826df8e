import { z } from 'zod';
import { ConfigError } from './config-error.ts';

/** One model that a GPU host serves: an entry `[[model]]` of `pie.toml`. */
export interface ModelEntry {
  readonly name: string;
  /** A known name (`stories15m`), or `npm:…`, `hf:…`, `file:…`. */
  readonly source: string;
  readonly backend: BackendName;
  /** Bits of a weight; `cuda` uses `precision` instead. With `auto`, the settings of a backend apply where it is chosen. */
  readonly bits: 32 | 8 | 4;
  /** True when the configuration names no bits: the GPU host may take fewer than 32 where the memory is small. */
  readonly choosesBits?: boolean;
  /** Bits of a weight of the output head. */
  readonly headBits: 32 | 8 | 4;
  /** `cuda` only: type of weights, activations, keys and values; the 8- and 4-bit types apply to weights alone. bf16 by default. */
  readonly precision?: (typeof PRECISIONS)[number];
  /** `cuda` only: type of stored keys and values; that of the activations by default. */
  readonly kv?: 'fp8';
  /** `cuda` only: the card, by CUDA's numbering; the first by default. */
  readonly device?: number;
  /** `cuda` only: limit on the card's memory for the model, its pages and its adapters, MiB; all free memory by default. */
  readonly memoryMb?: number;
  /** `cuda` only: seconds after which a device step counts as hung and the GPU host restarts; 60 by default. */
  readonly stepDeadlineS?: number;
  /** `cuda` only: most seconds that the start spends on graphs of common batch sizes; 10 by default, 0 for none. */
  readonly warmUpS?: number;
  /** `cuda` only: true (the default) when a kernel may begin while the kernel before it ends. */
  readonly dependentLaunch?: boolean;
  /** `cuda` only: true (the default) when a step may read a prefix's keys once for all sequences that share the prefix. */
  readonly sharedPrefixes?: boolean;
  /** KV pages of the pool, fixed at start; 0 (the default) means as many as fit on the card, or `defaultPages` in the machine's memory. */
  readonly pages: number;
  /** Slots of a page. */
  readonly pageSize: number;
  /** Tokens of one batch, prefill chunks included. */
  readonly maxBatchTokens: number;
  /** Sequences of one batch. */
  readonly maxBatchSequences: number;
  /** Maximum memory of a step's temporary buffers, MiB; by default a quarter of the memory that is free once the model is open, at least 256. */
  readonly stepMemoryMb?: number;
  /** Threads of one operator (for `cuda`, of the image encoder); 0 lets the backend choose. */
  readonly threads: number;
  /** True (the default) when the GPU host keeps finished prefixes for later calls of the same tenant. */
  readonly prefixCache?: boolean;
  /** Host memory for swapped-out pages of waiting inferlets, MiB; 256 by default. */
  readonly swapMemoryMb?: number;
  /** Disk in the host's `kvDirectory` for swapped pages beyond `swapMemoryMb`, MiB; 1024 by default. */
  readonly swapDiskMb?: number;
  /** Other names for the model in requests to the OpenAI-compatible routes. */
  readonly aliases?: readonly string[];
  /** Low-rank adapters that inferlets may use. */
  readonly adapters?: readonly AdapterEntry[];
  /** Device memory for all adapters together, MiB; the least recently used are evicted first. 1024 by default. */
  readonly adapterMemoryMb?: number;
  /** Host memory for the embeds of images that a tenant sends again, MiB; 64 by default. */
  readonly imageCacheMb?: number;
  /** Text before and after a thought; false if thoughts are part of the answer. By default, the chat template decides. */
  readonly thoughts?: ThoughtsEntry;
  readonly pace?: PaceEntry;
}

/**
 * For benchmarks: the latency profile of another device, milliseconds (`gpu-host/backends/paced.ts`). A step takes at least `stepMs`, plus `tokenMs`
 * for each input and `sequenceMs` for each sequence. For an encoder, the inputs are the tokens of its batch, padding included, and the sequences are
 * its texts.
 */
interface PaceEntry {
  readonly stepMs: number;
  readonly tokenMs: number;
  readonly sequenceMs: number;
}

type ThoughtsEntry = Readonly<z.output<typeof thoughtMarks>> | false;

/** One encoder that a GPU host serves: an entry `[[model]]` of `pie.toml` whose `kind` is not `causal`. Encoders compute on the CPU, in 32 bits. */
export interface EncoderEntry extends Readonly<z.output<typeof encoderSchema>> {
  /** Threads of one operator; 0 lets the backend choose. */
  readonly threads: number;
}

type BackendName = (typeof BACKENDS)[number];

/** One of the `adapters` of a `[[model]]`. */
type AdapterEntry = Readonly<z.output<typeof adapterSchema>>;

export const COMPUTING_BACKENDS = ['onnx', 'reference', 'cuda', 'ggml'] as const;
/** `auto` lets the GPU host choose by the model and the machine. */
export const BACKENDS = ['auto', ...COMPUTING_BACKENDS] as const;
const PRECISIONS = ['bf16', 'int8', 'fp8', 'int4', 'float32'] as const;

const bits = z.union([z.literal(32), z.literal(8), z.literal(4)]);

/** Variables of the environment that replace fields of all entries. */
export const modelEnvironment = {
  PIE_BACKEND: z.enum(BACKENDS).optional(),
  PIE_MODEL: z.string().min(1).optional(),
  PIE_BITS: z.enum(['32', '8', '4']).optional(),
  PIE_THREADS: z.coerce.number().int().min(0).max(256).optional(),
};
export type ModelEnvironment = z.output<z.ZodObject<typeof modelEnvironment>>;

/** Settings that only some backends support, with those backends. */
const BACKEND_SETTINGS = {
  bits: ['auto', 'onnx', 'reference', 'ggml'],
  head_bits: ['auto', 'onnx', 'reference', 'ggml'],
  step_memory_mb: ['auto', 'onnx'],
  precision: ['cuda'],
  kv: ['cuda'],
  device: ['cuda'],
  memory_mb: ['cuda'],
  step_deadline_s: ['cuda'],
  warm_up_s: ['cuda'],
  dependent_launch: ['cuda'],
  shared_prefixes: ['cuda'],
} satisfies Record<string, readonly BackendName[]>;

const adapterSchema = z.strictObject({
  name: z
    .string()
    .regex(
      /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/,
      'must be 1 to 64 letters, digits, ".", "_" or "-", first a letter or digit',
    ),
  /** `file:` and the path of a directory in PEFT layout. */
  source: z.string().regex(/^file:./, 'must be file: and the path of a directory in PEFT layout'),
});

const name = z
  .string()
  .regex(/^[a-z0-9][a-z0-9._-]{0,63}$/, 'must be 1 to 64 of a to z, 0 to 9, ".", "_" and "-", first a letter or digit');
const threads = z.int().min(0).max(256).optional();

const paceMs = z.number().min(0).max(60_000).default(0);
const paceSchema = z
  .strictObject({ step_ms: paceMs, token_ms: paceMs, sequence_ms: paceMs })
  .transform((pace): PaceEntry => ({ stepMs: pace.step_ms, tokenMs: pace.token_ms, sequenceMs: pace.sequence_ms }))
  .optional();

const thoughtMark = z
  .string()
  .max(256)
  .refine((mark) => mark.trim() !== '', 'must have a character other than white space');
const thoughtMarks = z.strictObject({ open: thoughtMark, close: thoughtMark });

const encoderSchema = z.strictObject({
  name,
  /** `embedding` turns a text into a vector, `reranker` a query and a document into a score. */
  kind: z.enum(['embedding', 'reranker']),
  /** `hf:…`, `npm:…` or `file:…`. */
  source: z.string().regex(/^(hf|npm|file):./, 'must be hf:, npm: or file: and the place of an encoder'),
  threads,
  pace: paceSchema,
});

const causalSchema = z
  .strictObject({
    name,
    kind: z.literal('causal').default('causal'),
    source: z.string().min(1).optional(),
    backend: z.enum(BACKENDS).default('auto'),
    bits: bits.optional(),
    head_bits: bits.optional(),
    precision: z.enum(PRECISIONS).optional(),
    kv: z.literal('fp8', 'must be "fp8", or left out: keys and values are kept as the activations are').optional(),
    device: z.int().min(0).max(255).optional(),
    memory_mb: z.int().min(0).max(16_777_216).optional(),
    step_deadline_s: z.number().min(0.1).max(3600).optional(),
    warm_up_s: z.number().min(0).max(600).optional(),
    dependent_launch: z.boolean().optional(),
    shared_prefixes: z.boolean().optional(),
    pages: z.int().min(0).max(1_000_000).optional(),
    page_size: z.int().min(8).max(32).default(16),
    max_batch_tokens: z.int().min(1).max(65_536).default(512),
    max_batch_sequences: z.int().min(1).max(4096).default(256),
    step_memory_mb: z.int().min(1).max(1_048_576).optional(),
    threads,
    tensor_parallel_size: z
      .literal(1, 'no backend of this build splits a model over devices; leave it at 1')
      .default(1),
    prefix_cache: z.boolean().default(true),
    swap_memory_mb: z.int().min(0).max(1_048_576).default(256),
    swap_disk_mb: z.int().min(0).max(1_048_576).default(1024),
    aliases: z
      .array(
        z
          .string()
          .regex(
            /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/,
            'must be 1 to 128 letters, digits, ".", "_", ":" or "-", first a letter or digit',
          ),
      )
      .max(64)
      .default([]),
    adapters: z.array(adapterSchema).max(1024).default([]),
    adapter_memory_mb: z.int().min(1).max(1_048_576).default(1024),
    image_cache_mb: z.int().min(0).max(1_048_576).default(64),
    thoughts: z
      .union([z.literal(false), thoughtMarks], 'must be false, or { open = "<think>", close = "</think>" }')
      .optional(),
    pace: paceSchema,
  })
  .superRefine((entry, context) => {
    const names = entry.adapters.map(({ name }) => name);
    const duplicateName = names.find((name, i) => names.indexOf(name) < i);
    if (duplicateName !== undefined)
      context.addIssue({ code: 'custom', path: ['adapters'], message: `two of them are named "${duplicateName}"` });
    for (const [key, backends] of Object.entries<readonly BackendName[]>(BACKEND_SETTINGS)) {
      if (entry[key as keyof typeof BACKEND_SETTINGS] === undefined || backends.includes(entry.backend)) continue;
      const instead =
        key === 'bits' || key === 'head_bits' ? '; use precision = "bf16", "int8", "fp8", "int4" or "float32"' : '';
      const message =
        entry.backend === 'auto'
          ? `needs backend = ${backends.map((name) => `"${name}"`).join(' or ')}`
          : `has no effect with ${entry.backend}${instead}`;
      context.addIssue({ code: 'custom', path: [key], message });
    }
    if (entry.kv !== undefined && entry.precision === 'float32')
      context.addIssue({
        code: 'custom',
        path: ['kv'],
        message:
          'cannot be combined with precision = "float32", which keeps all values in float32 to find faults; leave one of them out',
      });
    if (entry.pages === 0 && entry.backend !== 'cuda')
      context.addIssue({
        code: 'custom',
        path: ['pages'],
        message: 'must be at least 1; 0, for as many pages as fit, needs backend = "cuda"',
      });
  });

/** An entry `[[model]]`. An entry without a `kind` is that of a causal model, by the default in `causalSchema`. */
export const modelSchema = z.discriminatedUnion('kind', [causalSchema, encoderSchema]);

/** A `[[model]]` entry as its file has it. */
type WrittenEntry = z.output<typeof modelSchema>;

/** The entry for a GPU host whose card numbers are higher by `cardOffset` than those of the first host. */
export function onCard(model: ModelEntry, cardOffset: number): ModelEntry {
  return model.backend === 'cuda' ? { ...model, device: deviceOf(model) + cardOffset } : model;
}

const deviceOf = ({ device = 0 }: ModelEntry): number => device;

/** Number of cards from the first to the last that the entries name; 0 when no entry uses CUDA. */
export function cardSpan(models: readonly ModelEntry[]): number {
  const devices = models.filter(({ backend }) => backend === 'cuda').map(deviceOf);
  return devices.length === 0 ? 0 : Math.max(...devices) - Math.min(...devices) + 1;
}

/** Refuses a model without a bound on a shared card: its pages would take all memory that is free there. @throws ConfigError */
function checkCards(models: readonly ModelEntry[]): void {
  const onCards = models.filter(({ backend }) => backend === 'cuda');
  for (const model of onCards) {
    const other = onCards.find((each) => each !== model && deviceOf(each) === deviceOf(model));
    if (model.pages > 0 || (model.memoryMb ?? 0) > 0 || !other) continue;
    throw new ConfigError(
      `The models "${model.name}" and "${other.name}" share CUDA device ${deviceOf(model)}, and the pages of "${model.name}" would take all that is free there. ` +
        `Set memory_mb or pages of "${model.name}", or give it a device of its own.`,
    );
  }
}

/**
 * A story model, which serves functions that name no model, and a chat model. Fixed numbers of pages let both share a card: 1,024, and enough for a
 * context of the chat model and an eighth more.
 */
const DEFAULT_MODELS = [
  { name: 'stories15m', pages: 1024 },
  { name: 'minimind2-small', pages: 2304 },
];

/** The causal models of the `[[model]]` entries; without entries, the model that the environment names, or the defaults. @throws ConfigError */
export function modelEntries(writtenEntries: readonly WrittenEntry[] | undefined, env: ModelEnvironment): ModelEntry[] {
  const entries =
    writtenEntries?.filter((entry) => entry.kind === 'causal') ??
    (env.PIE_MODEL === undefined ? DEFAULT_MODELS : [{ name: env.PIE_MODEL }]).map((entry) =>
      causalSchema.parse(entry),
    );
  if (entries.length === 0)
    throw new ConfigError(
      'No [[model]] entry of pie.toml generates text. Add one without a kind, such as name = "stories15m".',
    );
  const names = entries.flatMap((entry) => [entry.name, ...entry.aliases]);
  if (new Set(names).size !== names.length)
    throw new ConfigError('Two [[model]] entries have the same name or alias. Give each its own.');
  const models = entries.map((entry) => {
    const weightBits = env.PIE_BITS === undefined ? (entry.bits ?? 32) : bits.parse(Number(env.PIE_BITS));
    const backend = env.PIE_BACKEND ?? entry.backend;
    return {
      name: entry.name,
      source: entry.source ?? entry.name,
      backend,
      bits: weightBits,
      headBits: entry.head_bits ?? weightBits,
      ...(env.PIE_BITS === undefined &&
        entry.bits === undefined &&
        entry.head_bits === undefined && { choosesBits: true }),
      ...(entry.precision && { precision: entry.precision }),
      ...(entry.kv && { kv: entry.kv }),
      ...(entry.device !== undefined && { device: entry.device }),
      ...(entry.memory_mb !== undefined && { memoryMb: entry.memory_mb }),
      ...(entry.step_deadline_s !== undefined && { stepDeadlineS: entry.step_deadline_s }),
      ...(entry.warm_up_s !== undefined && { warmUpS: entry.warm_up_s }),
      ...(entry.dependent_launch !== undefined && { dependentLaunch: entry.dependent_launch }),
      ...(entry.shared_prefixes !== undefined && { sharedPrefixes: entry.shared_prefixes }),
      pages: entry.pages ?? 0,
      pageSize: entry.page_size,
      maxBatchTokens: entry.max_batch_tokens,
      maxBatchSequences: entry.max_batch_sequences,
      ...(entry.step_memory_mb !== undefined && { stepMemoryMb: entry.step_memory_mb }),
      threads: env.PIE_THREADS ?? entry.threads ?? 0,
      prefixCache: entry.prefix_cache,
      swapMemoryMb: entry.swap_memory_mb,
      swapDiskMb: entry.swap_disk_mb,
      aliases: entry.aliases,
      adapters: entry.adapters,
      adapterMemoryMb: entry.adapter_memory_mb,
      imageCacheMb: entry.image_cache_mb,
      ...(entry.thoughts !== undefined && { thoughts: entry.thoughts }),
      ...(entry.pace && { pace: entry.pace }),
    };
  });
  checkCards(models);
  return models;
}

/** The encoders of the `[[model]]` entries; `models` are those of {@link modelEntries}. @throws ConfigError */
export function encoderEntries(
  writtenEntries: readonly WrittenEntry[] | undefined,
  env: ModelEnvironment,
  models: readonly ModelEntry[],
): EncoderEntry[] {
  const entries = writtenEntries?.filter((entry) => entry.kind !== 'causal') ?? [];
  const takenNames = new Set(models.flatMap(({ name, aliases = [] }) => [name, ...aliases]));
  for (const { name } of entries) {
    if (takenNames.has(name))
      throw new ConfigError('Two [[model]] entries have the same name or alias. Give each its own.');
    takenNames.add(name);
  }
  return entries.map(({ name, kind, source, threads, pace }) => ({
    name,
    kind,
    source,
    threads: env.PIE_THREADS ?? threads ?? 0,
    ...(pace && { pace }),
  }));
}
