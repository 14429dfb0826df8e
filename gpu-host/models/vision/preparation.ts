import { z } from 'zod';
import { issueText, ModelError } from '../errors.ts';

/** Red, green, blue. */
export type Color = readonly [number, number, number];

/** Steps from an image of any size to the square of pixels that a vision tower takes, from `preprocessor_config.json`. */
export interface ImagePreparation {
  /** Side of the square, pixels. */
  readonly size: number;
  /** Colour (each value 0 to 255) of the padding that makes the image a square before other steps; null without padding. */
  readonly pad: Color | null;
  /**
   * Length of the shorter side after a proportional resize, from which the central square is then cut. Null for a resize of both sides to `size`.
   */
  readonly shortestEdge: number | null;
  readonly filter: ResizeFilter;
  /** A byte of a pixel becomes `(byte × scale − mean) / deviation`. */
  readonly scale: number;
  readonly mean: Color;
  readonly deviation: Color;
}

export type ResizeFilter = 'bilinear' | 'bicubic' | 'lanczos';

/** PIL's numbers of the supported filters. */
const FILTERS: ReadonlyMap<number, ResizeFilter> = new Map([
  [1, 'lanczos'],
  [2, 'bilinear'],
  [3, 'bicubic'],
]);
const BICUBIC = 3;

const pixels = z.int().min(1).max(8192);
const color = z.tuple([z.number(), z.number(), z.number()]);
const deviation = z.number().positive();
const sizeSchema = z.union([
  pixels,
  z.strictObject({ shortest_edge: pixels }),
  z.strictObject({ height: pixels, width: pixels }),
]);

const fileSchema = z.looseObject({
  image_processor_type: z.string().nullish(),
  feature_extractor_type: z.string().nullish(),
  do_resize: z.boolean().nullish(),
  size: sizeSchema.nullish(),
  do_center_crop: z.boolean().nullish(),
  crop_size: sizeSchema.nullish(),
  do_pad: z.boolean().nullish(),
  resample: z.int().nullish(),
  do_rescale: z.boolean().nullish(),
  rescale_factor: z.number().positive().nullish(),
  do_normalize: z.boolean().nullish(),
  image_mean: color.nullish(),
  image_std: z.tuple([deviation, deviation, deviation]).nullish(),
});

/** Defaults of CLIP's and SigLIP's processors for fields that the file leaves out. */
const DEFAULTS = {
  clip: {
    mean: [0.48145466, 0.4578275, 0.40821073] as Color,
    deviation: [0.26862954, 0.26130258, 0.27577711] as Color,
  },
  siglip: { mean: [0.5, 0.5, 0.5] as Color, deviation: [0.5, 0.5, 0.5] as Color },
};

/**
 * Reads the parsed JSON of a `preprocessor_config.json` of the CLIP, SigLIP or LLaVA processor, for a tower of `imageSize` pixels per side.
 *
 * @throws ModelError `malformed-config`, or `unsupported-model` when the result would not fit the tower
 */
export function parsePreparation(json: unknown, imageSize: number): ImagePreparation {
  const parsed = fileSchema.safeParse(json);
  if (!parsed.success) throw new ModelError('malformed-config', `preprocessor_config.json: ${issueText(parsed.error)}`);
  const file = parsed.data;
  const type = file.image_processor_type ?? file.feature_extractor_type ?? 'CLIPImageProcessor';
  const kind = /^(CLIP|Llava|Siglip)(ImageProcessor|FeatureExtractor)(Fast|Pil)?$/.exec(type)?.[1];
  if (kind === undefined) throw refused(`images are prepared by "${type}"`);
  const defaults = DEFAULTS[kind === 'Siglip' ? 'siglip' : 'clip'];
  if (file.do_resize === false) throw refused('images are not resized');
  const filter = FILTERS.get(file.resample ?? BICUBIC);
  if (filter === undefined) throw refused(`resample ${file.resample} is not a filter that Pie knows`);

  const shortestEdge = resizedEdge(file.size ?? imageSize, imageSize);
  const isCut = kind !== 'Siglip' && file.do_center_crop !== false;
  if (isCut && sideOf(file.crop_size ?? imageSize) !== imageSize) {
    throw refused(`images are cut to another size than the ${imageSize} pixels a side that the tower takes`);
  }
  if (!isCut && shortestEdge !== null) throw refused('images are resized in proportion and not cut to a square');
  const mean = file.image_mean ?? defaults.mean;
  const isNormalized = file.do_normalize !== false;
  return {
    size: imageSize,
    pad: file.do_pad ? [byteOf(mean[0]), byteOf(mean[1]), byteOf(mean[2])] : null,
    shortestEdge,
    filter,
    scale: file.do_rescale === false ? 1 : (file.rescale_factor ?? 1 / 255),
    mean: isNormalized ? mean : [0, 0, 0],
    deviation: isNormalized ? (file.image_std ?? defaults.deviation) : [1, 1, 1],
  };
}

/** The shorter side after resizing, or null when the image becomes the tower's square. */
function resizedEdge(size: z.infer<typeof sizeSchema>, imageSize: number): number | null {
  if (typeof size === 'object' && 'height' in size) {
    if (size.height === imageSize && size.width === imageSize) return null;
    throw refused(`images are resized to ${size.width} × ${size.height}, and the tower takes ${imageSize} a side`);
  }
  const edge = typeof size === 'number' ? size : size.shortest_edge;
  if (edge < imageSize) throw refused(`images are resized to ${edge} pixels, less than the tower's ${imageSize}`);
  return edge;
}

/** Pixels per side of a square; 0 for other shapes. */
function sideOf(size: z.infer<typeof sizeSchema>): number {
  if (typeof size === 'number') return size;
  if ('shortest_edge' in size) return size.shortest_edge;
  return size.height === size.width ? size.height : 0;
}

function byteOf(fraction: number): number {
  return Math.min(255, Math.max(0, Math.trunc(fraction * 255)));
}

function refused(what: string): ModelError {
  return new ModelError('unsupported-model', `preprocessor_config.json: ${what}`, {
    hint: 'supported: the image processors of CLIP, SigLIP and LLaVA, whose images are cut or resized to the size of the vision tower',
  });
}
