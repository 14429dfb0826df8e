import { InferletError } from '../errors.ts';
import { allocate, attempt, inputImage, settle } from '../raw.ts';
import { type ChatOptions, chatPieces, type ImagePart, type MixedMessage, tokensIn } from './chat.ts';
import { type Context, sequenceOf } from './context.ts';
import { range } from './pages.ts';
import { checkRoom, NO_TOKEN, type Sequence, takeError } from './sequence.ts';

/** An image of a chat that cannot be read: the code is `invalid-argument`. */
export class ImageError extends InferletError {
  /** The image, as the message has it. */
  readonly part: ImagePart;

  constructor(message: string, part: ImagePart) {
    super('invalid-argument', message);
    this.part = part;
  }
}

/** A chat with images, rendered but not computed. */
export interface PreparedChat {
  /** Number of tokens, the embeds of the images included. */
  readonly length: number;
  /** The tokens behind the last image; all of them if there is none. */
  readonly tail: readonly number[];
  /**
   * Sets the context to the chat, ready for the assistant's answer, and computes it up to the last image. The context may have text, of which the
   * common prefix is not computed again, but no image. When the call fails, the context has a part of the chat: release it.
   *
   * @throws ImageError for an image that is damaged
   */
  fill(): Promise<void>;
}

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
  const { queue, cache } = sequence;
  const count = embedsOf(sequence, image);
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

/**
 * Renders a chat whose messages may have images, with the model's chat template, and checks that it fits the model. Computes nothing. Throws
 * `unsupported` for a model without a template or, if there are images, without the trait input-image, `context-overflow` for a chat that is too
 * long, and {@link ImageError} for data that are no PNG or JPEG, or too large.
 *
 * @example
 * const chat = prepareChat(ctx, [{ role: 'user', content: [{ type: 'image', image }, { type: 'text', text: 'What is this?' }] }]);
 * await chat.fill();
 * const { text } = await ctx.generate({ maxTokens: 64 }).collect();
 */
export function prepareChat(
  context: Context,
  messages: readonly MixedMessage[],
  options: ChatOptions = {},
): PreparedChat {
  const sequence = sequenceOf(context);
  const pieces = chatPieces(context.model.name, messages, options);
  const lengths = pieces.map((piece) =>
    'type' in piece ? naming(piece, () => embedsOf(sequence, piece.image)) : piece.length,
  );
  const length = lengths.reduce((sum, each) => sum + each, 0);
  checkRoom(context.model, 0, length);
  return {
    length,
    tail: pieces.slice(pieces.findLastIndex((piece) => 'type' in piece) + 1).flatMap(tokensIn),
    fill: async () => {
      const firstImage = pieces.findIndex((piece) => 'type' in piece);
      const [before, after] = firstImage < 0 ? [pieces, []] : [pieces.slice(0, firstImage), pieces.slice(firstImage)];
      sequenceOf(context).replace(before.flatMap(tokensIn));
      for (const piece of after) {
        if ('type' in piece) await fillImage(context, piece.image).catch((error) => renamed(error, piece));
        else sequenceOf(context).append(piece);
      }
    },
  };
}

/** Number of embeds of an image. */
function embedsOf({ model, queue }: Sequence, image: Uint8Array): number {
  if (!model.traits.includes('input-image')) {
    throw new InferletError('unsupported', `${model.name} takes no images (trait input-image).`);
  }
  return attempt(() => inputImage.imageEmbeds(queue, inputImage.imageDimensions(image)));
}

/** Runs `read`, and throws the fault of an image with its part of the chat. */
function naming<T>(part: ImagePart, read: () => T): T {
  try {
    return read();
  } catch (error) {
    return renamed(error, part);
  }
}

function renamed(error: unknown, part: ImagePart): never {
  const { code, message } = InferletError.from(error);
  throw code === 'invalid-argument' ? new ImageError(message, part) : error;
}
