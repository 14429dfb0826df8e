import { type Context, sequenceOf } from './context.ts';
import { InferletError } from './errors.ts';
import { range } from './pages.ts';
import { takeError } from './queue-errors.ts';
import { allocate, attempt, inputImage, settle } from './raw.ts';
import { NO_TOKEN } from './sequence.ts';

/**
 * Appends an image (PNG or JPEG) to a context. Throws `unsupported` for models without the trait input-image. Computes
 * the whole context at once. The image and the tokens before it cannot be cut afterwards: fork the context before the
 * image to go back. Fill in text before generating. `tokens` then holds −1 for each embed of the image. Throws
 * `invalid-argument`, and leaves the context unchanged, for a broken image.
 * @returns the number of embeds
 *
 * @example
 * await fillImage(ctx, image);
 * const { text } = await ctx.fill('This image shows').generate({ maxTokens: 32 }).collect();
 */
export async function fillImage(context: Context, image: Uint8Array): Promise<number> {
  const sequence = sequenceOf(context);
  const { model, queue, cache } = sequence;
  if (!model.traits.includes('input-image')) {
    throw new InferletError('unsupported', `${model.name} takes no images (trait input-image).`);
  }
  const count = attempt(() => inputImage.imageEmbeds(queue, inputImage.imageDimensions(image)));
  sequence.checkRoom(count);
  const before = sequence.pending > 0 ? sequence.compute(sequence.pending) : undefined;
  const start = sequence.firstPending(false);
  const { sealed } = cache;
  const { inPages, outPages } = cache.access(count);
  const embeds = attempt(() => allocate.allocateEmbeds(queue, count));
  const encoded = settle(inputImage.embedImage(queue, image, range(sequence.length, count), embeds));
  sequence.pass(inPages, embeds, outPages, []);
  allocate.freeEmbeds(queue, embeds);
  for (let i = 0; i < count; i++) sequence.tokens.push(NO_TOKEN);
  cache.advance(count);
  cache.seal(cache.cached);
  try {
    await Promise.all([before, encoded, settle(queue.synchronize())]);
    return count;
  } catch (error) {
    await takeError(queue);
    sequence.tokens.splice(start, count);
    cache.seal(sealed);
    sequence.cut(start);
    throw error;
  }
}
