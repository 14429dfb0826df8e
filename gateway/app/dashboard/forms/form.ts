import { exact } from '../html/format.ts';
import { type Html, html, NONE } from '../html/html.ts';
import { notice } from '../html/parts.ts';
import { type Field, textOf } from './fields.ts';
import { FIELD_PREFIX, type Filled } from './filled.ts';

/**
 * The fields of a form, each with its label, its description and its fault. A fault that belongs to no field comes first. When `fields` is null or
 * the user chose JSON, one field for the whole value as JSON replaces them.
 *
 * @param name label of that JSON field
 */
export function formFields(fields: readonly Field[] | null, filled: Filled, name: string): Html {
  const { mode, texts, fault } = filled;
  if (fields === null || mode === 'json')
    return html`<input type="hidden" name="mode" value="json"><div class="fields"><div><label for="json">${name} (JSON)</label>
<textarea id="json" name="json" rows="10" spellcheck="false" class="mono"${fault === undefined ? NONE : html`${INVALID} aria-describedby="json-fault"`}>\n${textOf(texts, 'json')}</textarea>${faultText(fault?.message, 'json')}</div></div>`;
  const isGeneral = fault !== undefined && !fields.some((field) => field.name === fault.field);
  return html`<input type="hidden" name="mode" value="form">${isGeneral ? notice('bad', fault.message) : NONE}<div class="fields">${fields.map((field) => labelledField(field, textOf(texts, field.name), fault))}</div>`;
}

function labelledField(field: Field, text: string, fault: Filled['fault']): Html {
  const { name, required, description } = field;
  const id = `${FIELD_PREFIX}${name}`;
  const message = fault?.field === name ? fault.message : undefined;
  const hint = [description, limits(field)].filter((part) => part !== '').join('. ');
  const notes = [...(hint === '' ? [] : [`${id}-hint`]), ...(message === undefined ? [] : [`${id}-fault`])];
  const about = html`id="${id}" name="${id}"${notes.length > 0 ? html` aria-describedby="${notes.join(' ')}"` : NONE}${message === undefined ? NONE : INVALID}`;
  return html`<div><label for="${id}">${name}${required ? html` <small>required</small>` : NONE}</label>
${control(field, about, text)}${hint === '' ? NONE : html`<small id="${id}-hint">${hint}</small>`}${faultText(message, id)}</div>`;
}

/** @param about attributes of the control */
function control({ kind, required, choices, minimum, maximum, isInteger }: Field, about: Html, text: string): Html {
  const option = (value: string, label: string) =>
    html`<option value="${value}"${value === text ? html` selected` : NONE}>${label}</option>`;
  // The user must choose: no option is selected in advance.
  const emptyOption = option('', required ? 'Choose…' : '–');
  const requiredAttribute = required ? html` required` : NONE;
  switch (kind) {
    case 'choice':
      return html`<select ${about}${requiredAttribute}>${emptyOption}${choices.map((choice) => option(choice, wordOf(choice)))}</select>`;
    case 'flag':
      return html`<select ${about}${requiredAttribute}>${emptyOption}${option('true', 'yes')}${option('false', 'no')}</select>`;
    case 'number':
      return html`<input type="number" ${about} step="${isInteger ? '1' : 'any'}"${minimum === undefined ? NONE : html` min="${minimum}"`}${maximum === undefined ? NONE : html` max="${maximum}"`}${requiredAttribute} value="${text}">`;
    case 'text':
      return html`<textarea ${about} rows="2">\n${text}</textarea>`;
    case 'json':
      return html`<textarea ${about} rows="2" class="mono" spellcheck="false"${requiredAttribute}>\n${text}</textarea>`;
  }
  return kind satisfies never;
}

/** Bounds and default, in words. */
function limits({ kind, minimum, maximum, fallback }: Field): string {
  const parts: string[] = [];
  if (kind === 'json') parts.push('JSON');
  if (minimum !== undefined && maximum !== undefined) parts.push(`${exact(minimum)} to ${exact(maximum)}`);
  else if (minimum !== undefined) parts.push(`at least ${exact(minimum)}`);
  else if (maximum !== undefined) parts.push(`at most ${exact(maximum)}`);
  // An empty text as the default would show as a pair of quotation marks.
  if (fallback !== '' && fallback !== '""') parts.push(`default ${fallback}`);
  const text = parts.join(', ');
  return text.charAt(0).toUpperCase() + text.slice(1);
}

const INVALID = html` aria-invalid="true"`;

const faultText = (message: string | undefined, id: string): Html =>
  message === undefined ? NONE : html`<small id="${id}-fault" class="fault">${message}</small>`;

/** The label of a choice, from its JSON text. */
function wordOf(json: string): string {
  const value: unknown = JSON.parse(json);
  return typeof value === 'string' ? value : json;
}
