import type { EncoderConfig } from '#gpu-host/models/encoder/config.ts';
import type { LoadedEncoder } from '#gpu-host/models/encoder/load.ts';
import type { Encoder, EncoderInput } from '../encoder.ts';
import { buildEncoder } from './encoder-graph.ts';
import { InferenceSession, Tensor } from './library.ts';
import { floats } from './outputs.ts';
import { sessionOptions } from './session-options.ts';

/** Runs a text encoder on the CPU, in an ONNX Runtime session of its own. */
export class OnnxEncoder implements Encoder {
  readonly config: EncoderConfig;
  readonly #session: InferenceSession;

  private constructor(config: EncoderConfig, session: InferenceSession) {
    this.config = config;
    this.#session = session;
  }

  static async open(model: LoadedEncoder, { threads }: { readonly threads?: number } = {}): Promise<OnnxEncoder> {
    return new OnnxEncoder(model.config, await InferenceSession.create(buildEncoder(model), sessionOptions(threads)));
  }

  async encode(inputs: readonly EncoderInput[]): Promise<readonly Float32Array[]> {
    if (inputs.length === 0) return [];
    const width = Math.max(...inputs.map(({ tokens }) => tokens.length));
    const shape = [inputs.length, width];
    const tokens = new Int32Array(inputs.length * width);
    const types = new Int32Array(inputs.length * width);
    inputs.forEach((input, row) => {
      tokens.set(input.tokens, row * width);
      types.set(input.types, row * width);
    });
    const lengths = Int32Array.from(inputs, (input) => input.tokens.length);
    const { results } = await this.#session.run({
      tokens: new Tensor('int32', tokens, shape),
      types: new Tensor('int32', types, shape),
      lengths: new Tensor('int32', lengths, [inputs.length, 1]),
    });
    const values = floats(results);
    const size = values.length / inputs.length;
    return inputs.map((_, row) => values.slice(row * size, (row + 1) * size));
  }

  dispose(): Promise<void> {
    return this.#session.release();
  }
}
