import {
  type AbortSignalLike,
  type ChatMessage,
  fetch,
  ImageError,
  type ImagePart,
  InferletError,
  type InferletErrorCode,
  type MixedMessage,
  map,
  models,
  supports,
  type TextPart,
  withTimeout,
} from '@pie/inferlet';
import { RequestError } from './request.ts';

/** An image of a request that is not loaded yet. */
export interface RequestedImage {
  readonly type: 'image';
  /** Place of the image in the request: `messages[0].content[1]`. */
  readonly at: string;
  /** Type of the item at this place, as the client wrote it: `image_url`. */
  readonly itemType: string;
  /** Place of the data or of the address: `messages[0].content[1].image_url.url`. */
  readonly param: string;
  readonly source: ImageSource;
  /** What a client can send instead of an image that this function refuses; a data URL by default. */
  readonly remedy?: string;
}

/** What a client sends in place of an image's bytes. Strings may be missing: only images of models that take them are checked. */
export type ImageSource =
  | { readonly kind: 'url'; readonly url: string | undefined }
  | { readonly kind: 'base64'; readonly mediaType: string | undefined; readonly data: string | undefined }
  /** A source that the platform does not serve, with what helps. */
  | { readonly kind: 'unserved'; readonly remedy: string };

/** A text, or texts and images in their order. */
export type RequestContent = string | readonly (TextPart | RequestedImage)[];

/** A message of a request in the form of chat templates. */
export interface RequestMessage extends Omit<ChatMessage, 'content'> {
  readonly content: RequestContent;
}

/** The image of a loaded message, with its place in the request. */
interface LoadedImage extends ImagePart {
  readonly param: string;
}

/** Maximum images of a request. */
const MAX_IMAGES = 32;
/** Maximum bytes of one image; the platform's own limit on images. */
const MAX_IMAGE_BYTES = 8 * 1024 * 1024;
/** Maximum bytes of all images of a request: the memory of the inferlet holds them at the same time. */
const MAX_BYTES = 16 * 1024 * 1024;
/** Time limit for one image of another host. */
const FETCH_MS = 15_000;
/** Images that are loaded at the same time. */
const LOADED_AT_ONCE = 8;
/** Time limit for all images of a request. */
const LOAD_MS = 45_000;
/** Maximum characters of a data URL before its data. */
const MAX_DATA_HEAD = 256;
/** Media types that the platform decodes. */
const MEDIA_TYPES: readonly string[] = ['image/png', 'image/jpeg', 'image/jpg'];
const AS_DATA_URL = 'send a PNG or JPEG as a data URL (data:image/png;base64,…)';

/** Joins texts, with `between` in the middle, up to the next image. Empty texts are left out. */
export function joined(parts: readonly (string | RequestedImage)[], between: string): RequestContent {
  const content: (TextPart | RequestedImage)[] = [];
  for (const part of parts) {
    if (part === '') continue;
    const last = content.at(-1);
    if (typeof part !== 'string') content.push(part);
    else if (last?.type === 'text') content[content.length - 1] = { type: 'text', text: last.text + between + part };
    else content.push({ type: 'text', text: part });
  }
  const [first] = content;
  if (first === undefined) return '';
  return content.length === 1 && first.type === 'text' ? first.text : content;
}

/** The texts and images of a content, for {@link joined}. */
export const partsOf = (content: RequestContent): (string | RequestedImage)[] =>
  typeof content === 'string' ? [content] : content.map((part) => (part.type === 'text' ? part.text : part));

/**
 * Loads the images of a conversation: those of data URLs, and those of the hosts that the operator allows.
 *
 * @throws RequestError for an image that cannot be loaded, and for any image if the model takes none
 */
export async function loadImages(model: string, messages: readonly RequestMessage[]): Promise<readonly MixedMessage[]> {
  const images = messages.flatMap(({ content }) => (typeof content === 'string' ? [] : content)).filter(isImage);
  const [first] = images;
  if (first === undefined) return messages as readonly MixedMessage[];
  if (!supports(model, 'input-image')) throw blind(model, first);
  if (images.length > MAX_IMAGES)
    throw new RequestError(`The request has ${images.length} images; ${MAX_IMAGES} are allowed.`, first.at);
  const loaded = await contentsOf(images);
  return messages.map(({ content, ...message }) => ({
    ...message,
    content:
      typeof content === 'string'
        ? content
        : content.map((part): TextPart | LoadedImage =>
            isImage(part) ? { type: 'image', image: loaded.get(part) ?? new Uint8Array(), param: part.param } : part,
          ),
  }));
}

/** The bytes of each image. A conversation may show the same image in several turns: it is loaded once. */
async function contentsOf(images: readonly RequestedImage[]): Promise<ReadonlyMap<RequestedImage, Uint8Array>> {
  /** The images that show the same, by their address or data. */
  const alike = new Map<string, [RequestedImage, ...RequestedImage[]]>();
  for (const image of images) {
    const text = textOfSource(image);
    const key = image.source.kind === 'base64' ? `${image.source.mediaType};${text}` : text;
    const others = alike.get(key);
    if (others) others.push(image);
    else alike.set(key, [image]);
  }
  const room = new ImageRoom();
  const loading = withTimeout(LOAD_MS, (signal) =>
    map([...alike.values()], ([first], each) => contentOf(first, textOfSource(first), room, each), {
      concurrency: LOADED_AT_ONCE,
      signal,
    }),
  );
  const contents = await loading.catch((error: unknown) => {
    if (!(error instanceof InferletError) || error.code !== 'deadline-exceeded') throw error;
    throw new RequestError(
      `The images did not load within ${LOAD_MS / 1000} s: ${AS_DATA_URL}.`,
      images[0]?.at ?? null,
    );
  });
  return new Map([...alike.values()].flatMap((same, i) => same.map((image) => [image, contents[i] as Uint8Array])));
}

/** Room in the inferlet's memory for the images of a request. */
class ImageRoom {
  #left = MAX_BYTES;

  /** @throws RequestError if the images have too many bytes */
  take(bytes: number, { at }: RequestedImage): void {
    this.#left -= bytes;
    if (this.#left < 0)
      throw new RequestError(`The images up to ${at} have more than ${MAX_BYTES} bytes: send smaller images.`, at);
  }
}

const isImage = (part: TextPart | RequestedImage): part is RequestedImage => part.type === 'image';

/** The refusal of an image that cannot be read; any other error as it is. */
export function refusedImage(error: unknown): unknown {
  if (!(error instanceof ImageError)) return error;
  const { param } = error.part as Partial<LoadedImage>;
  return new RequestError(`${param ?? 'An image'} cannot be read: ${error.message}.`, param ?? null);
}

/** The refusal of an image for a model that takes none. */
function blind(model: string, { at, itemType }: RequestedImage): RequestError {
  const seeing = models().flatMap(({ name, traits }) => (traits.includes('input-image') ? [name] : []));
  const remedy =
    seeing.length === 0
      ? 'and no other model here does. Describe the image as text'
      : `so use ${seeing.slice(0, 8).join(', ')}, or describe the image as text`;
  return new RequestError(
    `${at} has the type "${itemType}", but ${model} has no image encoder, ${remedy}.`,
    `${at}.type`,
  );
}

/** The address of an image, or its data. */
function textOfSource({ at, itemType, param, source, remedy = AS_DATA_URL }: RequestedImage): string {
  if (source.kind === 'unserved')
    throw new RequestError(`${at} has the type "${itemType}", but ${source.remedy}.`, param);
  const text = source.kind === 'url' ? source.url : source.data;
  if (typeof text === 'string') return text;
  throw new RequestError(`${param} ${text === undefined ? 'is missing' : 'must be a text'}: ${remedy}.`, param);
}

/** The bytes of an image. @param text the result of {@link textOfSource} */
async function contentOf(
  image: RequestedImage,
  text: string,
  room: ImageRoom,
  signal: AbortSignalLike,
): Promise<Uint8Array> {
  const { source, param, remedy = AS_DATA_URL } = image;
  if (source.kind === 'base64') return decoded(image, source.mediaType ?? '', text, room);
  if (/^https:/i.test(text)) return fetched(image, text, room, signal);
  if (!/^data:/i.test(text)) {
    const shown = text.length > 80 ? `${text.slice(0, 80)}…` : text;
    throw new RequestError(`${param} is "${shown}", which is no https or data URL: ${remedy}.`, param);
  }
  const comma = text.indexOf(',');
  const head = text.slice('data:'.length, Math.max(0, comma));
  const [mediaType = '', ...parameters] = head.slice(0, MAX_DATA_HEAD).split(';');
  const isBase64 = parameters.some((parameter) => parameter.trim().toLowerCase() === 'base64');
  if (comma < 0 || head.length > MAX_DATA_HEAD || !isBase64)
    throw new RequestError(`${param} is a data URL without base64 data: ${remedy}.`, param);
  return decoded(image, mediaType, unescaped(text.slice(comma + 1)), room);
}

/**
 * The data of a data URL. As in any URL, characters may be percent escapes: some clients write `+`, `/` and `=` so. Empty if escapes are no text: no
 * base64 has these. The engine decodes, because a string for each of a million escapes would not fit into the memory of the inferlet.
 */
function unescaped(data: string): string {
  if (!data.includes('%')) return data;
  try {
    return decodeURIComponent(data);
  } catch {
    return '';
  }
}

/** Decodes base64, with or without padding; white space is passed over. */
function decoded(image: RequestedImage, mediaType: string, data: string, room: ImageRoom): Uint8Array {
  const { param, remedy = AS_DATA_URL } = image;
  if (!MEDIA_TYPES.includes(mediaType.trim().toLowerCase()))
    throw new RequestError(`${param} has the media type "${mediaType.slice(0, 80)}": ${remedy}.`, param);
  if ((data.length / 4) * 3 > MAX_IMAGE_BYTES + 3) throw tooLarge(param);
  const bytes = bytesIn(data);
  if (bytes.length === 0) throw new RequestError(`${param} has no image in base64: ${remedy}.`, param);
  room.take(bytes.length, image);
  return bytes;
}

/** The bytes of base64, by the engine's own decoder: code of the guest would take seconds for a megabyte. Empty if the text is not base64. */
function bytesIn(text: string): Uint8Array {
  try {
    return Uint8Array.fromBase64(text);
  } catch {
    return new Uint8Array();
  }
}

/** Codes of a request to another host that fails because of this host, or because it is not allowed. */
const HOST_FAULTS: readonly InferletErrorCode[] = [
  'unsupported',
  'unavailable',
  'invalid-argument',
  'limit-exceeded',
  'deadline-exceeded',
];

/** Reads an image from another host. The runtime allows the hosts in `[http] image_hosts` of `pie.toml` only, also for redirects. */
async function fetched(
  image: RequestedImage,
  url: string,
  room: ImageRoom,
  outer: AbortSignalLike,
): Promise<Uint8Array> {
  const { param, remedy = AS_DATA_URL } = image;
  const fail = (why: string) => new RequestError(`${param} cannot be loaded: ${why}. Otherwise, ${remedy}.`, param);
  try {
    const load = async (signal: AbortSignalLike) => {
      using response = await fetch(url, { headers: { accept: 'image/png, image/jpeg' }, timeoutMs: FETCH_MS, signal });
      if (response.status !== 200) throw fail(`the host answered with the status ${response.status}`);
      const pieces: Uint8Array[] = [];
      let length = 0;
      for await (const piece of response) {
        length += piece.length;
        if (length > MAX_IMAGE_BYTES) throw tooLarge(param);
        room.take(piece.length, image);
        pieces.push(piece);
      }
      const content = new Uint8Array(length);
      let at = 0;
      for (const piece of pieces) {
        content.set(piece, at);
        at += piece.length;
      }
      return content;
    };
    return await withTimeout(FETCH_MS, load, { signal: outer });
  } catch (error) {
    if (error instanceof InferletError && HOST_FAULTS.includes(error.code))
      throw fail(error.message.replace(/\.$/, ''));
    throw error;
  }
}

const tooLarge = (param: string): RequestError =>
  new RequestError(`${param} is an image of more than ${MAX_IMAGE_BYTES} bytes: make it smaller.`, param);
