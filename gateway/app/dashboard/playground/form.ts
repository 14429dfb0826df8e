import { duration, number } from '../html/format.ts';
import { type Html, html, NONE } from '../html/html.ts';
import { type Field, type Texts, textOf } from './fields.ts';

/** A form as its reader left it. */
export interface Filled {
  /** `json`: the one text field `input` holds the whole input. */
  readonly mode: 'form' | 'json';
  readonly texts: Texts;
  /** The fault of the form, and the field that it concerns. */
  readonly fault?: { readonly message: string; readonly field?: string };
}

/** Prefix of the names of form fields, so that no property takes the name of another field of the form. */
export const FIELD_PREFIX = 'field.';

/** The fields of a form, each with its label, its description and its fault. */
export function fieldList(fields: readonly Field[], { texts, fault }: Filled): Html {
  return html`<div class="fields">${fields.map((field) => shown(field, textOf(texts, field.name), fault))}</div>`;
}

/** The whole input as JSON text. */
export function jsonField({ texts, fault }: Filled): Html {
  return html`<div class="fields"><div><label for="input">Input (JSON)</label>
<textarea id="input" name="input" rows="10" spellcheck="false" class="mono"${problem(fault !== undefined, 'input')}>${texts.input ?? ''}</textarea>${faultText(fault?.message, 'input')}</div></div>`;
}

function shown(field: Field, text: string, fault: Filled['fault']): Html {
  const { name, required, description } = field;
  const id = `${FIELD_PREFIX}${name}`;
  const message = fault?.field === name ? fault.message : undefined;
  const hint = [description, limits(field)].filter((part) => part !== '').join('. ');
  return html`<div><label for="${id}">${name}${required ? html` <small>required</small>` : NONE}</label>
${control(field, id, text, message !== undefined)}${hint === '' ? NONE : html`<small id="${id}-hint">${hint}</small>`}${faultText(message, id)}</div>`;
}

function control(
  { name, kind, required, choices, fallback, minimum, maximum, whole, ...field }: Field,
  id: string,
  text: string,
  isBad: boolean,
): Html {
  const hinted = field.description !== '' || minimum !== undefined || maximum !== undefined || fallback !== '';
  const about = html`id="${id}" name="${id}"${hinted ? html` aria-describedby="${id}-hint"` : NONE}${problem(isBad, id)}`;
  const option = (value: string, label: string) =>
    html`<option value="${value}"${value === text ? html` selected` : NONE}>${label}</option>`;
  switch (kind) {
    case 'choice':
      return html`<select ${about}>${required ? NONE : option('', '–')}${choices.map((choice) => option(choice, wordOf(choice)))}</select>`;
    case 'flag':
      return html`<select ${about}>${option('', '–')}${option('true', 'yes')}${option('false', 'no')}</select>`;
    case 'number':
      return html`<input type="number" ${about} step="${whole ? '1' : 'any'}"${minimum === undefined ? NONE : html` min="${minimum}"`}${maximum === undefined ? NONE : html` max="${maximum}"`}${required ? html` required` : NONE} value="${text}">`;
    case 'text':
      return html`<textarea ${about} rows="2">${text}</textarea>`;
    case 'json':
      return html`<textarea ${about} rows="2" class="mono" spellcheck="false"${required ? html` required` : NONE}>${text}</textarea>`;
  }
  return kind satisfies never;
}

/** Bounds and default, in words. */
function limits({ kind, minimum, maximum, fallback }: Field): string {
  const parts = [
    ...(kind === 'json' ? ['JSON'] : []),
    ...(minimum !== undefined && maximum !== undefined
      ? [`${number(minimum)} to ${number(maximum)}`]
      : minimum !== undefined
        ? [`at least ${number(minimum)}`]
        : maximum !== undefined
          ? [`at most ${number(maximum)}`]
          : []),
    // Without a text, the hint would end with a pair of quotation marks.
    ...(fallback === '' || fallback === '""' ? [] : [`default ${fallback}`]),
  ];
  const text = parts.join(', ');
  return text.charAt(0).toUpperCase() + text.slice(1);
}

const problem = (isBad: boolean, id: string): Html =>
  isBad ? html` aria-invalid="true" aria-errormessage="${id}-fault"` : NONE;

const faultText = (message: string | undefined, id: string): Html =>
  message === undefined ? NONE : html`<small id="${id}-fault" class="fault">${message}</small>`;

/** A choice's JSON text for people. */
function wordOf(json: string): string {
  const value: unknown = JSON.parse(json);
  return typeof value === 'string' ? value : json;
}

/** Tokens, device time and duration of a run. */
export function usageTiles(
  usage: Readonly<Record<string, unknown>> | undefined,
  ranMs: number | null,
): readonly (readonly [name: string, value: string])[] {
  const amount = (name: string) => (typeof usage?.[name] === 'number' ? Number(usage[name]) : 0);
  return [
    ['Input tokens', number(amount('inputTokens'))],
    ['Output tokens', number(amount('outputTokens'))],
    ['Device time', duration(amount('gpuMs'))],
    ['Duration', ranMs === null ? '–' : duration(ranMs)],
  ];
}
