import { type HeldInvocation, MAX_ANSWER_BYTES } from '../../control.ts';
import { GatewayError } from '../../errors/gateway-error.ts';
import type { Question } from '../../schemas/invocations.ts';
import { type Field, FieldFault, fieldsOf } from '../forms/fields.ts';
import { type Filled, filledOf, givenValue, type Refused, refused } from '../forms/filled.ts';
import { formFields } from '../forms/form.ts';
import { bytes, jsonText, moment } from '../html/format.ts';
import { type Html, html, NONE } from '../html/html.ts';
import { notice, tokenField } from '../html/parts.ts';
import { demand, may, unknownInvocation, type Visit } from '../page.ts';

/** Maximum bytes of the form. Its encoding takes at most three bytes for each byte of the answer; 16 KiB are for the token and the field names. */
export const MAX_ANSWER_FORM_BYTES = 3 * MAX_ANSWER_BYTES + 16 * 1024;

/** Name of the only form field for an answer whose schema is not an object. */
const WHOLE = 'answer';

/** The form fields of an answer. `fields` is null when its schema fits no form. `isWhole`: the answer is the value of the only field, `WHOLE`. */
function answerFields(schema: Question['schema']): {
  readonly fields: readonly Field[] | null;
  readonly isWhole: boolean;
} {
  const fields = fieldsOf(schema);
  if (fields !== null) return { fields, isWhole: false };
  const wholeFields = fieldsOf({ type: 'object', properties: { [WHOLE]: schema }, required: [WHOLE] });
  return wholeFields?.[0]?.kind === 'json' ? { fields: null, isWhole: false } : { fields: wholeFields, isWhole: true };
}

/** An open question with the form for its answer. The dashboard's script does not replace the form until the question is over. */
export function questionCard(visit: Visit, { id, question }: HeldInvocation, refusedForm: Refused | undefined): Html {
  if (question === undefined) return NONE;
  const { number, text, schema, until } = question;
  const { fields } = answerFields(schema);
  const page = addressOf(id);
  const chosenMode = visit.url.searchParams.get('as') === 'json' ? 'json' : 'form';
  const filled: Filled = refusedForm ?? { mode: chosenMode, texts: {} };
  const asJson = fields === null || filled.mode === 'json';
  const otherModeLink = asJson
    ? html`<a href="${page}#question">As a form</a>`
    : html`<a href="${page}?as=json#question">As JSON</a>`;
  const form = html`<form method="post" action="${page}">${tokenField(visit.formToken)}<input type="hidden" name="question" value="${number}">
${formFields(fields, filled, 'Answer')}${asJson ? html`<details><summary>Schema of the answer</summary><pre class="console" tabindex="0" role="region" aria-label="Schema of the answer">${jsonText(schema)}</pre></details>` : NONE}
<div class="actions"><button class="primary">Answer</button>${fields === null ? NONE : otherModeLink}</div></form>`;
  return html`<div data-key="question-${number}"><div class="card-head"><h2>It asks a person</h2><span class="muted">It waits until ${moment(until, visit.now)}</span></div>
<p class="notice bad" role="alert" data-over hidden>This question is over: it was answered, or its time has passed. Copy what you typed, and load the page again.</p>
<pre class="console output fitted" tabindex="0" role="region" aria-label="Question">${text}</pre>
${may(visit, 'invoke') ? form : html`<p class="muted">Your key lacks the scope "invoke".</p>`}</div>`;
}

/** The notice that an answer came too late, with the texts that the reader had entered. */
export function lateNotice({ texts, fault }: Refused): Html {
  const enteredTexts = Object.entries(texts).filter(([, text]) => text !== '');
  return html`${notice('bad', fault.message)}<div class="card section"><h2>You had entered</h2>${enteredTexts.map(
    ([name, text]) =>
      html`<h3>${name}</h3><pre class="console fitted" tabindex="0" role="region" aria-label="${name}">${text}</pre>`,
  )}</div>`;
}

/** Answers the question with the value in the form. Returns the address to redirect to, or the form with the reason of its refusal. */
export async function answerQuestion(visit: Visit, id: string, form: URLSearchParams): Promise<string | Refused> {
  demand(visit, 'invoke');
  const { control, call } = visit;
  const number = Number(form.get('question'));
  if (!Number.isSafeInteger(number) || number < 1)
    throw new GatewayError('invalid-input', 'The form does not name its question.', {
      hint: 'Go back, reload the page and try again.',
    });
  const filled = filledOf(form);
  const state = await control.invocation(call, id);
  if (state === null) throw unknownInvocation(id);
  // The invocation now asks another question, whose schema says nothing about this answer, or none.
  if (state.question?.number !== number) return refused(filled, questionOver(number));
  const { fields, isWhole } = answerFields(state.question.schema);
  try {
    const entered = givenValue(fields, filled);
    const isInWhole = isWhole && filled.mode === 'form';
    const value = isInWhole ? wholeOf(entered.value) : entered.value;
    const exact = isInWhole ? wholeOf(entered.exact) : entered.exact;
    const text = JSON.stringify(exact);
    if (new TextEncoder().encode(text).length > MAX_ANSWER_BYTES)
      throw new GatewayError('body-too-large', `The answer has more than ${bytes(MAX_ANSWER_BYTES)} of JSON.`);
    if ((await control.answer(call, id, { text, value, question: number })) === null) throw unknownInvocation(id);
    return `${addressOf(id)}?done=answered`;
  } catch (error) {
    if (error instanceof GatewayError && error.code === 'not-waiting') return refused(filled, questionOver(number));
    const refusedForm = refused(filled, error);
    return isWhole ? { ...refusedForm, fault: { ...refusedForm.fault, field: WHOLE } } : refusedForm;
  }
}

/** Takes the answer out of the form's only field `WHOLE`. */
function wholeOf(formValue: unknown): unknown {
  const value = (formValue as Readonly<Record<string, unknown>>)[WHOLE];
  if (value === undefined) throw new FieldFault(WHOLE, 'must not be empty');
  return value;
}

function questionOver(number: number): GatewayError {
  const why = 'it was answered already, or its time has passed';
  return new GatewayError('not-waiting', `Question ${number} is over: ${why}. Your answer was not stored.`, {
    hint: 'The page of the invocation shows its current question.',
  });
}

const addressOf = (id: string): string => `/dashboard/invocations/${encodeURIComponent(id)}`;
