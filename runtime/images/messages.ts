import type { ImagePreparation } from '#gpu-host/models/vision/preparation.ts';

/** What a worker is asked: one picture at a time. */
export interface Request {
  readonly image: Uint8Array;
  readonly preparation: ImagePreparation;
}

/** The square of pixels, or what is wrong with the picture; and the CPU time that it took. */
export type Sent = { readonly cpuMs: number } & (
  | { readonly tag: 'ready' }
  | { readonly tag: 'ok'; readonly pixels: Uint8Array }
  | { readonly tag: 'refused'; readonly text: string }
);
