import type { ErrorCode } from '../../errors/codes.ts';
import { GatewayError } from '../../errors/gateway-error.ts';
import { exactJson } from '../../http/exact-json.ts';
import { type Field, FieldFault, inputOf, parsedJson, type Texts, textOf } from './fields.ts';

/** Prefix of the form fields that stand for properties. It keeps a property from taking the name of another form field, such as `token`. */
export const FIELD_PREFIX = 'field.';

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
