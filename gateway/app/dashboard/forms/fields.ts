import { jsonValue } from '#scheduler/functions/schema/json-value.ts';
import { isRounded } from '../../http/exact-json.ts';
import { assertShape } from '../../http/json-shape.ts';

/** How a field of the form is shown and read. `json` takes any value as JSON text. */
export type FieldKind = 'text' | 'number' | 'choice' | 'flag' | 'json';

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
export type Texts = Readonly<Record<string, string>>;

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
export const textOf = (texts: Texts, name: string): string => (Object.hasOwn(texts, name) ? (texts[name] ?? '') : '');

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
export function parsedJson(text: string): unknown {
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
