/** Cases of `input-image`, on a model with a vision tower that turns an image into nine embeds. */
import { model } from '@pie/inferlet';
import { attempt, forward, inputImage, outputText, settle } from '@pie/inferlet/raw';
import { type Cases, embedsOf, NO_ADDRESS, NO_MODEL, near, newQueue, pagesOf, upTo } from './case.ts';
import { asked } from './compute.ts';

/** The model that takes images; the default model takes none. */
const VISION = 'tiny-vision';
const EMBEDS = 9;
/** The token that stands for an image, by the model's config. */
const TOKEN = 3;

/** A PNG of two pixels side by side, red and blue. */
const IMAGE = bytes(
  '89504e470d0a1a0a0000000d49484452000000020000000108020000007b40e8dd' +
    '0000000d4944415478da63f8cf0004ff01070001ff3d7d8c490000000049454e44ae426082',
);
/** The image with a changed byte in its pixel data. */
const DAMAGED = IMAGE.map((byte, i) => (i === 45 ? byte ^ 0xff : byte));

function bytes(hex: string): Uint8Array {
  return Uint8Array.from(hex.match(/../g) ?? [], (byte) => Number.parseInt(byte, 16));
}

function embedsFor(width: number, height: number, name = VISION): number {
  using queue = newQueue(name);
  return attempt(() => inputImage.imageEmbeds(queue, { width, height }));
}

const embed = (image: Uint8Array, { name = VISION, count = EMBEDS, address = 0 } = {}) =>
  asked((queue) => {
    const embeds = address === 0 ? embedsOf(queue, count) : upTo(count, address);
    return inputImage.embedImage(queue, image, upTo(count), embeds);
  }, name);

export const imageCases: Cases = {
  'input-image.image-dimensions': {
    ok: () => {
      const { width, height } = attempt(() => inputImage.imageDimensions(IMAGE));
      return width === 2 && height === 1;
    },
    fails: { 'invalid-argument': () => attempt(() => inputImage.imageDimensions(new Uint8Array(70))) },
  },
  'input-image.image-embeds': {
    ok: () => embedsFor(2, 1) === EMBEDS && embedsFor(4000, 3000) === EMBEDS,
    fails: {
      'invalid-argument': () => embedsFor(5000, 5000),
      unsupported: () => embedsFor(2, 1, model().name),
      'not-found': () => embedsFor(2, 1, NO_MODEL),
    },
  },
  'input-image.image-token': {
    ok: () => attempt(() => inputImage.imageToken(VISION)) === TOKEN,
    fails: {
      unsupported: () => attempt(() => inputImage.imageToken(model().name)),
      'not-found': () => attempt(() => inputImage.imageToken(NO_MODEL)),
    },
  },
  'input-image.embed-image': {
    ok: async () => {
      using queue = newQueue(VISION);
      const [first, second] = [embedsOf(queue, EMBEDS), embedsOf(queue, EMBEDS)];
      const [state = 0] = embedsOf(queue, 1);
      const encoded = [first, second].map((embeds) =>
        settle(inputImage.embedImage(queue, IMAGE, upTo(EMBEDS), embeds)),
      );
      // The guest forwards the embeds without waiting for the answers to `embed-image`.
      forward.forward(queue, [], first, pagesOf(queue, 1), [state], undefined);
      const next = await settle(outputText.nextDistribution(queue, state, 3));
      await Promise.all(encoded);
      const [values = [], same = []] = await Promise.all(
        [first[0] ?? 0, second[0] ?? 0].map((address) => settle(outputText.readEmbed(queue, address))),
      );
      return next.tokens.length === 3 && near(values, same, 1e-5) && values.some((value) => value !== 0);
    },
    fails: {
      'invalid-argument': () => embed(DAMAGED),
      'not-owned': () => embed(IMAGE, { address: NO_ADDRESS }),
      unsupported: () => embed(IMAGE, { name: model().name }),
      'not-found': () => embed(IMAGE, { name: NO_MODEL, address: NO_ADDRESS }),
    },
  },
};
