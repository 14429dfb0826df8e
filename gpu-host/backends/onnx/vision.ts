import { InferenceSession, Tensor } from 'onnxruntime-node';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import type { VisionConfig } from '#gpu-host/models/vision/config.ts';
import type { ImageEncoder } from '../backend.ts';
import { checkImages } from '../check.ts';
import { LazySession } from './lazy-session.ts';
import { floats } from './outputs.ts';
import { sessionOptions } from './session-options.ts';
import { buildVision } from './vision-graph.ts';

/** A vision tower and its projector in a session of their own, made with the first picture. */
export class OnnxImageEncoder implements ImageEncoder {
  readonly config: VisionConfig;
  readonly #session: LazySession;

  constructor(model: LoadedModel, config: VisionConfig, threads: number | undefined) {
    this.config = config;
    this.#session = new LazySession(() => InferenceSession.create(buildVision(model, config), sessionOptions(threads)));
  }

  /** Of a model with a tower. */
  static of(model: LoadedModel, threads: number | undefined): OnnxImageEncoder | undefined {
    return model.vision && new OnnxImageEncoder(model, model.vision, threads);
  }

  async encode(images: readonly Uint8Array[]): Promise<readonly Float32Array[]> {
    checkImages(this.config, images);
    if (images.length === 0) return [];
    const { imageSize, embeds, embedSize } = this.config;
    const imageBytes = 3 * imageSize * imageSize;
    const pixels = new Uint8Array(images.length * imageBytes);
    images.forEach((image, i) => {
      pixels.set(image, i * imageBytes);
    });
    const session = await this.#session.get();
    const shape = [images.length, imageSize, imageSize, 3];
    const result = await session.run({ pixels: new Tensor('uint8', pixels, shape) });
    const all = floats(result.embeds);
    const values = embeds * embedSize;
    // Slices, since embeds live on one by one.
    return images.map((_, i) => all.slice(i * values, (i + 1) * values));
  }

  release(): Promise<void> {
    return this.#session.release();
  }
}
