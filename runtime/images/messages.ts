import type { ImagePreparation } from '#gpu-host/models/vision/preparation.ts';

/** What a worker is asked: one picture at a time. */
export interface Request {
  readonly image: Uint8Array;
  readonly preparation: ImagePreparation;
}
