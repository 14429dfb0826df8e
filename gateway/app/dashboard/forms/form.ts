import { jsonValue } from '#scheduler/functions/schema/json-value.ts';
import type { ErrorCode } from '../../errors/codes.ts';
import { GatewayError } from '../../errors/gateway-error.ts';
import { assertShape, exactJson, isRounded } from '../../http/json.ts';
import { exact, type Html, html, NONE, notice } from '../html/parts.ts';

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

/** How a field of the form is shown and read. `json` takes any value as JSON text. */
type FieldKind = 'text' | 'number' | 'choice' | 'flag' | 'json';

/** One field of a form, from a property of an input schema. */
export interface Field {
  readonly name: string;
  readonly kind: FieldKind;
  readonly required: boolean;
  readonly description: string;
  /** JSON texts of the values of a choice. */
  readonly choices: readonly string[];
  /** JSON text of the property's default value; empty without a default. */
  readonly fallback: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly isInteger: boolean;
}

/** The texts of a form, by field name. A field without text is left out of the input, unless it is required and of the kind `text`. */
type Texts = Readonly<Record<string, string>>;

/** A text that cannot be read as a value of its field. */
export class FieldFault extends Error {
  override readonly name = 'FieldFault';
  readonly field: string;

  constructor(field: string, message: string) {
    super(message);
    this.field = field;
  }
}

/** Schemas with more properties are edited as JSON. */
const MAX_FIELDS = 40;
/** A property with more values in its `enum` gets the field of its `type` instead of a choice. */
const MAX_CHOICES = 200;

/** The fields for an input schema. Null when no form can describe the input: the page then edits the whole input as JSON. */
export function fieldsOf(schema: unknown): readonly Field[] | null {
  if (!isObject(schema) || schema.type !== 'object' || !isObject(schema.properties)) return null;
  const properties = Object.entries(schema.properties);
  if (properties.length === 0 || properties.length > MAX_FIELDS) return null;
  const required = Array.isArray(schema.required) ? schema.required : [];
  return properties.map(([name, property]) =>
    fieldOf(name, isObject(property) ? property : {}, required.includes(name)),
  );
}

function fieldOf(name: string, property: Record<string, unknown>, required: boolean): Field {
  const { type, description, minimum, maximum } = property;
  const choices = Array.isArray(property.enum) && property.enum.length <= MAX_CHOICES ? property.enum : [];
  return {
    name,
    kind: choices.length > 0 ? 'choice' : kindOf(type),
    required,
    description: typeof description === 'string' ? description : '',
    choices: choices.map((choice) => JSON.stringify(choice)),
    fallback: property.default === undefined ? '' : JSON.stringify(property.default),
    ...(typeof minimum === 'number' && { minimum }),
    ...(typeof maximum === 'number' && { maximum }),
    isInteger: type === 'integer',
  };
}

function kindOf(type: unknown): FieldKind {
  switch (type) {
    case 'string':
      return 'text';
    case 'integer':
    case 'number':
      return 'number';
    case 'boolean':
      return 'flag';
    default:
      return 'json';
  }
}

/** The text of a field. Ignores members that every object inherits. */
const textOf = (texts: Texts, name: string): string => (Object.hasOwn(texts, name) ? (texts[name] ?? '') : '');

/**
 * The input of a filled form. A required text field may be empty.
 *
 * @param parse reads the text of every field that is neither a text nor a number
 * @throws FieldFault
 */
export function inputOf(fields: readonly Field[], texts: Texts, parse = parsedJson): Record<string, unknown> {
  const entries = fields.flatMap((field): [string, unknown][] => {
    const text = textOf(texts, field.name);
    if (text === '' && !(field.required && field.kind === 'text')) return [];
    return [[field.name, parsedValue(field, text, parse)]];
  });
  // Assigning a property with the name `__proto__` would set the prototype; `fromEntries` makes an ordinary property.
  return Object.fromEntries(entries);
}

function parsedValue({ name, kind }: Field, text: string, parse: typeof parsedJson): unknown {
  if (kind === 'text') return text;
  if (kind === 'number') {
    const value = Number(text);
    if (text.trim() === '' || !Number.isFinite(value)) throw new FieldFault(name, 'must be a number');
    if (isRounded(text)) throw new FieldFault(name, 'has more digits than this field keeps: edit the input as JSON');
    return value;
  }
  try {
    return parse(text);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw new FieldFault(name, 'must be JSON: put texts in quotation marks');
  }
}

/** The value of JSON text. Throws `SyntaxError`, and `invalid-input` for a shape out of bounds. */
function parsedJson(text: string): unknown {
  assertShape(new TextEncoder().encode(text), 'The JSON');
  return jsonValue(text);
}

/** The texts with which a filled form yields `input`. Null when no texts do: the page then edits the input as JSON. */
export function textsOf(fields: readonly Field[], input: unknown): Texts | null {
  if (!isObject(input)) return null;
  const texts: Record<string, string> = {};
  for (const { name, kind } of fields) {
    if (!Object.hasOwn(input, name)) continue;
    const value = input[name];
    texts[name] = kind === 'text' && typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
  }
  try {
    return canonical(inputOf(fields, texts)) === canonical(input) ? texts : null;
  } catch (error) {
    if (error instanceof FieldFault) return null;
    throw error;
  }
}

/** The schema's first example; undefined without one. */
export function exampleOf(schema: unknown): unknown {
  if (isObject(schema) && Array.isArray(schema.examples) && schema.examples.length > 0) return schema.examples[0];
  return undefined;
}

/** JSON text that is the same for objects with the same members. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_name, inner: unknown) =>
    isObject(inner) ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1))) : inner,
  );
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Prefix of the form fields that stand for properties. It keeps a property from taking the name of another form field, such as `token`. */
const FIELD_PREFIX = 'field.';

/** A form as the user left it. */
export interface Filled {
  /** `form`: each field has a text. `json`: one text with the name `json` holds the whole value. */
  readonly mode: 'form' | 'json';
  readonly texts: Texts;
  readonly fault?: FormFault;
}

/** The reason why a form was refused. */
interface FormFault {
  readonly code: ErrorCode;
  readonly message: string;
  /** Name of the faulty field; a name that no field has when the fault concerns the whole form. */
  readonly field: string;
}

/** A form that its page shows again with the reason of its refusal. */
export interface Refused extends Filled {
  readonly fault: FormFault;
}

/** Statuses of refusals after which the user may send the form again, changed or later. */
const REPAIRABLE: ReadonlySet<number> = new Set([409, 413, 422, 429, 503]);

/** The texts of a sent form. */
export function filledOf(form: URLSearchParams): Filled {
  if (form.get('mode') === 'json') return { mode: 'json', texts: { json: form.get('json') ?? '' } };
  const texts = [...form].flatMap(([key, text]) =>
    key.startsWith(FIELD_PREFIX) ? [[key.slice(FIELD_PREFIX.length), text.replaceAll('\r\n', '\n')]] : [],
  );
  return { mode: 'form', texts: Object.fromEntries(texts) };
}

/**
 * The value that the user entered, in two forms: `value` for checks, and `exact` (made by `exactJson`, which keeps large numbers as written) for the
 * store. Throws `FieldFault`, and `invalid-input` for JSON whose shape is out of bounds.
 */
export function givenValue(
  fields: readonly Field[] | null,
  { mode, texts }: Filled,
): { readonly value: unknown; readonly exact: unknown } {
  if (mode === 'form') return { value: inputOf(fields ?? [], texts), exact: inputOf(fields ?? [], texts, exactJson) };
  try {
    const json = textOf(texts, 'json');
    return { value: parsedJson(json), exact: exactJson(json) };
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw new FieldFault('json', `This is not JSON: ${error.message}`);
  }
}

/** The form with the error `caught` as the reason of its refusal. Throws the error instead when sending the form again cannot succeed. */
export function refused(filled: Filled, caught: unknown): Refused {
  if (caught instanceof FieldFault) {
    const { field, message } = caught;
    return { ...filled, fault: { code: 'invalid-input', message, field } };
  }
  const error = GatewayError.from(caught);
  if (!REPAIRABLE.has(error.status)) throw error;
  // `error.field` is a JSON pointer into the value. Its first step names a form field.
  const [, field = ''] = (error.field ?? '').split('/');
  return { ...filled, fault: { code: error.code, message: error.message, field } };
}
