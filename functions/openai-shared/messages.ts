import type { ToolCall } from '@pie/inferlet';
import { joined, type RequestContent, type RequestedImage } from './images.ts';
import { RequestError } from './request.ts';
import { TEXT_PARAMETER } from './tools.ts';

/** A part of a message's content. */
export interface ContentPart {
  readonly type: string;
  readonly text?: string;
  /** The text of a refusal. */
  readonly refusal?: string;
  /** The address of an image: of `image_url` in the chat API, of `input_image` in the responses API. */
  readonly image_url?: string | { readonly url?: string };
  /** An image or a file by its id. */
  readonly file_id?: string;
}

const TEXT_PARTS: readonly string[] = ['text', 'input_text', 'output_text', 'refusal'];
const IMAGE_PARTS: readonly string[] = ['image_url', 'input_image'];

/** The content of a message. `at` is its place in the request. Only the assistant's messages have no images. */
export function contentOf(
  content: string | readonly ContentPart[] | null | undefined,
  at: string,
  role?: string,
): RequestContent {
  if (typeof content === 'string') return content;
  const parts: unknown = content ?? [];
  // The schema of a route's input does not describe each content.
  if (!Array.isArray(parts) || parts.some((part) => typeof part !== 'object' || part === null))
    throw new RequestError(`${at} must be a text or a list of parts, each an object with a type.`, at);
  return joined(
    (parts as ContentPart[]).map((part, i) => partOf(part, `${at}[${i}]`, role)),
    '',
  );
}

function partOf(part: ContentPart, at: string, role: string | undefined): string | RequestedImage {
  const { type } = part;
  if (IMAGE_PARTS.includes(type) && role !== 'assistant') return imageOf(part, at);
  const value = type === 'refusal' ? part.refusal : part.text;
  if (TEXT_PARTS.includes(type) && typeof value === 'string') return value;
  const understood =
    role === 'assistant' ? 'only text is understood here' : 'only texts and images are understood here';
  const problem = TEXT_PARTS.includes(type) ? `${at} has no text.` : `${at} has the type "${type}", but ${understood}.`;
  throw new RequestError(problem, `${at}.type`);
}

/** An image. The chat API writes `{url, detail}`, the responses API a text; clients are served that mix them. `detail` has no effect. */
function imageOf({ type: itemType, image_url: address, file_id }: ContentPart, at: string): RequestedImage {
  const isText = typeof address === 'string' || (address === undefined && itemType === 'input_image');
  const url = typeof address === 'object' ? address.url : address;
  const image = { type: 'image', at, itemType } as const;
  if (url === undefined && file_id !== undefined) {
    const remedy = 'files are not stored here: send the image in `image_url`, as a data URL';
    return { ...image, param: `${at}.file_id`, source: { kind: 'unserved', remedy } };
  }
  return { ...image, param: isText ? `${at}.image_url` : `${at}.image_url.url`, source: { kind: 'url', url } };
}

/** A call of an earlier turn. `arguments` is JSON; a custom tool has a text `input` instead. */
export interface EarlierCall {
  readonly id: string;
  readonly name: string;
  readonly arguments: string | { readonly [TEXT_PARAMETER]: string };
}

/** Converts a call of an earlier turn to the form of chat templates: arguments that are a JSON object become an object. */
export function toolCallOf({ id, name, arguments: given }: EarlierCall): ToolCall {
  return {
    id: templateCallId(id),
    type: 'function',
    function: { name, arguments: typeof given === 'string' ? objectIn(given) : given },
  };
}

/**
 * The id of a call for a chat template. The templates of Mistral's models refuse ids other than nine letters and digits, so any other id becomes nine
 * characters of its hash (FNV-1a). A call and its result keep equal ids.
 */
export function templateCallId(id: string): string {
  if (/^[A-Za-z0-9]{9}$/.test(id)) return id;
  const hash = (seed: number) => {
    let value = seed;
    for (const character of id) value = Math.imul(value ^ (character.codePointAt(0) ?? 0), 0x01000193) >>> 0;
    return value.toString(36).padStart(7, '0');
  };
  return hash(0x811c9dc5).slice(-5) + hash(0x9747b28c).slice(-4);
}

function objectIn(text: string): string | Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : text;
  } catch {
    return text;
  }
}
