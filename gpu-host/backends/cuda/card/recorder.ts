import type { LoadedAdapter } from '#gpu-host/models/adapter.ts';
import { PROJECTIONS } from '#gpu-host/models/adapter-config.ts';
import type { ModelConfig } from '#gpu-host/models/config.ts';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import type {
  Backend,
  Device,
  DeviceAdapter,
  SequenceInput,
  SequenceOutput,
  StateScores,
  TopTokens,
} from '../../backend.ts';
import { rotaryFrequencies } from '../../rotary.ts';
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

/** Parameters for drawing one row's token from its most probable tokens; see `native/kernels/head.h`. */
export interface Draw {
  readonly temperature: number;
  readonly topP: number;
  readonly minP: number;
  readonly seed: number;
  readonly position: number;
}

/** Result of greedy decoding of a prompt. */
export interface GreedyRun {
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
  readonly #out: FixtureWriter;
  readonly #adapters: ReadonlyMap<DeviceAdapter, number>;
  readonly #pages: Uint8Array[] = [];

  private constructor(reference: Backend, out: FixtureWriter, adapters: ReadonlyMap<DeviceAdapter, number>) {
    this.#reference = reference;
    this.#out = out;
    this.#adapters = adapters;
  }

  /** Begins a fixture: the model's shape, its tensors' places in the file `weights` of the fixture's folder, and all its adapters. */
  static begin(
    label: string,
    model: LoadedModel,
    weights: string,
    reference: Backend,
    out: FixtureWriter,
    adapters: ReadonlyMap<DeviceAdapter, LoadedAdapter> = new Map(),
  ): Recorder {
    const { config } = model;
    for (const word of MAGIC.match(/.{4}/g) ?? []) out.unsigned(Buffer.from(word).readUInt32LE());
    out.string(label);
    writeShape(out, config);
    out.unsigned(reference.pageSize, reference.pageCount);
    out.array(rotaryFrequencies(config));
    out.string(weights);
    const tensors = tensorPlaces(model);
    out.unsigned(tensors.length);
    for (const { name, type, offset, count } of tensors) {
      out.string(name);
      out.unsigned(TENSOR_TYPE[type], offset, count);
    }
    out.unsigned(adapters.size);
    for (const adapter of adapters.values()) writeAdapter(out, adapter, config.layers);
    return new Recorder(reference, out, new Map([...adapters.keys()].map((each, i) => [each, i])));
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
    this.#out.unsigned(OPERATION.case);
    this.#out.string(kind);
  }

  async forward(
    batch: readonly SequenceInput[],
    draws: readonly (readonly Draw[])[] = [],
  ): Promise<readonly SequenceOutput[]> {
    const { vocabularySize } = this.config;
    const outputs = await this.#reference.forward(batch);
    const isWhole = ({ output }: SequenceInput) =>
      output.kind !== 'top' || (output.topK >= vocabularySize && !output.tokensOnly);
    // Run again when the call asked for less than the whole distribution; the second run writes the same keys to the same slots.
    const whole = batch.every(isWhole)
      ? outputs
      : await this.#reference.forward(
          batch.map((each) =>
            each.output.kind === 'top'
              ? { ...each, output: { ...each.output, topK: vocabularySize, tokensOnly: false } }
              : each,
          ),
        );
    this.#out.unsigned(OPERATION.forward, batch.length);
    batch.forEach((sequence, i) => {
      this.#sequence(sequence, draws[i] ?? [], outputs[i] as SequenceOutput, whole[i] as SequenceOutput);
    });
    return outputs;
  }

  async loadAdapter(): Promise<DeviceAdapter> {
    throw new Error('Adapters must be passed to Recorder.begin.');
  }

  async project(states: Float32Array, count: number, topK: number): Promise<TopTokens> {
    const { vocabularySize } = this.config;
    this.#out.unsigned(OPERATION.project, count, Math.min(topK, vocabularySize));
    this.#out.array(states);
    this.#out.array(byToken(await this.#reference.project(states, count, vocabularySize)));
    return this.#reference.project(states, count, topK);
  }

  async score(states: Float32Array, count: number, tokens: readonly Uint32Array[]): Promise<StateScores> {
    const scores = await this.#reference.score(states, count, tokens);
    this.#out.unsigned(OPERATION.score, count);
    this.#out.array(states);
    tokens.forEach((list, i) => {
      this.#out.array(list);
      this.#out.array(scores.logProbabilities[i] as Float32Array);
    });
    this.#out.array(scores.entropies);
    return scores;
  }

  copySlots(sources: Uint32Array, destinations: Uint32Array, shifts?: Int32Array): void {
    this.#reference.copySlots(sources, destinations, shifts);
    this.#out.unsigned(OPERATION.copy);
    this.#out.array(sources);
    this.#out.array(destinations);
    this.#out.array(shifts ?? new Int32Array(0));
  }

  readPage(page: number, into: Uint8Array): void {
    this.#reference.readPage(page, into);
    this.#out.unsigned(OPERATION.readPage, page, this.#pages.length);
    this.#pages.push(into.slice());
  }

  /** Takes bytes that `readPage` returned, or zeros: another backend's bytes for the same page differ from the reference's. */
  writePage(page: number, from: Uint8Array): void {
    this.#reference.writePage(page, from);
    const known = this.#pages.findLastIndex((each) => Buffer.compare(each, from) === 0);
    if (known < 0 && from.some((byte) => byte !== 0))
      throw new Error('Only pages that were read before can be written.');
    this.#out.unsigned(OPERATION.writePage, page, known < 0 ? ZEROS : known);
  }

  /**
   * Decodes up to `count` tokens of a prompt from an empty cache, in slots from 0 on. It ends before a token that leads the next best by
   * less than `leastMargin` nats, because rounding may pick either token there.
   */
  async greedy(prompt: Uint32Array, count: number, leastMargin: number): Promise<GreedyRun> {
    const tokens: number[] = [];
    const margins: number[] = [];
    let inputs = prompt;
    for (let at = 0; tokens.length < count; ) {
      const slots = Uint32Array.from({ length: at + inputs.length }, (_, slot) => slot);
      const [output] = await this.#reference.forward([
        {
          inputs: { kind: 'tokens', tokens: inputs },
          positions: slots.subarray(at),
          context: slots.subarray(0, at),
          mask: 'causal',
          writes: slots.subarray(at),
          output: { kind: 'top', rows: 1, topK: 2 },
        },
      ]);
      if (output?.kind !== 'top') throw new Error('the reference returned no tokens');
      const margin = (output.logProbabilities[0] as number) - (output.logProbabilities[1] as number);
      if (margin < leastMargin) break;
      at += inputs.length;
      tokens.push(output.tokens[0] as number);
      margins.push(margin);
      inputs = output.tokens.slice(0, 1);
    }
    this.#out.unsigned(OPERATION.greedy);
    this.#out.array(prompt);
    this.#out.array(Uint32Array.from(tokens));
    this.#out.array(Float32Array.from(margins));
    return { tokens, margins };
  }

  async dispose(): Promise<void> {
    await this.#reference.dispose();
  }

  #adapterOf({ adapter }: SequenceInput): number {
    if (adapter === undefined) return NO_ADAPTER;
    const known = this.#adapters.get(adapter);
    if (known === undefined) throw new Error('The adapter was not passed to Recorder.begin.');
    return known;
  }

  #sequence(sequence: SequenceInput, draws: readonly Draw[], output: SequenceOutput, whole: SequenceOutput): void {
    const out = this.#out;
    const { inputs, positions, context, mask, writes, output: wanted } = sequence;
    if (inputs.kind === 'picked') throw new Error('Sequences with picked tokens cannot be recorded.');
    out.unsigned(this.#adapterOf(sequence), positions.length, INPUTS[inputs.kind]);
    out.array(inputs.kind === 'tokens' ? inputs.tokens : inputs.embeds);
    out.array(positions);
    out.array(context);
    out.byteArray(mask === 'causal' ? new Uint8Array(0) : mask);
    out.array(writes);
    const top = wanted.kind === 'top' ? wanted : undefined;
    const rows = wanted.kind === 'none' ? 0 : wanted.rows;
    if (draws.length > 0 && draws.length !== rows)
      throw new Error(`The reader expects as many draws as rows of output: ${rows}, not ${draws.length}.`);
    const flags =
      (wanted.kind === 'states' || top?.states ? FLAG.states : 0) |
      (top?.tokensOnly ? FLAG.tokensOnly : 0) |
      (sequence.attention ? FLAG.attention : 0) |
      (top?.allowed ? FLAG.allowed : 0) |
      (draws.length > 0 ? FLAG.draws : 0);
    out.unsigned(OUTPUT[wanted.kind], rows, Math.min(top?.topK ?? 0, this.config.vocabularySize), flags);
    if (top?.allowed) out.array(top.allowed);
    for (const { temperature, topP, minP, seed, position } of draws) {
      out.float(temperature);
      out.float(topP);
      out.float(minP);
      out.unsigned(seed, position);
    }
    if (flags & FLAG.states) out.array((output.kind === 'none' ? undefined : output.states) ?? new Float32Array(0));
    if (whole.kind === 'top') out.array(byToken(whole));
    if (sequence.attention) out.array(output.attention ?? new Float32Array(0));
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

function writeShape(out: FixtureWriter, config: ModelConfig): void {
  out.unsigned(
    config.hiddenSize,
    config.intermediateSize,
    config.layers,
    config.heads,
    config.kvHeads,
    config.headDim,
    config.vocabularySize,
  );
  out.float(config.rmsNormEpsilon);
  out.unsigned(Number(config.tiedEmbeddings), Number(config.attentionBias), Number(config.queryKeyNorm));
}

/** Writes every matrix pair, with the adapter's scale multiplied into B. */
function writeAdapter(out: FixtureWriter, adapter: LoadedAdapter, layers: number): void {
  const pairs = Array.from({ length: layers }, (_, layer) => layer).flatMap((layer) =>
    PROJECTIONS.flatMap((projection) => {
      const matrices = adapter.read(layer, projection);
      return matrices === undefined ? [] : [{ layer, projection, ...matrices }];
    }),
  );
  out.unsigned(pairs.length);
  for (const { layer, projection, a, b } of pairs) {
    out.unsigned(layer);
    out.string(projection);
    out.unsigned(adapter.rank);
    out.array(a);
    out.array(b.map((value) => value * adapter.scale));
  }
}
