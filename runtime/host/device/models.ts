import { join } from 'node:path';
import { z } from 'zod';
import { parseConfig } from '#gpu-host/models/config.ts';
import { expectedTensors, readJson } from '#gpu-host/models/load.ts';
import { type ThoughtSetting, thoughtsOf } from '#gpu-host/models/thoughts.ts';
import { loadTokenizer, type Tokenizer } from '#gpu-host/models/tokenizer.ts';
import type { VisionConfig } from '#gpu-host/models/vision/config.ts';
import { readVision } from '#gpu-host/models/vision/read.ts';
import { expectedVisionTensors } from '#gpu-host/models/vision/tensors.ts';
import type { GpuHostConnection, ModelSummary } from '#gpu-host/protocol/client.ts';
import type { Logger } from '#scheduler/policies/logger.ts';
import { preference, wasOpen } from '#scheduler/policies/placement.ts';
import type { RuntimeEncoder, RuntimeModel } from '#scheduler/runtimes/types.ts';
import type { ModelMetadata } from '#wit/generated/host.ts';
import { Draining } from './gpu-hosts.ts';
import type { GrantedEncoder, GrantedModel } from './granted.ts';

/** A model and a GPU host that has it. */
type Offer = Pick<GrantedModel, 'summary' | 'connection'>;

/** Selects one of several hosts that have the same model; see the parameters of {@link Models.granted}. */
interface Placement {
  readonly key: string;
  readonly placedAtMs: number;
}

/** The models of all GPU hosts that this runtime is connected to. */
export class Models {
  readonly #hosts: { readonly list: readonly GpuHostConnection[] };
  readonly #tokenizers = new Map<string, Promise<Tokenizer | null>>();
  readonly #metadata = new Map<string, Promise<ModelMetadata | null>>();
  /** The tokenizers that were read, by directory. */
  readonly #read = new Map<string, Tokenizer>();
  readonly #vision = new Map<string, Promise<VisionConfig | null>>();
  readonly #grammars: GrantedModel['grammars'];
  readonly #draining: Draining;
  readonly #log: Logger;

  constructor(
    hosts: { readonly list: readonly GpuHostConnection[] },
    grammars: GrantedModel['grammars'],
    log: Logger,
    draining = new Draining(),
  ) {
    this.#draining = draining;
    this.#hosts = hosts;
    this.#grammars = grammars;
    this.#log = log;
  }

  /**
   * Summaries of all models. When several hosts have a model of the same name, takes the summary of the first open host. A host is open when it
   * is connected and not drained.
   */
  list(): readonly ModelSummary[] {
    return [...this.#offers().values()].map(({ summary }) => summary);
  }

  /** Reads the tokenizers of all models, which {@link offered} needs to tell whether a model chats and thinks. */
  async readTokenizers(): Promise<void> {
    await Promise.all(
      this.#hosts.list.flatMap(({ models }) => models.map(({ directory }) => this.#tokenizer(directory))),
    );
  }

  /**
   * The models that a runtime publishes, with their hosts. Leaves out the model of a host that is not open when an open host has the same model.
   */
  offered(): readonly RuntimeModel[] {
    const hosts = this.#hosts.list;
    const open = hosts.map((connection) => this.#isOpen(connection));
    const openModelNames = new Set(hosts.flatMap(({ models }, i) => (open[i] ? models.map(({ name }) => name) : [])));
    // With several machines, a host is named `host@machine`: publish that name even while this runtime sees only one host.
    const hasSeveralHosts = hosts.length > 1 || hosts.some(({ name }) => name.includes('@'));
    return hosts.flatMap(({ name: host, models, hostId }, i) =>
      models
        .filter(({ name }) => open[i] || !openModelNames.has(name))
        .map(({ name, contextLength, vocabularySize, pageSize, pageCount, traits, directory, thoughts }) => ({
          name,
          contextLength,
          vocabularySize,
          pageSize,
          pageCount,
          traits,
          ...templateTraits(this.#read.get(directory), thoughts),
          ...(hostId !== undefined && { hostId }),
          ...(hasSeveralHosts && { host }),
        })),
    );
  }

  /** The encoders that a runtime publishes. */
  offeredEncoders(): readonly RuntimeEncoder[] {
    const all = this.#hosts.list.flatMap(({ encoders }) => encoders);
    return [...new Map(all.map((encoder) => [encoder.name, encoder])).values()].map(
      ({ name, kind, size, contextLength }) => ({ name, kind, size, contextLength }),
    );
  }

  /**
   * The models that a function may use, by name: all of them when `names` is empty. Names that no host offers are left out. A host that is
   * away keeps its models; calls on them answer `unavailable`.
   *
   * @param key selects among several hosts with a model: the same key selects the same host
   * @param placedAtMs when the root invocation was placed, by `performance.now`: a host that was drained later still serves the root's children
   */
  async granted(
    names: readonly string[],
    key = '',
    placedAtMs = performance.now(),
  ): Promise<ReadonlyMap<string, GrantedModel>> {
    const offers = this.#offers({ key, placedAtMs });
    const wanted = names.length === 0 ? [...offers.keys()] : names;
    const granted = await Promise.all(
      wanted.flatMap((name) => {
        const offer = offers.get(name);
        if (!offer) return [];
        const grammars = this.#grammars;
        return [
          Promise.all([
            this.#tokenizer(offer.summary.directory),
            this.#metadataOf(offer.summary),
            this.#visionOf(offer.summary),
          ]).then(
            ([tokenizer, metadata, vision]) => [name, { ...offer, tokenizer, metadata, vision, grammars }] as const,
          ),
        ];
      }),
    );
    return new Map(granted);
  }

  /** The encoders that a function may use, by name; names and parameters as in `granted`. */
  encoders(names: readonly string[], key = '', placedAtMs = performance.now()): ReadonlyMap<string, GrantedEncoder> {
    const offers = this.#best(({ encoders }) => encoders, { key, placedAtMs });
    if (names.length === 0) return offers;
    return new Map([...offers].filter(([name]) => names.includes(name)));
  }

  #offers(place?: Placement): Map<string, Offer> {
    return this.#best(({ models }) => models, place);
  }

  /** The summaries by name. When several hosts have a model or encoder of the same name, the host with the highest rank counts. */
  #best<S extends { readonly name: string }>(
    summariesOf: (connection: GpuHostConnection) => readonly S[],
    place?: Placement,
  ): Map<string, { readonly summary: S; readonly connection: GpuHostConnection }> {
    const best = new Map<string, { summary: S; connection: GpuHostConnection; rank: number }>();
    for (const connection of this.#inOrder(place?.key)) {
      const rank = this.#rank(connection, place?.placedAtMs ?? performance.now());
      for (const summary of summariesOf(connection)) {
        if (rank > (best.get(summary.name)?.rank ?? -1)) best.set(summary.name, { summary, connection, rank });
      }
    }
    return best;
  }

  /**
   * Rank of a host for an invocation: 3 if the host was open when the invocation was placed and has stayed connected since, 2 if it is open only
   * now, 1 if it is drained, 0 if it is away. Of hosts with equal ranks, the first one wins, in the order of `#inOrder`.
   */
  #rank(connection: GpuHostConnection, placedAtMs: number): number {
    const { connected, connectedSinceMs: connectedAt, name } = connection;
    const drain = this.#draining.steadyOf(name);
    const host = { connected, ...(connectedAt !== undefined && { connectedAt }), ...(drain && { drain }) };
    if (wasOpen(host, placedAtMs)) return 3;
    if (this.#isOpen(connection)) return 2;
    return connected ? 1 : 0;
  }

  #isOpen({ connected, name }: GpuHostConnection): boolean {
    return connected && !this.#draining.isDrained(name);
  }

  #inOrder(key: string | undefined): readonly GpuHostConnection[] {
    const { list } = this.#hosts;
    if (key === undefined || list.length === 1) return list;
    return preference(
      key,
      list.map(({ name }) => name),
    ).map((i) => list[i] as GpuHostConnection);
  }

  #metadataOf(summary: ModelSummary): Promise<ModelMetadata | null> {
    const key = `${summary.directory} ${summary.bits}`;
    let reading = this.#metadata.get(key);
    if (!reading) {
      reading = readMetadata(summary).catch((error: unknown) => {
        // The next call reads again: the failure may be temporary.
        this.#metadata.delete(key);
        this.#log.warn({ error, model: summary.name }, 'the metadata of a model could not be read');
        return null;
      });
      this.#metadata.set(key, reading);
    }
    return reading;
  }

  #visionOf({ directory, traits }: ModelSummary): Promise<VisionConfig | null> {
    if (!traits.includes('input-image')) return NO_VISION;
    let reading = this.#vision.get(directory);
    if (!reading) {
      reading = readVision(directory).then(
        (vision) => vision ?? null,
        (error: unknown) => {
          this.#vision.delete(directory);
          this.#log.warn({ error, directory }, 'the settings of an image encoder could not be read');
          return null;
        },
      );
      this.#vision.set(directory, reading);
    }
    return reading;
  }

  #tokenizer(directory: string): Promise<Tokenizer | null> {
    let loading = this.#tokenizers.get(directory);
    if (!loading) {
      loading = loadTokenizer(directory).then(
        (tokenizer) => {
          this.#read.set(directory, tokenizer);
          return tokenizer;
        },
        (error: unknown) => {
          this.#tokenizers.delete(directory);
          this.#log.warn({ error, directory }, 'a tokenizer could not be read');
          return null;
        },
      );
      this.#tokenizers.set(directory, loading);
    }
    return loading;
  }
}

/** What a chat template tells about a model; nothing for a tokenizer that was not read. */
function templateTraits(
  tokenizer: Tokenizer | undefined,
  setting: ThoughtSetting | undefined,
): Pick<RuntimeModel, 'chat' | 'thoughts'> {
  if (tokenizer === undefined) return {};
  const format = thoughtsOf(tokenizer, setting);
  return {
    chat: tokenizer.chatTemplate !== null,
    ...(format && { thoughts: { begin: format.begin, end: format.end } }),
  };
}

const NO_VISION = Promise.resolve(null);

const namesSchema = z.looseObject({ architectures: z.array(z.string()).nullish() });

/** A model's metadata from its directory; the GPU host gives the weights' bits. @throws ModelError when the directory cannot be read */
export async function readMetadata({ directory, bits }: ModelSummary): Promise<ModelMetadata> {
  const file = await readJson(join(directory, 'config.json'));
  const config = parseConfig(file);
  const names = namesSchema.safeParse(file);
  const vision = await readVision(directory);
  const tensors = [...expectedTensors(config), ...(vision ? expectedVisionTensors(vision) : [])];
  const parameters = tensors.reduce(
    (sum, [, shape]) => sum + BigInt(shape.reduce((product, size) => product * size, 1)),
    0n,
  );
  return {
    architecture: (names.success && names.data.architectures?.[0]) || config.family,
    parameters,
    layers: config.layers,
    hiddenSize: config.hiddenSize,
    attentionHeads: config.heads,
    keyValueHeads: config.kvHeads,
    headSize: config.headDim,
    bits,
  };
}
