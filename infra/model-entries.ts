import type { z } from 'zod';
import { ConfigError } from './config-error.ts';
import {
  batchPolicy,
  bits,
  causalSchema,
  type EncoderEntry,
  type ModelEntry,
  type ModelEnvironment,
  type modelSchema,
} from './model-entry.ts';

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
      batchPolicy: batchPolicy(entry),
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
