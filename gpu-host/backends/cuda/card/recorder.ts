import { type LoadedAdapter, PROJECTIONS } from '#gpu-host/models/adapter.ts';
import type { ModelConfig } from '#gpu-host/models/config.ts';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import type { Device } from '../../../protocol/host.ts';
import type {
  Backend,
  DeviceAdapter,
  Draw,
  SequenceInput,
  SequenceOutput,
  StateScores,
  TopTokens,
} from '../../backend.ts';
import { rotaryFrequencies } from '../../rotary.ts';
import { requireTraits } from '../../traits.ts';
import { tensorPlaces } from '../weights.ts';
import type { FixtureWriter } from './fixture-writer.ts';

/** `OPERATION` must match `OperationKind` of `native/harness/fixture.h`; the other constants must match `fixture.cu` beside it. */
const MAGIC = 'PIEFIX02';
const OPERATION = { case: 1, forward: 2, copy: 3, readPage: 4, writePage: 5, project: 6, score: 7, greedy: 8 } as const;
const TENSOR_TYPE = { BF16: 0, F16: 1, F32: 2 } as const;
const INPUTS = { tokens: 0, embeds: 1 } as const;
const OUTPUT = { none: 0, states: 1, top: 2 } as const;
const FLAG = { states: 1, tokensOnly: 2, attention: 4, allowed: 8, draws: 16 } as const;
const NO_ADAPTER = 0xffff_ffff;
const ZEROS = 0xffff_ffff;

/** Result of greedy decoding of a prompt. */
interface GreedyRun {
  readonly tokens: readonly number[];
  /** Each token's lead over the next best, nats. */
  readonly margins: readonly number[];
}

/**
 * Hands calls to the reference and writes each call with its results, so that a program without TypeScript can replay them on a card and
 * compare. For token outputs it writes the whole distribution, even when the call asked for less.
 */
export class Recorder implements Backend {
  readonly name = 'reference';
  readonly precision = 'float64';
  readonly #reference: Backend;
  readonly #writer: FixtureWriter;
  readonly #adapters: ReadonlyMap<DeviceAdapter, number>;
  readonly #pages: Uint8Array[] = [];

  private constructor(reference: Backend, writer: FixtureWriter, adapters: ReadonlyMap<DeviceAdapter, number>) {
    this.#reference = reference;
    this.#writer = writer;
    this.#adapters = adapters;
  }

  /** Begins a fixture: the model's shape, its tensors' places in the file `weights` of the fixture's folder, and all its adapters. */
  static begin(
    label: string,
    model: LoadedModel,
    weights: string,
    reference: Backend,
    writer: FixtureWriter,
    adapters: ReadonlyMap<DeviceAdapter, LoadedAdapter> = new Map(),
  ): Recorder {
    const { config } = model;
    // The format has the shape and the rotation of plain decoders only.
    requireTraits(config, 'a fixture', []);
    for (const word of MAGIC.match(/.{4}/g) ?? []) writer.unsigned(Buffer.from(word).readUInt32LE());
    writer.string(label);
    writeShape(writer, config);
    writer.unsigned(reference.pageSize, reference.pageCount);
    writer.array(rotaryFrequencies(config));
    writer.string(weights);
    const tensors = tensorPlaces(model);
    writer.unsigned(tensors.length);
    for (const { name, type, offset, count } of tensors) {
      writer.string(name);
      writer.unsigned(TENSOR_TYPE[type], offset, count);
    }
    writer.unsigned(adapters.size);
    for (const adapter of adapters.values()) writeAdapter(writer, adapter, config.layers);
    return new Recorder(reference, writer, new Map([...adapters.keys()].map((each, i) => [each, i])));
  }

  get config(): ModelConfig {
    return this.#reference.config;
  }
  get device(): Device {
    return this.#reference.device;
  }
  get pageSize(): number {
    return this.#reference.pageSize;
  }
  get pageCount(): number {
    return this.#reference.pageCount;
  }
  get pageBytes(): number {
    return this.#reference.pageBytes;
  }

  /** Names the case that the following calls belong to. */
  case(kind: string): void {
    this.#writer.unsigned(OPERATION.case);
    this.#writer.string(kind);
  }

  async forward(
    batch: readonly SequenceInput[],
    draws: readonly (readonly Draw[])[] = [],
  ): Promise<readonly SequenceOutput[]> {
    const { vocabularySize } = this.config;
    const outputs = await this.#reference.forward(batch);
    const isFull = ({ output }: SequenceInput) =>
      output.kind !== 'top' || (output.topK >= vocabularySize && !output.tokensOnly);
    // Run again when the call asked for less than the whole distribution; the second run writes the same keys to the same slots.
    const fullOutputs = batch.every(isFull)
      ? outputs
      : await this.#reference.forward(
          batch.map((each) =>
            each.output.kind === 'top'
              ? { ...each, output: { ...each.output, topK: vocabularySize, tokensOnly: false } }
              : each,
          ),
        );
    this.#writer.unsigned(OPERATION.forward, batch.length);
    batch.forEach((sequence, i) => {
      this.#sequence(sequence, draws[i] ?? [], outputs[i] as SequenceOutput, fullOutputs[i] as SequenceOutput);
    });
    return outputs;
  }

  async loadAdapter(): Promise<DeviceAdapter> {
    throw new Error('Adapters must be passed to Recorder.begin.');
  }

  async project(states: Float32Array, count: number, topK: number): Promise<TopTokens> {
    const { vocabularySize } = this.config;
    this.#writer.unsigned(OPERATION.project, count, Math.min(topK, vocabularySize));
    this.#writer.array(states);
    this.#writer.array(byToken(await this.#reference.project(states, count, vocabularySize)));
    return this.#reference.project(states, count, topK);
  }

  async score(states: Float32Array, count: number, tokens: readonly Uint32Array[]): Promise<StateScores> {
    const scores = await this.#reference.score(states, count, tokens);
    this.#writer.unsigned(OPERATION.score, count);
    this.#writer.array(states);
    tokens.forEach((list, i) => {
      this.#writer.array(list);
      this.#writer.array(scores.logProbabilities[i] as Float32Array);
    });
    this.#writer.array(scores.entropies);
    return scores;
  }

  copySlots(sources: Uint32Array, destinations: Uint32Array, shifts?: Int32Array): void {
    this.#reference.copySlots(sources, destinations, shifts);
    this.#writer.unsigned(OPERATION.copy);
    this.#writer.array(sources);
    this.#writer.array(destinations);
    this.#writer.array(shifts ?? new Int32Array(0));
  }

  readPage(page: number, into: Uint8Array): void {
    this.#reference.readPage(page, into);
    this.#writer.unsigned(OPERATION.readPage, page, this.#pages.length);
    this.#pages.push(into.slice());
  }

  /** Takes only bytes that `readPage` returned, or zeros. The fixture names the read, because each backend stores a page in its own bytes. */
  writePage(page: number, from: Uint8Array): void {
    this.#reference.writePage(page, from);
    const readIndex = this.#pages.findLastIndex((each) => Buffer.compare(each, from) === 0);
    if (readIndex < 0 && from.some((byte) => byte !== 0))
      throw new Error('Only pages that were read before can be written.');
    this.#writer.unsigned(OPERATION.writePage, page, readIndex < 0 ? ZEROS : readIndex);
  }

  /**
   * Decodes up to `count` tokens of a prompt from an empty cache, in slots from 0 on. Decoding ends before a token that leads the next best by
   * less than `leastMargin` nats, because rounding may pick either token there.
   */
  async greedy(prompt: Uint32Array, count: number, leastMargin: number): Promise<GreedyRun> {
    const tokens: number[] = [];
    const margins: number[] = [];
    let inputs = prompt;
    for (let contextLength = 0; tokens.length < count; ) {
      const slots = Uint32Array.from({ length: contextLength + inputs.length }, (_, slot) => slot);
      const [output] = await this.#reference.forward([
        {
          inputs: { kind: 'tokens', tokens: inputs },
          positions: slots.subarray(contextLength),
          context: slots.subarray(0, contextLength),
          mask: 'causal',
          writes: slots.subarray(contextLength),
          output: { kind: 'top', rows: 1, topK: 2 },
        },
      ]);
      if (output?.kind !== 'top') throw new Error('the reference returned no tokens');
      const margin = (output.logProbabilities[0] as number) - (output.logProbabilities[1] as number);
      if (margin < leastMargin) break;
      contextLength += inputs.length;
      tokens.push(output.tokens[0] as number);
      margins.push(margin);
      inputs = output.tokens.slice(0, 1);
    }
    this.#writer.unsigned(OPERATION.greedy);
    this.#writer.array(prompt);
    this.#writer.array(Uint32Array.from(tokens));
    this.#writer.array(Float32Array.from(margins));
    return { tokens, margins };
  }

  async dispose(): Promise<void> {
    await this.#reference.dispose();
  }

  #adapterOf({ adapter }: SequenceInput): number {
    if (adapter === undefined) return NO_ADAPTER;
    const adapterIndex = this.#adapters.get(adapter);
    if (adapterIndex === undefined) throw new Error('The adapter was not passed to Recorder.begin.');
    return adapterIndex;
  }

  #sequence(sequence: SequenceInput, draws: readonly Draw[], output: SequenceOutput, fullOutput: SequenceOutput): void {
    const writer = this.#writer;
    const { inputs, positions, context, mask, writes, output: requestedOutput } = sequence;
    if (inputs.kind === 'picked') throw new Error('Sequences with picked tokens cannot be recorded.');
    writer.unsigned(this.#adapterOf(sequence), positions.length, INPUTS[inputs.kind]);
    writer.array(inputs.kind === 'tokens' ? inputs.tokens : inputs.embeds);
    writer.array(positions);
    writer.array(context);
    writer.byteArray(mask === 'causal' ? new Uint8Array(0) : mask);
    writer.array(writes);
    const top = requestedOutput.kind === 'top' ? requestedOutput : undefined;
    const rows = requestedOutput.kind === 'none' ? 0 : requestedOutput.rows;
    if (draws.length > 0 && draws.length !== rows)
      throw new Error(`The reader expects as many draws as rows of output: ${rows}, not ${draws.length}.`);
    const flags =
      (requestedOutput.kind === 'states' || top?.states ? FLAG.states : 0) |
      (top?.tokensOnly ? FLAG.tokensOnly : 0) |
      (sequence.attention ? FLAG.attention : 0) |
      (top?.allowed ? FLAG.allowed : 0) |
      (draws.length > 0 ? FLAG.draws : 0);
    writer.unsigned(OUTPUT[requestedOutput.kind], rows, Math.min(top?.topK ?? 0, this.config.vocabularySize), flags);
    if (top?.allowed) writer.array(top.allowed);
    for (const { temperature, topP, minP, seed, position } of draws) {
      writer.float(temperature);
      writer.float(topP);
      writer.float(minP);
      writer.unsigned(seed, position);
    }
    if (flags & FLAG.states) writer.array((output.kind === 'none' ? undefined : output.states) ?? new Float32Array(0));
    if (fullOutput.kind === 'top') writer.array(byToken(fullOutput));
    if (sequence.attention) writer.array(output.attention ?? new Float32Array(0));
  }
}

/** Log-probabilities by row and token, -Infinity for tokens without one. */
function byToken({ topK, tokens, logProbabilities }: TopTokens): Float32Array {
  const result = new Float32Array(tokens.length).fill(Number.NEGATIVE_INFINITY);
  tokens.forEach((token, i) => {
    const value = logProbabilities[i] as number;
    if (value !== Number.NEGATIVE_INFINITY) result[Math.floor(i / topK) * topK + token] = value;
  });
  return result;
}

function writeShape(writer: FixtureWriter, config: ModelConfig): void {
  writer.unsigned(
    config.hiddenSize,
    config.intermediateSize,
    config.layers,
    config.heads,
    config.kvHeads,
    config.headDim,
    config.vocabularySize,
  );
  writer.float(config.rmsNormEpsilon);
  writer.unsigned(Number(config.tiedEmbeddings), Number(config.attentionBias), Number(config.queryKeyNorm));
}

/** Writes every matrix pair, with the adapter's scale multiplied into B. */
function writeAdapter(writer: FixtureWriter, adapter: LoadedAdapter, layers: number): void {
  const pairs = Array.from({ length: layers }, (_, layer) => layer).flatMap((layer) =>
    PROJECTIONS.flatMap((projection) => {
      const matrices = adapter.read(layer, projection);
      return matrices === undefined ? [] : [{ layer, projection, ...matrices }];
    }),
  );
  writer.unsigned(pairs.length);
  for (const { layer, projection, a, b } of pairs) {
    writer.unsigned(layer);
    writer.string(projection);
    writer.unsigned(adapter.rank);
    writer.array(a);
    writer.array(b.map((value) => value * adapter.scale));
  }
}
