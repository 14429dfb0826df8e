import { type LoadedModel, openWeights } from '#gpu-host/models/load.ts';
import type { VisionConfig } from '#gpu-host/models/vision/config.ts';
import { expectedVisionTensors } from '#gpu-host/models/vision/tensors.ts';
import type { ImageEncoder } from '../backend.ts';
import { checkImages } from '../check.ts';
import { InferenceSession, Tensor } from './library.ts';
import { floats } from './outputs.ts';
import { sessionOptions } from './session-options.ts';
import { buildVision } from './vision-graph.ts';

/** A vision tower and its projector in a session of their own. */
export class OnnxImageEncoder implements ImageEncoder {
  readonly config: VisionConfig;
  readonly #session: InferenceSession;

  private constructor(config: VisionConfig, session: InferenceSession) {
    this.config = config;
    this.#session = session;
  }

  /** Opens the encoder of a model with a vision tower; undefined for other models. */
  static async open(model: LoadedModel, threads: number | undefined): Promise<OnnxImageEncoder | undefined> {
    const { vision } = model;
    if (!vision) return undefined;
    const session = await openWeights(
      model.tensors,
      expectedVisionTensors(vision),
      () => InferenceSession.create(buildVision(model, vision), sessionOptions(threads)),
      (created) => created.release(),
    );
    return new OnnxImageEncoder(vision, session);
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
    const shape = [images.length, imageSize, imageSize, 3];
    const result = await this.#session.run({ pixels: new Tensor('uint8', pixels, shape) });
    const allEmbeds = floats(result.embeds);
    const imageValues = embeds * embedSize;
    // Slices copy: callers keep single images' embeds, and a view would keep the whole batch in memory.
    return images.map((_, i) => allEmbeds.slice(i * imageValues, (i + 1) * imageValues));
  }

  release(): Promise<void> {
    return this.#session.release();
  }
}
