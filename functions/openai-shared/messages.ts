import type { ToolCall } from '@pie/inferlet';
import { RequestError } from './request.ts';
import { TEXT_PARAMETER } from './tools.ts';

/** A part of a message's content. */
export interface ContentPart {
  readonly type: string;
  readonly text?: string;
  /** The text of a refusal. */
  readonly refusal?: string;
}

const TEXT_PARTS: readonly string[] = ['text', 'input_text', 'output_text', 'refusal'];

/** The text of a message's content. `at` is its place in the request. */
export function textOf(content: string | readonly ContentPart[] | null | undefined, at: string): string {
  if (typeof content === 'string') return content;
  return (content ?? [])
    .map(({ type, text, refusal }, i) => {
      const value = type === 'refusal' ? refusal : text;
      if (TEXT_PARTS.includes(type) && typeof value === 'string') return value;
      const problem = TEXT_PARTS.includes(type)
        ? `${at}[${i}] has no text.`
        : `${at}[${i}] has the type "${type}", but only text is understood here.`;
      throw new RequestError(problem, `${at}[${i}].type`);
    })
    .join('');
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
