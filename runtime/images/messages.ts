import type { ImagePreparation } from '#gpu-host/models/vision/preparation.ts';

/** A job for a worker: one image. */
export interface Request {
  readonly image: Uint8Array;
  readonly preparation: ImagePreparation;
}
